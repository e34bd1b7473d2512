"""Words, sentences and languages of texts, as data and rules. Pure."""


def well_formed(text: str) -> str:
    """Return a text as UTF-8 can hold it: clients that cut emoji in half send lone surrogates."""
    return text if text.isascii() else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def counted(count: int, noun: str) -> str:
    """Return a count with its noun: `1 message`, `2 messages`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
