"""One request on its way: what becomes of it before it is sent."""
