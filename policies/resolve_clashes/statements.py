"""Read a user's message into statements that can be compared, and the values in them. Pure.

A message is cut into clauses. Quotations, code, suppositions and reports of what others say state nothing. Values are
dates, times, amounts, places, and members of groups. Words, groups and patterns stand in `data/clashes`, in English and
Spanish.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Literal, NamedTuple

from proxy.text.fold import stem
from proxy.text.sentences import Sentence, sentences
from proxy.text.tables import either, patterns, sections
from proxy.text.values import Value, find_values

_WORD = re.compile(r"[a-z0-9]+")
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


# --- statements ---

Kind = Literal["statement", "request", "question"]

LONGEST = 6000
"""Characters of a message that are read; a pasted document follows."""
_QUOTE = 160
"""Characters of a clause that are quoted."""
_CLAUSE = 1000
"""Characters of a clause that are read."""
_MOST = 60
"""Clauses of a message that are read."""

_SIGNS = ("first", "correcting", "updated", "following", "another", "hedged")
"""Cues that a statement carries by name."""

CORRECTING = frozenset({"correcting", "following"})
"""Cues of a value that is given anew."""

_CONTRACTIONS = (
    (re.compile(r"\bcan[' ]?t\b|\bcannot\b"), "can not"),
    (re.compile(r"\bwon[' ]?t\b"), "will not"),
    (re.compile(r"\bi ?m\b"), "i'm"),
    (re.compile(r"\bi ?ve\b"), "i've"),
    (re.compile(r"\b(do|does|did|is|was|are|were|have|has|had|would|could|should|need|must|ai)n[' ]?t\b"), r"\1 not"),
)
_STOP = frozenset(listed("stop"))
LIGHT = frozenset(map(stem, listed("light")))
"""Words of any request, such as `book`."""


class Statement(NamedTuple):
    """One thing that a message says. All words are stems."""

    start: int
    end: int
    kind: Kind
    quote: str
    """The words of the user, as a note quotes them."""
    terms: frozenset[str]
    frame: tuple[str, ...]
    """The stems of its words outside values, in their order."""
    about: frozenset[str]
    """The subject: terms without values, numbers and words that any request has."""
    others: frozenset[str]
    """Others that are spoken of: a wife, a boss, `he`; and which one of several: `first`, `chapter 2`."""
    keys: frozenset[str]
    """Any two statements that clash have one of these in common."""
    values: tuple[Value, ...]
    negative: bool
    never: frozenset[str]
    """Terms of an act that the author says never took place."""
    signs: frozenset[str]
    """The cues of `_SIGNS` in it."""
    slots: frozenset[tuple[str, str]]
    """Kinds and units of its values."""

    @property
    def size(self) -> int:
        return self.end - self.start

    def of(self, text: str) -> str:
        """Return its words in the text of the message."""
        return text[self.start : self.end]


def statements(text: str) -> tuple[Statement, ...]:
    """Return the statements and requests of a user's text, in order. About a millisecond for two pages."""
    read = sentences(text[:LONGEST], longest=_CLAUSE)
    every = list(islice((each for sentence in read for each in _of_sentence(text, sentence)), _MOST))
    # a message that begins with a correction is one
    opening = every[0].signs & CORRECTING if every else frozenset[str]()
    return tuple([each._replace(signs=each.signs | opening) for each in every])


def _of_sentence(text: str, sentence: Sentence) -> Iterator[Statement]:
    whole = fold(sentence.text)
    cuts = [0, *(at for joint in CUES["joint"].finditer(whole) for at in joint.span()), len(whole)]
    pieces = [(a, b) for a, b in zip(cuts[::2], cuts[1::2], strict=True) if whole[a:b].strip(" ,.;:!?¿¡\x00")]
    asks = False
    for a, b in pieces:
        folded = whole[a:b]
        for pattern, full in _CONTRACTIONS:  # `do not` for `don't` and `dont`
            folded = pattern.sub(full, folded)
        if CUES["unstated"].search(folded) or CUES["unstated"].search(sentence.text[a:b]):
            return  # the rest of the sentence depends on it
        asks = asks or ("?" in whole and (len(pieces) == 1 or CUES["asking"].search(folded) is not None))
        kind: Kind = "request" if CUES["request"].search(folded) else "question" if asks else "statement"
        start, end = sentence.start + a, sentence.start + b
        yield _statement(start, end, kind, folded, sentence.text[a:b][: len(folded)], _quoted(text[start:end]))


def _statement(start: int, end: int, kind: Kind, folded: str, raw: str, quote: str) -> Statement:
    values = read_values(folded, raw)
    order = _terms(folded)
    rest = _outside(folded, values)
    about = telling(_terms(rest))
    return Statement(
        start=start,
        end=end,
        kind=kind,
        quote=quote,
        terms=frozenset(order),
        frame=tuple(stem(word) for word in _WORD.findall(rest) if word not in _STOP),
        about=about,
        others=frozenset(match[match.lastgroup or 0].removesuffix("s") for match in CUES["others"].finditer(folded)),
        keys=telling(order),
        values=values,
        negative=bool(CUES["negation"].search(CUES["affirmed"].sub(" ", folded))),
        never=_never(folded),
        signs=frozenset(name for name in _SIGNS if CUES[name].search(folded)),
        slots=frozenset(value.slot for value in values),
    )


def _outside(folded: str, values: tuple[Value, ...]) -> str:
    """Return a clause with its values blanked out."""
    rest = list(folded)
    for value in values:
        rest[value.start : value.end] = " " * (value.end - value.start)
    return "".join(rest)


def _never(folded: str) -> frozenset[str]:
    """Return the terms of an act that never took place."""
    match = CUES["never"].search(folded)
    words = _WORD.findall(match[match.lastgroup or 0]) if match is not None else ()
    return telling(term for word in words for term in _terms(word))


def _terms(folded: str) -> tuple[str, ...]:
    """Return the stems of the words that say something, in their order."""
    return tuple(stem(word) for word in _WORD.findall(folded) if word not in _STOP)


def telling(stems: Iterable[str]) -> frozenset[str]:
    """Return the stems that name a subject: no numbers, no words that any request has."""
    return frozenset(each for each in stems if each not in LIGHT and not each[0].isdigit())


def _quoted(text: str) -> str:
    """Return the user's words on one line, without characters that would end the quotation."""
    text = " ".join(text.split()).strip(" ,.;:").replace('"', "'").replace("<", "(").replace(">", ")")
    return text if len(text) <= _QUOTE else text[: _QUOTE - 1] + "…"
