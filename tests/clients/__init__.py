"""Real clients against the running proxy; see docs/clients.md."""
