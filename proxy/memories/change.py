"""Change the memories of an owner: add, merge, remove, and keep to the bound. Pure but for itself."""

from collections.abc import Iterable, Sequence
from math import ceil
from typing import Literal, NamedTuple

import msgspec

from proxy.memories import HISTORY, SOURCES, Draft, Memory, ReplacedText, id_of, is_over
from proxy.memories.table import Shelf
from proxy.text.same import denies, is_repetition, telling

Status = Literal["added", "repeated", "merged"]


class Added(NamedTuple):
    """A memory that was added, and the way in which it was."""

    memory: Memory
    status: Status


class Change:
    """The memories of an owner while they change; those that are over leave at once."""

    def __init__(self, shelf: Shelf, now: float, least: float) -> None:
        """`now` is in seconds since 1970; `least` is the share of words that makes two texts one memory."""
        self.records = {id: each for id, each in shelf.records.items() if not is_over(each, now)}
        self.expired = len(shelf.records) - len(self.records)
        self._now, self._least = now, least
        self._earlier = dict(shelf.earlier)
        self._terms: dict[str, tuple[str, ...]] = {}
        self._having: dict[tuple[str, str, str], set[str]] = {}
        """The ids of the memories of a scope and kind that have a term."""

    def add(self, drafts: Sequence[Draft], scope: str) -> list[Added]:
        """Add memories of a scope, each to a text that says the same if there is one."""
        self._read(self.records.values())
        return [self._add(_memory(draft, scope, self._now)) for draft in drafts]

    def aggregate(self, scope: str) -> None:
        self._read(self.records.values())
        for id in sorted(self.records, key=lambda id: (self.records[id].updated, id)):
            each = self.records.get(id)
            if each is not None and each.scope == scope and (other := self._same(each)) is not None:
                self._merge(other, each)

    def drop(self, id: str) -> None:
        each = self.records.pop(id)
        for term in self._terms.get(id, ()):
            self._having[each.scope, each.kind, term].discard(id)

    def bound(self, most: int, new: set[str]) -> int:
        """Let the least sure leave, of these the oldest, of the scope that has the most; return how many left."""
        excess = max(0, len(self.records) - most)
        scopes: dict[str, list[tuple[bool, float, float, str]]] = {}
        for each in self.records.values() if excess else ():
            scopes.setdefault(each.scope, []).append((each.id in new, each.confidence, each.updated, each.id))
        for ranked in scopes.values():
            ranked.sort(reverse=True)
        for _ in range(excess):
            fullest = max(map(len, scopes.values()))
            ranked = min((each for each in scopes.values() if len(each) == fullest), key=lambda each: each[-1])
            self.drop(ranked.pop()[-1])
        return excess

    def _add(self, new: Memory) -> Added:
        known = self.records.get(new.id) or self.records.get(self._earlier.get(new.id, ""))
        if known is not None:
            self._set(again := _repeated(known, new))
            return Added(again, "repeated")
        if (other := self._same(new)) is not None:
            return Added(self._merge(other, new), "merged")
        self._set(new)
        return Added(new, "added")

    def _same(self, memory: Memory) -> Memory | None:
        """Return the memory that says the same; of several the one with most words in common."""
        mine, negative = telling(memory.text), denies(memory.text)
        rarest = sorted((self._having.get((memory.scope, memory.kind, term), set()) for term in {*mine}), key=len)
        # a text with so many words in common has at least one of these
        likely = set[str]().union(*rarest[: len(mine) - ceil(self._least * len(mine)) + 1]) - {memory.id}
        same = [
            self.records[id]
            for id in likely
            if is_repetition(mine, self._terms[id], self._least) and denies(self.records[id].text) == negative
        ]
        return min(
            same, key=lambda each: (abs(len(self._terms[each.id]) - len(mine)), -each.updated, each.id), default=None
        )

    def _merge(self, one: Memory, other: Memory) -> Memory:
        both = _merged(one, other)
        for each in (one, other):
            if each.id in self.records:
                self.drop(each.id)
        self._set(both)
        self._earlier.update({old.id: both.id for old in both.earlier})
        return both

    def _set(self, memory: Memory) -> None:
        if memory.id in self.records:
            self.drop(memory.id)
        self.records[memory.id] = memory
        self._read([memory])

    def _read(self, memories: Iterable[Memory]) -> None:
        for each in memories:
            self._terms[each.id] = telling(each.text)
            for term in self._terms[each.id]:
                self._having.setdefault((each.scope, each.kind, term), set()).add(each.id)


def _memory(draft: Draft, scope: str, now: float) -> Memory:
    created = now if draft.created is None else min(draft.created, now)
    sources = draft.sources[-SOURCES:]
    id = id_of(draft.text, scope)
    return Memory(id, draft.text, draft.kind, sources, created, created, draft.confidence, draft.expires, scope=scope)


def _repeated(known: Memory, again: Memory) -> Memory:
    """Return a memory whose text was said again: with both sources, as sure as the surer one; the text stays."""
    latest = max(known, again, key=lambda each: each.updated)  # of equals the known one
    return msgspec.structs.replace(
        known,
        kind=latest.kind,
        sources=_sources(known, again),
        created=min(known.created, again.created),
        updated=latest.updated,
        confidence=max(known.confidence, again.confidence),
        expires=latest.expires,
    )


def _merged(one: Memory, other: Memory) -> Memory:
    old, new = sorted((one, other), key=lambda each: each.updated)
    earlier = (*new.earlier, ReplacedText(old.id, old.text, old.created), *old.earlier)
    return msgspec.structs.replace(
        new,
        sources=_sources(old, new),
        created=min(old.created, new.created),
        confidence=max(old.confidence, new.confidence),
        earlier=tuple({each.id: each for each in reversed(earlier)}.values())[::-1][:HISTORY],
    )


def _sources(*memories: Memory) -> tuple[str, ...]:
    return tuple(dict.fromkeys(source for each in memories for source in each.sources))[-SOURCES:]
