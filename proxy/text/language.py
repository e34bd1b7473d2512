"""In which language a text is, told by its words that say little, such as articles. Pure."""

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
"""The languages that are told apart, and their names."""

_WORD = re.compile(r"[^\W\d_]+")
_QUOTED = re.compile(r"```.*?(?:```|\Z)|`[^`\n]*`|https?://\S+|\"[^\"\n]*\"|«[^»\n]{0,400}»|“[^”\n]{0,400}”", re.DOTALL)
"""What may be in any language: code, addresses, quotations."""
_OWN = "="
_READ = 6000
_FEWEST = 4
"""The words of a language that have to be there."""
_SHARE = 0.2
"""The share of a text's words that they are at least: it is a third to a half in ordinary prose."""
_LEAD = 1.6
"""How many times as many there are as of any other language."""


def language(text: str) -> str | None:
    """The code of a text's language (`es`), only where it is beyond doubt.

    None where it is none of `NAMES`, is too short, or is mixed.
    """
    words = [folded(word) for word in _WORD.findall(_QUOTED.sub(" ", text[:_READ]))]
    (most, name), (next_most, _), *_ = _counts(words)
    if most < max(_FEWEST, _SHARE * len(words)) or most < _LEAD * next_most:
        return None
    return name


def saying_little(words: Iterable[str]) -> frozenset[str]:
    """The words that say little in the language of these words, which are folded, as those that it returns.

    Two such words tell the language. Empty where there are fewer, or two languages have as many.
    """
    (most, name), (next_most, _), *_ = _counts(words)
    return STOP_WORDS[name] if most > max(1, next_most) else frozenset()


def _counts(words: Iterable[str]) -> list[tuple[int, str]]:
    """How many of the words each language has that say little, the most first."""
    words = list(words)
    return sorted(((sum(map(known.__contains__, words)), name) for name, known in STOP_WORDS.items()), reverse=True)


def named(text: str) -> frozenset[str]:
    """The codes of the languages that a text names; `?` is another language, `-` languages at large or translation.

    The user's own language is no other one: "answer in the user's language" names none.
    """
    codes, pattern = _named()
    return frozenset(codes[found.lastindex - 1] for found in pattern.finditer(text) if found.lastindex) - {_OWN}


@cache
def _named() -> tuple[list[str], re.Pattern[str]]:
    named = [line.split() for line in lines("languages")]
    groups = ("|".join(names) for _, *names in named)
    pattern = re.compile(rf"\b(?:{'|'.join(f'({group})' for group in groups)})\w{{0,2}}\b", re.IGNORECASE)
    return [code for code, *_ in named], pattern
