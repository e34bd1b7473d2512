"""The changes of a request by its chain, message by message: places, kinds and tokens, and no text."""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import groupby, islice, takewhile
from operator import is_
from typing import Any

from proxy.chat import ChatRequest, Message
from proxy.chat.provenance import identities, of_client
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

    def joined(self, other: "MessageChange") -> "MessageChange":
        """Return both as one entry."""
        return replace(
            self,
            role=self.role if self.role == other.role else None,
            tokens_before=self.tokens_before + other.tokens_before,
            tokens_after=self.tokens_after + other.tokens_after,
            handle=None,
            count=self.count + other.count,
        )


async def changes(came: ChatRequest, sent: ChatRequest, stages: Stages, tokens: Tokens) -> list[dict[str, Any]]:
    """Return the change of each message of the client's, and the added ones, in the order of the sent request."""
    before = await tokens.sizes(came.messages)
    if came.messages is sent.messages:  # most requests
        role, size = _role(came.messages), sum(before)
        found = [MessageChange(0, 0, role, "unchanged", size, size, count=len(before))] if before else []
    else:
        found = _Walk(came, sent, stages, before, await tokens.sizes(sent.messages)).changes()
    return [{**vars(change)} for change in found]


def _role(messages: Sequence[Message]) -> str | None:
    """Return the role of messages; None for several."""
    roles = {message.role for message in messages}
    return roles.pop() if len(roles) == 1 else None


class _Authors:
    """The steps that made messages, and those that removed them."""

    def __init__(self, came: ChatRequest, stages: Stages) -> None:
        self._came = came
        self._names = [step for step, _ in stages]
        self._forms = [came, *(request for _, request in stages)]

    def maker(self, message: Message) -> str | None:
        """Return the step behind which a message of the sent request stands that stood nowhere before."""
        at = next((at for at, form in enumerate(self._forms) if id(message) in identities(form)), 0)
        return self._names[at - 1] if at else None

    def removing(self, places: Sequence[int]) -> Mapping[int, str]:
        """Return the step that removed each of these messages of the client's."""
        steps, standing = dict[int, str](), set(places)
        for step, form in zip(self._names, self._forms[1:], strict=True) if places else ():
            gone = standing.difference(of_client(form, self._came).values())
            steps |= dict.fromkeys(gone, step)
            standing -= gone
        return steps


@dataclass(slots=True)
class _Listing:
    """The entries of the first `end` messages of the sent request."""

    end: int = 0
    furthest: int = -1
    """The last place of the client's request that was reached."""
    entries: list[MessageChange] = field(default_factory=list)
    alike: Collection[str] = _ALIKE
    """The kinds of which neighbours with the same step are one entry."""

    def add(self, entry: MessageChange) -> None:
        last = self.entries[-1] if self.entries else None
        if last is not None and entry.kind in self.alike and (last.kind, last.step) == (entry.kind, entry.step):
            self.entries[-1] = last.joined(entry)
        elif len(self.entries) <= MOST or self.alike is not _KINDS:  # one more, so that the last one ends
            self.entries.append(entry)

    def within_bound(self) -> "_Listing":
        """Return the same; where there are more than `MOST` entries, all neighbours of one kind and step as one."""
        if len(self.entries) <= MOST or self.alike is _KINDS:
            return self
        short = replace(self, entries=[], alike=_KINDS)
        for entry in self.entries:
            short.add(entry)
        return short


class _Walk:
    """A walk through the sent request. The entries of settled messages are those of the request before."""

    def __init__(
        self, came: ChatRequest, sent: ChatRequest, stages: Stages, before: Sequence[int], after: Sequence[int]
    ) -> None:
        """`before` and `after` are the tokens of the messages."""
        self._came, self._sent, self._before, self._after = came, sent, before, after
        self._authors = _Authors(came, stages)
        self._origins = of_client(sent, came)
        self._stand = frozenset(self._origins.values())

    def changes(self) -> list[MessageChange]:
        """Return all entries, at most `MOST`."""
        if [*self._origins.values()] == sorted(self._stand):
            name = "changes", self._came.form.lineage, self._sent.model
            listing = self._sent.form.fold(name, _Listing(), self._extended)
        else:  # what has moved is told from what has left by what follows alone
            listing = self._extended(_Listing(), self._sent.messages)
        listing = replace(listing, entries=[*listing.entries])
        self._leave(listing, len(self._came.messages))
        return listing.within_bound().entries[:MOST]

    def _extended(self, listing: _Listing, messages: Sequence[Message]) -> _Listing:
        listing = replace(listing, entries=[*listing.entries])
        own = sum(takewhile(bool, map(is_, islice(self._came.messages, listing.furthest + 1, None), messages)))
        if own:  # often all
            self._keep(listing, own)
        for place in range(listing.end, listing.end + len(messages) - own):
            self._list(listing, place)
        return listing.within_bound()

    def _keep(self, listing: _Listing, count: int) -> None:
        """Add messages that are the client's own, and where they were."""
        begin, first = listing.end, listing.furthest + 1
        listing.end, listing.furthest = begin + count, first + count - 1
        role, size = _role(self._sent.messages[begin : listing.end]), sum(self._after[begin : listing.end])
        listing.add(MessageChange(first, begin, role, "unchanged", size, size, count=count))

    def _list(self, listing: _Listing, place: int) -> None:
        """Add a message of the sent request, behind those that left before it."""
        message, origin, size = self._sent.messages[place], self._origins.get(place), self._after[place]
        step = self._authors.maker(message)
        listing.end = place + 1
        if origin is None:
            listing.add(MessageChange(None, place, message.role, "added", 0, size, step))
            return
        self._leave(listing, origin)
        kind, handle = _edit(self._came.messages[origin], message, self._before[origin], size)
        kind = "moved" if kind == "unchanged" and origin < listing.furthest else kind
        listing.furthest = max(listing.furthest, origin)
        listing.add(MessageChange(origin, place, message.role, kind, self._before[origin], size, step, handle))

    def _leave(self, listing: _Listing, until: int) -> None:
        """Add the messages before a place of the client's request that left."""
        gone = [place for place in range(listing.furthest + 1, until) if place not in self._stand]
        for step, run in groupby(gone, self._authors.removing(gone).get):
            places = [*run]
            role = _role([self._came.messages[place] for place in places])
            size = sum(self._before[place] for place in places)
            listing.add(MessageChange(places[0], None, role, "removed", size, 0, step, count=len(places)))


def _edit(was: Message, message: Message, tokens_before: int, tokens_after: int) -> tuple[str, str | None]:
    if message is was or message == was:
        return "unchanged", None
    handle = message.derive("handle", partial(_handle, message))
    return "shortened" if handle or tokens_after < tokens_before else "changed", handle


def _handle(message: Message) -> str | None:
    match = _HANDLE.search(message.text[-_TAIL:])
    return None if match is None else match[1]
