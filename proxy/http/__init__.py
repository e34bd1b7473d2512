"""HTTP: forwarded headers, content codings, and the client that sends requests to upstreams."""
