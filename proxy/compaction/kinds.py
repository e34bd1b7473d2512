"""Texts made of lines, by their kind: how each is recognised, and which of its lines stay."""

import re
from dataclasses import replace

from proxy.compaction.identifiers import listed
from proxy.compaction.shortening import Tightness, cut, ends, gap, is_signal, odd, share, sieved

_HUNK = re.compile(r"^@@ -\d", re.MULTILINE)
_DIFFED_FILE = re.compile(r"^(?:diff --git |\+\+\+ )", re.MULTILINE)
_CHANGES = ("diff ", "+", "-", "@@", "rename ", "new file", "deleted file", "Binary ")


def is_diff(text: str) -> bool:
    """Whether a text has hunks and names files."""
    return bool(_HUNK.search(text) and _DIFFED_FILE.search(text))


def diff(text: str, limits: Tightness) -> str:
    """The diff without context; of a very long one the first and last changes."""
    lines = text.splitlines()
    changes = [place for place, line in enumerate(lines) if line.startswith(_CHANGES)]
    most = 2 * limits.rows
    if len(changes) > most:
        headers = [place for place in changes if lines[place].startswith(("diff ", "@@", "+++ "))]
        changes = [*headers, *changes[: most * 3 // 4], *changes[-most // 4 :]]
    stays = set(changes)
    return sieved(lines, [place in stays for place in range(len(lines))], limits, named=False)


_FEWEST_ENTRIES = 10
_ENTRY = re.compile(
    r"(?:[\w./~@+-]+:\d+[:-]|[-dlbcps][rwxsStT-]{9}[.+@]?\s|[\w.~@+/\\-]*[/\\][\w.@+-]*$|[\w@+-]+\.\w{1,6}$"
    r"|[│├└|` ]*──)"
)


def is_listing(text: str) -> bool:
    """Whether most lines are a path, a hit in a file, or an entry of a directory."""
    lines = text.splitlines()
    return len(lines) >= _FEWEST_ENTRIES and share(lines, _ENTRY) >= 0.7


def listing(text: str, limits: Tightness) -> str:
    """The first and last entries, some that report an error, each cut to what names it."""
    lines = text.splitlines()
    return sieved(lines, _ends_and_errors(lines, limits), limits)


def _ends_and_errors(lines: list[str], limits: Tightness) -> list[bool]:
    """Whether each line stays: the first and last, and some of those between that report an error."""
    kept = ends(len(lines), limits.rows)
    errors = [place for place, line in enumerate(lines) if not kept[place] and is_signal(line)]
    for place in errors[: limits.rows // 4]:
        kept[place] = True
    return kept


_FEWEST_LOGGED = 8
_LOGGED = re.compile(
    r"\s*\[?(?:\d{4}-\d\d-\d\d[T ]\d\d:\d\d|\d\d:\d\d:\d\d|[A-Z][a-z]{2} {1,2}\d{1,2} \d\d:\d\d|\d{10}\b"
    r"|(?:DEBUG|INFO|WARN|WARNING|ERROR|FATAL|TRACE|NOTICE)\b)"
)
_VARIES = re.compile(r"[0-9][0-9a-fA-F.:,-]*")
_SIGNALS = 3
"""So many lines of each kind of error stay."""


def is_log(text: str) -> bool:
    """Whether most lines begin with a time or a level."""
    lines = text.splitlines()
    return len(lines) >= _FEWEST_LOGGED and share(lines, _LOGGED) >= 0.5


def log(text: str, limits: Tightness) -> str:
    """The log with repetition collapsed."""
    lines = text.splitlines()
    kept = ends(len(lines), max(8, limits.rows // 10))
    seen: dict[str, list[int]] = {}
    for place, line in enumerate(lines):
        seen.setdefault(_VARIES.sub("0", line[:200]), []).append(place)
    wanted = {place for kind, places in seen.items() for place in places[: _SIGNALS if is_signal(kind) else 1]}
    for places in seen.values():
        numbers = zip(*(_VARIES.findall(lines[place][:200]) for place in places), strict=False)
        wanted.update(places[row] for row in odd(numbers, _SIGNALS))
    for place in [place for place in sorted(wanted) if not kept[place]][: limits.rows]:
        kept[place] = True
    return sieved(lines, kept, limits)


def is_output(text: str) -> bool:
    """Whether no more than a third of the lines differ from those before them by more than numbers."""
    lines = [line[:200] for line in text.splitlines() if line.strip()]
    return len(lines) >= _FEWEST_LOGGED and 3 * len({_VARIES.sub("0", line) for line in lines}) <= len(lines)


def output(text: str, limits: Tightness) -> str:
    """What a program printed, as a log that is half as long."""
    return log(text, replace(limits, rows=limits.rows // 2))


_FEWEST_CODE = 12
_NUMBER = r"(?:\s{0,8}\d{1,6}[:|\t]? ?)?"
_OUTLINE = re.compile(
    _NUMBER + r"\s{0,40}(?:(?:async )?def |class |import |from \S+ import|(?:export |default |async |public |private "
    r"|protected |static |pub |abstract |final |inline |const )*(?:function|interface|enum|struct|trait|impl|fn|func"
    r"|type|module|namespace|package|class|def)\b|#include|use |using |package |@\w|const [A-Z]|[A-Z_]{3,40} ?=)"
)
_COMMENT = re.compile(_NUMBER + r'\s{0,40}(?:#(?!include)|//|/\*|\*|--|"""|\'\'\')')
_CODE = re.compile(
    _NUMBER
    + r"(?:\s{0,40}(?:(?:async )?def |class |import |from |return\b|if\b|for\b|while\b|else\b|elif\b|try\b|except\b"
    r"|raise\b|self\.|this\.|const |let |var |function|fn |func |pub "
    r"|use |//|#|/\*|\*|@\w|[}\])]+[;,]?$"
    r"|[\w.\[\]]{1,60} ?[-+*/]?= ?\S|[\w.]{1,60}\()|.{0,200}[;{]$)"
)


def is_source(text: str) -> bool:
    """Whether most lines read like a program and some declare something."""
    lines = text.splitlines()
    return len(lines) >= _FEWEST_CODE and share(lines, _CODE) >= 0.55 and share(lines, _OUTLINE) > 0.02


def source(text: str, limits: Tightness) -> str:
    """The outline of a program: what it declares; where there is room, how comments begin and what it raises."""
    lines = text.splitlines()
    named: list[int] = []
    told: list[int] = []
    after_comment = False
    for place, line in enumerate(lines):
        comment = _COMMENT.match(line[:300]) is not None
        if place < 2 or place >= len(lines) - 2 or _OUTLINE.match(line[:300]):
            named.append(place)
        elif (comment and not after_comment) or ("raise" in line and is_signal(line)):
            told.append(place)
        after_comment = comment
    named = [place for place, stays in zip(named, ends(len(named), limits.rows), strict=True) if stays]
    stays = {*named, *told[: limits.rows - len(named)]}
    return sieved(lines, [place in stays for place in range(len(lines))], limits)


_FEWEST_ROWS = 5
_RULE = re.compile(r"^(?=[\s:|-]*--)[\s:|-]*$")
_SAMPLE = 60


def is_table(text: str) -> bool:
    """Whether most lines have the same number of the same separator."""
    return _separator(text.splitlines()) is not None


def _separator(lines: list[str]) -> str | None:
    some = [line for line in lines[:_SAMPLE] if line.strip()]
    if len(some) < _FEWEST_ROWS:
        return None
    if any(_RULE.match(line[:400]) and "|" in line for line in some):
        return "|" if sum("|" in line for line in some) >= 0.6 * len(some) else None
    for separator in ("\t", ";", ","):
        counts = [line.count(separator) for line in some]
        usual = counts[0]
        even = sum(count == usual for count in counts) >= 0.9 * len(some)
        if usual >= 2 and even and (separator == "\t" or ", " not in some[0]):
            return separator
    return None


def table(text: str, limits: Tightness) -> str:
    """The table, of a long one the first and last rows, some that report an error, and the others' identifiers."""
    lines = text.splitlines()
    separator = _separator(lines) or "|"
    stays = _ends_and_errors(lines, limits)
    shown = [_row(line, separator, limits) for line, kept in zip(lines, stays, strict=True) if kept]
    if all(stays):
        return "\n".join(shown)
    dropped = [line for line, kept in zip(lines, stays, strict=True) if not kept]
    place = limits.rows * 3 // 4
    return "\n".join(
        [*shown[:place], gap(len(dropped), "row", _names(lines[0], dropped, separator, limits)), *shown[place:]]
    )


def _names(header: str, rows: list[str], separator: str, limits: Tightness) -> str:
    """The column that names the rows, the first one, where it holds identifiers: its head and its values."""
    first, *names = (line.strip(" |").split(separator)[0].strip() for line in (header, *rows))
    known = listed(names, limits.identifiers)
    return f"{first}: {known}" if known else ""


def _row(line: str, separator: str, limits: Tightness) -> str:
    if separator == "|":
        return "|".join(_cell(" ".join(cell.split()), limits) for cell in line.split("|"))
    if len(line) <= limits.text:
        return line
    return separator.join(_cell(cell, limits) for cell in line.split(separator))


def _cell(cell: str, limits: Tightness) -> str:
    return cell if len(cell) <= limits.text else cut(cell, limits.text // 2)
