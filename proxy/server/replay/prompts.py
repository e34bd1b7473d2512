"""Prompts as a provider's cache sees them: the prefix that it has read before, and its price.

A provider reads tools first, then messages. Unlike the estimate of a running proxy, which knows hashes, this compares
bytes: it sees the common part of two messages that differ.
"""

import json
import re
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from operator import attrgetter
from typing import NamedTuple

from proxy.chat import ChatRequest, Message, encode
from proxy.chat.cache_marks import FIELD, find_marks
from proxy.context import CacheRules, Tokens
from proxy.economics import UNCACHED, cached_tokens, prompt_cost

OWN = "own"
"""The name of the model's own rules."""

OTHERS: Mapping[str, CacheRules] = {
    "read 0.5": CacheRules(read=0.5, minimum=1024, ttl=600),
    "read 0.1": CacheRules(read=0.1, minimum=1024, ttl=600),
    "read 0.1 write 1.25": CacheRules(read=0.1, write=1.25, minimum=1024, ttl=600),
}
"""The rules of other providers that every replay is priced by. How they count is not known: the JSON is counted."""

_FRAME = {"role": "user", "content": ""}

_STEP = 128
"""Tokens by which cached prefixes grow where nobody marks them (OpenAI's documentation, prompt caching)."""

_REMEMBERED = 8
"""Prompts of a conversation that are compared with the next one."""

_MARK = re.compile(rb',\s*"%b"\s*:\s*\{[^{}]*\}|"%b"\s*:\s*\{[^{}]*\}\s*,?' % (FIELD.encode(), FIELD.encode()))


@dataclass(frozen=True, slots=True)
class Prompt:
    """A request as a provider reads it."""

    pieces: tuple[bytes, ...]
    """Its tools and messages."""
    ends: tuple[int, ...]
    """The tokens in front of each piece, and those of all, as the model counts them."""
    wire_ends: tuple[int, ...]
    """The same of their JSON."""
    marks: tuple[int, ...]
    """The places of the pieces that are marked for the cache."""
    at: float

    @property
    def tokens(self) -> int:
        """The tokens of all pieces."""
        return self.ends[-1]


async def prompt_of(request: ChatRequest, tokens: Tokens, at: float) -> Prompt:
    """Return the prompt that a request is."""
    of_tools, sizes, wires = (
        await tokens.tool_sizes(request.tools),
        await tokens.sizes(request.messages),
        await _wires(request.messages, tokens),
    )
    ends, wire_ends = (tuple(accumulate((*of_tools, *each), initial=0)) for each in (sizes, wires))
    parts, tools, own = (*request.tools, *request.messages), len(request.tools), request.cache_marks
    marks = set[int]() if own is None else {tools + place for place in own.messages}
    marks |= {tools - 1} if own is not None and own.tools and tools else set()
    # clients and steps move marks from message to message, and no cache minds
    raws = [_MARK.sub(b"", part.raw) if FIELD.encode() in part.raw else part.raw for part in parts]
    marks |= {place for place, part in enumerate(parts) if raws[place] is not part.raw}
    return Prompt(tuple(raws), ends, wire_ends, tuple(sorted(marks)), at)


async def _wires(messages: Sequence[Message], tokens: Tokens) -> list[int]:
    """Return the tokens of the JSON of each message; of one with images, as the model counts it."""
    frame, *sizes = await tokens.sizes([Message(_FRAME), *messages])
    texts = [Message({**_FRAME, "content": encode(message).decode(errors="replace")}) for message in messages]
    wires = await tokens.sizes(texts)
    plain = [all(part.get("type") == "text" for part in message.parts) for message in messages]
    return [wire - frame if is_plain else size for wire, size, is_plain in zip(wires, sizes, plain, strict=True)]


class Common(NamedTuple):
    """The prefix that two prompts have in common."""

    place: int
    """Of the first piece that differs."""
    share: float
    """The share of that piece in the first prompt that is the same."""

    def tokens(self, ends: Sequence[int]) -> int:
        """Return its tokens, from the ends of the first prompt's pieces."""
        start, end = ends[self.place], ends[min(self.place + 1, len(ends) - 1)]
        return start + int(self.share * (end - start))


def common(before: Prompt, after: Prompt) -> Common:
    """Return the common prefix of two prompts."""
    for place, (old, new) in enumerate(zip(before.pieces, after.pieces, strict=False)):
        if old != new and (one := _as_read(old)) != (other := _as_read(new)):
            most = range(min(len(one), len(other)))
            same = bisect_left(most, True, key=lambda size: one[: size + 1] != other[: size + 1])
            return Common(place, same / len(one))
    return Common(min(len(before.pieces), len(after.pieces)), 0.0)


def _as_read(raw: bytes) -> bytes:
    """Return JSON in the one form in which spaces and escapes do not count."""
    return encode(json.loads(raw))


class Priced(NamedTuple):
    """The price of a prompt by some rules, in input tokens at full price."""

    cost: float
    cached: int


class PromptHistory:
    """The prompts of a conversation in one form: as the client sent them, or as a chain made them."""

    def __init__(self) -> None:
        self._past: deque[Prompt] = deque(maxlen=_REMEMBERED)

    def send(self, prompt: Prompt, own: CacheRules) -> dict[str, Priced]:
        """Return the price of a prompt by a model's own rules and by those of others, and take it as answered.

        From then on it is in the cache.
        """
        shared = [(past, common(past, prompt)) for past in self._past]
        self._past.append(prompt)
        priced = {name: _priced(rules, prompt, shared, attrgetter("wire_ends")) for name, rules in OTHERS.items()}
        return {OWN: _priced(own, prompt, shared, attrgetter("ends")), **priced}


def _priced(
    rules: CacheRules,
    prompt: Prompt,
    shared: Sequence[tuple[Prompt, Common]],
    ends_of: Callable[[Prompt], Sequence[int]],
) -> Priced:
    fresh = [(past, same) for past, same in shared if prompt.at - past.at <= rules.ttl]
    if rules.marked:
        marks = ((past, mark) for past, same in fresh for mark in past.marks if mark < same.place)
        read = max((ends_of(past)[mark + 1] for past, mark in marks), default=0)
    else:
        read = max((same.tokens(ends_of(past)) for past, same in fresh), default=0)
        read -= read % min(_STEP, max(1, rules.minimum))
    read = cached_tokens(rules, read)
    return Priced(prompt_cost(rules, read, ends_of(prompt)[-1]), read)


def rules_of(own: CacheRules, request: ChatRequest) -> CacheRules:
    """Return the model's own rules for a request: where only marked prefixes are cached, none without marks."""
    return UNCACHED if own.marked and not (request.cache_marks or find_marks(request)) else own
