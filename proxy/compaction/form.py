"""The compact form of a text: its kind, the form for that kind, and what both weigh. A pure function of the text."""

from collections.abc import Callable
from dataclasses import dataclass
from string import ascii_letters, digits
from typing import NamedTuple

from proxy.compaction import html, kinds
from proxy.compaction.cut_json import cut_off
from proxy.compaction.envelopes import unescaped, unwrapped
from proxy.compaction.json_layout import JsonLayout
from proxy.compaction.outline import outline
from proxy.compaction.shortening import STEPS, TIGHT, Tightness, cut, parts, prose
from proxy.text.json_values import parsed

_LETTERS = ascii_letters.encode()
_DIGITS = digits.encode()
_SPACES = b" \t\r\n"


def weight(text: str) -> int:
    """Return about how many tokens a text has: the same everywhere and for good, so that decisions can be replayed.

    Digits, punctuation and other scripts count more than letters: a form that is all identifiers has more tokens.
    """
    data = text.encode(errors="surrogatepass")
    letters = len(data) - len(data.translate(None, _LETTERS))
    figures = len(data) - len(data.translate(None, _DIGITS))
    spaces = len(data) - len(data.translate(None, _SPACES))
    other = len(text) - len(text.encode("ascii", "ignore"))
    signs = len(text) - letters - figures - spaces - other
    return int(letters / 4.8 + figures / 2.3 + spaces / 20 + signs / 1.6 + other / 1.4) + 1


WANTED = 0.16
"""The share of the original that a form should not exceed; a tighter step is tried until it does not."""
_WORTH = 0.9
"""A form longer than this share of the original is none."""
_LARGE = 400
"""A string inside JSON that is longer than this is looked at for a structure of its own."""
_CUT = "[… the original is cut off here]"


@dataclass(frozen=True, slots=True)
class ShortForm:
    """What stands in for a text."""

    kind: str
    """Which kind of text it was taken for."""
    text: str

    @property
    def leaves_prose(self) -> bool:
        """Whether prose was left out: that of a text or a page, not parts of a structure."""
        return self.kind in ("text", "html") and "…" in self.text


Shape = tuple[str, Callable[[str], bool], Callable[[str, Tightness], str]]

SHAPES: tuple[Shape, ...] = (
    ("html", html.is_html, html.page),
    ("diff", kinds.is_diff, kinds.diff),
    ("table", kinds.is_table, kinds.table),
    ("log", kinds.is_log, kinds.log),
    ("source", kinds.is_source, kinds.source),
    ("listing", kinds.is_listing, kinds.listing),
    ("output", kinds.is_output, kinds.output),
)
"""Kinds of text in the order in which they are recognised."""


def compact(text: str) -> ShortForm | None:
    """The compact form of a text, or None if it has none that is worth it. The same text has the same form always."""
    kind, shortened = _taken_for(text)
    best = text
    for limits in STEPS:
        best = min(best, shortened(limits), key=len)
        if len(best) <= WANTED * len(text):
            break
    return ShortForm(kind, best) if len(best) < _WORTH * len(text) else None


def condensed(text: str, room: int) -> str:
    """The outline of a text that does not fit, in at most so many characters: the loosest form that does, else cut."""
    kind, shortened = _taken_for(text)
    if kind in ("text", "html", "output"):
        return _within(outline(html.content(text) if kind == "html" else text, room), room)
    for limits in (*STEPS, *TIGHT):
        form = shortened(limits)
        if len(form) <= room:
            return form
    return _within(form, room)


def _within(text: str, room: int) -> str:
    first, rest, _ = parts(text, max(0, room - 2), 0)
    return f"{first}…" if rest else first


def _taken_for(text: str) -> tuple[str, Callable[[Tightness], str]]:
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


def _shape(text: str) -> tuple[str, Callable[[str, Tightness], str]]:
    for kind, fits, shape in SHAPES:
        if fits(text):
            return kind, shape
    return "text", prose


def _inner(text: str, limits: Tightness) -> str:
    if len(text) <= _LARGE or "\n" not in text:
        return cut(text, limits.text if len(text) <= _LARGE else limits.head)
    _, shape = _shape(text)
    form = shape(text, limits)
    return form if len(form) < len(text) else text


_SHORTEST = 200
"""Below this many characters no text has a form."""


class Treatment(NamedTuple):
    """How a text is sent first, and what may stand for it once it was read."""

    sent: str | None
    """None where nothing can be taken out."""
    form: str | None
    """None where there is none that is shorter."""
    sent_tokens: int
    form_tokens: int
    """Of the form, or as it is sent first where there is none."""
    kept_tokens: int
    """At the beginning, where both are the same."""
    leaves_prose: bool
    """Whether the form leaves out prose."""


def treated(text: str) -> Treatment:
    """The treatment of a tool result. A pure function of it."""
    sent = unwrapped(text)
    form = compact(sent) if len(sent) >= _SHORTEST else None
    short = sent if form is None else form.text
    same = next((i for i, pair in enumerate(zip(sent, short, strict=False)) if pair[0] != pair[1]), len(short))
    return Treatment(
        sent=None if sent == text else sent,
        form=None if form is None else form.text,
        sent_tokens=weight(sent),
        form_tokens=weight(short),
        kept_tokens=weight(short[:same]),
        leaves_prose=form is not None and form.leaves_prose,
    )
