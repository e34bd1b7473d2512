"""The policies: one file is one policy is one name in YAML."""
