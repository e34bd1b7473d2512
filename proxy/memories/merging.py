"""When two memories say the same, and what becomes of them. Pure: nothing here knows the time."""

import re

from proxy.memories import HISTORY, SOURCES, Draft, Memory, ReplacedText, id_of
from proxy.text.fold import folded
from proxy.text.vocabulary import DENIALS, MONTHS, NEGATIONS, NUMBERS, ONE_OF_SOME, WEEKDAYS

_WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)?")
_NUMBERS = frozenset([*WEEKDAYS, *MONTHS, *NUMBERS, *ONE_OF_SOME])
"""What tells as much as a number does."""


def may_join(one: Memory, other: Memory) -> bool:
    """Whether two memories that are near in meaning may become one: only of one scope and kind."""
    return (one.scope, one.kind) == (other.scope, other.kind) and may_merge(one.text, other.text)


def may_merge(one: str, other: str) -> bool:
    """Whether two texts that are near in meaning may be taken for one: vectors hardly tell what is told here.

    Not where they have other numbers, where one of them denies, or where each has a name that the other lacks.
    """
    first, second = _WORD.findall(one), _WORD.findall(other)
    if _numbers(first) != _numbers(second) or _denies(first) != _denies(second):
        return False
    return not (_names(first) - _lower(second) and _names(second) - _lower(first))


def made(draft: Draft, scope: str, now: float) -> Memory:
    """A new memory of a scope."""
    created = now if draft.created is None else min(draft.created, now)
    return Memory(
        id_of(draft.text, scope),
        draft.text,
        draft.kind,
        draft.sources[-SOURCES:],
        created,
        created,
        draft.confidence,
        draft.expires,
        scope=scope,
    )


def repeated(known: Memory, again: Memory) -> Memory:
    """A memory whose text, or an earlier one, was said again: it has both sources, and is as sure as the surer one.

    The text stays. What the latest says of its kind and end counts.
    """
    latest = max(known, again, key=lambda each: each.updated)  # of equals the known one
    return Memory(
        known.id,
        known.text,
        latest.kind,
        _sources(known.sources, again.sources),
        min(known.created, again.created),
        latest.updated,
        max(known.confidence, again.confidence),
        latest.expires,
        known.earlier,
        known.scope,
    )


def merged(one: Memory, other: Memory) -> Memory:
    """The memory that two with the same meaning become: the newer text, both sources, and the older text's history."""
    old, new = sorted((one, other), key=lambda each: each.updated)
    earlier = (*new.earlier, ReplacedText(old.id, old.text, old.created), *old.earlier)
    return Memory(
        new.id,
        new.text,
        new.kind,
        _sources(old.sources, new.sources),
        min(old.created, new.created),
        new.updated,
        max(old.confidence, new.confidence),
        new.expires,
        tuple({each.id: each for each in reversed(earlier)}.values())[::-1][:HISTORY],
        new.scope,
    )


def _sources(*some: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(source for each in some for source in each))[-SOURCES:]


def _numbers(words: list[str]) -> set[str]:
    return {low for word in words if (low := folded(word)) in _NUMBERS or any(letter.isdigit() for letter in low)}


def _denies(words: list[str]) -> bool:
    return any((low := folded(word)) in NEGATIONS or low in DENIALS or low.endswith(("n't", "n’t")) for word in words)


def _names(words: list[str]) -> set[str]:
    """Words that are written with a capital, without the first, which always is."""
    return {word.lower() for word in words[1:] if word[0].isupper()}


def _lower(words: list[str]) -> set[str]:
    return {word.lower() for word in words}
