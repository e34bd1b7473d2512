"""Words, sentences and languages of texts, as data and rules. Pure."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any


def well_formed(text: str) -> str:
    """Return a text as UTF-8 can hold it: clients that cut emoji in half send lone surrogates."""
    return text if text.isascii() else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def counted(count: int, noun: str) -> str:
    """Return a count with its noun: `1 message`, `2 messages`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def figure(value: Any) -> str:
    """Return a JSON value as text for people."""
    if isinstance(value, Mapping):
        is_nested = any(isinstance(each, Mapping) for each in value.values())
        return ("; " if is_nested else ", ").join(f"{name} {figure(each)}" for name, each in value.items()) or "none"
    if isinstance(value, (list, tuple)):
        return ", ".join(map(figure, value))
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:,.6f}".rstrip("0").rstrip(".")
    return "–" if value is None else f"{value:,}" if isinstance(value, int) else str(value)


def columns(rows: Sequence[Sequence[str]], align: Callable[[str, int], str] = str.ljust) -> list[str]:
    """Return the lines of a table of text. Cells of its first column stand at the left, others as `align` says."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    cells = ([row[0].ljust(widths[0]), *map(align, row[1:], widths[1:])] for row in rows)
    return ["  ".join(line).rstrip() for line in cells]
