"""The endpoints for clients."""
