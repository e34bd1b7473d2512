"""Compact forms of large texts that were read once. Pure functions of the text."""
