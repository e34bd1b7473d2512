"""Tables in text: the header and every row that fits stay, long cells are cut."""

import re

from proxy.compaction.identifiers import is_identifier
from proxy.compaction.limits import Limits, gap
from proxy.compaction.lines import ends
from proxy.compaction.prose import cut

_FEWEST = 5
_RULE = re.compile(r"^(?=[\s:|-]*--)[\s:|-]*$")
_SAMPLE = 60


def is_table(text: str) -> bool:
    """Whether most lines have the same number of the same separator."""
    return _separator(text.splitlines()) is not None


def _separator(lines: list[str]) -> str | None:
    some = [line for line in lines[:_SAMPLE] if line.strip()]
    if len(some) < _FEWEST:
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


def table(text: str, limits: Limits) -> str:
    """The table, its first and last rows if it is long, and the identifiers of the others."""
    lines = text.splitlines()
    separator = _separator(lines) or "|"
    stays = ends(len(lines), limits.rows)
    shown = [_row(line, separator, limits) for line, kept in zip(lines, stays, strict=True) if kept]
    if all(stays):
        return "\n".join(shown)
    dropped = [line for line, kept in zip(lines, stays, strict=True) if not kept]
    place = limits.rows * 3 // 4
    return "\n".join(
        [*shown[:place], gap(len(dropped), "rows", _names(lines[0], dropped, separator, limits)), *shown[place:]]
    )


def _names(header: str, rows: list[str], separator: str, limits: Limits) -> str:
    """The column that names the rows, the first one, where it holds identifiers: its head and its values."""
    first, *names = (line.strip(" |").split(separator)[0].strip() for line in (header, *rows))
    known = f"{' '.join(filter(is_identifier, names))} "[: limits.identifiers + 1].rpartition(" ")[0]
    return f"{first}: {known}" if known else ""


def _row(line: str, separator: str, limits: Limits) -> str:
    if separator == "|":
        return "|".join(_cell(" ".join(cell.split()), limits) for cell in line.split("|"))
    if len(line) <= limits.text:
        return line
    return separator.join(_cell(cell, limits) for cell in line.split(separator))


def _cell(cell: str, limits: Limits) -> str:
    return cell if len(cell) <= limits.text else cut(cell, limits.text // 2)
