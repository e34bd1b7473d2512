"""What a person says of themselves and their things that is one at a time: a subject, a relation, an object. Pure."""

import re
from typing import NamedTuple

from policies.resolve_clashes.cues import CUES
from policies.resolve_clashes.terms import listed, terms, words
from proxy.text.fold import stem
from proxy.text.tables import pattern_lists

_PATTERNS = tuple(
    (name, re.compile(pattern)) for name, every in pattern_lists("clashes/relations").items() for pattern in every
)
"""Names of relations and patterns."""
_LOOSE = frozenset(map(stem, listed("loose")))
"""Of which much can be said at once."""
_BEHIND_IS = re.compile(r"(?:(?:in|at|on|near|with|from|for|about|of|to|by|de|en|con|para|sobre|por) )")
_EXACT = re.compile(r"(?:(?:el|the|at) )?(?:[\w.+-]+@[\w.-]+\w|\+?\d[\d ()-]{3,}\d|[a-z]\w*[_.-]\w[\w.-]*)(?![\w'])")
"""An address or a number that is a name: another one is another."""
_DIGITS = re.compile(r"\d+(?:[.,:]\d+)*")
_GENERIC = frozenset(map(stem, listed("generic")))
"""Subjects that tell nothing by themselves."""


_FAVORITE = stem("favorite")
_WITHIN = re.compile(r"^(?:an?|una?) .* (?:in|en) ")
_ARTICLE = re.compile(r"(?:an?|the|my|our|un|una|el|la|los|las|mi|myself|home)\b")


class Relation(NamedTuple):
    """Of a subject, what it is."""

    key: str
    """The subject and the relation: equal for what can have one object only."""
    object: frozenset[str]


def relations(clause: str, names: frozenset[str]) -> tuple[Relation, ...]:
    """The relations that a folded clause states; `names` are the stems of the names in it."""
    found: list[Relation] = []
    for name, pattern in _PATTERNS:
        for match in pattern.finditer(clause):
            exact = _EXACT.match(clause, match.start("o"))
            what = CUES["behind object"].sub("", match["o"])
            if name == "name":  # `Peter` is not `Pete`, though they have one stem
                target = frozenset(words(what))
            else:
                target = frozenset({exact[0]}) if exact else terms(what) or frozenset(words(what)[-1:])
            if not target:
                continue
            found += _relation(name, match, what, target, names)
    return tuple(found)


def _shape(subject: frozenset[str], said: str, target: frozenset[str], names: frozenset[str]) -> str | None:
    """What kind of thing a subject is said to be: another one of the same kind takes its place, others do not."""
    if any(each[0].isdigit() for each in words(said)):
        return "number"
    if target & names:
        return "name"
    if subject & _LOOSE:
        return None
    return "in" if _BEHIND_IS.match(said) else "a" if _ARTICLE.match(said) else None


def _relation(
    name: str, match: re.Match[str], said: str, target: frozenset[str], names: frozenset[str]
) -> list[Relation]:
    if name in ("my", "called"):
        subject = terms(match["s"].replace("favourite", "favorite"))
        if not subject or subject <= _GENERIC:
            return []
        shape = _shape(subject, said, target, names) if name == "my" and _FAVORITE not in subject else ""
        target = frozenset(_DIGITS.findall(said)) if shape == "number" and not _EXACT.match(said) else target
        return [] if shape is None else [Relation(f"{name} {shape} {' '.join(sorted(subject))}", target)]
    if name == "live":
        said = _WITHIN.sub("", said)
        target = terms(said)
    if name in ("live", "work"):
        return [Relation(f"{name} {'a' if _ARTICLE.match(said) else ''}", target)]
    return [Relation(name, target)]
