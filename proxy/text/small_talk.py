"""Small talk: greetings, thanks, assent, laughter, "go on", in some thirty languages (`data/small_talk.txt`). Pure."""

import re
from functools import cache

from proxy.text.fold import UNSPACED, unaccented
from proxy.text.tables import lines

_LONGEST = 80
_NO_WORD = re.compile(r"[\W_]+")
_DRAWN = re.compile(r"(\w)\1{2,}")
_REPEATED = re.compile(r"(\w{2,3}?)\1{2,}")
_UNSPACED = re.compile(f"[{UNSPACED}]")


def is_small_talk(text: str) -> bool:
    """Return whether a text only greets, thanks, praises or laughs, or has no word at all: it needs no tool."""
    return _is_made_of(text, 1)


def asks_nothing(text: str) -> bool:
    """Return whether a text is small talk, or only agrees or says to go on: it asks for nothing in the past."""
    return _is_made_of(text, 2)


@cache
def phrases() -> tuple[str, ...]:
    """Return all phrases as people write them."""
    return tuple(dict.fromkeys(phrase for part in _parts() for phrase in part))


@cache
def _parts() -> tuple[tuple[str, ...], tuple[str, ...]]:
    halves = [line.partition(":")[2].split("/") for line in lines("small_talk")]
    talk, assent = (
        [phrase.strip() for each in part for phrase in each.split(";")] for part in zip(*halves, strict=True)
    )
    return tuple(filter(None, talk)), tuple(filter(None, assent))


@cache
def _pattern(parts: int) -> re.Pattern[str]:
    known = sorted({_plain(phrase) for part in _parts()[:parts] for phrase in part}, key=len, reverse=True)
    spaced = "|".join(re.escape(each) for each in known if not _UNSPACED.search(each))
    unspaced = "|".join(re.escape(each) for each in known if _UNSPACED.search(each))
    return re.compile(rf"(?:(?:{spaced})(?: |$)|(?:{unspaced}) ?)*+")


def _is_made_of(text: str, parts: int) -> bool:
    return len(text) <= _LONGEST and _pattern(parts).fullmatch(_plain(text)) is not None


def _plain(text: str) -> str:
    """Return a text without accents, case, punctuation and repeated letters: `hola` for `Holaaa!`."""
    bare = unaccented(text.replace("'", "").replace("’", ""))
    words = _NO_WORD.sub(" ", bare.lower()).strip()
    return _REPEATED.sub(r"\1\1", _DRAWN.sub(r"\1", words))
