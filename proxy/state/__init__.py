"""State between requests: stores, the archive, counters, decisions, and work that is done once."""
