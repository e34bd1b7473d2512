"""Read the values of a clause: dates, times, amounts, places, and members of the groups in `data/clashes`. Pure."""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from proxy.text.tables import either, patterns, sections
from proxy.text.values import Value, find_values

WORDS: Mapping[str, Sequence[str]] = sections("clashes/words")
CUES = {name: re.compile(pattern) for name, pattern in patterns("clashes/cues").items()}
TYPED = frozenset({"date", "weekday", "time", "amount", "place"})
"""Kinds that are no groups of words."""
_BEFORE = 40
"""Characters in front of a date that say which one it is."""
_ACCENTED = "áàâäéèêëíìîïóòôöúùûüñç’‘´`"
_PLAIN = "aaaaeeeeiiiioooouuuunc''''"
_FOLD = str.maketrans(_ACCENTED, _PLAIN)


def listed(name: str) -> list[str]:
    """Return the words of a section of `data/clashes/words.txt`."""
    return " ".join(WORDS[name]).split()


def fold(text: str) -> str:
    """Return a text of the same length in lower case and without accents."""
    low = text.lower()
    return (low if len(low) == len(text) else text).translate(_FOLD)


def read_values(folded: str, raw: str) -> tuple[Value, ...]:
    """Return the values of a clause, given folded and as it is written."""
    return (*_measured(folded), *_members(folded), *_places(raw))


def _measured(folded: str) -> Iterator[Value]:
    """Yield dates, times and amounts; the unit of a date or time is `end` for a return or check-out."""
    for value in find_values(folded):
        is_end = value.kind != "amount" and CUES["end"].search(folded[max(0, value.start - _BEFORE) : value.start])
        yield value._replace(unit="end") if is_end else value


# --- groups ---

_WORD = re.compile(r"[a-z0-9]+")


class _Group(NamedTuple):
    """Words of which one holds at a time."""

    kind: str
    pattern: re.Pattern[str]
    members: Mapping[str, str]
    """The member that each name stands for."""
    beside: re.Pattern[str] | None
    """Words of which one must stand beside a name, which else means something else."""


def _group(kind: str, lines: Sequence[str]) -> _Group:
    members, *more = lines
    names = {name.strip(): member.split(",")[0].strip() for member in members.split("|") for name in member.split(",")}
    named = either(name.replace("-", "[- ]") for name in names)
    beside = re.compile(rf"(?<![a-z0-9])(?:{more[0].removeprefix('~ ')})") if more else None
    plain = {name.replace("\\", "").replace("-", " "): member for name, member in names.items()}
    return _Group(kind, re.compile(rf"(?<![\w+#])(?:{named})(?![\w+#])"), plain, beside)


_GROUPS = tuple(_group(kind, lines) for kind, lines in sections("clashes/groups").items())
_BY_WORD: dict[str, set[int]] = defaultdict(set)
"""The places of the groups with a name that begins with a word."""
for _at, _each in enumerate(_GROUPS):
    for _name in _each.members:
        _BY_WORD[_WORD.findall(_name)[0]].add(_at)


def _members(clause: str) -> Iterator[Value]:
    """Yield the members of groups that a clause names."""
    named = {at for word in _WORD.findall(clause) for at in _BY_WORD.get(word, ())}
    for group in [_GROUPS[at] for at in sorted(named)]:
        for match in group.pattern.finditer(clause):
            within = group.beside and group.beside.search(match[0], 1)
            rest = f"{clause[: match.start()]}~{clause[match.end() :]}"
            if group.beside is None or within or group.beside.search(rest):
                # of `budget hotels` the hotels are the subject
                end = match.start() + within.start() if within else match.end()
                yield Value(group.kind, "", (), (group.members[match[0].replace("-", " ")],), match.start(), end)


# --- places ---

_PLACE = re.compile(
    r"\b(?P<p>from|to|in|around|near|for|of|about|desde|hacia|en|a)\s+(?P<x>(?:[A-ZÁÉÍÓÚÑ][\w'’-]*\.?)"
    r"(?:\s+(?:[A-ZÁÉÍÓÚÑ][\w'’-]*|de|del|la)(?=\s|[,.;!?]|$))*)"
)
_NO_PLACE = re.compile("".join(WORDS["no places"]))
_DIRECTIONS = {"from": "from", "desde": "from", "to": "to", "hacia": "to", "a": "to"}


def _places(text: str) -> Iterator[Value]:
    """Yield the capitalised names behind a preposition of place, their unit `from`, `to` or `in`."""
    for match in _PLACE.finditer(text):
        name = fold(match["x"]).strip(" .,'-")
        if name and not _NO_PLACE.search(name) and not any(group.pattern.fullmatch(name) for group in _GROUPS):
            yield Value("place", _DIRECTIONS.get(match["p"], "in"), (), (name,), *match.span("x"))
