"""The chain over a conversation with signed reasoning, which no edit may break.

Newer models bind reasoning to the tools and messages it was made under: after an edit of any of them a provider refuses
the request, or drops the reasoning. So such a conversation has a beginning that is held, and messages behind it. The
beginning is what the chain made of the request in front of the first signed answer. Behind it, messages are edited when
they are first sent and never again. Where a new user message finds the window full, a new beginning is made: all
earlier reasoning leaves, and the chain works on the whole conversation as on any other, cuts included. In an open tool
loop that never happens.

What was sent in front of a signed answer is kept as soon as the answer shows its signature (`SignedAnswer`), and looked
up (`Settled`). Where it is not known any more, it is worked out again: the chain runs on the beginning as it did then,
and the same sizes give the same new beginnings.
"""

import asyncio
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from hashlib import blake2b
from itertools import accumulate, takewhile
from typing import NamedTuple
from urllib.parse import quote

from proxy.chat import ChatRequest, Message, Tool
from proxy.chat.markers import named_handles
from proxy.chat.reasoning import may_be_signed, signed_places, without_reasoning
from proxy.context import Context, Outage
from proxy.gateway import chain
from proxy.gateway.chain import Outcome
from proxy.gateway.hidden import Trail
from proxy.gateway.relay import Observer
from proxy.history.cuts import Marks, Room
from proxy.policy import Guard, Policy
from proxy.state.background import BackgroundWork
from proxy.state.decisions import StoredMemory
from proxy.state.store import StoreError
from proxy.tools.deferral import CALL_TOOL, through_call_tool

Steps = Sequence[tuple[str, Policy]]

Settle = Callable[[], None]
"""Keeps what was sent for the requests that follow. Never fails."""

_NAME = 32
"""Characters of the longest name by which signed reasoning is told: it may be cut in two in a stream."""

_WORTH = 0.75
"""A new beginning that leaves more than this share of the prompt waits until the window is nearly full."""


async def run(steps: Steps, ctx: Context, settled: "Settled") -> tuple[Outcome, "Settle | None"]:
    """Run a chain over `ctx.incoming`. Also return what keeps what it made of it for the requests that follow.

    That is to be called where the answer has signed reasoning; None where no answer to this request can have any.
    """
    if not ctx.model.binds_reasoning:
        return await chain.run(steps, ctx), None
    count = sum(1 for _ in takewhile(lambda step: step[1].defines_conversation, steps))
    first = await chain.run(steps[:count], ctx)
    if first.rejected is not None:
        return first, None
    sent = first.request
    outcome = await _Conversation(steps[count:], replace(ctx, incoming=sent), settled).outcome()
    settle = partial(settled.keep, sent, outcome.request) if outcome.rejected is None else None
    ran, stages = first.steps + outcome.steps, first.stages + outcome.stages
    given = first.given if outcome.given is sent else None
    return replace(outcome, steps=ran, stages=stages, before=first.before or outcome.before, given=given), settle


class SignedAnswer(Observer):
    """Watches for the signature of an answer, and then has kept what was sent in front of it."""

    reads = True

    def __init__(self, settle: "Settle") -> None:
        self._settle: Settle | None = settle
        self._end = b""

    def feed(self, chunk: bytes) -> None:
        if self._settle is None:
            return
        seen = self._end + chunk
        if may_be_signed(seen):
            self._settle()
            self._settle = None
        self._end = seen[-_NAME:]


class _Conversation:
    """The work on one request."""

    def __init__(self, steps: Steps, ctx: Context, settled: "Settled") -> None:
        self._steps, self._ctx, self._settled = steps, ctx, settled
        self._sent = ctx.incoming
        shares = [policy.cuts_over for _, policy in steps if policy.mode == "enforce" and policy.cuts_over is not None]
        self._room = None
        if shares:
            share, usable = min(shares), ctx.model.usable(ctx.incoming)
            self._room = Room.of(ctx.model.window, usable, 0, Marks(share, critical=(1 + share) / 2))

    async def outcome(self) -> Outcome:
        """The conversation with its beginning held, or with a new one where the window is full."""
        signed = signed_places(self._sent.messages)
        if not signed:
            return await chain.run(self._steps, self._ctx)
        guards = [step for step in self._steps if isinstance(step[1], Guard)]
        guarded = await chain.run(guards, self._ctx)
        if guarded.rejected is not None:
            return guarded
        self._ctx = replace(self._ctx, incoming=guarded.request)
        end, made = await self._found(signed)
        while True:
            outcome = await self._behind(made, end)
            new = await self._new_beginning(outcome, made, end)
            if new is None:
                return replace(outcome, incoming=self._ctx.incoming)
            end, whole = new
            if end == len(self._sent.messages):
                return replace(whole, before=outcome.before)
            made = whole.request

    async def _found(self, signed: Sequence[int]) -> tuple[int, ChatRequest]:
        """The beginning as it was sent, and its end; worked out again where that is not known any more."""
        found = await self._settled.find(self._sent, signed)
        if found is None:
            return signed[0], (await self._begun(signed[0])).request
        archive = self._ctx.archive
        if found.handles and archive is not None and await archive.touch(found.handles) < found.handles:
            await self._begun(found.end)  # archives again what was lost
        return found.end, found.request

    async def _begun(self, end: int) -> Outcome:
        """What the chain makes of the conversation up to a place, as if that were all, without signed reasoning."""
        messages = [(message, without_reasoning(message)) for message in self._sent.messages[:end]]
        sent = self._sent.with_messages(bare for message, bare in messages if bare is message or _says_something(bare))
        return await chain.run(self._steps, replace(self._ctx, incoming=sent))

    async def _behind(self, made: ChatRequest, end: int) -> Outcome:
        """What the steps make of the messages behind a beginning."""
        return await chain.run(
            self._steps, replace(self._ctx, held=len(made.messages)), start=_joined(self._sent, made, end)
        )

    async def _new_beginning(self, outcome: Outcome, made: ChatRequest, end: int) -> tuple[int, Outcome] | None:
        """The first new beginning behind the one that ends at a place: its end, and what the chain made of it.

        It is made with a user message that found the window full, if much becomes free by it, or if little is left.
        Only one that was the last message of a request counts: an answer follows it, or nothing. Where a guard takes
        something out of what was sent before, it is made at once.
        """
        messages = self._sent.messages
        if outcome.rejected is None and outcome.request.messages[: len(made.messages)] != made.messages:
            return len(messages), await self._begun(len(messages))
        if self._room is None or outcome.after is None or outcome.after.total <= self._room.high:
            return None
        sizes = await self._ctx.tokens.sizes(outcome.request.messages)
        ends = [outcome.after.total - sum(sizes) + size for size in accumulate(sizes)]
        for place in range(end, len(messages)):
            is_last = place + 1 == len(messages)
            is_asked = is_last or messages[place + 1].get("role") == "assistant"
            before = outcome.after.total if is_last else ends[place + len(made.messages) - end]
            if messages[place].get("role") != "user" or not is_asked or before <= self._room.high:
                continue
            whole = await self._begun(place + 1)
            after = 0 if whole.after is None else whole.after.total
            if before > self._room.critical or after < before * _WORTH:
                return place + 1, whole
        return None


def _says_something(message: Message) -> bool:
    return bool(message.get("content") or message.get("tool_calls") or message.get("function_call"))


def _joined(incoming: ChatRequest, made: ChatRequest, end: int) -> ChatRequest:
    """A beginning with the messages behind it; the client's own request where nothing of it was changed."""
    tail: Sequence[Message] = incoming.messages[end:]
    offered = {tool.name for tool in made.tools}
    if CALL_TOOL in made.tools:
        tail = through_call_tool(tail, {tool.name for tool in incoming.tools} - offered)
    messages = (*made.messages, *tail)
    if _same(made.tools, incoming.tools) and _same(messages, incoming.messages):
        return incoming
    if not _same(made.tools, incoming.tools):
        incoming = incoming.with_tools(made.tools)
    return incoming.with_messages(messages)


def _same(some: Sequence[object], others: Sequence[object]) -> bool:
    return len(some) == len(others) and all(one is other for one, other in zip(some, others, strict=True))


_log = logging.getLogger("penstock.api")

_PATIENCE = 1.0
"""Seconds that the store has to find something."""


class Prefix(NamedTuple):
    """What was sent in front of an answer."""

    end: int
    """The place of the answer in the client's messages."""
    request: ChatRequest
    """Its tools and messages are those that were sent."""
    handles: frozenset[str]
    """Of the originals of what was shortened in it."""


class Prefixes:
    """Keeps prefixes in a store, in the background: no request waits for it."""

    def __init__(self, memory: StoredMemory) -> None:
        self._memory = memory
        self._waiting: dict[str, bytes] = {}
        self._work = BackgroundWork[str]()

    def bound(self, tenant: str, scope: str, outage: Outage) -> "Settled":
        """Those of one conversation of a tenant, for one request."""
        return Settled(self, tenant, scope, outage)

    async def get(self, key: str) -> bytes | None:
        """What was kept, also where it is not in the store yet."""
        return self._waiting.get(key) or await self._memory.get(key)

    def put(self, key: str, value: bytes) -> None:
        """Have it kept."""
        self._waiting[key] = value
        self._work.begin(self._put(key, value))

    async def _put(self, key: str, value: bytes) -> None:
        try:
            await self._memory.put(key, value)
        except StoreError:  # health and metrics tell; what is not kept is worked out again
            pass
        finally:
            if self._waiting.get(key) is value:
                del self._waiting[key]

    async def aclose(self) -> None:
        """Wait for what is being kept."""
        await self._work.drain()


class Settled:
    """The prefixes of one conversation of one tenant. Nothing here raises.

    A request is kept by what the client sent: its tools and messages, without reasoning. So a reload that changes the
    chain, a bypass or a failed step changes nothing that stands before signed reasoning. Only what differs from the
    client's messages is stored.
    """

    def __init__(self, prefixes: Prefixes, tenant: str, scope: str, outage: Outage) -> None:
        self._prefixes, self._tenant, self._scope, self._outage = prefixes, quote(tenant, safe=""), scope, outage

    async def find(self, request: ChatRequest, answers: Sequence[int]) -> Prefix | None:
        """What was sent in front of the latest of these answers of which it is known."""
        keys = self._keys(request, answers)
        try:
            async with asyncio.timeout(_PATIENCE):
                for end in sorted(keys, reverse=True):
                    kept = await self._prefixes.get(keys[end])
                    if kept is not None:
                        return _read(kept, request, end)
        except Exception as error:
            self._outage.begun = True
            _log.warning("what was sent before is not found", extra={"fields": {"error": type(error).__name__}})
        return None

    def keep(self, sent: ChatRequest, made: ChatRequest) -> None:
        """Keep what was made of a request that the client sent."""
        try:
            first = self._trail(sent)
            trail = sent.form.fold(("sent", first.here()), first, _with_messages)
            self._prefixes.put(self._key(trail), _written(sent, made))
        except Exception as error:  # such as a message that JSON cannot hold
            _log.warning("what was sent is not kept", extra={"fields": {"error": type(error).__name__}})

    def _keys(self, request: ChatRequest, ends: Sequence[int]) -> dict[int, str]:
        """The keys of the conversation up to these places."""
        trail, keys, done = self._trail(request), dict[int, str](), 0
        for end in sorted(ends):
            for message in request.messages[done:end]:
                trail.add(message)
            keys[end], done = self._key(trail), end
        return keys

    def _key(self, trail: Trail) -> str:
        return f"{self._tenant}/{trail.here()}"

    def _trail(self, request: ChatRequest) -> Trail:
        """What stands for the conversation before its first message."""
        tools = blake2b(digest_size=16)
        for tool in request.tools:
            tools.update(tool.raw)
        return Trail(f"{self._scope}\0{tools.hexdigest()}")


def _with_messages(before: Trail, messages: Sequence[Message]) -> Trail:
    trail = before.copy()
    for message in messages:
        trail.add(message)
    return trail


def _written(sent: ChatRequest, made: ChatRequest) -> bytes:
    """The tools and messages that were made: a place for what is the client's, itself for what is not."""
    places = {id(message): place for place, message in enumerate(sent.messages)}
    tools = {id(tool): b"%d" % place for place, tool in enumerate(sent.tools)}
    messages = b",".join(_message(message, sent.messages, places) for message in made.messages)
    return b'{"tools":[%b],"messages":[%b]}' % (
        b",".join(tools.get(id(tool)) or tool.raw for tool in made.tools),
        messages,
    )


def _message(message: Message, sent: Sequence[Message], places: Mapping[int, int]) -> bytes:
    """A place in what was sent; below zero for the message there without its reasoning, counted from -1."""
    place = places.get(id(message))
    if place is not None:
        return b"%d" % place
    place = places.get(id(message.made_of))
    return b"%d" % (-1 - place) if place is not None and message == without_reasoning(sent[place]) else message.raw


def _read(kept: bytes, request: ChatRequest, end: int) -> Prefix:
    found = json.loads(kept)
    sent = request.messages
    messages = [
        Message(each) if isinstance(each, dict) else sent[each] if each >= 0 else without_reasoning(sent[-1 - each])
        for each in found["messages"]
    ]
    tools = [Tool(each) if isinstance(each, dict) else request.tools[each] for each in found["tools"]]
    return Prefix(end, request.with_tools(tools).with_messages(messages), frozenset(named_handles(kept)))
