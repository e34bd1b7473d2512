"""The server: what is built at start, reloaded, told to operators, and ended."""
