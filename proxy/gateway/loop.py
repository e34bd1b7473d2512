"""The internal tool loop: calls of tools that the proxy offers are answered here, and the client never sees them."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any

from proxy.chat import ChatRequest
from proxy.chat.errors import Unanswered, UpstreamFailed
from proxy.chat.reasoning import AS_BLOCKS
from proxy.chat.sse import ByteStream
from proxy.gateway.chat_round import ChatRound
from proxy.gateway.dialogue import Dialogue, Round, heard
from proxy.gateway.hidden import Record
from proxy.policy import InternalTool
from proxy.text.json_values import json_object
from proxy.upstreams.base import Call, Reply, Upstream
from proxy.upstreams.refusal import advice
from proxy.wires.rounds import ROUNDS, MessagesRound, ResponsesRound


class Loop:
    """Sends a call, runs the internal tools that the model calls, and sends what they said, until it has an answer.

    A round in which the model calls only internal tools is followed by another one. One in which it calls tools of the
    client as well is the answer: the internal calls are run, and taken out of what the client gets. The texts of all
    rounds are one text to the client, whether it is streamed or not. Its usage is that of the last round, which is the
    size of the client's context; what the rounds before it used is told by the facts.

    With `n` above one no call is run, because each choice would go on by itself: internal calls are only taken out. So
    are those of an answer that was cut off. The last round is asked for without internal tools, so the model answers.
    """

    def __init__(self, tools: Sequence[InternalTool], *, rounds: int = 4, timeout: float = 20.0) -> None:
        """At most so many `rounds` of calls are run; each call has `timeout` seconds."""
        self._tools = tools
        self._rounds = rounds
        self._timeout = timeout

    async def send(self, upstream: Upstream, call: Call, record: Record | None = None) -> Reply:
        """Return the answer to a call; the upstream's own, bytes and all, where no internal tool is called.

        `record` is given what the client did not see, before it gets the end of the answer. Raises what the upstream
        raises. Facts, for a stream complete at its end: those of the rounds, `rounds` and `internal_calls`.
        """
        request = call.request
        tools = {} if request is None else _offered(self._tools, request)
        reply = await upstream.send(call)
        if request is None or not tools or reply.status != 200:
            return reply
        dialogue = Dialogue(upstream, call, request, tools, rounds=self._rounds, timeout=self._timeout, record=record)
        if reply.chunks is None:
            return await _whole(dialogue, reply)
        dialogue.facts |= reply.facts
        chunks = _continued(dialogue, reply)
        await anext(chunks)  # a generator that was never begun ignores its closing
        return Reply(reply.status, reply.headers, chunks=chunks, facts=dialogue.facts)


def _offered(tools: Sequence[InternalTool], request: ChatRequest) -> dict[str, InternalTool]:
    """Return the internal tools that a request offers, by name, without those that share a client tool's name."""
    names = [tool.name for tool in request.tools]
    return {
        tool.name: tool
        for tool in tools
        if names.count(tool.name) == 1 and request.tools[names.index(tool.name)] == tool.definition
    }


AnswerRound = ChatRound | MessagesRound | ResponsesRound


def _next_round(dialogue: Dialogue, before: Any) -> AnswerRound:
    """Return what reads the round of an answer behind `before`, or the first one."""
    if dialogue.wire in ROUNDS:
        return ROUNDS[dialogue.wire](dialogue.names, before)
    thoughts = sum(len(message.get(AS_BLOCKS) or ()) for message in dialogue.added)
    return ChatRound(dialogue.names, before, text=dialogue.text, thoughts=thoughts)


def _heard(read: AnswerRound) -> tuple[Round, dict[str, Any]]:
    """Return what the model said in a round, and what it used."""
    return read.heard() if isinstance(read, ChatRound) else (heard(read.message, read.finish, read.names), read.usage)


async def _whole(dialogue: Dialogue, reply: Reply) -> Reply:
    """Return the answer to a call that is not streamed. An error is relayed as it is."""
    rounds: list[Any] = []
    while True:
        dialogue.note(reply.facts)
        if reply.chunks is not None:
            await reply.chunks.aclose()
            raise Unanswered("the upstream streamed an answer that was not to be streamed", code="upstream_invalid")
        answer = json_object(reply.body or b"") if reply.status == 200 else {}
        read = _next_round(dialogue, rounds[-1] if rounds else None)
        if not read.take(answer):
            return replace(reply, facts=dialogue.facts)
        rounds.append(read)
        await read.hand_on(dialogue.hand(_heard(read)[0]))
        round_, usage = _heard(read)
        results = await dialogue.run(round_) if dialogue.runs(round_) else ()
        if not results or round_.client:
            break
        reply = await dialogue.next(round_, results, usage)
    dialogue.check(round_)
    await dialogue.keep(round_, results)
    if len(rounds) > 1 or read.is_changed:
        reply = replace(reply, body=read.whole(answer, rounds))
    return replace(reply, facts=dialogue.facts)


async def _continued(dialogue: Dialogue, reply: Reply) -> AsyncGenerator[bytes, None]:
    """Yield an empty chunk, then the rounds of a dialogue as one answer. Raise the error of a later round.

    Closing it drops the round that is under way.
    """
    before: AnswerRound | None = None
    while True:
        read = _next_round(dialogue, before)
        try:
            async with aclosing(await _events(reply)) as chunks:
                if before is None:
                    yield b""
                async for chunk in chunks:
                    if shown := read.feed(chunk):
                        yield shown
        finally:
            dialogue.note(reply.facts)
        if shown := await _end(read, dialogue):
            yield shown
        if before is None and not read.hidden:
            return
        round_, usage = _heard(read)
        results = await dialogue.run(round_) if dialogue.runs(round_) else ()
        if not results or round_.client:
            break
        before = read
        reply = await dialogue.next(round_, results, usage)
    dialogue.check(round_)
    await dialogue.keep(round_, results)
    yield read.tail()


async def _end(read: AnswerRound, dialogue: Dialogue) -> bytes:
    """Return what the client gets once all of a round is known, but for its last events."""
    shown = read.end()
    if read.hidden:
        round_, _ = _heard(read)
        shown += await read.hand_on(dialogue.hand(round_))
    return shown


async def _events(reply: Reply) -> ByteStream:
    """Return the stream of a round. Raises the error that came instead of it."""
    if reply.status == 200 and reply.chunks is not None:
        return reply.chunks
    body = reply.body or b""
    if reply.chunks is not None:
        async with aclosing(reply.chunks) as chunks:
            body = b"".join([chunk async for chunk in chunks])
    raise _failure(reply, body)


def _failure(reply: Reply, body: bytes) -> UpstreamFailed:
    error = json_object(body).get("error") if reply.status != 200 else None
    fields: Mapping[str, Any] = error if isinstance(error, dict) else {}
    kind = UpstreamFailed if reply.status >= 400 else Unanswered
    failure = kind(
        _text(fields.get("message")) or "the upstream did not go on with its answer",
        param=_text(fields.get("param")),
        code=_text(fields.get("code")) or "upstream_broke_off",
        status=reply.status if reply.status >= 400 else None,
        headers=advice(reply.headers),
    )
    failure.type = _text(fields.get("type")) or failure.type
    return failure


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None
