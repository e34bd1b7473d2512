"""Search by words: the terms of texts, and the BM25 ranking over them. Pure."""

import re
from array import array
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property, lru_cache
from itertools import chain
from sys import intern
from typing import NamedTuple

from proxy.text import arrays
from proxy.text.arrays import Array
from proxy.text.fold import STOP_WORDS, UNSPACED, WORD, unaccented
from proxy.text.language import stop_words

K1 = 1.2
"""Saturation of BM25: a lower value lets repeated terms count less."""
B = 0.75
"""Length normalisation of BM25: a higher value lets long texts count less."""

_MOST = 40
"""Largest number of terms that are read from a query: a question has fewer, a pasted page hundreds."""

_COMMON = 1 / 3
"""Share of the texts above which a term is common, and tells them apart no more."""
_FEW = 12
"""Number of texts below which no term is common."""
_DIGITS = 4
"""Digits from which on a number tells texts apart; shorter numbers occur anywhere."""

_KIND = "i"

_REMEMBERED = 10_000
"""Words whose terms are cached: most words of a text are among them."""
_LONGEST = 40

_WORD = re.compile(WORD)
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_UNSPACED = re.compile(f"[{UNSPACED}]")
_DOUBLED = frozenset(letter * 2 for letter in "bdgmnprt")
_VOWELS = frozenset("aeiouy")
_STOP = STOP_WORDS["en"] | STOP_WORDS["es"]


def terms(text: str) -> list[str]:
    """Return the terms of a text in order: stems of words and of parts of `camelCase`, pairs of unspaced characters."""
    return [term for word in _words(text) for term in _terms(word)]


def ends(text: str, most: int) -> str:
    """Return a text, or the first and last half of `most` characters of a longer one."""
    return text if len(text) <= most else f"{text[: most // 2]}\n{text[-most // 2 :]}"


class Index(NamedTuple):
    """An inverted index of texts, built once for many queries."""

    lengths: tuple[int, ...]
    postings: Mapping[str, "array[int]"]
    """For each term the places of the texts that contain it, each followed by the count; never changed in place."""


def index(texts: Iterable[str]) -> Index:
    """Build the index of texts, in about 0.05 ms for 100 words."""
    lengths: list[int] = []
    postings: dict[str, array[int]] = {}
    for place, text in enumerate(texts):
        words = terms(text)
        lengths.append(len(words))
        once = array(_KIND, (place, 1))  # shared by all terms that occur once in this text, as most do
        for term, count in Counter(words).items():
            posting = once if count == 1 else array(_KIND, (place, count))
            there = postings.get(term)
            postings[term] = posting if there is None else there + posting
    return Index(tuple(lengths), postings)


def joined(indexes: Iterable[Index]) -> Index:
    """Return one index of all texts, in the order of the indexes."""
    lengths: list[int] = []
    postings: dict[str, array[int]] = {}
    for each in indexes:
        start = len(lengths)
        lengths += each.lengths
        for term, posting in each.postings.items():
            more = postings.setdefault(term, array(_KIND))
            more += posting
            for place in range(len(more) - len(posting), len(more), 2):
                more[place] += start
    return Index(tuple(lengths), postings)


class Fits:
    """The relevance of texts for a query: arrays with a value for each text, worked out when they are asked for."""

    def __init__(self, query: str, indexes: Sequence[Index]) -> None:
        """Look for the query's terms in the texts of some indexes, in the order of the indexes and of their texts."""
        numpy = arrays.numpy()
        self._indexes = indexes
        self._query, self._texts = query_terms(query), sum([len(each.lengths) for each in indexes])
        self.wanted = len(self._query)
        matches: list[tuple[int, array[int], int]] = []  # a term's number, its posting, and the place of its first text
        begin = 0
        for each in indexes:
            for number, posting in enumerate(map(each.postings.get, self._query)):
                if posting is not None:
                    matches.append((number, posting, begin))
            begin += len(each.lengths)
        numbers, postings, begins = zip(*matches, strict=True) if matches else ((), (), ())
        sizes = numpy.array([*map(len, postings)], int) // 2
        pairs = numpy.frombuffer(b"".join(postings), _KIND).reshape(-1, 2)
        of_term = numpy.array(numbers, int)
        self._places = pairs[:, 0] + numpy.array(begins, int).repeat(sizes)
        self._counts, self._of_pair = pairs[:, 1], of_term.repeat(sizes)
        self._having = numpy.bincount(of_term, sizes, self.wanted)
        self._rarity = numpy.log(1 + (self._texts - self._having + 0.5) / (self._having + 0.5))

    def _summed(self, weights: Array) -> Array:
        return arrays.numpy().bincount(self._places, weights, self._texts)

    @cached_property
    def scores(self) -> Array:
        """BM25 scores, comparable within one query."""
        lengths = arrays.numpy().array([*chain.from_iterable(each.lengths for each in self._indexes)], float)
        mean = float(lengths.mean()) if self._texts else 0.0
        norms = K1 * (1 - B + B * lengths / (mean or 1.0))
        weights = self._rarity[self._of_pair] * (K1 + 1) * self._counts / (self._counts + norms[self._places])
        return self._summed(weights)

    @cached_property
    def shares(self) -> Array:
        """Share of the query's terms in the text, from 0 to 1, weighted by rarity."""
        return self._summed(self._rarity[self._of_pair]) / (self._rarity.sum() or 1.0)

    @cached_property
    def terms(self) -> Array:
        """Number of the query's terms in the text."""
        return arrays.numpy().bincount(self._places, minlength=self._texts)

    @cached_property
    def telling(self) -> Array:
        """Number of the query's terms in the text that few texts contain, without short numbers."""
        numpy = arrays.numpy()
        is_rare = (self._having <= self._texts * _COMMON) | (self._texts < _FEW)
        is_long = numpy.array([not (term.isdecimal() and len(term) < _DIGITS) for term in self._query], bool)
        return numpy.bincount(self._places[(is_rare & is_long)[self._of_pair]], minlength=self._texts)


def query_terms(query: str) -> list[str]:
    """Return the distinct terms of a query, without stop words of its own language; of a very long one the longest."""
    words = _words(query)
    lowered = [*map(str.lower, words)]
    ignored = stop_words(lowered)
    telling = [_terms(word) for word, low in zip(words, lowered, strict=True) if low not in ignored]
    distinct = [*dict.fromkeys(chain.from_iterable(telling))]
    return distinct if len(distinct) <= _MOST else sorted(distinct, key=len, reverse=True)[:_MOST]


def scores_of(query: str, texts: Index) -> list[float]:
    """Return the BM25 score of each text, 0.0 for a text without any term of the query."""
    scores: list[float] = Fits(query, [texts]).scores.tolist()
    return scores


def _words(text: str) -> list[str]:
    return _WORD.findall(unaccented(text))


def _terms(word: str) -> tuple[str, ...]:
    return _terms_of_short(word) if len(word) <= _LONGEST else _split(word)


def _split(word: str) -> tuple[str, ...]:
    if not word.isascii() and _UNSPACED.search(word):
        return tuple([intern(word[place : place + 2]) for place in range(max(1, len(word) - 1))])
    parts = (word,) if word.islower() else _HUMP.split(word)
    return tuple([intern(_stem(part)) for each in parts if (part := each.lower()) not in _STOP])


_terms_of_short = lru_cache(_REMEMBERED)(_split)


def _stem(word: str) -> str:
    """Return the stem of a word: the same for `query` and `queries`, `make` and `making`, `error` and `errores`."""
    if len(word) < 4 or not word.isalpha():
        return word
    if word.endswith("s") and word[-2] not in "sui":
        word = word[:-1]
    if word.endswith("ing") and len(word) > 5 and not _VOWELS.isdisjoint(word[:-3]):
        word = word[:-4] if word[-5:-3] in _DOUBLED else word[:-3]
    if len(word) > 3 and word.endswith("e"):
        word = word[:-1]
    return f"{word[:-1]}i" if word.endswith("y") else word
