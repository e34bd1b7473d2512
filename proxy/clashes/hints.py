"""What a text must have for a pattern to be found in it, so that most patterns need not be tried. Pure.

A hint is a set of beginnings of words, of which one stands in whatever the pattern matches. It is read from the pattern
itself, of which only so much is understood as is needed: where no beginning must be there, there is no hint.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

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
_WORD = re.compile(r"[a-z0-9]+")
_TOKEN = re.compile(
    r"(?P<edge>\\b|[\^$]|\(\?<!\[\\w[^\]]*\]\))|(?P<aside>\(\?<?[=!])|(?P<open>\((?:\?:|\?P<\w+>)?)|(?P<or>\|)|"
    r"(?:(?P<shut>\))|(?P<set>\[\^?\]?(?:\\.|[^\]\\])*\]|\\.|.))(?P<many>(?:[*+?]|\{[\d,]+\})\??)?",
    re.DOTALL,
)
_LETTER = re.compile(r"[a-z0-9]")
_OUTSIDE = re.compile(r"\\[Ws]|\\?[^\w\\.]|\\\.|\[(?:[^\w\\^\]]|\\s)+\]")
"""What matches no part of a word."""


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
    return Hinted(pattern, _either(_parsed(pattern.pattern), starts=False, ends=False).hint)


class _Atom(NamedTuple):
    """The least part of a pattern: a letter, an edge of words, what is outside of them, a group, or anything else."""

    kind: Literal["letter", "digit", "edge", "outside", "group", "any"]
    letter: str = ""
    alternatives: "tuple[tuple[_Atom, ...], ...]" = ()
    optional: bool = False
    repeated: bool = False


_Sequence = Sequence[_Atom]


def _parsed(source: str) -> tuple[tuple[_Atom, ...], ...]:
    """The alternatives of a pattern; what only looks ahead or back is left out."""
    levels: list[list[list[_Atom]]] = [[[]]]
    aside: list[bool] = []
    for token in _TOKEN.finditer(source):
        if token["aside"] or token["open"]:
            levels.append([[]])
            aside.append(bool(token["aside"]))
        elif token["shut"]:
            inner = tuple(map(tuple, levels.pop()))
            if not aside.pop():
                levels[-1][-1].append(_Atom("group", "", inner, *_times(token["many"])))
        elif token["or"]:
            levels[-1].append([])
        else:
            levels[-1][-1].append(_atom(token))
    return tuple(map(tuple, levels[0]))


def _atom(token: re.Match[str]) -> _Atom:
    if token["edge"]:
        return _Atom("edge")
    what, times = token["set"], _times(token["many"])
    if _LETTER.fullmatch(what):
        return _Atom("letter", what, (), *times)
    if what == r"\d":
        return _Atom("digit", "", (), *times)
    return _Atom("outside" if _OUTSIDE.fullmatch(what) else "any", "", (), *times)


def _times(many: str | None) -> tuple[bool, bool]:
    """Whether what is taken so many times may be missing, and whether it may come again."""
    return (many is not None and bool(re.match(r"[*?]|\{0?,", many)), many is not None and many[0] != "?")


class _Matched(NamedTuple):
    """What a part of a pattern matches."""

    hint: frozenset[str] | None
    starts: bool
    """Whether a letter behind it begins a word."""


def _either(alternatives: Sequence[_Sequence], *, starts: bool, ends: bool) -> _Matched:
    """What alternatives match: `starts` says whether their first letter begins a word, `ends` the same of the last."""
    each = [_matched(one, starts=starts, ends=ends) for one in alternatives]
    hints = [one.hint for one in each if one.hint is not None]
    every = frozenset[str]().union(*hints) if len(hints) == len(each) else None
    return _Matched(every, all(one.starts for one in each))


def _matched(atoms: _Sequence, *, starts: bool, ends: bool) -> _Matched:
    hints, run = list[frozenset[str]](), ""
    for at, atom in enumerate(atoms):
        if atom.kind == "letter" and not atom.optional and (run or starts):
            run, starts = run + atom.letter, False
            if not atom.repeated:
                continue
            hints += _begun(run, whole=False)
        elif run:
            hints += _begun(run, whole=_is_end(atoms[at:], ends=ends))
        run = ""
        if atom.kind == "digit" and starts and not atom.optional:
            hints.append(frozenset({_NUMBER}))
        if atom.kind == "group":
            after = _is_end(atoms[at + 1 :], ends=ends) and (not atom.repeated or _is_end([atom], ends=True))
            within = _either(atom.alternatives, starts=starts, ends=after)
            hints += [within.hint] if within.hint is not None and not atom.optional else []
            starts = within.starts and (starts or not atom.optional)
        else:
            starts = atom.kind == "edge" or (atom.kind == "outside" and (starts or not atom.optional))
    hints += _begun(run, whole=ends)
    return _Matched(min(hints, key=_cost, default=None), starts)


def _is_end(atoms: _Sequence, *, ends: bool) -> bool:
    """Whether a letter in front of atoms is the last one of its word; `ends` says so of one behind them."""
    for at, atom in enumerate(atoms):
        if atom.kind == "group":
            rest = _is_end(atoms[at + 1 :], ends=ends)
            return (rest or not atom.optional) and all(_is_end(one, ends=rest) for one in atom.alternatives)
        if atom.kind != "outside" or not atom.optional:
            return atom.kind in ("edge", "outside")
    return ends


def _begun(run: str, *, whole: bool) -> list[frozenset[str]]:
    """The hint that a word gives of which the first letters are known, or all."""
    return [frozenset({run[:_LETTERS]})] if run and (whole or len(run) >= _LEAST) else []


def _cost(hint: frozenset[str]) -> int:
    return len(hint) + _COST * len(hint & _COMMON)
