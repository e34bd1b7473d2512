"""The kinds of upstream."""
