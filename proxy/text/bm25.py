"""Which texts share words with a query: terms, and the BM25 ranking over them. Pure."""

import re
from array import array
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from sys import intern
from typing import NamedTuple

from proxy.text import arrays
from proxy.text.arrays import Array
from proxy.text.fold import STOP_WORDS, unaccented
from proxy.text.language import saying_little

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

_KIND = "i"
"""Whole numbers of 32 bits."""

_REMEMBERED = 10_000
"""Words whose terms are remembered: most words of a text are among them."""
_LONGEST = 40
"""Characters that such a word has at most."""

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
    postings: Mapping[str, "array[int]"]
    """By term, the place of each text that has it, followed by how often; they are never changed."""


def index(texts: Iterable[str]) -> Index:
    """The index of texts; about 0.05 ms for 100 words."""
    lengths: list[int] = []
    postings: dict[str, array[int]] = {}
    for place, text in enumerate(texts):
        found = terms(text)
        lengths.append(len(found))
        once = array(_KIND, (place, 1))  # most terms stand once in one text: they share one value
        for term, count in Counter(found).items():
            posting = once if count == 1 else array(_KIND, (place, count))
            there = postings.get(term)
            postings[term] = posting if there is None else there + posting
    return Index(tuple(lengths), postings)


def joined(first: Index, others: Iterable[Index]) -> Index:
    """The index of all texts, those of the first one before those of the others."""
    lengths = [*first.lengths]
    added: dict[str, array[int]] = {}
    for each in others:
        start = len(lengths)
        lengths += each.lengths
        for term, posting in each.postings.items():
            more = added.setdefault(term, array(_KIND))
            more += posting
            for place in range(len(more) - len(posting), len(more), 2):
                more[place] += start
    none = array(_KIND)
    postings = {**first.postings, **{term: first.postings.get(term, none) + more for term, more in added.items()}}
    return Index(tuple(lengths), postings)


class Fits(NamedTuple):
    """How well texts fit a query: arrays with a value for each text."""

    scores: Array
    """BM25: for comparing texts with each other."""
    shares: Array
    """The part of the query that the text has, from 0 to 1, a rare term counting more than a common one."""
    terms: Array
    """How many terms of the query it has."""
    telling: Array
    """How many terms of the query it has that few of the texts have; short numbers are none."""
    wanted: int
    """How many terms the query has."""


def fits(query: str, indexes: Sequence[Index]) -> Fits:
    """How well each text fits a query, in the order of the indexes and of their texts."""
    numpy = arrays.numpy()
    lengths = numpy.array([length for each in indexes for length in each.lengths], float)
    texts, terms = len(lengths), query_terms(query)
    found: list[array[int]] = []
    begins: list[int] = []  # of each posting found, where the texts of its index begin
    numbers: list[int] = []  # and which term of the query it is of
    begin = 0
    for each in indexes:
        for number, term in enumerate(terms):
            posting = each.postings.get(term)
            if posting is not None:
                found.append(posting)
                begins.append(begin)
                numbers.append(number)
        begin += len(each.lengths)
    sizes = numpy.array([len(posting) // 2 for posting in found], int)
    pairs = numpy.frombuffer(b"".join(found), _KIND).reshape(-1, 2)
    places, counts = pairs[:, 0] + numpy.array(begins, int).repeat(sizes), pairs[:, 1]
    of_term = numpy.array(numbers, int)
    having = numpy.bincount(of_term, sizes, len(terms))
    rarity = numpy.log(1 + (texts - having + 0.5) / (having + 0.5))
    is_rare = (having <= texts * _COMMON) | (texts < _FEW)
    is_telling = is_rare & numpy.array([not (term.isdecimal() and len(term) < _DIGITS) for term in terms], bool)
    mean = float(lengths.mean()) if texts else 0.0
    norms = K1 * (1 - B + B * lengths / (mean or 1.0))
    rarities = rarity[of_term].repeat(sizes)
    weights = rarities * (K1 + 1) * counts / (counts + norms[places])
    return Fits(
        numpy.bincount(places, weights, texts),
        numpy.bincount(places, rarities, texts) / (rarity.sum() or 1.0),
        numpy.bincount(places, minlength=texts),
        numpy.bincount(places[is_telling[of_term].repeat(sizes)], minlength=texts),
        len(terms),
    )


def query_terms(query: str) -> list[str]:
    """The different terms of a query; of a very long one the longest, which tend to be the rare ones.

    Words that say little in the query's own language are left out. Texts keep them, unless they say little in English
    or Spanish: `die` says little in German and much in English.
    """
    words = _words(query)
    little = saying_little(map(str.lower, words))
    found = list(dict.fromkeys(term for word in words if word.lower() not in little for term in _terms(word)))
    return found if len(found) <= _MOST else sorted(found, key=len, reverse=True)[:_MOST]


class Lexical:
    """Texts to be ranked for queries, by BM25."""

    def __init__(self, texts: Sequence[str]) -> None:
        self._index = index(texts)

    def scores(self, query: str) -> list[float]:
        """How well each text fits, in the order of the texts; 0.0 for one that has no term of the query."""
        scores: list[float] = fits(query, [self._index]).scores.tolist()
        return scores


def _words(text: str) -> list[str]:
    return _WORD.findall(unaccented(text))


def _terms(word: str) -> tuple[str, ...]:
    """The terms of one word, which may be an identifier of several."""
    return _terms_of_short(word) if len(word) <= _LONGEST else _split(word)


def _split(word: str) -> tuple[str, ...]:
    if not word.isascii() and _UNSPACED.search(word):
        return tuple([intern(word[place : place + 2]) for place in range(max(1, len(word) - 1))])
    parts = (word,) if word.islower() else _HUMP.split(word)
    return tuple([intern(_stem(part)) for each in parts if (part := each.lower()) not in _STOP])


_terms_of_short = lru_cache(_REMEMBERED)(_split)


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
