"""Sections of a system prompt: under a Markdown heading, or between XML tags. Pure."""

import re
from collections.abc import Collection

_HEADING = re.compile(r"^ {0,3}(#{1,6})[ \t]+(.+?)[ \t#]*$", re.MULTILINE)


def without_sections(text: str, names: Collection[str]) -> str:
    """A text without the sections of these names, subsections included; other text stays to the byte.

    A name is a heading's text, or a tag's name; upper and lower case are the same.
    """
    for name in names:
        text = _without_heading(text, name.strip().casefold())
        tag = re.escape(name.strip())
        text = re.sub(rf"^[ \t]*<{tag}>.*?</{tag}>[ \t]*\n?", "", text, flags=re.DOTALL | re.MULTILINE | re.IGNORECASE)
    return text


def _without_heading(text: str, name: str) -> str:
    kept: list[str] = []
    begin, inside = 0, 0
    for heading in _HEADING.finditer(text):
        level = len(heading[1])
        if inside and level <= inside:
            begin, inside = heading.start(), 0
        if not inside and heading[2].casefold() == name:
            kept.append(text[begin : heading.start()])
            inside = level
    return "".join(kept) + ("" if inside else text[begin:])
