"""Access: API keys and their owners, limits of each key, and the bounds of requests under way."""
