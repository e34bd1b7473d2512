"""Real clients against the running proxy; see docs/how-to/openai-sdk.md."""
