"""The lines of a text, in a layout that says the same in less: nothing is lost in it but what a terminal wrote over.

Like records of JSON share one header, lines that repeat are counted, an encoded blob is named.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from proxy.compaction import html
from proxy.compaction.cut_json import json_and_rest
from proxy.compaction.envelopes import last_written
from proxy.compaction.json_layout import json_lines, table_lines
from proxy.compaction.pieces import WIDE, TextLine, depth_of, gap, pieces_of
from proxy.text.json_values import Pairs, documents

_FEW = 80
_BLANK = 3
_BLOB = re.compile(r"[A-Za-z0-9+/_-]{2000,}={0,2}")
_BLOB_LENGTH = 2000
_BEGUN = 24
"""Characters of a blob that stay: they tell what it is."""
_ELEMENT = re.compile(r"<(/?)([A-Za-z][\w.-]{0,40})(?=[\s>/])")
_FEWEST_ELEMENTS = 5
_WORTH = 0.9
"""JSON between other lines stays where its layout takes more than this share of it."""


def joined(lines: Sequence[TextLine]) -> str:
    """Return the text that lines are."""
    return "".join(line.glue + line.text for line in lines).removeprefix(lines[0].glue if lines else "")


def lay_out(text: str, *, tables: bool = True, pages: bool = True) -> Sequence[TextLine]:
    """Return the lines of a text: like JSON records below their keys if `tables`, HTML as it is seen if `pages`."""
    found = json_and_rest(text)
    if found is not None:
        with suppress(RecursionError):
            return _of_json(*found, tables=tables, pages=pages)
    if pages and html.is_html(text):
        return [TextLine(line, depth_of(line)) for line in html.page(text).splitlines()]
    lines = _elements(text) if text.lstrip()[:1] == "<" else []
    if tables and not lines:
        with suppress(RecursionError):
            lines = [*_counted(_mixed_lines(text))]
    return lines or [*_counted(_text_lines(text))]


def _of_json(value: Any, rest: str | None, *, tables: bool, pages: bool) -> Sequence[TextLine]:
    lines = [*_counted(json_lines(value, partial(lay_out, tables=tables, pages=pages), tables=tables))]
    return lines if rest is None else [*lines, TextLine(gap("the text is cut off here", rest), 0)]


def _mixed_lines(text: str) -> Iterator[TextLine]:
    """Yield the lines of a text, with a layout for the JSON that fills lines of it."""
    place = 0
    for start, end, values in _runs(text):
        lines = [*table_lines(values)] or [
            line for value in values for line in json_lines(value, partial(lay_out, pages=False))
        ]
        if len(joined(lines)) <= _WORTH * (end - start):
            if start > place:
                yield from _text_lines(text[place : start - 1])
            yield from lines
            place = end + 1
    if place <= len(text):
        yield from _text_lines(text[place:])


def _runs(text: str) -> Iterator[tuple[int, int, list[Pairs | list[Any]]]]:
    """Yield each JSON document between other lines, and objects on neighbouring lines together: start, end, values."""
    run: list[Pairs | list[Any]] = []
    since = until = -1
    for start, end, value in documents(text):
        if run and not (start == until + 1 and isinstance(value, Pairs) and isinstance(run[0], Pairs)):
            yield since, until, run
            run = []
        since = since if run else start
        run.append(value)
        until = end
    if run:
        yield since, until, run


def without_blobs(text: str) -> str:
    """Return a text in which long runs of encoded data, such as a picture in base64, are named."""
    return _BLOB.sub(_named, text) if len(text) > _BLOB_LENGTH else text


def _named(match: re.Match[str]) -> str:
    blob = match[0]
    is_encoded = all(any(map(test, blob)) for test in (str.isdigit, str.isupper, str.islower))
    return f"{blob[:_BEGUN]}{gap(f'{len(blob) - _BEGUN} more of an encoded blob')}" if is_encoded else blob


def _text_lines(text: str) -> Iterator[TextLine]:
    for line in last_written(text).split("\n"):
        if len(line) <= WIDE:
            yield TextLine(line, depth_of(line))
        else:
            yield from pieces_of(line, depth_of(line))


def _counted(lines: Iterable[TextLine]) -> Iterator[TextLine]:
    """Yield the lines; of repeated ones the first, and a count."""
    run: list[TextLine] = []
    for line in lines:
        if run and line.text != run[0].text:
            yield from _once(run)
            run = []
        run.append(line)
    yield from _once(run)


def _once(run: list[TextLine]) -> Sequence[TextLine]:
    if len(run) < 3:
        return run
    first, again, *rest = run
    if not first.text.strip():
        return run if len(run) <= _BLANK else [first]
    if (len(rest) + 1) * len(first.text) <= _FEW:
        return run
    return [first, TextLine(gap(f"the same {len(rest) + 1} more times"), first.depth, again.glue)]


def _elements(text: str) -> list[TextLine]:
    """Return the most common elements of XML on long lines, each on a line of its own; empty for any other text."""
    if max(map(len, text.split("\n"))) <= WIDE:
        return []
    opened: Counter[str] = Counter()
    closed: Counter[str] = Counter()
    since: dict[str, int] = {}
    covered: Counter[str] = Counter()
    for tag in _ELEMENT.finditer(text):
        name = tag[2]
        if tag[1]:
            closed[name] += 1
            covered[name] += tag.start() - since.get(name, tag.start())
        else:
            opened[name] += 1
            since[name] = tag.start()
    like = [name for name, count in opened.items() if count >= _FEWEST_ELEMENTS and closed[name] in (0, count)]
    if not like:
        return []
    name = re.escape(max(like, key=lambda one: (covered[one], opened[one])))
    parts = re.split(rf"(?=<{name}[\s>/])|(?<=</{name}>)", text)
    return [
        TextLine(part.strip(), int(part.startswith("<") and bool(re.match(rf"<{name}[\s>/]", part))))
        for part in parts
        if part.strip()
    ]
