"""Small models of an upstream that write summaries and judge pairs of texts."""
