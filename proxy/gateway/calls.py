"""The tool calls of one streamed choice: whose each one is, and what of it the client gets to see."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

Hand = Callable[[Mapping[str, Any]], Awaitable[Mapping[str, Any] | None]]
"""What the client gets in place of a call of an internal tool; None for one that is answered inside."""


class _Call:
    """One call, as far as it has arrived."""

    def __init__(self) -> None:
        self.internal: bool | None = None
        """None until its name is known."""
        self.shown: int | None = None
        """Its index among those that the client sees."""
        self.held: list[Any] = []
        self.whole: dict[str, Any] = {}

    def add(self, entry: Mapping[str, Any]) -> None:
        """Put a delta to the rest of its call."""
        for key, value in entry.items():
            if isinstance(value, Mapping):
                inner = self.whole.get(key)
                self.whole[key] = _merged(inner if isinstance(inner, dict) else {}, value)
            elif value is not None and not (key in ("id", "type") and self.whole.get(key)):
                self.whole[key] = value


class Calls:
    """Sorts deltas: those of internal calls are kept back, the client's are shown under contiguous indexes.

    What the client gets is in the order of the model: calls behind an internal one wait until it is known whether that
    one is handed on.
    """

    def __init__(self, names: frozenset[str]) -> None:
        self._names = names
        self._all: list[_Call] = []
        self._at: dict[int | None, _Call] = {}
        self._next = 0
        self._moved = False
        """Whether indexes are no longer the upstream's."""
        self.hidden = False
        """Whether there was an internal one."""

    @property
    def shown(self) -> bool:
        """Whether the client has seen any."""
        return any(call.shown is not None for call in self._all)

    @property
    def waiting(self) -> bool:
        """Whether deltas are held: their call has no name yet, or stands behind an internal one."""
        return any(call.held for call in self._all)

    @property
    def whole(self) -> list[dict[str, Any]]:
        """All calls, as far as they have arrived, in order."""
        return [call.whole for call in self._all]

    def sort(self, entries: Sequence[Any]) -> list[Any]:
        """What the client gets to see of the next deltas; entries that need no change are the same objects."""
        shown: list[Any] = []
        for entry in entries:
            if not isinstance(entry, dict):
                shown.append(entry)
                continue
            call = self._call(entry)
            call.add(entry)
            call.held.append(entry)
            if call.internal is None and (name := _name(entry)):
                call.internal = name in self._names
                self.hidden = self.hidden or call.internal
            if call.internal is not None and (call.internal or call.shown is not None or not self.hidden):
                shown += self._released(call)
        return shown

    async def hand_on(self, hand: Hand) -> None:
        """Make internal calls the client's that are handed on to it, each in one piece."""
        for call in [each for each in self._all if each.internal]:
            given = await hand(call.whole)
            if given is not None:
                call.internal, call.whole, call.held = False, dict(given), [dict(given)]

    def remaining(self) -> list[Any]:
        """What is still held for the client: whole calls, and those that never got a name, for it to complain about."""
        return [entry for call in self._all for entry in self._released(call)]

    def _released(self, call: _Call) -> list[Any]:
        held, call.held = call.held, []
        if call.internal or not held:
            return []
        self._moved = self._moved or self.hidden or self.waiting
        if call.shown is None:
            if len(held) > 1:
                held = [dict(call.whole)]  # SDKs take the first list of calls as it is, so each must be in it once
            given = held[0].get("index")
            call.shown = given if isinstance(given, int) and not self._moved else self._next
            self._next = max(self._next, call.shown + 1)
        return [_placed(entry, call.shown) if self._moved or "index" in entry else entry for entry in held]

    def _call(self, entry: Mapping[str, Any]) -> _Call:
        """The call that a delta belongs to: by its index; where a server gives none or always the same, by its id."""
        given_index = entry.get("index")
        index = given_index if isinstance(given_index, int) else None
        call = self._at.get(index)
        known = call.whole.get("id") if call is not None else None
        given = entry.get("id")
        other = bool(_name(entry)) and call is not None and call.internal is not None
        if call is None or (other and (given != known if given else index is None)):
            call = self._at[index] = _Call()
            self._all.append(call)
        return call


def _placed(entry: dict[str, Any], index: int) -> dict[str, Any]:
    return entry if entry.get("index") == index else {**entry, "index": index}


def _name(entry: Mapping[str, Any]) -> str:
    for kind in ("function", "custom"):
        inner = entry.get(kind)
        if isinstance(inner, Mapping) and isinstance(inner.get("name"), str):
            return str(inner["name"])
    return ""


def _merged(known: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(known)
    for key, value in more.items():
        if key in ("arguments", "input") and isinstance(value, str) and isinstance(merged.get(key), str):
            merged[key] += value
        elif value is not None and not (key == "name" and merged.get(key)):
            merged[key] = value
    return merged
