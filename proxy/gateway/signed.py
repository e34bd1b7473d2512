"""The chain over a conversation with signed reasoning, which no edit may break.

Newer models bind reasoning to the tools and messages it was made under: after an edit of any of them a provider refuses
the request, or drops the reasoning. So such a conversation has a beginning that is held: what the chain made of the
request in front of the first signed answer. Behind it, messages are edited when they are first sent and never again.
Where a new user message finds the window full, a new beginning is made: all earlier reasoning leaves, and the chain
works on the whole conversation as on any other. In an open tool loop that happens only behind a change to a smaller
model, which could not have made the reasoning.

What was sent in front of a signed answer is stored as soon as the answer shows its signature (`SignedAnswer`), and
looked up (`Settled`). Where it is not known any more, the chain runs on the beginning as it did then: the same sizes
give the same new beginnings. A request that does not begin with what was sent before leaves without the chain's edits.
"""

import asyncio
import json
from collections.abc import Collection, Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache, partial
from hashlib import blake2b
from itertools import takewhile
from time import perf_counter
from typing import Any, NamedTuple
from urllib.parse import quote

from msgspec import structs

from proxy.chat import ChatRequest, Message, Tool, chosen_tools, listed, raws, with_fields
from proxy.chat.cache_marks import unmarked
from proxy.chat.markers import named_handles
from proxy.chat.provenance import sent_as
from proxy.chat.reasoning import may_be_signed, signed_places, without_reasoning
from proxy.context import Context, Outage
from proxy.gateway import chain
from proxy.gateway.chain import Outcome, Steps
from proxy.gateway.hidden import PATIENCE, Settle, answers_of, done_without
from proxy.gateway.relay import Observer
from proxy.history.cuts import Marks, Room
from proxy.policy import CutsHistory
from proxy.state.background import BackgroundWork
from proxy.state.cache import Cache, SharedLimit
from proxy.state.decisions import StoredMemory
from proxy.state.store import StoreError
from proxy.step import Step
from proxy.tools.deferral import CALL_TOOL, through_call_tool
from proxy.work_time import current_work

CHECK = "signed_reasoning"
"""The name of the check, as that of a step."""

_SAYING = ("content", "tool_calls", "function_call")
"""Fields of which a message without its reasoning still has one, else it leaves."""

_NAME = 32
"""Characters of the longest name by which signed reasoning is told: it may be cut in two in a stream."""

_TOOL_SETS = 16
"""Sets of tools of which the digest is remembered."""

_WORTH = 0.75
"""A new beginning that leaves more than this share of the prompt waits until the window is nearly full."""


async def run(steps: Steps, ctx: Context, settled: "Settled") -> tuple[Outcome, Settle | None]:
    """Run a chain over `ctx.incoming`. Also return what stores what it made of it for the requests that follow.

    That is to be called where the answer has signed reasoning; None where there will be no answer to this request.
    """
    defining = [*takewhile(lambda step: step[1].defines_conversation, steps)]
    if not signed_places(ctx.incoming):
        outcome = await chain.run(steps, ctx)
        is_over = outcome.rejected is not None or outcome.chosen is not None
        names = {name for name, _ in defining}
        defined = [request for name, request in takewhile(lambda stage: stage[0] in names, outcome.stages)]
        return outcome, None if is_over else settled.record(defined[-1] if defined else ctx.incoming, outcome.request)
    # that reasoning is of this model
    ctx = structs.replace(ctx, conditions=structs.replace(ctx.conditions, may_choose_model=False))
    first = await chain.run(defining, ctx)
    if first.rejected is not None or first.chosen is not None:
        return first, None
    sent = first.request
    if sent is not ctx.incoming:
        ctx = structs.replace(ctx, incoming=sent)
    outcome = await _Conversation(steps[len(defining) :], ctx, settled).outcome()
    is_over = outcome.rejected is not None or outcome.chosen is not None
    settle = None if is_over else settled.record(sent, outcome.request)
    ran, stages = first.steps + outcome.steps, first.stages + outcome.stages
    start = first.start if outcome.start is sent else None
    return with_fields(outcome, steps=ran, stages=stages, before=first.before or outcome.before, start=start), settle


class SignedAnswer(Observer):
    """Watches for the signature of an answer, and then has kept what was sent in front of it."""

    reads = True

    def __init__(self, settle: Settle) -> None:
        self._settle: Settle | None = settle
        self._end = b""

    def feed(self, chunk: bytes) -> None:
        if self._settle is None:
            return
        seen = self._end + chunk
        if may_be_signed(seen):
            self._settle(())
            self._settle = None
        self._end = seen[-_NAME:]


class _Conversation:
    """The work on one request."""

    def __init__(self, steps: Steps, ctx: Context, settled: "Settled") -> None:
        self._steps, self._ctx, self._settled = steps, ctx, settled
        self._sent, self._is_guarded = ctx.incoming, False

    def _room(self) -> Room | None:
        """Return the room in the window, where a step cuts what does not fit."""
        cutting = [policy for _, policy in self._steps if isinstance(policy, CutsHistory) and policy.mode == "enforce"]
        if not cutting:
            return None
        share, model = min(policy.cuts_over for policy in cutting), self._ctx.model
        return Room.of(model.window, model.usable(self._sent), 0, Marks(share, critical=(1 + share) / 2))

    async def outcome(self) -> Outcome:
        """Return the conversation with its beginning frozen, or with a new one where the window is full."""
        signed = signed_places(self._sent)
        if not signed:
            return await chain.run(self._steps, self._ctx)
        guards = [step for step in self._steps if step[1].is_guard]
        self._is_guarded = bool(guards)
        guarded = await chain.run(guards, self._ctx)
        if guarded.rejected is not None:
            return guarded
        self._ctx = structs.replace(self._ctx, incoming=guarded.request)
        said = enumerate(self._sent.messages)
        answers = [place for place, each in said if place >= signed[0] and each.get("role") == "assistant"]
        prefix, end = await self._prefix(answers, signed)
        refused = 0
        for place in answers:  # what the requests behind it were, as if each came now
            if place > end and current_work().used() < self._ctx.conditions.deadline:
                earlier = await self._sent_up_to(place, prefix, end)
                refused += earlier.rejected is not None
                if earlier.rejected is None:
                    prefix, end = earlier.request, place
                    self._settled.remember(self._sent.with_messages(self._sent.messages[:end]), prefix)
        whole, offered = len(self._sent.messages), listed(prefix.tools).names
        if offered.issuperset(chosen_tools(self._sent.rest.get("tool_choice"))):
            outcome = await self._sent_up_to(whole, prefix, end)
            # what does not fit up to an earlier answer was sent to another model
            if outcome.rejected is not None and (refused or not await self._fits(prefix)):
                outcome = replace(await self._begun(whole), before=outcome.before)
        else:  # what must be called now was left out when the reasoning was made
            outcome = await self._begun(whole)
        # the steps have seen the beginning as a guard had left it
        restores = {**guarded.restores, **outcome.restores}
        return with_fields(outcome, incoming=self._ctx.incoming, restores=restores)

    async def _fits(self, request: ChatRequest) -> bool:
        return (await self._ctx.tokens.count(request)).total <= self._ctx.model.usable(self._sent)

    async def _prefix(self, answers: Sequence[int], signed: Sequence[int]) -> tuple[ChatRequest, int]:
        """Return the beginning as it was sent, and its end; worked out again where that is not known any more."""
        known = await self._settled.find(self._sent, answers, signed)
        if known is None:
            return (await self._begun(signed[0])).request, signed[0]
        archive = self._ctx.archive
        if known.handles and archive is not None and await archive.touch(known.handles) < known.handles:
            await self._begun(known.end)  # archives again what was lost
        return known.request, known.end

    async def _begun(self, end: int) -> Outcome:
        """Run the chain over the conversation up to a place, without signed reasoning."""
        messages = [(message, without_reasoning(message)) for message in self._sent.messages[:end]]
        sent = self._sent.with_messages(
            bare for message, bare in messages if bare is message or any(map(bare.get, _SAYING))
        )
        return await chain.run(self._steps, structs.replace(self._ctx, incoming=sent))

    async def _sent_up_to(self, place: int, prefix: ChatRequest, end: int) -> Outcome:
        """Return what is sent of the messages up to a place, behind a beginning that ends at `end`.

        A new beginning is made with a user message that finds the window full, if much becomes free by it, or if little
        is left; and where a guard takes something out of what was sent before.
        """
        outcome = await self._behind(prefix, end, place)
        if outcome.rejected is None and not _begins(outcome.request, prefix, len(prefix.messages)):
            return replace(await self._begun(place), before=outcome.before)
        is_asked, room = self._sent.messages[place - 1].get("role") == "user", self._room()
        if room is None or outcome.after is None or outcome.after.total <= room.high or not is_asked:
            return outcome
        whole = await self._begun(place)
        after, before = 0 if whole.after is None else whole.after.total, outcome.after.total
        is_better = before > room.critical or after < before * _WORTH
        return replace(whole, before=outcome.before) if is_better else outcome

    async def _behind(self, prefix: ChatRequest, end: int, place: int) -> Outcome:
        """Run the steps over the messages between a prefix and a place; undo them if they change the prefix."""
        incoming = self._ctx.incoming
        if place < len(incoming.messages):
            incoming = incoming.with_messages(incoming.messages[:place])
        start, frozen, started = _joined(incoming, prefix, end), len(prefix.messages), perf_counter()
        outcome = await chain.run(
            self._steps, structs.replace(self._ctx, incoming=incoming, frozen=frozen), start=start
        )
        if outcome.rejected is not None or _begins(outcome.request, start, frozen) or self._is_guarded:
            return outcome
        check = Step(CHECK, "fail", "undone: a step changed what was sent before", perf_counter() - started, started)
        count = await self._ctx.tokens.count(start)
        return with_fields(outcome, request=start, after=count, steps=(*outcome.steps, check), stages=(), start=None)


def _begins(request: ChatRequest, start: ChatRequest, frozen: int) -> bool:
    return request.tools == start.tools and request.messages[:frozen] == start.messages[:frozen]


def _joined(incoming: ChatRequest, prefix: ChatRequest, end: int) -> ChatRequest:
    """Return a beginning with the messages behind it; the client's own request where nothing of it was changed."""
    tail: Sequence[Message] = incoming.messages[end:]
    if CALL_TOOL in prefix.tools:
        tail = through_call_tool(tail, listed(incoming.tools).names - listed(prefix.tools).names)
    messages = (*prefix.messages, *tail)
    if _same(prefix.tools, incoming.tools) and _same(messages, incoming.messages):
        return incoming
    if not _same(prefix.tools, incoming.tools):
        incoming = incoming.with_tools(prefix.tools)
    return incoming.with_messages(messages)


def _same(own: Sequence[object], others: Sequence[object]) -> bool:
    return len(own) == len(others) and all(one is other for one, other in zip(own, others, strict=True))


_ENTRY = 400
"""Bytes that a prefix takes in memory besides its own, about."""


class Prefix(NamedTuple):
    """The prefix sent before an answer."""

    end: int
    """The place of the answer in the client's messages."""
    request: ChatRequest
    """Its tools and messages are those that were sent."""
    handles: frozenset[str]
    """Of the originals of what was shortened in it."""


_Key = tuple[str, str]
"""The tenant, and the print of a conversation and its tools."""


class Prefixes:
    """Keeps prefixes in a store, in the background: no request waits for it."""

    def __init__(self, memory: StoredMemory, limit: SharedLimit | int = 2**24) -> None:
        """`limit` bounds the bytes of what this process sent last."""
        self.memory = memory
        self.sent: Cache[_Key, bytes] = Cache(limit)
        self._work = BackgroundWork[str]()

    def put(self, key: _Key, value: bytes, *, stored: bool) -> None:
        """Remember what was sent; where it is `stored`, for other processes too."""
        self.sent.put(key, value, _ENTRY + len(value))
        if stored:
            self.begin(self._put(key, value))

    async def _put(self, key: _Key, value: bytes) -> None:
        with suppress(StoreError):  # health and metrics tell; what is not kept is worked out again
            await self.memory.put("/".join(key), value)

    def forget(self, tenant: str) -> int:
        """Forget what was sent of a tenant's; return how much that was."""
        return self.sent.forget(quote(tenant, safe=""))

    def begin(self, work: Coroutine[Any, Any, None]) -> None:
        self._work.begin(work)

    async def aclose(self) -> None:
        await self._work.drain()


class Settled:
    """The prefixes of one conversation of one tenant, for one request. Nothing here raises.

    A request is kept by what the client sent: its tools and messages, without reasoning. So a reload that changes the
    chain, a bypass or a failed step changes nothing that stands before signed reasoning. Only what differs from the
    client's messages is stored.
    """

    def __init__(self, prefixes: Prefixes, scope: str, outage: Outage) -> None:
        """Bind them; `scope` is that of `HiddenParts`."""
        self._prefixes, self._scope, self._outage = prefixes, scope, outage

    async def find(self, request: ChatRequest, places: Collection[int], signed: Collection[int]) -> Prefix | None:
        """Return the prefix of the latest of these answers with a known one. Only those of `signed` ones are stored."""
        for end, before, _ in reversed(answers_of(request, self._scope).places):
            if end in places:
                key = self._key(request, before)
                known = await self._stored(key, request, end) if end in signed else None
                if known is None and (sent := self._prefixes.sent.get(key)) is not None:
                    known = _read(sent, request, end)
                if known is not None:
                    return known
        return None

    async def _stored(self, key: _Key, request: ChatRequest, end: int) -> Prefix | None:
        if not self._outage.begun:
            with done_without("what was sent before is not found", self._outage):
                async with asyncio.timeout(PATIENCE):
                    stored = await self._prefixes.memory.get("/".join(key))
                return None if stored is None else _read(stored, request, end)
        return None

    def record(self, sent: ChatRequest, outgoing: ChatRequest) -> Settle:
        """Return what stores what was made of a request that the client sent; only a signed answer stands behind it.

        Behind signed reasoning the next answer need not have any: then it is remembered here.
        """
        if signed_places(sent):
            self.remember(sent, outgoing)
        return partial(self.remember, sent, outgoing, stored=True)

    def remember(
        self, sent: ChatRequest, outgoing: ChatRequest, rounds: Sequence[Message] = (), *, stored: bool = False
    ) -> None:
        with done_without("what was sent is not kept"):  # such as a message that JSON cannot hold
            answers = answers_of(sent, self._scope)
            if rounds:
                answers = answers.then(rounds)
                sent, outgoing = (each.with_messages((*each.messages, *rounds)) for each in (sent, outgoing))
            key = self._key(sent, answers.running.hexdigest())
            self._prefixes.put(key, _written(sent, outgoing), stored=stored)

    def _key(self, request: ChatRequest, before: str) -> _Key:
        tenant = self._scope.partition("\0")[0]
        return quote(tenant, safe=""), f"{_digest(tuple(raws(request.tools)))}/{before}"


@lru_cache(_TOOL_SETS)
def _digest(tools: tuple[bytes, ...]) -> str:
    return blake2b(b"".join(sorted(tools)), digest_size=16).hexdigest()


def _by_content(tools: Sequence[Tool]) -> list[Tool]:
    """Tools in an order of their own: some clients send the same ones in another order each time."""
    return sorted(tools, key=lambda tool: tool.raw)


def _written(sent: ChatRequest, outgoing: ChatRequest) -> bytes:
    """Return the tools and messages that were made: a place for what is the client's, itself for what is not."""
    places = {id(message): place for place, message in enumerate(sent.messages)}
    tools = {id(tool): b"%d" % place for place, tool in enumerate(_by_content(sent.tools))}
    # joined here: orjson writes behind its buffer where it copies finished JSON (`Fragment`)
    return b'{"tools":[%b],"messages":[%b]}' % (
        b",".join([tools.get(id(tool)) or tool.raw for tool in outgoing.tools]),
        b",".join([_message(message, sent.messages, places) for message in outgoing.messages]),
    )


def _message(message: Message, sent: Sequence[Message], places: Mapping[int, int]) -> bytes:
    """Return a place in what was sent; below zero for the message there without its reasoning, counted from -1.

    A message that was made of one there stands behind its place; one that was made of none stands alone.
    """
    if (place := places.get(id(message))) is not None:
        return b"%d" % place
    place = sent_as(message, places.get)
    bare = unmarked(message).raw  # marks are no part of what is bound
    if place is None:
        return bare
    return b"%d" % (-1 - place) if message == without_reasoning(sent[place]) else b"[%d,%b]" % (place, bare)


def _read(stored: bytes, request: ChatRequest, end: int) -> Prefix:
    fields = json.loads(stored)
    messages = [_as_made(each, request.messages) for each in fields["messages"]]
    known = _by_content(request.tools)
    tools = [Tool(each) if isinstance(each, dict) else known[each] for each in fields["tools"]]
    return Prefix(end, request.with_tools(tools).with_messages(messages), frozenset(named_handles(stored)))


def _as_made(written: Any, sent: Sequence[Message]) -> Message:
    if isinstance(written, int):
        return sent[written] if written >= 0 else without_reasoning(sent[-1 - written])
    if isinstance(written, list):
        place, message = written
        return Message(message).copied_from(sent[place])
    return Message(written)
