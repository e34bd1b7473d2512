"""Detection of the language of a text by its stop words. Pure."""

import re
from collections.abc import Iterable
from functools import cache

from proxy.text.fold import STOP_WORDS, folded
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
