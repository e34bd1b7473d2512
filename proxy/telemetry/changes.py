"""The changes of a request by its chain, message by message: places, kinds and tokens, and no text."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby, islice
from typing import Any, Literal, NamedTuple

from proxy.chat import ChatRequest, Message
from proxy.chat.provenance import identities, of_client
from proxy.context import Tokens

Kind = Literal["unchanged", "shortened", "removed", "added", "moved", "changed"]

MOST = 200
"""Entries of one request. Where there would be more, neighbours of one kind and step are one entry."""

_HANDLE = re.compile(r'recall\("([a-z2-7]{20})"\) has the whole\]\s*\Z')
_TAIL = 400

Stages = Sequence[tuple[str, ChatRequest]]
"""The request behind each step that changed it, in order."""


class MessageChange(NamedTuple):
    """The change of one message, or of several neighbours."""

    before: int | None
    """The place in the client's request; of several the first one's. None for an added message."""
    after: int | None
    """The place in the sent request; None for a removed message."""
    role: str | None
    """None for several with different roles."""
    kind: Kind
    tokens_before: int
    tokens_after: int
    step: str | None
    """The step that did it; None where no step of this request did."""
    handle: str | None
    """The handle of its archived text."""
    size: int = 1
    """The number of messages that it stands for."""

    def shown(self) -> dict[str, Any]:
        """Return the change as JSON values."""
        values = self._asdict()
        return {**values, "count": values.pop("size")}


@dataclass(frozen=True, slots=True)
class Doers:
    """The steps that made, changed or removed messages."""

    makers: Mapping[int, str]
    """The last step that made or changed a message, by its identity (`id`)."""
    removed: Mapping[int, str]
    """The step that removed a message, by its place in the client's request."""

    @classmethod
    def of(cls, came: ChatRequest, stages: Stages) -> "Doers":
        """Return the steps by comparing the request behind each with the one before it."""
        makers: dict[int, str] = {}
        removed: dict[int, str] = {}
        before, stood = came, frozenset(range(len(came.messages)))
        for step, after in stages:
            if after.messages is not before.messages:
                makers |= dict.fromkeys(identities(after).keys() - identities(before).keys(), step)
                stand = frozenset(of_client(after, came).values())
                removed |= dict.fromkeys(stood - stand, step)
                stood = stand
            before = after
        return cls(makers, removed)


async def changes(came: ChatRequest, sent: ChatRequest, doers: Doers, tokens: Tokens) -> list[MessageChange]:
    """Return the change of each message of the client's, and the added ones, in the order of the sent request."""
    before = await tokens.sizes(came.messages)
    if came.messages == sent.messages:  # most requests
        roles, total = {message.get("role") for message in came.messages}, sum(before)
        role = str(*roles) if len(roles) == 1 else None
        return [MessageChange(0, 0, role, "unchanged", total, total, None, None, len(before))] if before else []
    after = await tokens.sizes(sent.messages)
    return _shortened(_each(came, sent, before, after, doers))


def _each(
    came: ChatRequest, sent: ChatRequest, before: Sequence[int], after: Sequence[int], doers: Doers
) -> Iterator[MessageChange]:
    """Yield the changes, message by message; `before` and `after` are their tokens."""
    origins = of_client(sent, came)
    staying = set(origins.values())
    at = 0

    def leave(until: int) -> Iterator[MessageChange]:
        nonlocal at
        for place in range(at, until):
            if place not in staying:
                gone = came.messages[place]
                step = doers.removed.get(place)
                yield MessageChange(place, None, gone.role, "removed", before[place], 0, step, None)
        at = max(at, until)

    for place, message in enumerate(sent.messages):
        origin = origins.get(place)
        step = doers.makers.get(id(message))
        if origin is None:
            yield MessageChange(None, place, message.role, "added", 0, after[place], step, None)
            continue
        has_moved = origin < at
        yield from leave(origin)
        at = max(at, origin + 1)
        was, handle = came.messages[origin], None
        kind: Kind = "moved" if has_moved else "unchanged"
        if message is not was and message != was:
            handle = message.derive("handle", partial(_handle, message))
            kind = "shortened" if handle or after[place] < before[origin] else "changed"
        yield MessageChange(origin, place, message.role, kind, before[origin], after[place], step, handle)
    yield from leave(len(came.messages))


def _shortened(every: Iterator[MessageChange]) -> list[MessageChange]:
    """Return the changes with runs of unchanged or removed messages as one entry each; of very many, all runs."""
    alike = {"unchanged", "removed"}
    grouped = groupby(every, key=lambda each: (each.kind, each.step))
    runs = [list(run) for _, run in islice(grouped, MOST + 1)]
    short = [each for run in runs for each in ([_run(run)] if run[0].kind in alike else run)]
    return short if len(short) <= MOST else [_run(run) for run in runs][:MOST]


def _run(run: Sequence[MessageChange]) -> MessageChange:
    """Return neighbours as one entry."""
    first = run[0]
    if len(run) == 1:
        return first
    return first._replace(
        role=first.role if len({each.role for each in run}) == 1 else None,
        tokens_before=sum(each.tokens_before for each in run),
        tokens_after=sum(each.tokens_after for each in run),
        handle=None,
        size=sum(each.size for each in run),
    )


def _handle(message: Message) -> str | None:
    match = _HANDLE.search(message.text[-_TAIL:])
    return None if match is None else match[1]
