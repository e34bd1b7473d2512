"""The first form of a tool result, the short form for one that was read, and its headline. Pure."""

from string import ascii_letters, digits
from typing import Any, NamedTuple

from proxy.compaction.cut_json import json_and_rest, json_value
from proxy.compaction.envelopes import unwrapped
from proxy.compaction.html import is_html, readable
from proxy.compaction.layout import joined, lay_out, without_blobs
from proxy.compaction.lines import short_form
from proxy.compaction.pieces import parts
from proxy.text.json_values import Pairs, rendered

_LETTERS = ascii_letters.encode()
_DIGITS = digits.encode()
_SPACES = b" \t\r\n"


def weight(text: str) -> int:
    """Return about how many tokens a text has: the same everywhere and for good, so that decisions can be replayed."""
    data = text.encode(errors="surrogatepass")
    letters = len(data) - len(data.translate(None, _LETTERS))
    figures = len(data) - len(data.translate(None, _DIGITS))
    spaces = len(data) - len(data.translate(None, _SPACES))
    other = len(text) - len(text.encode("ascii", "ignore"))
    signs = len(text) - letters - figures - spaces - other
    return int(letters / 4.8 + figures / 2.3 + spaces / 20 + signs / 1.6 + other / 1.4) + 1


_SHORTEST = 200
_WORTH = 0.9
"""A layout that takes more than this share of a text is not worth to be read anew."""


class Sent(NamedTuple):
    """The first form of a text, and its tokens."""

    text: str
    tokens: int
    is_whole: bool = True
    """False if only the beginning of an encoded blob stays."""


class ShortForm(NamedTuple):
    """A text that may stand for another one once that was read, and its tokens."""

    text: str
    tokens: int
    prefix_tokens: int
    """The tokens at the beginning, where the form says the same as what was sent."""

    @classmethod
    def of(cls, short: str, sent: str) -> "ShortForm":
        same = next((i for i, pair in enumerate(zip(sent, short, strict=False)) if pair[0] != pair[1]), len(short))
        return cls(short, weight(short), weight(short[:same]))


def rows(text: str) -> Sent:
    """Return the first form of a tool result: a lossless layout that takes fewer tokens."""
    return _sent(text, tables=True)


def plain(text: str) -> Sent:
    """Return the first form of a tool result without tables: JSON stays JSON."""
    return _sent(text, tables=False)


def as_file(text: str) -> Sent:
    """Return a file that may be edited byte for byte as it was read, without an envelope."""
    inner = unwrapped(text, squeeze=False)
    return Sent(inner, weight(inner))


def _sent(text: str, *, tables: bool) -> Sent:
    inner = unwrapped(text)
    if len(inner) < _SHORTEST or is_html(inner):  # an agent in a browser needs the marks
        return Sent(inner, weight(inner))
    bare = without_blobs(inner)
    laid = joined(lay_out(bare, tables=tables, pages=False)) if tables or json_and_rest(bare) is None else bare
    best, tokens = bare, weight(bare)
    if len(laid) < _WORTH * len(bare) and (short := weight(laid)) < tokens:
        best, tokens = laid, short
    return Sent(best, tokens, is_whole=bare == inner)


def form_of(sent: str) -> ShortForm | None:
    """Return the short form of a text as it was sent; None if it would hardly be shorter."""
    short = short_form(sent)
    return None if short is None else ShortForm.of(short, sent)


_LONGEST_LINE = 70
_KEYS = 6


def headline(text: str) -> str:
    """Return a line of at most about 130 characters: the keys and sizes of JSON, the first words of any other text."""
    value = json_value(text)
    if value is not None:
        return _cut_line(_shape(value, 0))
    lines = [line for line in readable(text).splitlines() if line.strip()]
    first = next((line for line in lines if any(map(str.isalpha, line))), lines[0] if lines else "")
    return _cut_line(" ".join(first.split())) + (f" (first of {len(lines)} lines)" if len(lines) > 1 else "")


def _shape(value: Any, depth: int) -> str:
    if isinstance(value, Pairs):
        keys = [f'"{key}": {_shape(member, depth + 1)}' if depth == 0 else f'"{key}"' for key, member in value[:_KEYS]]
        return "{" + ", ".join([*keys, "…"] if len(value) > _KEYS else keys) + "}"
    if isinstance(value, list):
        first = _shape(value[0], depth + 1) if value and isinstance(value[0], Pairs) else ""
        return f"{len(value)} items" + (f" with {first}" if first else "")
    return rendered(value)


def _cut_line(text: str) -> str:
    first, rest, _ = parts(text, _LONGEST_LINE, 0)
    return f"{first}…" if rest else first
