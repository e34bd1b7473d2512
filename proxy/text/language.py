"""In which language a text is, told by its most common words; only where that is beyond doubt. Pure."""

import re
from functools import cache

from proxy.text.tables import lines, word_lists

NAMES = {
    "de": "German",
    "en": "English",
    "es": "Spanish",
    "fr": "French",
    "it": "Italian",
    "pt": "Portuguese",
}
"""The languages that are told apart, and their names."""

_WORDS = word_lists("common_words")
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
    """The code of a text's language (`es`); None where it is none of `NAMES`, is too short, or is mixed."""
    words = [word.lower() for word in _WORD.findall(_QUOTED.sub(" ", text[:_READ]))]
    if len(words) < _FEWEST:
        return None
    counts = sorted(((sum(word in known for word in words), name) for name, known in _WORDS.items()), reverse=True)
    (most, name), (next_most, _) = counts[:2]
    if most < max(_FEWEST, _SHARE * len(words)) or most < _LEAD * next_most:
        return None
    return name


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
