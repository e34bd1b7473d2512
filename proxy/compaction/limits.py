"""How much of each kind of content a form keeps, and how it says that something is missing."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """One step of tightness."""

    text: int
    """Characters of a string that stays whole; a longer one is cut to about this."""
    items: int
    """Elements kept of a long array of short strings."""
    numbers: int
    """Elements kept of a long array of numbers."""
    rows: int
    """Records kept of a list of like ones, or lines of a listing."""
    head: int
    """Characters kept of the beginning of a text."""
    identifiers: int
    """Characters of identifiers kept from the part of a text that is dropped."""


STEPS = (
    Limits(text=100, items=80, numbers=40, rows=200, head=240, identifiers=1200),
    Limits(text=60, items=50, numbers=24, rows=120, head=120, identifiers=800),
    Limits(text=40, items=24, numbers=10, rows=60, head=60, identifiers=500),
)
"""From loose to tight: the first whose form is short enough is taken."""

TIGHT = tuple(Limits(text=40, items=rows, numbers=4, rows=rows, head=60, identifiers=0) for rows in (40, 24, 12, 6))
"""Tighter still, for the outline of a text that does not fit the window."""


def gap(count: int, what: str, known: str = "") -> str:
    """The note that stands where something was dropped: `[… 12 lines]`, or `[… 12 rows; sku: A-1 A-2]`."""
    return f"[… {count} {what}; {known}]" if known else f"[… {count} {what}]"
