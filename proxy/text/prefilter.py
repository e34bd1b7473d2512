"""The words that a text must have for a regular expression to find anything in it: a quick look first. Pure."""

from collections.abc import Iterable, Iterator
from re import IGNORECASE, _parser  # type: ignore[attr-defined]
from re import compile as compile_
from typing import Any

Needs = tuple[tuple[str, ...], ...]
"""Of each of these at least one stands in every text in which the expression finds anything."""

_SHORT = 3
"""Characters of a word that tells little."""

_ALIKE = str.maketrans({"İ": "i", "ı": "i", "ſ": "s"})
"""Letters that match another one where case does not count, though that is not their small letter."""


def small(text: str) -> str:
    """A text as `may_match` wants it: characters that match each other where case does not count are the same."""
    return text.lower() if text.isascii() else text.translate(_ALIKE).lower()


def may_match(needs: Needs, text: str) -> bool:
    """Whether an expression may find anything in a text that `small` has made; a look at its words tells."""
    for words in needs:
        for word in words:
            if word in text:
                break
        else:
            return False
    return True


def needs(pattern: str) -> Needs:
    """What a pattern needs, the rarest first as far as one can tell: the longest. Nothing, where no word is certain."""
    every = sorted(_of(_parser.parse(pattern, IGNORECASE)), key=_weight, reverse=True)
    long = [words for words in every if _weight(words) >= _SHORT]
    return tuple(dict.fromkeys(long or every))


class PrefilteredPattern:
    """A pattern that does not count case, and what it needs: of texts without its words it is quick to say no."""

    def __init__(self, pattern: str) -> None:
        self._pattern = compile_(pattern, IGNORECASE)
        self._needs = needs(pattern)

    def finds(self, text: str, small_text: str) -> bool:
        """Whether it finds anything in a text; `small_text` is what `small` makes of it."""
        return may_match(self._needs, small_text) and self._pattern.search(text) is not None


def _weight(words: tuple[str, ...]) -> int:
    return min(map(len, words))


def _of(sequence: Iterable[tuple[Any, Any]]) -> list[tuple[str, ...]]:
    """What each part of a parsed pattern needs; characters that follow each other are a word."""
    found: list[tuple[str, ...]] = []
    word = ""
    for kind, inside in _without_groups(sequence):
        if kind == "LITERAL" and _is_plain(chr(inside)):
            word += small(chr(inside))
            continue
        found += [(word,)] * bool(word)
        word = ""
        if kind == "BRANCH":
            found += _of_branches(map(_of, inside[1]))
        elif kind.endswith("_REPEAT") and inside[0] > 0:
            found += _of(inside[2])
    return found + [(word,)] * bool(word)


def _without_groups(sequence: Iterable[tuple[Any, Any]]) -> Iterator[tuple[str, Any]]:
    """The parts of a pattern with what is in a group in its place: it follows what is in front of the group."""
    for kind, inside in sequence:
        if str(kind) in ("SUBPATTERN", "ATOMIC_GROUP"):
            yield from _without_groups(inside[-1] if str(kind) == "SUBPATTERN" else inside)
        else:
            yield str(kind), inside


def _of_branches(branches: Iterable[list[tuple[str, ...]]]) -> list[tuple[str, ...]]:
    """One word of each branch; nothing if a branch has none."""
    best = [max(each, key=_weight, default=()) for each in branches]
    return [tuple(dict.fromkeys(word for words in best for word in words))] if all(best) else []


def _is_plain(character: str) -> bool:
    """Whether all that a character matches, where case does not count, is the same in `small`: so of Latin ones."""
    return character.isprintable() and (character.isascii() or ("À" <= character <= "þ" and character not in "×÷"))
