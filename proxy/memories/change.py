"""What becomes of a shelf when memories are added, merged and removed. Pure but for itself."""

from collections.abc import Sequence
from typing import Literal, NamedTuple

from proxy.memories import Memory, is_over
from proxy.memories.merging import may_merge, merged, repeated
from proxy.memories.shelves import Shelf

Status = Literal["added", "repeated", "merged"]


class Added(NamedTuple):
    """What became of a memory that was added."""

    memory: Memory
    status: Status


class Change:
    """What becomes of a shelf; memories that are over leave at once."""

    def __init__(self, shelf: Shelf, now: float) -> None:
        """`now` is in seconds since 1970."""
        self.records = dict(shelf.records)
        """The memories as they are to be."""
        self.touched: set[str] = set()
        """The ids of those that were added, changed or removed."""
        self._earlier = dict(shelf.earlier)
        for each in shelf.records.values():
            if is_over(each, now):
                self.drop(each.id)

    def add(self, new: Memory, likely: Sequence[str]) -> Added:
        """Add a memory, or merge it into the first of those that are `likely` to say the same."""
        known = self.records.get(new.id) or self.records.get(self._earlier.get(new.id, ""))
        if known is not None:
            again = repeated(known, new)
            if again != known:
                self._set(again)
            return Added(again, "repeated")
        for id in likely:
            other = self.records.get(id)
            if other is not None and other.kind == new.kind and may_merge(other.text, new.text):
                return Added(self._merge(other, new), "merged")
        self._set(new)
        return Added(new, "added")

    def join(self, one: str, other: str) -> None:
        """Merge two memories, if both are still there and may be merged."""
        first, second = self.records.get(one), self.records.get(other)
        if first and second and first.kind == second.kind and may_merge(first.text, second.text):
            self._merge(first, second)

    def drop(self, id: str) -> None:
        """Remove a memory."""
        del self.records[id]
        self.touched.add(id)

    def bound(self, most: int, new: set[str]) -> None:
        """Let the least sure leave, of these the oldest; what was just added only if there is nothing else."""
        excess = len(self.records) - most
        if excess > 0:
            order = sorted(self.records.values(), key=lambda m: (m.id in new, m.confidence, m.updated, m.id))
            for each in order[:excess]:
                self.drop(each.id)

    def _merge(self, one: Memory, other: Memory) -> Memory:
        both = merged(one, other)
        for each in (one, other):
            if each.id != both.id and each.id in self.records:
                self.drop(each.id)
        self._set(both)
        self._earlier.update({old.id: both.id for old in both.earlier})
        return both

    def _set(self, memory: Memory) -> None:
        self.records[memory.id] = memory
        self.touched.add(memory.id)
