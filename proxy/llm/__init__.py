"""Small models at work: summaries, gists and judgements."""
