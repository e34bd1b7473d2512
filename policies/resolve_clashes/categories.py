"""Groups of words of which one holds at a time, in English and Spanish: `data/clashes/groups.txt`. Pure."""

import re

from policies.resolve_clashes.values import Value
from proxy.text.tables import either, sections


def _group(lines: list[str]) -> tuple[re.Pattern[str], dict[str, str], re.Pattern[str] | None]:
    """The pattern of a group's names, the member of each name, and the pattern of what must stand beside one."""
    members, *more = lines
    names = {name.strip(): member.split(",")[0].strip() for member in members.split("|") for name in member.split(",")}
    named = either(name.replace("-", "[- ]") for name in names)
    beside = re.compile(rf"(?<![a-z0-9])(?:{more[0].removeprefix('~ ')})") if more else None
    plain = {name.replace("\\", "").replace("-", " "): member for name, member in names.items()}
    return re.compile(rf"(?<![\w+#])(?:{named})(?![\w+#])"), plain, beside


_READ = tuple((name, *_group(lines)) for name, lines in sections("clashes/groups").items())
_WORD = re.compile(r"[a-z0-9]+")
_SHORT = 6
"""Words of a clause that may be an answer and no more."""
_NON = re.compile(r"\b(?:no|not|non|sin|without|nada de|except|menos)[ -]+(?:\w+ )?$")


def _by_word() -> dict[str, frozenset[int]]:
    begins = [frozenset(_WORD.findall(name)[0] for name in names) for _, _, names, _ in _READ]
    return {word: frozenset(at for at, of in enumerate(begins) if word in of) for word in frozenset().union(*begins)}


_BY_WORD = _by_word()
"""The places in `_READ` of the groups that have a name which begins with a word."""


def members(clause: str, *, alone: bool = False) -> tuple[Value, ...]:
    """The members of groups that a folded clause names and does not deny.

    Where the word is missing that a group asks for, a short clause has its members as `weak`, which is their part; with
    `alone`, any clause has them, and not as weak.
    """
    said = _WORD.findall(clause)
    named = {at for word in said if word in _BY_WORD for at in _BY_WORD[word]}
    found: list[Value] = []
    for group, pattern, names, beside in map(_READ.__getitem__, sorted(named)):
        for match in pattern.finditer(clause):
            within = beside and beside.search(match[0], 1)
            rest = clause[: match.start()] + "~" + clause[match.end() :]
            weak = beside is not None and within is None and beside.search(rest) is None
            if weak and not alone and len(said) > _SHORT:
                break
            if not _NON.search(clause[max(0, match.start() - 32) : match.start()]):
                part = "weak" if weak and not alone else ""
                # of `budget hotels` the hotels are what it is about
                end = match.start() + within.start() if within else match.end()
                found.append(Value(group, part, "", names[match[0].replace("-", " ")], match.start(), end))
    return tuple(found)
