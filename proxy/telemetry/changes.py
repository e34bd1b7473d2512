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
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from itertools import takewhile
from operator import is_
from typing import Any

from proxy.chat import ChatRequest, Message
from proxy.chat.provenance import identities, of_client
from proxy.context import Tokens

MOST = 200
"""Entries of one request. Where there would be more, neighbours of one kind and step are one entry."""

_ALIKE = frozenset({"unchanged", "removed"})
"""The kinds of which neighbours are one entry in any case."""
_HANDLE = re.compile(r'recall\("([a-z2-7]{20})"\) has the whole\]\s*\Z')
_TAIL = 400

Change = dict[str, Any]
Stages = Sequence[tuple[str, ChatRequest]]
"""The request behind each step that changed it, in order."""


async def changes(came: ChatRequest, sent: ChatRequest, stages: Stages, tokens: Tokens) -> list[Change]:
    """Return the change of each message of the client's, and the added ones, in the order of the sent request."""
    before = await tokens.sizes(came.messages)
    if came.messages is sent.messages:  # most requests
        return [_unchanged(came.messages, sum(before))] if before else []
    after = await tokens.sizes(sent.messages)
    return _within_bound(_each(came, sent, before, after, *_steps_of(came, stages)))


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


def _unchanged(messages: Sequence[Message], tokens: int) -> Change:
    """Return the entry of the first messages, where they are the client's own."""
    role = messages[0].role
    one = role if all(each.role == role for each in messages) else None
    return _change(0, 0, one, "unchanged", tokens, tokens, count=len(messages))


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
) -> list[Change]:
    """Return the changes, message by message; `before` and `after` are their tokens."""
    own = sum(takewhile(bool, map(is_, came.messages, sent.messages)))  # often nearly all
    origins = of_client(sent, came)
    gone = sorted({*range(own, len(came.messages))}.difference(origins.values()), reverse=True)
    entries = [_unchanged(sent.messages[:own], sum(before[:own]))] if own else []
    furthest = own - 1

    def leave(until: int) -> None:
        while gone and gone[-1] < until:
            place = gone.pop()
            _add(
                entries,
                _change(place, None, came.messages[place].role, "removed", before[place], 0, removed.get(place)),
            )

    for place in range(own, len(sent.messages)):
        message, origin, size = sent.messages[place], origins.get(place), after[place]
        step = makers.get(id(message))
        if origin is None:
            _add(entries, _change(None, place, message.role, "added", 0, size, step))
            continue
        leave(origin)
        kind, handle = _edit(came.messages[origin], message, before[origin], size)
        kind = "moved" if kind == "unchanged" and origin < furthest else kind
        furthest = max(furthest, origin)
        _add(entries, _change(origin, place, message.role, kind, before[origin], size, step, handle))
    leave(len(came.messages))
    return entries


def _edit(was: Message, message: Message, tokens_before: int, tokens_after: int) -> tuple[str, str | None]:
    """Return the kind of change of a message, and the handle of its archived text."""
    if message is was or message == was:
        return "unchanged", None
    handle = message.derive("handle", partial(_handle, message))
    return "shortened" if handle or tokens_after < tokens_before else "changed", handle


def _within_bound(entries: list[Change]) -> list[Change]:
    """Return entries with neighbours of one kind and step as one, where there would be more than `MOST`."""
    if len(entries) <= MOST:
        return entries
    short = list[Change]()
    for entry in entries:
        _add(short, entry, alike=[entry["kind"]])
    return short[:MOST]


def _add(entries: list[Change], entry: Change, alike: Collection[str] = _ALIKE) -> None:
    """Add an entry; one of the kinds `alike` to the one before it, where that has its kind and step."""
    last = entries[-1] if entries else None
    if last is None or entry["kind"] not in alike or (last["kind"], last["step"]) != (entry["kind"], entry["step"]):
        entries.append(entry)
        return
    last["role"], last["handle"] = last["role"] if last["role"] == entry["role"] else None, None
    for name in ("tokens_before", "tokens_after", "count"):
        last[name] += entry[name]


def _handle(message: Message) -> str | None:
    match = _HANDLE.search(message.text[-_TAIL:])
    return None if match is None else match[1]
