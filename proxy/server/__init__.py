"""The server: start, reload, endpoints for operators, shutdown."""
