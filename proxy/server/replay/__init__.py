"""Plays conversations through the served path with no upstream, and tells what a chain made of them."""
