"""What becomes of a shelf when memories are added, merged and removed. Pure but for itself."""

from collections.abc import Sequence
from heapq import heapify, heapreplace
from typing import Literal, NamedTuple

from proxy.memories import Memory, is_over
from proxy.memories.merging import may_join, merged, repeated
from proxy.memories.shelves import Shelf

Status = Literal["added", "repeated", "merged"]
_Worth = tuple[bool, float, float, str]
"""What is kept rather: whether it is new, how sure it is, when it was last said; with its id."""


class Added(NamedTuple):
    """What became of a memory that was added."""

    memory: Memory
    status: Status


class ShelfChange:
    """What becomes of a shelf; memories that are over leave at once."""

    def __init__(self, shelf: Shelf, now: float) -> None:
        """`now` is in seconds since 1970."""
        self.records = dict(shelf.records)
        """The memories as they are to be."""
        self.touched: set[str] = set()
        """The ids of those that were added, changed or removed."""
        self._earlier = dict(shelf.earlier)
        over = [each.id for each in shelf.records.values() if is_over(each, now)]
        for id in over:
            self.drop(id)
        self.expired = len(over)
        """How many were over."""

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
            if other is not None and may_join(other, new):
                return Added(self._merge(other, new), "merged")
        self._set(new)
        return Added(new, "added")

    def join(self, one: str, other: str) -> None:
        """Merge two memories, if both are still there and may be merged."""
        first, second = self.records.get(one), self.records.get(other)
        if first and second and may_join(first, second):
            self._merge(first, second)

    def drop(self, id: str) -> None:
        del self.records[id]
        self.touched.add(id)

    def bound(self, most: int, new: set[str]) -> int:
        """Let the least sure leave, of these the oldest; what was just added only if there is nothing else.

        The scope that has the most gives way, so that what one agent adds takes no room from those who have less. How
        many left.
        """
        excess = max(0, len(self.records) - most)
        if excess > 0:
            best_first = sorted(
                ((m.id in new, m.confidence, m.updated, m.id) for m in self.records.values()), reverse=True
            )
            scopes: dict[str, list[_Worth]] = {}
            for worth in best_first:
                scopes.setdefault(self.records[worth[-1]].scope, []).append(worth)
            # the fullest first; of these the one whose last memory is worth least
            heap = [(-len(some), some[-1], some) for some in scopes.values()]
            heapify(heap)
            for _ in range(excess):
                _, worst, some = heap[0]
                self.drop(worst[-1])
                some.pop()
                heapreplace(heap, (-len(some), some[-1] if some else worst, some))
        return excess

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
