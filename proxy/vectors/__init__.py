"""Vectors of texts: what makes them, and the index that keeps them."""
