"""Words, sentences and languages of texts, as data and rules. Pure."""

from collections.abc import Callable, Sequence


def well_formed(text: str) -> str:
    """Return a text as UTF-8 can hold it: clients that cut emoji in half send lone surrogates."""
    return text if text.isascii() else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def counted(count: int, noun: str) -> str:
    """Return a count with its noun: `1 message`, `2 messages`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def columns(rows: Sequence[Sequence[str]], align: Callable[[str, int], str] = str.ljust) -> list[str]:
    """Return the lines of a table of text. Cells of its first column stand at the left, others as `align` says."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    cells = ([row[0].ljust(widths[0]), *map(align, row[1:], widths[1:])] for row in rows)
    return ["  ".join(line).rstrip() for line in cells]
