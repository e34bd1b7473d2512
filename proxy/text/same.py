"""Tell which texts say the same: by their telling words, in their order. Pure; no text is merged with another.

A sentence says another one if it begins with the same telling words; the user's own may go on with them behind a comma,
and needs no words for the user: "For four, and I'm vegetarian" says "The user is vegetarian".
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import NamedTuple

from proxy.text.fold import DENIALS, NEGATIONS, STOP_WORDS, folded, stem, words
from proxy.text.language import stop_words
from proxy.text.tables import table

_SENTENCE = re.compile(r"(?<=[.!?])\s+|[。！？؟।\n]+")
_QUESTION = ("?", "？", "؟")
_TURN = re.compile(r"^\s*(?:\d+:|->|-)\s+")
_COMMA = re.compile(r"[,;，；、،]\s*")
_WORD = re.compile(r"[^\W_]+")
_ELISION = re.compile(r"(?<=\w)['’]\w{1,2}\b")
"""The end of `I'm` and `user's`."""
_KNOWN = STOP_WORDS["en"] | STOP_WORDS["es"]
"""Words that say little in the languages whose denials are known."""
_LITTLE = frozenset[str]().union(*STOP_WORDS.values())
_MOST = 3
"""Texts from which on the word that most of them begin with names the user."""


class StatedSentence(NamedTuple):
    """A sentence by its telling words."""

    terms: tuple[str, ...]
    few: tuple[str, ...]
    """The terms without the words that say little in any language."""
    denies: bool


def statements(text: str) -> Iterator[StatedSentence]:
    """Yield the statements of a text; a question states nothing."""
    for sentence in _sentences(text):
        yield _statement(first_person(sentence))


def own_statements(text: str) -> Iterator[StatedSentence]:
    """Yield what a user's own text states, and what its sentences go on with behind a comma."""
    for sentence in _sentences(text):
        for begin in (0, *(comma.end() for comma in _COMMA.finditer(sentence))):
            yield _statement(first_person(sentence[begin:]))


def first_person(text: str) -> str:
    """Return a text about the user as the user would say it: `The user lives in Rome` as `I live in Rome`."""
    for pattern, form in _forms():
        text = pattern.sub(form, text, count=1)
    return text


def subject(texts: Sequence[str]) -> str:
    """Return the term that most of a user's texts begin with, which names the user; empty where there is none."""
    begin = [each.few[0] for text in texts for each in [*statements(text)][:1] if each.few]
    best = max(set(begin), key=begin.count, default="")
    return best if len(begin) >= _MOST and 2 * begin.count(best) > len(begin) else ""


class KnownStatements:
    """Statements that stand in a prompt already."""

    def __init__(self) -> None:
        self._others: dict[str, list[StatedSentence]] = {}
        self._own: dict[str, list[StatedSentence]] = {}

    def add(self, stated: Iterable[StatedSentence], *, own: bool) -> None:
        """Add statements: of the user's `own`, or about the user."""
        for each in stated:
            if each.terms:
                self._others.setdefault(each.terms[0], []).append(each)
            if own and each.few:
                self._own.setdefault(each.few[0], []).append(each)

    def says(self, text: str, user: str = "") -> bool:
        """Return whether each sentence of a text is stated; `user` is a term that names the user in it."""
        found = [*statements(text)]
        return bool(found) and all(self._states(each, user) for each in found)

    def takes(self, text: str, user: str = "") -> bool:
        """Add what a text says, unless all of it is stated; return whether it was added."""
        if self.says(text, user):
            return False
        self.add(statements(text), own=False)
        return True

    def _states(self, wanted: StatedSentence, user: str) -> bool:
        size = len(wanted.terms)
        if not size:
            return True
        if any(
            each.denies == wanted.denies and each.terms[:size] == wanted.terms
            for each in self._others.get(wanted.terms[0], ())
        ):
            return True
        # whichever the user's own words say of the matter, they count
        few = wanted.few[1:] if user and wanted.few[:1] == (user,) else wanted.few
        return bool(few) and any(each.few[: len(few)] == few for each in self._own.get(few[0], ()))


def telling(text: str) -> tuple[str, ...]:
    """Return the stems of a text's words in order, without those that say little in English or Spanish."""
    found = _words(text)
    little = stop_words(found) & _KNOWN or _KNOWN
    return tuple(_stem(word) for word in found if word not in little)


def is_repetition(one: Sequence[str], other: Sequence[str], least: float) -> bool:
    """Return whether the terms of one text are those of another one in their order, but for a share of few words."""
    short, long = sorted((one, other), key=len)
    if not short or len(short) < least * len(long):
        return False
    rest = iter(long)
    return all(term in rest for term in short) and not any(
        term not in short and any(map(str.isdigit, term)) for term in long
    )


def denies(text: str) -> bool:
    """Return whether a text denies something, in English or Spanish."""
    return any(word in NEGATIONS or word in DENIALS or word.endswith(("n't", "n’t")) for word in words(text))


def _sentences(text: str) -> Iterator[str]:
    for sentence in _SENTENCE.split(text):
        if sentence.strip() and not sentence.rstrip().endswith(_QUESTION):
            yield _TURN.sub("", sentence.strip())


def _statement(sentence: str) -> StatedSentence:
    found = _words(sentence)
    little = stop_words(found) or _LITTLE
    few = tuple(_stem(word) for word in found if word not in little and (len(word) > 1 or not word.isalpha()))
    return StatedSentence(telling(sentence), few, denies(sentence))


def _stem(word: str) -> str:
    return stem(word) if word.isalpha() else word


def _words(text: str) -> list[str]:
    return _WORD.findall(folded(_ELISION.sub("", text)))


@cache
def _forms() -> tuple[tuple[re.Pattern[str], str], ...]:
    return tuple((re.compile(pattern, re.IGNORECASE), form) for pattern, form in table("remembered"))
