"""The visible text of HTML pages, and the addresses of their links."""

import re
from html import unescape

from proxy.compaction.pieces import gap

_TAG = re.compile(r"<(/?)([a-zA-Z][a-zA-Z0-9]{0,20})([^<>]{0,4000})>|<!(?:--|[a-zA-Z])[^<>]{0,4000}>")
_KNOWN = re.compile(r"<(?:!doctype html|html|head|body|div|table|tr|td|ul|li|p|span|script|h[1-6]|a href)\b", re.I)
_OPENS = re.compile(r"\s*<(?!\?|script\b|template\b)|(?:.*\n){0,40}?<(?:!doctype html|html)\b", re.IGNORECASE)
"""The beginning of a page, perhaps behind the headers of its answer. Code with tags in it begins otherwise."""
_MAIN = re.compile(r"<(/?)main\b[^<>]{0,4000}>", re.IGNORECASE)
_HREF = re.compile(r"""\b(?:href|src)\s*=\s*["']?([^"'\s>]{1,300})""", re.IGNORECASE)
_HIDDEN = frozenset({"script", "style", "svg", "noscript", "template"})
_INLINE = frozenset({*"abiu", "em", "img", "sub", "sup", "abbr", "code", "font", "mark", "span", "small", "strong"})
_CELLS = frozenset({"td", "th"})
_HEADINGS = frozenset({"h1", "h2", "h3", "h4", "h5", "h6"})
_HEADING = re.compile(r"(?<=\n)(?=#{1,6} )")
_ASIDES = frozenset({"nav", "aside", "footer"})
_LARGE = 120
_BLANKS = re.compile(r"[ \t\r\f\v]+")
_FEWEST = 12


def is_html(text: str) -> bool:
    """Return True if a text begins like a page and has many of the usual HTML tags."""
    if _OPENS.match(text) is None:
        return False
    count = sum(1 for _ in _KNOWN.finditer(text[:20000]))
    return count >= _FEWEST and count * 250 > min(len(text), 20000)


def page(text: str) -> str:
    """Return the visible text of a page, with `marked`: its first line and its main part, if it has a mark for one."""
    marks = [*_MAIN.finditer(text)]
    if not marks or marks[0][1] or not marks[-1][1]:
        shown = visible(text, marked=True)
    else:
        first, _, _ = visible(text[: marks[0].start()]).partition("\n")
        shown = f"{first}\n{visible(text[marks[0].end() : marks[-1].start()], marked=True)}".strip()
    return _HEADING.sub("\n", shown)


def readable(text: str) -> str:
    """Return the visible text of a page; any other text as it is."""
    return visible(text) if is_html(text) else text


def visible(text: str, *, marked: bool = False) -> str:
    """Return the visible text line by line; with `marked`, heading marks and the sizes of menus, margins and feet."""
    pieces: list[str] = []
    asides: list[tuple[str, int]] = []
    hidden: str | None = None
    links: list[str] = []
    place = 0
    for tag in _TAG.finditer(text):
        if hidden is None:
            pieces.append(text[place : tag.start()])
        place = tag.end()
        closing, name = bool(tag[1]), (tag[2] or "").lower()
        if hidden is not None:
            hidden = None if closing and name == hidden else hidden
        elif name in _HIDDEN and not closing:
            hidden = name
        else:
            pieces.append(_break(name, closing, tag[3] or "", links))
            if marked and name in _HEADINGS and not closing:
                pieces.append("#" * int(name[1]) + " ")
            elif marked and name in _ASIDES:
                _without_aside(pieces, asides, name, closing=closing)
    if hidden is None:
        pieces.append(text[place:])
    lines = (_BLANKS.sub(" ", line).strip(" |") for line in unescape("".join(pieces)).split("\n"))
    return "\n".join(line for line in lines if line)


def _without_aside(pieces: list[str], asides: list[tuple[str, int]], name: str, *, closing: bool) -> None:
    """Begin a menu, margin or foot, or put its size in its place."""
    if not closing:
        asides.append((name, len(pieces)))
        return
    if asides and asides[-1][0] == name:
        _, start = asides.pop()
        size = sum(map(len, pieces[start:]))
        if size >= _LARGE:
            pieces[start:] = [gap(f"{name}, {size} characters"), "\n"]


def _break(name: str, closing: bool, attributes: str, links: list[str]) -> str:
    if name == "a":
        if closing:
            return f" ({links.pop()}) " if links else ""
        link = _HREF.search(attributes)
        links[:] = [link[1]] if link else []
        return ""
    if name in _CELLS:
        return " | " if closing else ""
    return "" if name in _INLINE else "\n"
