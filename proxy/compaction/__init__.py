"""Short forms of texts that do not fit: outline, passages that bear on a question, and the user's own words."""
