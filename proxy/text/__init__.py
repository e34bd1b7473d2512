"""Words, sentences and languages of texts, as data and rules. Pure."""
