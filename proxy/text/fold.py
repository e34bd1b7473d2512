"""Words for comparison, without case, accents and endings, and lists of English and Spanish words. Pure."""

import re
import unicodedata
from collections.abc import Iterable, Mapping
from functools import lru_cache

from proxy.text.tables import sections, word_lists

_MARKS = "".join(chr(code) for code in range(0x300, 0x1CFA) if unicodedata.category(chr(code)).startswith("M"))
WORD = rf"[^\W_]+(?:[{_MARKS}]+[^\W_]*)*"
"""A word; vowel signs of Hindi, Tamil, Thai and others are a part of it, though `\\w` does not match them."""
_WORD = re.compile(rf"{WORD}(?:['’.-]{WORD})*")
_POSSESSIVE = re.compile(r"(?<=.)['’]s$")
_ACCENTS = re.compile(
    "[\u0300-\u036f\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7\u0610-\u061a\u064b-\u065f\u0670]+"
)
"""Of Latin, Greek and Cyrillic, and the marks that Hebrew and Arabic are mostly written without."""
_ENDINGS = (
    "ations", "ation", "ments", "ment", "ings", "ing", "iers", "ier", "ers", "ies", "ied", "ists", "ist", "ians", "ian",
    "ors", "or", "er", "ar", "ir", "ias", "ia", "es", "ed", "en", "ly", "al", "s", "e", "y", "o", "a",
)  # fmt: skip

UNSPACED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff"
"""Letters of Thai, Lao, Burmese, Khmer, Chinese and Japanese, which put no spaces between words: part of a pattern."""

STOP_WORDS = word_lists("stop_words")


def unaccented(text: str) -> str:
    """Return a text without accents."""
    return text if text.isascii() else _ACCENTS.sub("", unicodedata.normalize("NFKD", text))


def folded(text: str) -> str:
    """Return a text without case and accents."""
    return text.lower() if text.isascii() else unaccented(text.casefold())


def words(text: str) -> list[str]:
    """Return the words of a text in order, folded and without a possessive `'s`."""
    plain = folded(text)
    matches: list[str] = _WORD.findall(plain)
    return [_POSSESSIVE.sub("", word) for word in matches] if "'" in plain or "’" in plain else matches


@lru_cache(maxsize=65_536)
def stem(word: str) -> str:
    """Return a rough stem: `drum` for `drums`, `drummer` and `drumming`, `viaj` for `viajo` and `viajar`."""
    for ending in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            word = word.removesuffix(ending)
            break
    doubled = len(word) > 3 and word[-1] == word[-2] and word[-1] not in "aeiou"
    return word[:-1] if doubled else word


def word_set(text: str) -> frozenset[str]:
    """Return the words of a text as a set."""
    return frozenset(text.split())


def forms(lines: Iterable[str]) -> dict[str, str]:
    """Return the name for each form, from lines such as `name: form form`."""
    rows = (line.partition(": ") for line in lines)
    return {form: name for name, _, names in rows for form in names.split()}


_WORDS = sections("vocabulary")


def _set(name: str) -> frozenset[str]:
    return word_set(" ".join(_WORDS[name]))


def _numbers(name: str) -> Mapping[str, int]:
    return {form: int(number) for form, number in forms(_WORDS[name]).items()}


NATIONS = forms(_WORDS["nations"])
MONTHS, WEEKDAYS, NUMBERS = _numbers("months"), _numbers("weekdays"), _numbers("numbers")
NEGATIONS, DENIALS = _set("negations"), _set("denials")
IS, INNER, NOT_ONE, PLACE_RELATIONS = _set("is"), _set("inner"), _set("not one"), _set("place relations")
RELATIONS = {
    form: name for name, _, all_ in (line.partition(": ") for line in _WORDS["relations"]) for form in all_.split(", ")
}
