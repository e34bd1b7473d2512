"""HTTP: which headers travel, and the client that asks upstreams."""
