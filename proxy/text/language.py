"""The language of a text, by its stop words, and an English gloss of Spanish requests. Pure."""

import re
from collections.abc import Iterable
from functools import cache, lru_cache
from types import MappingProxyType

from proxy.text.fold import STOP_WORDS, folded, unaccented
from proxy.text.tables import lines

NAMES = {
    "de": "German",
    "en": "English",
    "es": "Spanish",
    "fr": "French",
    "it": "Italian",
    "pt": "Portuguese",
}

_WORD = re.compile(r"[^\W\d_]+")
_QUOTED = re.compile(r"```.*?(?:```|\Z)|`[^`\n]*`|https?://\S+|\"[^\"\n]*\"|«[^»\n]{0,400}»|“[^”\n]{0,400}”", re.DOTALL)
"""Code, URLs and quotations, which may be in any language."""
_OWN = "="
_READ = 6000
_FEWEST = 4
_SHARE = 0.2
"""Least share of stop words among all words: ordinary prose has a third to a half."""
_LEAD = 1.6
"""Least ratio of the stop words of the language to those of the next one."""


def language(text: str) -> str | None:
    """Return the code of a text's language, such as `es`; None if it is another one than `NAMES`, or uncertain."""
    words = [folded(word) for word in _WORD.findall(_QUOTED.sub(" ", text[:_READ]))]
    (most, name), (next_most, _), *_ = _counts(words)
    if most < max(_FEWEST, _SHARE * len(words)) or most < _LEAD * next_most:
        return None
    return name


def stop_words(words: Iterable[str]) -> frozenset[str]:
    """Return the stop words of the language of these folded words: of two it has, and no other language as many."""
    (most, name), (next_most, _), *_ = _counts(words)
    return STOP_WORDS[name] if most > max(1, next_most) else frozenset()


def _counts(words: Iterable[str]) -> list[tuple[int, str]]:
    words = list(words)
    return sorted(((sum(map(known.__contains__, words)), name) for name, known in STOP_WORDS.items()), reverse=True)


def named(text: str) -> frozenset[str]:
    """Return the codes of the languages that a text names; `?` for an unknown one, `-` for languages in general."""
    codes, pattern = _named()
    return frozenset(codes[match.lastindex - 1] for match in pattern.finditer(text) if match.lastindex) - {_OWN}


@cache
def _named() -> tuple[list[str], re.Pattern[str]]:
    named = [line.split() for line in lines("languages")]
    groups = ("|".join(names) for _, *names in named)
    pattern = re.compile(rf"\b(?:{'|'.join(f'({group})' for group in groups)})\w{{0,2}}\b", re.IGNORECASE)
    return [code for code, *_ in named], pattern


_LONGEST = 12
_EXACT = 3
_SHORT = 5
_REMEMBERED = 8192
_SPANISH, _ENGLISH = STOP_WORDS["es"], STOP_WORDS["en"]
_ENGLISH_ALONE = _ENGLISH - _SPANISH
_BOTH = _SPANISH & _ENGLISH
"""Stop words of both languages, which tell nothing about the language."""

WORDS = MappingProxyType(dict(pair.split(maxsplit=1) for pair in " ".join(lines("glossary")).split(";")))
"""A key matches the words that begin with it, the longest key first; one of three letters, words of at most five."""
_FIRST = frozenset([key[:_EXACT] for key in WORDS])


def english(text: str) -> str | None:
    """Return the gloss of a Spanish text word by word, unknown words unchanged; None for a text in another language."""
    words = _WORD.findall(unaccented(text).lower())
    foreign = sum(map(_ENGLISH_ALONE.__contains__, words))
    if foreign * 3 > len(words):  # most texts
        return None
    meanings = dict(zip(words, map(_meaning, words), strict=True))
    if not any(meanings.values()) and _SPANISH.isdisjoint(meanings):
        return None
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
