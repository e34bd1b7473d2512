"""The changes of a request by its chain, message by message: places, kinds and tokens, and no text.

An entry has JSON values:

- `before`, `after`: the place in the client's request and in the sent one; of several messages the first one's. None
  for an added and for a removed message
- `role`: None for several with different roles
- `kind`: `unchanged`, `shortened`, `removed`, `added`, `moved` or `changed`
- `tokens_before`, `tokens_after`
- `step`: the step that did it; None where no step of this request did
- `handle`: the handle of its archived text
- `count`: the number of messages that it stands for
"""

import re
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby, islice, takewhile
from operator import is_
from typing import Any

from proxy.chat import ChatRequest, Message
from proxy.chat.provenance import identities, of_client
from proxy.context import Tokens

MOST = 200
"""Entries of one request. Where there would be more, neighbours of one kind and step are one entry."""

_HANDLE = re.compile(r'recall\("([a-z2-7]{20})"\) has the whole\]\s*\Z')
_TAIL = 400

Change = dict[str, Any]
Stages = Sequence[tuple[str, ChatRequest]]
"""The request behind each step that changed it, in order."""


async def changes(came: ChatRequest, sent: ChatRequest, stages: Stages, tokens: Tokens) -> list[Change]:
    """Return the change of each message of the client's, and the added ones, in the order of the sent request."""
    before = await tokens.sizes(came.messages)
    if came.messages is sent.messages:  # most requests
        return [_unchanged(came.messages, 0, 0, sum(before), sum(before))] if before else []
    after = await tokens.sizes(sent.messages)
    return _shortened(_each(came, sent, before, after, *_steps_of(came, stages)))


def _change(
    before: int | None,
    after: int | None,
    role: str | None,
    kind: str,
    tokens_before: int,
    tokens_after: int,
    step: str | None = None,
    handle: str | None = None,
    count: int = 1,
) -> Change:
    return {
        "before": before,
        "after": after,
        "role": role,
        "kind": kind,
        "tokens_before": tokens_before,
        "tokens_after": tokens_after,
        "step": step,
        "handle": handle,
        "count": count,
    }


def _unchanged(messages: Sequence[Message], before: int, after: int, tokens_before: int, tokens_after: int) -> Change:
    role = messages[0].role
    one = role if all(each.role == role for each in messages) else None
    return _change(before, after, one, "unchanged", tokens_before, tokens_after, count=len(messages))


def _steps_of(came: ChatRequest, stages: Stages) -> tuple[Mapping[int, str], Mapping[int, str]]:
    """Return the step that made or changed each message last, by identity (`id`), and that which removed it, by place.

    The request behind each step is compared with the one before it.
    """
    makers, removed = dict[int, str](), dict[int, str]()
    before, stood = came, frozenset(range(len(came.messages)))
    for step, after in stages:
        if after.messages is not before.messages:
            makers |= dict.fromkeys(identities(after).keys() - identities(before).keys(), step)
            stand = frozenset(of_client(after, came).values())
            removed |= dict.fromkeys(stood - stand, step)
            stood = stand
        before = after
    return makers, removed


def _each(
    came: ChatRequest,
    sent: ChatRequest,
    before: Sequence[int],
    after: Sequence[int],
    makers: Mapping[int, str],
    removed: Mapping[int, str],
) -> Iterator[Change]:
    """Yield the changes, message by message; `before` and `after` are their tokens."""
    origins = of_client(sent, came)
    gone, furthest = deque(sorted({*range(len(came.messages))} - {*origins.values()})), -1

    def leave(until: int) -> Iterator[Change]:
        while gone and gone[0] < until:
            place = gone.popleft()
            yield _change(place, None, came.messages[place].role, "removed", before[place], 0, step=removed.get(place))

    place = 0
    while place < len(sent.messages):
        begin, first = place, furthest + 1
        if origins.get(begin) == first:  # most messages are the client's own, and where they were
            own = map(came.messages.__getitem__, range(first, len(came.messages)))
            there = map(sent.messages.__getitem__, range(begin, len(sent.messages)))
            if same := sum(takewhile(bool, map(is_, own, there))):
                place, furthest = begin + same, furthest + same
                sizes = sum(before[first : first + same]), sum(after[begin:place])
                yield _unchanged(sent.messages[begin:place], first, begin, *sizes)
                continue
        message, origin = sent.messages[place], origins.get(place)
        step, size, place = makers.get(id(message)), after[place], place + 1
        if origin is None:
            yield _change(None, begin, message.role, "added", 0, size, step=step)
            continue
        yield from leave(origin)
        kind, handle = _edit(came.messages[origin], message, before[origin], size)
        kind = "moved" if kind == "unchanged" and origin < furthest else kind
        furthest = max(furthest, origin)
        yield _change(origin, begin, message.role, kind, before[origin], size, step=step, handle=handle)
    yield from leave(len(came.messages))


def _edit(was: Message, message: Message, tokens_before: int, tokens_after: int) -> tuple[str, str | None]:
    """Return the kind of change of a message, and the handle of its archived text."""
    if message is was or message == was:
        return "unchanged", None
    handle = message.derive("handle", partial(_handle, message))
    return "shortened" if handle or tokens_after < tokens_before else "changed", handle


def _shortened(every: Iterator[Change]) -> list[Change]:
    """Return the changes with runs of unchanged or removed messages as one entry each; of very many, all runs."""
    alike = {"unchanged", "removed"}
    grouped = groupby(every, key=lambda each: (each["kind"], each["step"]))
    runs = [list(run) for _, run in islice(grouped, MOST + 1)]
    short = [each for run in runs for each in ([_run(run)] if run[0]["kind"] in alike else run)]
    return short if len(short) <= MOST else [_run(run) for run in runs][:MOST]


def _run(run: Sequence[Change]) -> Change:
    """Return neighbours as one entry."""
    first = run[0]
    if len(run) == 1:
        return first
    role = first["role"] if len({each["role"] for each in run}) == 1 else None
    sums = {name: sum(each[name] for each in run) for name in ("tokens_before", "tokens_after", "count")}
    return {**first, **sums, "role": role, "handle": None}


def _handle(message: Message) -> str | None:
    match = _HANDLE.search(message.text[-_TAIL:])
    return None if match is None else match[1]
