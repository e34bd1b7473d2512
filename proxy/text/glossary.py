"""An English gloss of Spanish requests, for ranking English texts such as tool descriptions. Pure.

A key matches the words that begin with it, the longest key first; one of up to three letters, words of at most five.
"""

import re
from functools import lru_cache
from types import MappingProxyType

from proxy.text.fold import STOP_WORDS, unaccented
from proxy.text.tables import lines

_LONGEST = 12
_EXACT = 3
_SHORT = 5
_REMEMBERED = 8192
_WORD = re.compile(r"[^\W\d_]+")
_SPANISH, _ENGLISH = STOP_WORDS["es"], STOP_WORDS["en"]
_ENGLISH_ALONE = _ENGLISH - _SPANISH
_BOTH = _SPANISH & _ENGLISH
"""Stop words of both languages, which tell nothing about the language."""

WORDS = MappingProxyType(dict(pair.split(maxsplit=1) for pair in " ".join(lines("glossary")).split(";")))
_FIRST = frozenset([key[:_EXACT] for key in WORDS])


def english(text: str) -> str | None:
    """Return the gloss of a Spanish text word by word, unknown words unchanged; None for a text in another language."""
    words = _WORD.findall(unaccented(text).lower())
    foreign = sum(map(_ENGLISH_ALONE.__contains__, words))
    if foreign * 3 > len(words):  # most texts
        return None
    meanings = {word: _meaning(word) for word in words}
    telling = [word for word in words if word not in _BOTH and meanings[word] != word]
    spanish = sum(word in _SPANISH or meanings[word] is not None for word in telling)
    if not spanish or spanish * 2 < len(telling) or foreign * 3 > spanish:
        return None
    return " ".join(meanings[word] or word for word in words if word not in _SPANISH) or None


@lru_cache(_REMEMBERED)
def _meaning(word: str) -> str | None:
    if word[:_EXACT] not in _FIRST:
        return None
    shortest = 0 if len(word) <= _SHORT else _EXACT
    for length in range(min(len(word), _LONGEST), shortest, -1):
        meaning = WORDS.get(word[:length])
        # a key of two letters would match too many words, so it matches that word only
        if meaning is not None and (length >= _EXACT or length == len(word)):
            return meaning
    return None
