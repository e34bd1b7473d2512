"""Penstock: a transparent LLM proxy that engineers the context of each request."""

__version__ = "0.1.0"
