"""Where history is cut, and what takes the place of what leaves."""
