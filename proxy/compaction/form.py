"""The compact form of a text: which kind of text it is, and the form for that kind."""

from collections.abc import Callable
from dataclasses import dataclass

from proxy.compaction import diffs, html, listings, logs, source, tables
from proxy.compaction.cut_json import cut_off
from proxy.compaction.escapes import unescaped
from proxy.compaction.json_layout import JsonLayout
from proxy.compaction.limits import STEPS, TIGHT, Limits
from proxy.compaction.outline import outline
from proxy.compaction.prose import cut, parts, prose
from proxy.text.json_values import parsed

WANTED = 0.16
"""The share of the original that a form should not exceed; a tighter step is tried until it does not."""
_WORTH = 0.9
"""A form longer than this share of the original is none."""
_LARGE = 400
"""A string inside JSON that is longer than this is looked at for a structure of its own."""
_CUT = "[… the original is cut off here]"


@dataclass(frozen=True, slots=True)
class Form:
    """What stands in for a text."""

    kind: str
    """Which kind of text it was taken for."""
    text: str

    @property
    def leaves_prose(self) -> bool:
        """Whether prose was left out: that of a text or a page, not parts of a structure."""
        return self.kind in ("text", "html") and "…" in self.text


Shape = tuple[str, Callable[[str], bool], Callable[[str, Limits], str]]

SHAPES: tuple[Shape, ...] = (
    ("html", html.is_html, html.page),
    ("diff", diffs.is_diff, diffs.diff),
    ("table", tables.is_table, tables.table),
    ("log", logs.is_log, logs.log),
    ("source", source.is_source, source.source),
    ("listing", listings.is_listing, listings.listing),
)
"""Kinds of text in the order in which they are recognised."""


def compact(text: str) -> Form | None:
    """The compact form of a text, or None if it has none that is worth it. The same text has the same form always."""
    kind, shortened = _taken_for(text)
    best = text
    for limits in STEPS:
        best = min(best, shortened(limits), key=len)
        if len(best) <= WANTED * len(text):
            break
    return Form(kind, best) if len(best) < _WORTH * len(text) else None


def condensed(text: str, room: int) -> str:
    """The outline of a text that does not fit, in at most so many characters: the loosest form that does, else cut."""
    kind, shortened = _taken_for(text)
    if kind in ("text", "html"):
        return _within(outline(html.readable(text), room), room)
    for limits in (*STEPS, *TIGHT):
        form = shortened(limits)
        if len(form) <= room:
            return form
    return _within(form, room)


def _within(text: str, room: int) -> str:
    first, rest, _ = parts(text, max(0, room - 2), 0)
    return f"{first}…" if rest else first


def _taken_for(text: str) -> tuple[str, Callable[[Limits], str]]:
    """The kind of a text, and its form within limits."""
    value = parsed(text)
    if value is not None:
        return "json", lambda limits: JsonLayout(limits, _inner).render(value)
    begun = cut_off(text)
    if begun is not None:
        return "json", lambda limits: f"{JsonLayout(limits, _inner).render(begun.value)}\n{_CUT}"
    plain = unescaped(text)
    kind, shape = _shape(plain)
    # of a plain text the beginning stays as it was sent: what both have in common stays in the provider's cache
    given = text if kind == "text" else plain
    return kind, lambda limits: shape(given, limits)


def _shape(text: str) -> tuple[str, Callable[[str, Limits], str]]:
    for kind, fits, shape in SHAPES:
        if fits(text):
            return kind, shape
    return "text", prose


def _inner(text: str, limits: Limits) -> str:
    if len(text) <= _LARGE or "\n" not in text:
        return cut(text, limits.text if len(text) <= _LARGE else limits.head)
    _, shape = _shape(text)
    form = shape(text, limits)
    return form if len(form) < len(text) else text
