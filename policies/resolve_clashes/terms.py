"""Words of English and Spanish as terms that can be compared: lower case, no accents, cut to their stems. Pure."""

import re
from collections.abc import Mapping, Sequence

from proxy.text.fold import stem
from proxy.text.tables import sections

_ACCENTED = "áàâäéèêëíìîïóòôöúùûüñç’‘´`"
_PLAIN = "aaaaeeeeiiiioooouuuunc''''"
_FOLD = str.maketrans(_ACCENTED, _PLAIN)
_WORD = re.compile(r"[a-z0-9]+")
WORDS: Mapping[str, Sequence[str]] = sections("clashes/words")
"""The lines of `data/clashes/words.txt` by their section."""


def listed(name: str) -> list[str]:
    """Return the words of a section."""
    return " ".join(WORDS[name]).split()


_STOP = frozenset(listed("stop"))

_CONTRACTIONS = (
    ("can", re.compile(r"\bcan[' ]?t\b|\bcannot\b"), "can not"),
    ("won", re.compile(r"\bwon[' ]?t\b"), "will not"),
    ("m", re.compile(r"\bi ?m\b"), "i'm"),
    ("ve", re.compile(r"\bi ?ve\b"), "i've"),
    (
        "t",
        re.compile(r"\b(do|does|did|is|was|are|were|have|has|had|would|could|should|need|must|ai)n[' ]?t\b"),
        r"\1 not",
    ),
)
"""What is written out: a part of it, the pattern, and what it is to be."""
_ALIKE = {name: word for word, *names in map(str.split, WORDS["alike"]) for name in names}
_NAMED = re.compile(rf"\b(?:{'|'.join(_ALIKE)})\b")
_SPACED = re.compile(r"\s+(?='(?:m|s|ve|re|ll|d)\b)|(?<=\s)\s+")


def fold(text: str) -> str:
    """A text in lower case and without accents, as long as it was."""
    low = text.lower()
    return (low if len(low) == len(text) else text).translate(_FOLD)


def expanded(folded: str) -> str:
    """A folded text with its negations written out: `do not` for `don't` and `dont`; and with its words set alike."""
    folded = _SPACED.sub("", folded)
    for part, pattern, full in _CONTRACTIONS:
        if part in folded:
            folded = pattern.sub(full, folded)
    if not _ALIKE.keys().isdisjoint(words(folded)):
        folded = _NAMED.sub(lambda match: _ALIKE[match[0]], folded)
    return folded


def words(folded: str) -> list[str]:
    """The words of a folded text."""
    return _WORD.findall(folded)


def terms(folded: str) -> frozenset[str]:
    """The stems of the words that say something."""
    return frozenset(ordered(folded))


def ordered(folded: str) -> tuple[str, ...]:
    """The same in their order."""
    return tuple(stem(word) for word in words(folded) if is_term(word))


def is_term(word: str) -> bool:
    """Whether a word says something."""
    return word not in _STOP and (len(word) > 1 or word.isdigit())


_LIGHT = frozenset(map(stem, listed("light")))


def telling(stems: frozenset[str]) -> frozenset[str]:
    """Those stems that say what a request is about: no numbers, no words of asking itself."""
    return frozenset(each for each in stems if each not in _LIGHT and not each[0].isdigit())
