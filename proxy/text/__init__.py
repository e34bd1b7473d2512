"""Words, sentences and languages of texts, as data and rules. Pure."""


def counted(count: int, what: str) -> str:
    """Return a number of things in words: `1 message`, `2 messages`."""
    return f"{count:,} {what}{'' if count == 1 else 's'}"
