"""What Spanish words mean in English, for ranking texts that are in English: no translation, a gloss. Pure.

The words are those with which people ask for things to be done: verbs and nouns of tools. A key stands for all words
that begin with it, the longest key first, so that `envi` is `enviar`, `envía` and `envíame`; up to three letters it
stands for words of at most five. Accents do not count.
"""

import re
from types import MappingProxyType

from proxy.text.fold import STOP_WORDS, unaccented
from proxy.text.tables import lines

_LONGEST = 12
_EXACT = 3
_SHORT = 5
_WORD = re.compile(r"[^\W\d_]+")
_SPANISH, _ENGLISH = STOP_WORDS["es"], STOP_WORDS["en"]
_ENGLISH_ALONE = _ENGLISH - _SPANISH
_BOTH = _SPANISH & _ENGLISH
"""Words of both languages: they tell nothing."""


WORDS = MappingProxyType(dict(pair.split(maxsplit=1) for pair in " ".join(lines("glossary")).split(";")))
"""The beginning of a Spanish word and its English."""
_FIRST = frozenset([key[:_EXACT] for key in WORDS])
"""How words with a meaning begin."""


def english(text: str) -> str | None:
    """A text's English gloss, word by word, words without one as they are; None for a text that is not Spanish."""
    words = [unaccented(word).lower() for word in _WORD.findall(text)]
    meanings = {word: _meaning(word) for word in words}
    telling = [word for word in words if word not in _BOTH and meanings[word] != word]
    spanish = sum(word in _SPANISH or meanings[word] is not None for word in telling)
    foreign = sum(word in _ENGLISH_ALONE for word in words)
    if not spanish or spanish * 2 < len(telling) or foreign * 3 > spanish:
        return None
    return " ".join(meanings[word] or word for word in words if word not in _SPANISH) or None


def _meaning(word: str) -> str | None:
    if word[:_EXACT] not in _FIRST:
        return None
    shortest = 0 if len(word) <= _SHORT else _EXACT
    for length in range(min(len(word), _LONGEST), shortest, -1):
        meaning = WORDS.get(word[:length])
        # two letters begin too much
        if meaning is not None and (length >= _EXACT or length == len(word)):
            return meaning
    return None
