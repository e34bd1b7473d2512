"""Where a conversation is cut so that it fits: replayed from the sizes of its messages, so that nothing is stored.

What is decided at a message depends on what stands before it alone, so a longer conversation replays the cuts of the
shorter one, on every replica and after every restart. It changes with the window, tools, settings and token counts.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from types import MappingProxyType
from typing import NamedTuple

from proxy.chat import ChatRequest, Message, legal_cuts
from proxy.chat.markers import is_to_fit

_STEPS = 32
"""The usable window is rounded down to so many steps of the whole one, so that a client that asks for a slightly longer
answer moves no cut."""


_DIGEST = 800
"""Tokens that a summary may take in a small window: some thirty lines."""


@dataclass(frozen=True, slots=True)
class Marks:
    """Shares of the usable window."""

    high: float = 0.80
    low: float = 0.40
    critical: float = 0.90
    summary: float = 0.16
    warn: float = 0.70
    again: float = 0.80


class Room(NamedTuple):
    """The tokens that the conversation behind head and tools may take."""

    usable: int
    fixed: int
    """The tokens of head, tools and the reply's framing."""
    high: int
    """Above it, the conversation is cut."""
    critical: int
    """Above it, only the last exchanges stay."""
    low: int
    """A cut leaves at most this, the summary included, where the last exchanges allow it."""
    summary: int
    warn: int = 2**62
    """Above it, the next cut is prepared."""
    again: int | None = None
    """Above it, a conversation that was cut is cut again; None is `high`."""
    turns: int | None = None
    """The most turns that a cut leaves; None is as many as fit."""

    @classmethod
    def of(cls, window: int, usable: int, fixed: int, marks: Marks, turns: int | None = None) -> "Room":
        """Return the room in a window. If tools or head fill much of it, a sixth of the rest is the low mark."""
        step = max(1, window // _STEPS)
        usable = max(1, usable // step * step if usable >= step else usable)
        high = int(usable * marks.high) - fixed
        summary = max(0, min(max(int(usable * marks.summary), _DIGEST), high // 4))
        low = max(int(usable * marks.low) - fixed, summary + (high - summary) // 6)
        warn = int(usable * marks.warn) - fixed
        again = min(high, max(int(usable * marks.again) - fixed, low + (high - low) // 4))
        return cls(usable, fixed, high, int(usable * marks.critical) - fixed, low, summary, warn, again, turns)


@dataclass(frozen=True, slots=True)
class Cut:
    """A place where the conversation was cut."""

    start: int
    at: int
    """The index of the message that crossed the mark: what stands behind it did not count."""
    carried: int | None = None
    """The index of a message that stays although it stands before the cut: the last user message, else the opening."""
    is_tight: bool = field(default=False, compare=False)
    """True if the newest exchange alone is more than a cut is to leave."""
    forms: int = field(default=0, compare=False)
    """The tokens below the low mark that short forms of the newest exchanges that leave may take."""
    foreseen: int = field(default=0, compare=False)
    """The index of the first message that would have stayed if the cut had come at the warn mark; 0 if none."""


class ResultLines(NamedTuple):
    """The lines of a tool result, by their hashes."""

    all: frozenset[int]
    noted: frozenset[int]
    """The lines that earlier results show: a note stands for them, until these leave."""


def as_sent(request: ChatRequest, start: int, incoming: ChatRequest) -> Sequence[Message] | None:
    """Return the messages from a place on as the client sent them; None if an earlier step added or took any."""
    begin = max(0, len(incoming.messages) - len(request.messages) + start)
    same = _roles(incoming)[begin:] == _roles(request)[start:]
    return incoming.messages[begin:] if same else None


def _roles(request: ChatRequest) -> tuple[object, ...]:
    return request.form.fold(
        "roles", tuple[object, ...](), lambda before, messages: (*before, *[each.get("role") for each in messages])
    )


def foresee(
    messages: Sequence[Message],
    settled: Sequence[int],
    born: Sequence[int],
    room: Room,
    keep: int,
    lines: Mapping[int, ResultLines] = MappingProxyType({}),
) -> tuple[tuple[Cut, ...], Cut | None]:
    """Return all cuts of a conversation, the oldest first, and what the next would be if it came at the warn mark.

    `settled` are the sizes of the messages now, `born` those of tool results until the model read them. `keep`
    exchanges stay at least, but for the last resort. `lines` of results, by their places, say what comes back where
    they refer to what left.
    """
    if sum(map(max, settled, born)) <= min(room.high, room.warn):
        return (), None
    walk = _CutWalk(messages, settled, born, room, keep, lines)
    cuts: list[Cut] = []
    forwarded = walk.running(-1)
    unread, last_user, ahead = 0, None, None
    for index, message in enumerate(messages):
        role = message.get("role")
        if role == "assistant":
            unread = 0
        elif role == "tool" and not is_to_fit(message.text):  # that was never sent in full
            unread += max(0, born[index] - walk.sizes[index])
        elif role == "user":
            last_user = index
        total = walk.before[index + 1] + forwarded + unread
        high = room.again if cuts and room.again is not None else room.high
        warn = min(room.warn, high, high - room.high + room.warn)  # as far below this mark as below the first
        if ahead is None and total > warn:
            ahead = walk.cut(index, unread, last_user)
        while total > high and (cut := walk.cut(index, unread, last_user)) is not None:
            before = ahead is not None and ahead.at < index and ahead.start <= cut.start
            cuts.append(replace(cut, foreseen=ahead.start if ahead is not None and before else 0))
            came_back = walk.leave(cuts[-1])
            forwarded = walk.running(-1)
            ahead = None
            total = walk.before[index + 1] + forwarded + unread if came_back else 0
        forwarded = walk.make_room(total, cuts, forwarded)
    return tuple(cuts), ahead


class _CutWalk:
    def __init__(
        self,
        messages: Sequence[Message],
        settled: Sequence[int],
        born: Sequence[int],
        room: Room,
        keep: int,
        lines: Mapping[int, ResultLines],
    ) -> None:
        self._settled, self._born, self._room, self._keep, self._lines = settled, born, room, keep, lines
        self.sizes = settled
        """The sizes of the messages since the last cut."""
        self.before = [0, *accumulate(settled)]
        self._starts = sorted(legal_cuts(messages))
        self._users = [start for start in self._starts[:-1] if messages[start].get("role") == "user"]
        self._assistants = {start for start in self._starts[:-1] if messages[start].get("role") == "assistant"}
        self._unread = 0
        self.last = Cut(0, -1)

    def running(self, index: int) -> int:
        """Return the tokens that are forwarded of the conversation up to a message."""
        talk = self.before[index + 1] - self.before[self.last.start]
        return (
            talk + self._carried(self.last.carried) + (self._room.summary + self.last.forms if self.last.start else 0)
        )

    def make_room(self, total: int, cuts: list[Cut], forwarded: int) -> int:
        """Take the forms of the last cut away where what came since needs their room, and return what is forwarded."""
        if total <= self._room.critical or not self.last.forms:
            return forwarded
        cuts[-1] = replace(cuts[-1], forms=0)
        self.leave(cuts[-1])
        return self.running(-1)

    def leave(self, cut: Cut) -> bool:
        """Cut; return True if lines come back because results refer to what left."""
        self.last = cut
        sizes = [*self._settled]
        there: set[int] = set()
        for place, lines in self._lines.items():
            if place >= cut.start:
                back = len(lines.noted - there) * max(0, self._born[place] - sizes[place])
                sizes[place] += back // max(1, len(lines.noted))
                there |= lines.all
        came_back = sizes != [*self.sizes]
        if came_back:
            self.sizes, self.before = sizes, [0, *accumulate(sizes)]
        return came_back

    def cut(self, index: int, unread: int, last_user: int | None) -> Cut | None:
        """Return the next cut, or None if none would be worth it."""
        self._unread = unread
        room, total = self._room, self.running(index) + unread
        several, one = self._limit(index, self._keep), self._limit(index, 1)
        start: int | None
        if total > room.critical:
            deep = self._first(several, index, room.high, last_user)
            start = one if deep is None else several
        else:
            middle = (room.low + room.high) // 2
            tries = ((several, room.low), (several, middle), (one, middle))
            fits = (self._fit(limit, index, most, last_user) for limit, most in tries)
            start = next((place for place in fits if place is not None), one if total > room.high else None)
        if start is not None and room.turns is not None:
            start = max(start, min(several, self._turn(index, room.turns)))
        if start == one and (answered := self._answered(one, last_user)) is not None:
            # what the user answers stays too, where there is room for it
            cut = self._cut_at(answered, index, None)
            if answered > self.last.start and self._after(cut, index) + unread <= room.high:
                return cut
        if start is None or start <= self.last.start:
            return None
        cut = self._cut_at(start, index, last_user if last_user is not None and last_user < start else None)
        gain = total - unread - self._after(cut, index)
        return cut if gain > (0 if total > room.critical else (room.high - room.low) // 8) else None

    def _turn(self, index: int, turns: int) -> int:
        before = bisect_right(self._users, index)
        return self._users[before - turns] if before > turns else 0

    def _answered(self, start: int, last_user: int | None) -> int | None:
        """Return the place before the assistant's words that the last user message answers; None if there are none."""
        place = bisect_left(self._starts, start)
        before = self._starts[place - 1] if place else 0
        return before if start == last_user and before == start - 1 > 0 and before in self._assistants else None

    def _cut_at(self, start: int, index: int, carried: int | None) -> Cut:
        """Return a cut at a place; a tight one carries the conversation's opening, where that is short."""
        room, newest = self._room, index - (index in self._assistants)
        if self.sizes[newest] + self._unread <= room.low - room.summary:
            return self._filled(Cut(start, index, carried), index)
        opening = next(iter(self._users), start)
        if carried is None and opening < start and self.sizes[opening] <= room.summary // 2:
            whole = self._after(Cut(start, index, opening), index) + self._unread
            carried = opening if whole <= room.high else None
        return self._filled(Cut(start, index, carried, is_tight=True), index)

    def _filled(self, cut: Cut, index: int) -> Cut:
        """Return the cut with the room for short forms, if it has much; one for the sake of few turns has none."""
        spare = self._room.low - self._after(cut, index) - self._unread
        is_by_turns = self._room.turns is not None and cut.start <= self._turn(index, self._room.turns)
        return cut if is_by_turns or spare <= self._room.summary // 2 else replace(cut, forms=spare)

    def _after(self, cut: Cut, index: int) -> int:
        return self._room.summary + self._carried(cut.carried) + self.before[index + 1] - self.before[cut.start]

    def _end(self, index: int) -> int:
        """Return the tokens up to a message, with then unread results in full, as counted when the cut was decided."""
        return self.before[index + 1] + self._unread

    def _carried(self, carried: int | None) -> int:
        return 0 if carried is None else self.sizes[carried]

    def _limit(self, index: int, keep: int) -> int:
        return self._starts[max(0, bisect_right(self._starts, index) - keep)]

    def _fit(self, limit: int, index: int, most: int, last_user: int | None) -> int | None:
        """Return the first place that leaves at most so much; the next user message if at least half of it stays."""
        first = self._first(limit, index, most, last_user)
        if first is None:
            return None
        place = bisect_left(self._users, first)
        if place < len(self._users) and self._users[place] <= limit:
            user = self._users[place]
            if self._end(index) - self.before[user] >= (most - self._room.summary) // 2:
                return user
        return first

    def _first(self, limit: int, index: int, most: int, last_user: int | None) -> int | None:
        end, most = self._end(index), most - self._room.summary
        if last_user is None:
            return self._at_least(end - most, self.last.start + 1, limit)
        place = self._at_least(end - most, self.last.start + 1, min(limit, last_user))
        if place is not None:
            return place
        carrying = end - most + self.sizes[last_user]
        return self._at_least(carrying, max(self.last.start, last_user) + 1, limit)

    def _at_least(self, removed: int, lowest: int, limit: int) -> int | None:
        """Return the first legal place from `lowest` to `limit` with at least so many tokens before it."""
        place = bisect_left(self._starts, max(lowest, bisect_left(self.before, removed)))
        return self._starts[place] if place < len(self._starts) and self._starts[place] <= limit else None
