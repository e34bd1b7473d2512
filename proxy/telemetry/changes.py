"""The changes of a request by its chain, message by message: places, kinds and tokens, and no text."""

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, NamedTuple

from proxy.chat import ChatRequest, Message
from proxy.chat.provenance import Places, identities, in_order, of_client
from proxy.context import Tokens

MOST = 200
"""Entries of one request. Where there would be more, neighbours of one kind and step are one entry."""

_ALIKE = frozenset({"unchanged", "removed"})
"""The kinds of which neighbours are one entry in any case."""
_KINDS = _ALIKE | {"shortened", "added", "moved", "changed"}
_HANDLE = re.compile(r'recall\("([a-z2-7]{20})"\) has the whole\]\s*\Z')
_TAIL = 400

Stages = Sequence[tuple[str, ChatRequest]]
"""The request behind each step that changed it, in order."""


@dataclass
class MessageChange:
    """The fate of a message, or of several neighbours that are one entry."""

    before: int | None
    """Place in the client's request; of several messages the first one's. None for an added message."""
    after: int | None
    """Place in the sent request; None for a removed message."""
    role: str | None
    """None for several with different roles."""
    kind: str
    """`unchanged`, `shortened`, `removed`, `added`, `moved` or `changed`."""
    tokens_before: int
    tokens_after: int
    step: str | None = None
    """The step that did it; None where no step of this request did."""
    handle: str | None = None
    """The handle of its archived text."""
    count: int = 1


class _Listing(NamedTuple):
    """The entries of the first `end` messages of the sent request."""

    end: int = 0
    furthest: int = -1
    """The last place of the client's request that was reached."""
    entries: tuple[MessageChange, ...] = ()
    """Neighbours that are unchanged or removed are one."""
    short: tuple[MessageChange, ...] = ()
    """All neighbours of one kind and step are one; empty where that is not needed."""

    def with_entries(self, end: int, new: Sequence[MessageChange]) -> "_Listing":
        reached = [each.before + each.count - 1 for each in new if each.before is not None]
        entries = _joined(self.entries, new, _ALIKE)
        short = _joined(self.short, new if self.short else entries, _KINDS) if len(entries) > MOST else ()
        return _Listing(end, max([self.furthest, *reached]), entries, short)


async def changes(came: ChatRequest, sent: ChatRequest, stages: Stages, tokens: Tokens) -> list[dict[str, Any]]:
    """Return the change of each message of the client's, and the added ones, in the order of the sent request."""
    before, messages = await tokens.sizes(came.messages), came.messages
    if messages and sent.messages is messages:
        role, size = messages[0].role, sum(before)
        shared = role if all(each.role == role for each in messages) else None
        return [vars(MessageChange(0, 0, shared, "unchanged", size, size, count=len(messages)))]
    after = await tokens.sizes(sent.messages)
    walk = _Walk(came, stages, before, after, of_client(sent, came))
    if in_order(sent, came):
        listing = sent.form.fold(("changes", came.form.lineage, sent.model), _Listing(), walk.extended)
    else:  # what has moved is told from what has left by what follows alone
        listing = walk.extended(_Listing(), sent.messages)
    if gone := [*walk.removed(listing.furthest + 1, len(came.messages))]:
        listing = listing.with_entries(listing.end, gone)
    entries = listing.short[:MOST] or listing.entries
    return [*map(vars, entries)]


class _Walk:
    """A walk through the sent request. The entries of settled messages are those of the request before."""

    def __init__(
        self, came: ChatRequest, stages: Stages, before: Sequence[int], after: Sequence[int], origins: Places
    ) -> None:
        """`before` and `after` are the tokens of the messages, `origins` the places of those that are the client's."""
        self._came, self._stages, self._before, self._after = came, stages, before, after
        self._origins = origins

    @cached_property
    def _standing(self) -> frozenset[int]:
        return frozenset(self._origins.values())

    def extended(self, listing: _Listing, messages: Sequence[Message]) -> _Listing:
        return listing.with_entries(listing.end + len(messages), [*self._changes(listing, messages)])

    def _changes(self, listing: _Listing, messages: Sequence[Message]) -> Iterator[MessageChange]:
        furthest = listing.furthest
        for place, message in enumerate(messages, listing.end):
            origin, size, step = self._origins.get(place), self._after[place], self._maker(message)
            if origin is None:
                yield MessageChange(None, place, message.role, "added", 0, size, step)
                continue
            yield from self.removed(furthest + 1, origin)
            kind, handle = _edit(self._came.messages[origin], message, self._before[origin], size)
            kind = "moved" if kind == "unchanged" and origin < furthest else kind
            furthest = max(furthest, origin)
            yield MessageChange(origin, place, message.role, kind, self._before[origin], size, step, handle)

    def _maker(self, message: Message) -> str | None:
        """Return the step behind which a message stands that stood nowhere before; None for the client's own."""
        if identities(self._came)(id(message)) is not None:
            return None
        return next((step for step, form in self._stages if identities(form)(id(message)) is not None), None)

    def removed(self, start: int, until: int) -> Iterator[MessageChange]:
        """Yield the messages of the client's between two places that left, each with the step that removed it."""
        if start >= until:
            return
        gone, steps = {*range(start, until)} - self._standing, dict[int, str]()
        for step, form in self._stages if gone else ():
            steps |= dict.fromkeys(gone.difference(steps, of_client(form, self._came).values()), step)
        for place in sorted(gone):
            role, size = self._came.messages[place].role, self._before[place]
            yield MessageChange(place, None, role, "removed", size, 0, steps.get(place))


def _joined(
    known: Sequence[MessageChange], new: Sequence[MessageChange], kinds: Collection[str]
) -> tuple[MessageChange, ...]:
    """Return entries with new ones behind them; neighbours of one step and of one of these kinds are one."""
    joined = [*known]
    for entry in new:
        last = joined[-1] if joined else None
        if last is None or entry.kind not in kinds or (last.kind, last.step) != (entry.kind, entry.step):
            joined.append(entry)
            continue
        role, size = last.role if last.role == entry.role else None, last.tokens_before + entry.tokens_before
        after, count = last.tokens_after + entry.tokens_after, last.count + entry.count
        joined[-1] = MessageChange(last.before, last.after, role, last.kind, size, after, last.step, count=count)
    return tuple(joined)


def _edit(was: Message, message: Message, tokens_before: int, tokens_after: int) -> tuple[str, str | None]:
    if message is was or message == was:
        return "unchanged", None
    handle = message.derive("handle", partial(_handle, message))
    return "shortened" if handle or tokens_after < tokens_before else "changed", handle


def _handle(message: Message) -> str | None:
    match = _HANDLE.search(message.text[-_TAIL:])
    return None if match is None else match[1]
