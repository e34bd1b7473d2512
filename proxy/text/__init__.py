"""Words, sentences and languages of texts, as data and rules. Pure."""


def counted(count: int, noun: str) -> str:
    """Return a count with its noun: `1 message`, `2 messages`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
