"""Sections of a system prompt: under a Markdown heading, or between XML tags. Pure."""

import re
from collections.abc import Collection, Iterator

_MARK = re.compile(
    r"^(?: {0,3}(?P<level>#{1,6})[ \t]+(?P<title>.(?:.*[^ \t#\n])?)[ \t#]*"
    r"|<(?P<close>/?)(?P<tag>[A-Za-z][\w.-]*+)[^<>]*>[ \t]*)$",
    re.MULTILINE,
)


def without_sections(text: str, names: Collection[str]) -> str:
    """Return a text without the sections of these names, of headings or tags whatever their case, and subsections."""
    for name in names:
        for begin, end in reversed([*_spans(text, name)]):
            text = text[:begin] + text[end:]
    return text


def sections_of(text: str, names: Collection[str]) -> str:
    """Return the sections of these names with their headings or tags, or an empty text."""
    return "".join(text[begin:end] for name in names for begin, end in _spans(text, name))


def _spans(text: str, name: str) -> Iterator[tuple[int, int]]:
    name = name.strip().casefold()
    end = 0
    for begin, until in _under_headings(text, name):
        yield begin, until
        end = until
    if not end:
        tag = re.escape(name)
        opens = re.compile(rf"^[ \t]*<{tag}>", re.MULTILINE | re.IGNORECASE)
        closes = re.compile(rf"</{tag}>[ \t]*\n?", re.IGNORECASE)
        while (opened := opens.search(text, end)) and (closed := closes.search(text, opened.end())):
            end = closed.end()
            yield opened.start(), end


def _under_headings(text: str, name: str) -> Iterator[tuple[int, int]]:
    """Yield each section under a heading, up to the next of its level or higher, or the end of its element."""
    begin, inside = 0, 0
    opened: list[str] = []
    for mark in _MARK.finditer(text):
        if mark["tag"] is not None:
            if inside and mark["close"] and mark["tag"] not in opened:
                yield begin, mark.start()
                inside = 0
            elif inside:
                opened = [each for each in opened if each != mark["tag"]] if mark["close"] else [*opened, mark["tag"]]
            continue
        level = len(mark["level"])
        if inside and level <= inside:
            yield begin, mark.start()
            inside = 0
        if not inside and mark["title"].casefold() == name:
            begin, inside, opened = mark.start(), level, []
    if inside:
        yield begin, len(text)
