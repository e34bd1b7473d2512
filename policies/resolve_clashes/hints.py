"""What a text must have for a pattern to be found in it, so that most patterns need not be tried. Pure.

A hint is a set of beginnings of words, of which one stands in whatever the pattern matches. It is read from the pattern
itself; where no beginning must be there, there is no hint.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence, Set
from string import ascii_lowercase, digits
from typing import Any, Literal, NamedTuple

from proxy.text.expressions import Part, parts

_LETTERS = 4
"""Of a word, so many count."""
_LEAST = 3
"""So many tell something of a word that may go on."""
_COMMON_WORDS = """
i we my our the a an is are was be to it in of for on at and or not have do you this that with as me by so no
el la los las de en que un una es mi y se lo con por para
"""
_NUMBER = "#"
"""Stands for a digit."""
_COMMON = frozenset({_NUMBER, *_COMMON_WORDS.split()})
"""Beginnings that stand in most clauses: to have one of them says little."""
_COST = 30
"""Of such a one, counted in others."""
_DIGIT = re.compile(r"\d")
_SMALL = frozenset(ascii_lowercase + digits)
_WORD = re.compile(r"[a-z0-9]+")
_BETWEEN = frozenset(["AT_BEGINNING", "AT_BOUNDARY", "AT_END", "AT_END_STRING", "CATEGORY_NOT_WORD", "CATEGORY_SPACE"])
"""Where these stand, no word goes on."""


def beginnings(folded: str) -> frozenset[str]:
    """The beginnings of the words of a folded text."""
    said = _WORD.findall(folded)
    digits = [_NUMBER] if _DIGIT.search(folded) else []
    return frozenset([word[:_LETTERS] for word in said] + [word[:_LEAST] for word in said] + digits)


class Hinted(NamedTuple):
    """A pattern, and what a text must have for it to be found."""

    pattern: re.Pattern[str]
    hint: frozenset[str] | None
    """Beginnings of words of which the text has one; None where nothing is known."""

    def may_be_in(self, begins: frozenset[str]) -> bool:
        """Whether it may be found in a text with these beginnings."""
        return self.hint is None or not self.hint.isdisjoint(begins)

    def search(self, folded: str, begins: frozenset[str]) -> re.Match[str] | None:
        """The first place where it is found in a text with these beginnings."""
        return self.pattern.search(folded) if self.may_be_in(begins) else None

    def finditer(self, folded: str, begins: frozenset[str]) -> Iterable[re.Match[str]]:
        """Where it is found."""
        return self.pattern.finditer(folded) if self.may_be_in(begins) else ()


class Hints:
    """Many patterns by name, of which those are looked up that may be in a text."""

    def __init__(self, patterns: Iterable[tuple[str, str | re.Pattern[str]]]) -> None:
        each = [(name, hinted(pattern)) for name, pattern in patterns]
        self._patterns = tuple((1 << at, name, cue.pattern) for at, (name, cue) in enumerate(each))
        self._always = sum(1 << at for at, (_, cue) in enumerate(each) if cue.hint is None)
        self._by_beginning = defaultdict[str, int](int)
        for at, (_, cue) in enumerate(each):
            for beginning in cue.hint or ():
                self._by_beginning[beginning] |= 1 << at

    @property
    def beginnings(self) -> frozenset[str]:
        """All that one of them looks for."""
        return frozenset(self._by_beginning)

    def near(self, begins: frozenset[str]) -> list[tuple[str, re.Pattern[str]]]:
        """Those that may be found in a text with these beginnings, in their order."""
        may_be = self._always
        for beginning in begins & self._by_beginning.keys():
            may_be |= self._by_beginning[beginning]
        return [(name, pattern) for at, name, pattern in self._patterns if may_be & at] if may_be else []


def hinted(pattern: str | re.Pattern[str]) -> Hinted:
    """A pattern for folded texts with its hint."""
    pattern = re.compile(pattern)
    known = _ended(_behind(parts(pattern.pattern, pattern.flags), {None: ()}), None)[None]
    return Hinted(pattern, min(known, key=_cost, default=None))


_Known = tuple[frozenset[str], ...]
"""Hints that all hold."""
_Place = dict[str | None, _Known]
"""What is known at a place in a pattern, by what may stand in front of it: the letters with which a word begins, no
letter, so that a word may begin there, or None, which is anything.
"""


def _behind(sequence: Iterable[Part], place: _Place) -> _Place:
    """What is known behind parts, by what is known in front of them."""
    for kind, inside in sequence:
        if kind == "LITERAL" and inside in _SMALL:
            place = {begun if begun is None else begun + inside: known for begun, known in place.items()}
        else:
            place = _behind_part(kind, inside, place)
    return place


def _behind_part(kind: str, inside: Any, place: _Place) -> _Place:
    match kind, inside:
        case "BRANCH" | "IN", alternatives:
            return _met([_behind(each, place) for each in alternatives])
        case "REPEAT", (least, most, inner):
            once = _behind(inner, place)
            often = _behind(inner, _ended(once, None)) if most > 1 else {}
            return _met([{} if least else place, once, often])
        case "CATEGORY_DIGIT", _:
            return {None: (*_ended(place, None)[None], frozenset({_NUMBER}))}
        case "ASSERT_NOT", [("IN", [[("CATEGORY_WORD", _)], *_])]:
            return _ended(place, "")
        case "ASSERT" | "ASSERT_NOT", _:
            return place
    between = kind in _BETWEEN or (kind == "LITERAL" and not re.match(r"\w", inside))
    return _ended(place, "" if between else None)


def _ended(place: _Place, then: Literal[""] | None) -> _Place:
    """What is known where words that have begun are over, or where they may go on with anything."""
    least = 1 if then == "" else _LEAST
    return {then: _either([known + _beginning(begun, least) for begun, known in place.items()])}


def _beginning(begun: str | None, least: int) -> _Known:
    return (frozenset({begun[:_LETTERS]}),) if begun and len(begun) >= least else ()


def _met(ways: Iterable[_Place]) -> _Place:
    """What is known where ways through a pattern meet."""
    met = defaultdict[str | None, list[_Known]](list)
    for way in ways:
        for begun, known in way.items():
            met[begun].append(known)
    return {begun: _either(each) for begun, each in met.items()}


def _either(each: Sequence[_Known]) -> _Known:
    """What is known where one or another is: what all of them are, and a hint that is made of one of each."""
    if len(each) == 1:
        return each[0]
    shared = [hint for hint in each[0] if all(hint in known for known in each)]
    words = set[str]()
    for known in each if all(each) else ():
        words |= min((hint - words for hint in known), key=_cost)
    return (*shared, frozenset(words)) if words else ()


def _cost(hint: Set[str]) -> int:
    return len(hint) + _COST * len(hint & _COMMON)
