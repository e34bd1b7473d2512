"""The form of a text that does not fit the window: its outline, and the passages that bear on what was asked. Pure."""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import accumulate
from typing import Any, NamedTuple

from proxy.chat.passages import Passage, passages
from proxy.compaction.cut_json import json_value
from proxy.compaction.html import readable
from proxy.compaction.lines import condensed
from proxy.compaction.pieces import LONGEST_LINE, packed
from proxy.text.bm25 import Index, index, scores_of, terms
from proxy.text.json_values import Pairs, rendered

_OUTLINE = 3
"""The outline takes at least this part of the room, and what the passages leave."""
_MOST = 6
_NEAR = 0.5
"""A passage is shown that has at least this share of the best one's score."""
_LACKING = 0.2
"""And one that has this share of it for words that those before it lack."""
_COMMON = 1 / 3
"""The share of the passages above which a word in them picks none out, such as the articles of any language."""
_FEW = 12
_HEADING = 80
_PIECE = 600
"""Characters of a part of a JSON text that is one passage; a larger part is divided."""
_PLAIN_KEY = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_")


class Piece(NamedTuple):
    """A part of a text, word for word."""

    label: str
    """Its place: a JMESPath, or line numbers; empty where neither helps."""
    text: str


def excerpt(text: str, queries: Sequence[str], room: int, line: int | None = 1) -> str:
    """Return the outline of a text, and the passages that fit the queries best, in about `room` characters.

    `line` is the number of its first line in the archive; None if lines differ there.
    """
    outline = condensed(text, room // _OUTLINE)
    pieces = list(_pieces(text, line))
    chosen = _chosen(pieces, queries, room - len(outline), outline)
    if not chosen:  # what was asked is about the whole, or said in other words
        return condensed(text, room)
    shown = [f"[{piece.label}] {piece.text}" if piece.label else piece.text for piece in chosen]
    note = "[passages that bear on the question, word for word:]"
    outline = condensed(text, max(room // _OUTLINE, room - sum(len(each) + 1 for each in (note, *shown))))
    return "\n".join([outline, note, *shown])


def _chosen(pieces: Sequence[Piece], queries: Sequence[str], room: int, outline: str) -> list[Piece]:
    """Return the passages for each query in turn, as far as there is room, without those in the outline."""
    hidden = [piece for piece in pieces if piece.text not in outline]
    words = index(f"{piece.label} {piece.text}" for piece in hidden)
    chosen: set[int] = set()
    for query in queries:
        for at in _best(words, hidden, query):
            if at not in chosen and len(hidden[at].text) <= room:
                chosen.add(at)
                room -= len(hidden[at].text) + len(hidden[at].label) + 4
    return [hidden[at] for at in sorted(chosen)]


def _best(words: Index, pieces: Sequence[Piece], query: str) -> list[int]:
    """Rank the passages for a query; each next one has most of the terms that those before it lack."""
    many = len(pieces) if len(pieces) < _FEW else len(pieces) * _COMMON
    lacking = [term for term in dict.fromkeys(terms(query)) if sum(map(bool, scores_of(term, words))) <= many]
    scores = scores_of(" ".join(lacking), words)
    most = max(scores, default=0.0)
    best: list[int] = []
    while lacking and len(best) < _MOST:
        rest = scores_of(" ".join(lacking), words)
        at = max(range(len(rest)), key=rest.__getitem__, default=0)
        if not rest or rest[at] <= _LACKING * most:
            break
        best.append(at)
        there = set(terms(pieces[at].text))
        lacking = [term for term in lacking if term not in there]
    near = [at for at, score in enumerate(scores) if score >= _NEAR * most and score > 0 and at not in best]
    return [*best, *sorted(near, key=lambda at: -scores[at])][:_MOST]


def _pieces(text: str, line: int | None) -> Iterator[Piece]:
    """Yield the parts of a text: records or members of JSON, the visible text of a page, else paragraphs and lines."""
    value = json_value(text)
    if value is not None:
        with suppress(RecursionError):
            yield from list(_members(value, ""))
            return
    shown = readable(text)
    starts = line_starts(text) if shown is text and line is not None else None
    for start, end in _with_headings(shown, passages(shown)):
        label = ""
        if starts is not None and line is not None:
            first, last = (bisect_right(starts, at) + line - 1 for at in (start, end - 1))
            label = f"line {first}" if first == last else f"lines {first}-{last}"
        yield Piece(label, shown[start:end])


def _with_headings(text: str, all_passages: Sequence[Passage]) -> Iterator[tuple[int, int]]:
    start: int | None = None
    for passage in all_passages:
        start = passage.start if start is None else start
        if passage.end - start > _HEADING or passage is all_passages[-1]:
            yield from _by_lines(text, start, passage.end)
            start = None


def _by_lines(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    while end - start > 2 * _PIECE and (cut := text.find("\n", start + _PIECE, end)) > 0:
        yield start, cut
        start = cut + 1
    yield start, end


def line_starts(text: str) -> list[int] | None:
    """Return where the lines of a text begin; None where `recall` would number them in another way."""
    lines = text.splitlines(keepends=True)
    if len(lines) < 2 or max(map(len, lines)) > LONGEST_LINE:
        return None
    return [0, *accumulate(map(len, lines))][:-1]


def _members(value: Any, path: str) -> Iterator[Piece]:
    text = rendered(value)
    inner = isinstance(value, list) and any(isinstance(item, (list, Pairs)) for item in value)
    if len(text) <= _PIECE and not (inner and path == ""):
        yield Piece(path, text)
    elif isinstance(value, Pairs):
        yield from _runs([(f"{path}.{_key(key)}".lstrip("."), key, member) for key, member in value], path)
    elif isinstance(value, list) and inner:
        for place, item in enumerate(value):
            yield from _members(item, f"{path}[{place}]")
    elif isinstance(value, list):
        items = [rendered(item) for item in value]
        for start, end in packed([len(item) + 1 for item in items], _PIECE + 1):
            yield Piece(f"{path}[{start}:{end}]", ",".join(items[start:end]))
    else:
        for passage in passages(str(value)):
            yield Piece(path, passage.of(str(value)))


def _runs(members: Sequence[tuple[str, str, Any]], path: str) -> Iterator[Piece]:
    """Yield the members of an object; small neighbours share a piece."""
    sizes = [len(rendered(member)) + len(key) for _, key, member in members]
    for start, end in packed(sizes, _PIECE):
        if sizes[start] > _PIECE:
            yield from _members(members[start][2], members[start][0])
        else:
            yield Piece(path, rendered(Pairs((key, member) for _, key, member in members[start:end])))


def _key(key: str) -> str:
    return key if key and _PLAIN_KEY.issuperset(key) and not key[0].isdigit() else f'"{key}"'
