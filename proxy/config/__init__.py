"""The configuration file: its keys, its checks, and how it is read."""
