"""Small models at work: summaries and judgements."""
