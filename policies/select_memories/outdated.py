"""Which of what is remembered of a user no longer holds, because something newer says otherwise. Pure."""

from collections.abc import Sequence
from typing import NamedTuple

from policies.inject_facts.patterns import facts_in, single
from policies.resolve_clashes.clashes import clash
from policies.resolve_clashes.statements import Statement, statements
from proxy.text.same import first_person


class _ReadText(NamedTuple):
    """A text as it was read."""

    statements: tuple[Statement, ...]
    facts: dict[str, str]
    """Facts of which a user has one: a home, a workplace."""


def outdated(texts: Sequence[str]) -> dict[int, int]:
    """Return the places of texts, the oldest first, that a newer one contradicts, each with the newest such one."""
    read = [_read(first_person(text)) for text in texts]
    found: dict[int, int] = {}
    for newer in range(len(read)):
        found |= {older: newer for older in range(newer) if _contradicts(read[older], read[newer])}
    return found


def _read(text: str) -> _ReadText:
    return _ReadText(statements(text), single(facts_in(text)))


def _contradicts(older: _ReadText, newer: _ReadText) -> bool:
    if any(value.casefold() != newer.facts.get(name, value).casefold() for name, value in older.facts.items()):
        return True
    return any(_holds_no_longer(old, new) for old in older.statements for new in newer.statements)


def _holds_no_longer(old: Statement, new: Statement) -> bool:
    reason = clash(old, new)
    if reason == "value":  # one travels to many places
        return any(value.kind != "place" for value in new.values)
    return reason is not None
