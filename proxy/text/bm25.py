"""Which texts share words with a query: terms of English, Spanish and code, and the BM25 ranking over them.

Everything is a pure function of its arguments: nothing is remembered between calls.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from math import log
from sys import intern
from typing import NamedTuple

from proxy.text.fold import STOP_WORDS, unaccented

K1 = 1.2
"""How soon a term's further occurrences in a text stop to count."""
B = 0.75
"""How much a text's length counts against it."""

_MOST = 40
"""Terms of a query that are looked for: a question has fewer, a pasted page hundreds."""

_COMMON = 1 / 3
"""The share of the texts above which a term in them picks none out."""
_FEW = 12
"""With fewer texts than these, any term does."""
_DIGITS = 4
"""Digits of a number that is an identifier; a shorter one stands anywhere."""

_WORD = re.compile(r"[^\W_]+")
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_UNSPACED = re.compile("[\u3040-\u30ff\u3400-\u9fff]+")
"""Scripts that set no spaces between words."""
_DOUBLED = frozenset(letter * 2 for letter in "bdgmnprt")
_VOWELS = frozenset("aeiouy")
_STOP = STOP_WORDS["en"] | STOP_WORDS["es"]


def terms(text: str) -> list[str]:
    """The terms of a text in their order: lower case, without accents, plurals, `-ing` and words that say nothing.

    `camelCase` and `snake_case` become their parts. What has digits stays as it is. Chinese and Japanese, which set no
    spaces, become pairs of characters.
    """
    return [term for word in _words(text) for term in _terms(word)]


def ends(text: str, most: int) -> str:
    """Return as much of a text as is read as a query: of a long one half of `most` characters from each end."""
    return text if len(text) <= most else f"{text[: most // 2]}\n{text[-most // 2 :]}"


class Index(NamedTuple):
    """Where the terms of some texts stand: made once for texts that are asked about again and again."""

    lengths: tuple[int, ...]
    """How many terms each text has."""
    postings: Mapping[str, tuple[int, ...]]
    """By term, the place of each text that has it, followed by how often."""


def index(texts: Iterable[str], known: dict[str, list[str]] | None = None) -> Index:
    """The index of texts; about 0.05 ms for 100 words, less with `known`, the terms of words that came before."""
    known = {} if known is None else known
    lengths: list[int] = []
    postings: dict[str, tuple[int, ...]] = {}
    once: dict[int, tuple[int, ...]] = {}
    for place, text in enumerate(texts):
        found: list[str] = []
        for word in _words(text):
            parts = known.get(word)
            if parts is None:
                parts = known[word] = [intern(term) for term in _terms(word)]
            found += parts
        lengths.append(len(found))
        for term, count in Counter(found).items():
            # most terms stand once in one text: they share one value
            posting = once.setdefault(place, (place, 1)) if count == 1 else (place, count)
            there = postings.get(term)
            postings[term] = posting if there is None else there + posting
    return Index(tuple(lengths), postings)


def joined(first: Index, others: Iterable[Index]) -> Index:
    """The index of all texts, those of the first one before those of the others."""
    lengths, added = [*first.lengths], dict[str, list[int]]()
    for each in others:
        start = len(lengths)
        lengths += each.lengths
        for term, posting in each.postings.items():
            more = added.setdefault(term, [])
            more += posting
            for place in range(len(more) - len(posting), len(more), 2):
                more[place] += start
    if not added:
        return Index(tuple(lengths), first.postings)
    postings = {**first.postings}
    for term, more in added.items():
        postings[term] = (*postings.get(term, ()), *more)
    return Index(tuple(lengths), postings)


class Fit(NamedTuple):
    """How well a text fits a query."""

    score: float = 0.0
    """BM25: for comparing texts with each other."""
    share: float = 0.0
    """The part of the query that the text has, from 0 to 1, a rare term counting more than a common one."""
    terms: int = 0
    """How many terms of the query it has."""
    wanted: int = 0
    """How many terms the query has."""
    telling: int = 0
    """How many terms of the query it has that few of the texts have; short numbers are none."""


def fits(query: str, indexes: Sequence[Index]) -> list[Fit]:
    """How well each text fits a query, in the order of the indexes and of their texts."""
    lengths = [length for each in indexes for length in each.lengths]
    begins = list(accumulate((len(each.lengths) for each in indexes), initial=0))
    mean = sum(lengths) / max(1, len(lengths)) or 1.0
    norms = [K1 * (1 - B + B * length / mean) for length in lengths]
    scores, shares = [0.0] * len(lengths), [0.0] * len(lengths)
    having, few = [0] * len(lengths), [0] * len(lengths)
    whole = 0.0
    telling = _telling(query)
    for term in telling:
        places: list[int] = []
        counts: list[int] = []
        for begin, each in zip(begins, indexes, strict=False):
            posting = each.postings.get(term)
            if posting is None:
                continue
            if len(posting) == 2:
                places.append(begin + posting[0])
                counts.append(posting[1])
            else:
                places += [begin + text for text in posting[::2]]
                counts += posting[1::2]
        rarity = log(1 + (len(lengths) - len(places) + 0.5) / (len(places) + 0.5))
        whole += rarity
        is_rare = len(lengths) < _FEW or len(places) <= len(lengths) * _COMMON
        is_telling = is_rare and not (term.isdecimal() and len(term) < _DIGITS)
        weight = rarity * (K1 + 1)
        for place, count in zip(places, counts, strict=True):
            scores[place] += weight * count / (count + norms[place])
            shares[place] += rarity
            having[place] += 1
        if is_telling:
            for place in places:
                few[place] += 1
    none = Fit()
    return [
        Fit(scores[place], shares[place] / whole, count, len(telling), few[place]) if count else none
        for place, count in enumerate(having)
    ]


def _telling(query: str) -> list[str]:
    """The different terms of a query; of a very long one the longest, which tend to be the rare ones."""
    found = list(dict.fromkeys(terms(query)))
    return found if len(found) <= _MOST else sorted(found, key=len, reverse=True)[:_MOST]


class Lexical:
    """Texts to be ranked for queries, by BM25."""

    def __init__(self, texts: Sequence[str]) -> None:
        self._index = index(texts)

    def scores(self, query: str) -> list[float]:
        """How well each text fits, in the order of the texts; 0.0 for one that has no term of the query."""
        return [fit.score for fit in fits(query, [self._index])]


def _words(text: str) -> list[str]:
    return _WORD.findall(unaccented(text))


def _terms(word: str) -> list[str]:
    """The terms of one word, which may be an identifier of several."""
    if not word.isascii() and _UNSPACED.search(word):
        return [word[place : place + 2] for place in range(max(1, len(word) - 1))]
    parts = (word,) if word.islower() else _HUMP.split(word)
    return [_stem(part) for each in parts if (part := each.lower()) not in _STOP]


def _stem(word: str) -> str:
    """A word without its ending; the same for `query` and `queries`, `make` and `making`, `error` and `errores`."""
    if len(word) < 4 or not word.isalpha():
        return word
    if word.endswith("s") and word[-2] not in "sui":
        word = word[:-1]
    if word.endswith("ing") and len(word) > 5 and not _VOWELS.isdisjoint(word[:-3]):
        word = word[:-4] if word[-5:-3] in _DOUBLED else word[:-3]
    if len(word) > 3 and word.endswith("e"):
        word = word[:-1]
    return f"{word[:-1]}i" if word.endswith("y") else word
