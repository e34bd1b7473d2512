"""The internal tool loop: calls of tools that the proxy offers are answered here, and the client never sees them."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import Any

import orjson

from proxy.chat import ChatRequest, Message
from proxy.chat.errors import Unanswered, UpstreamFailed
from proxy.chat.reasoning import AS_BLOCKS, AS_TEXT
from proxy.chat.sse import ByteStream
from proxy.gateway.deltas import Deltas
from proxy.gateway.dialogue import Dialogue, Round, heard, joined, messages_of, without_internal
from proxy.gateway.hidden import Record
from proxy.policy import InternalTool
from proxy.text.json_values import json_object
from proxy.upstreams.base import Call, Reply, Upstream
from proxy.upstreams.refusal import advice
from proxy.wires.messages_stream import MessagesRound
from proxy.wires.responses_stream import ResponsesRound


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


async def _whole(dialogue: Dialogue, reply: Reply) -> Reply:
    """Return the answer to a call that is not streamed."""
    if dialogue.wire in _ROUNDS:
        return await _whole_native(dialogue, reply)
    rounds: list[Round] = []
    while True:
        results: tuple[Message, ...] = ()
        dialogue.note(reply.facts)
        answer = _parsed(reply)
        handed = await _hand_on(answer, dialogue)
        round_ = _round(answer, dialogue.names)
        if round_ is None or not dialogue.runs(round_):
            break
        results = await dialogue.run(round_)
        if round_.client:
            break
        rounds.append(round_)
        usage = answer.get("usage")
        reply = await dialogue.next(round_, results, usage if isinstance(usage, dict) else {})
        if reply.chunks is not None:
            await reply.chunks.aclose()
            raise Unanswered("the upstream streamed an answer that was not to be streamed", code="upstream_invalid")
    if round_ is not None:
        dialogue.check(round_)
        await dialogue.keep(round_, results)
    changed = without_internal(answer.get("choices") or (), dialogue.names) or handed
    if rounds and round_ is not None:
        _join(answer["choices"][0]["message"], rounds)
        changed = True
    body = orjson.dumps(answer) if changed else reply.body
    return Reply(reply.status, reply.headers, body=body, facts=dialogue.facts)


_ROUNDS: Mapping[str, type[MessagesRound] | type[ResponsesRound]] = {
    "messages": MessagesRound,
    "responses": ResponsesRound,
}
"""By wire, what reads a round of an answer that is not in chat form."""

_NativeRound = MessagesRound | ResponsesRound


async def _whole_native(dialogue: Dialogue, reply: Reply) -> Reply:
    """Return the answer to a call of another wire than chat that is not streamed."""
    kind, rounds = _ROUNDS[dialogue.wire], list[Any]()
    while True:
        dialogue.note(reply.facts)
        answer = _object(reply)
        read = kind(dialogue.names, rounds[-1] if rounds else None)
        if not read.take(answer):
            break
        rounds.append(read)
        await read.hand_on(dialogue.hand(_heard(read)[0]))
        round_, usage = _heard(read)
        results = await dialogue.run(round_) if dialogue.runs(round_) else ()
        if not results or round_.client:
            dialogue.check(round_)
            await dialogue.keep(round_, results)
            break
        reply = await dialogue.next(round_, results, usage)
    is_changed = len(rounds) > 1 or any(each.is_changed for each in rounds)
    body = kind.whole(answer, rounds) if is_changed and reply.status == 200 else reply.body
    return Reply(reply.status, reply.headers, body=body, facts=dialogue.facts)


def _heard(read: Deltas | _NativeRound) -> tuple[Round, dict[str, Any]]:
    """Return what the model said in a round, and what it used."""
    return read.heard() if isinstance(read, Deltas) else (heard(read.message, read.finish, read.names), read.usage)


def _deltas(dialogue: Dialogue, before: Any) -> Deltas | _NativeRound:
    """Return what reads the next round of a stream."""
    if dialogue.wire in _ROUNDS:
        return _ROUNDS[dialogue.wire](dialogue.names, before)
    thoughts = sum(len(message.get(AS_BLOCKS) or ()) for message in dialogue.added)
    head = before.head if isinstance(before, Deltas) else None
    return Deltas(dialogue.names, head=head, text=dialogue.text, thoughts=thoughts)


def _object(reply: Reply) -> dict[str, Any]:
    return json_object(reply.body or b"") if reply.status == 200 else {}


def _parsed(reply: Reply) -> dict[str, Any]:
    """Return the answer; nothing for an error, which is relayed as it is."""
    answer = _object(reply)
    return answer if isinstance(answer.get("choices"), list) else {}


def _round(answer: dict[str, Any], names: frozenset[str]) -> Round | None:
    """Return what the only choice of an answer says; None where there is none or more than one."""
    choices: list[Any] = answer.get("choices") or []
    if len(choices) != 1 or not isinstance(choices[0], dict) or not isinstance(choices[0].get("message"), dict):
        return None
    return heard(choices[0]["message"], choices[0].get("finish_reason"), names)


async def _hand_on(answer: dict[str, Any], dialogue: Dialogue) -> bool:
    """Make calls in an answer the client's that are handed on to it; return True if there were any."""
    hand = dialogue.hand(_round(answer, dialogue.names))
    changed = False
    for message in messages_of(answer.get("choices") or ()):
        calls = message["tool_calls"]
        own = [await hand(call) if isinstance(call, dict) else None for call in calls]
        if any(own):
            changed = True
            message["tool_calls"] = [other or call for call, other in zip(calls, own, strict=True)]
    return changed


def _join(message: dict[str, Any], rounds: Sequence[Round]) -> None:
    """Put what earlier rounds said in front of what the last one says."""
    for key in ("content", *AS_TEXT):
        texts = [text for round_ in rounds if isinstance(text := round_.message.get(key), str) and text]
        last = message.get(key)
        if not texts or not (last is None or isinstance(last, str)):
            continue
        whole = ""
        for text in (*texts, last or ""):
            whole = joined(whole, text)
        message[key] = whole


async def _continued(dialogue: Dialogue, reply: Reply) -> AsyncGenerator[bytes, None]:
    """Yield an empty chunk, then the rounds of a dialogue as one answer. Raise the error of a later round.

    Closing it drops the round that is under way.
    """
    before: Deltas | _NativeRound | None = None
    while True:
        deltas = _deltas(dialogue, before)
        try:
            async with aclosing(await _events(reply)) as chunks:
                if before is None:
                    yield b""
                async for chunk in chunks:
                    if shown := deltas.feed(chunk):
                        yield shown
        finally:
            dialogue.note(reply.facts)
        if shown := await _end(deltas, dialogue):
            yield shown
        if before is None and not deltas.hidden:
            return
        round_, usage = _heard(deltas)
        results = await dialogue.run(round_) if dialogue.runs(round_) else ()
        if not results or round_.client:
            break
        before = deltas
        reply = await dialogue.next(round_, results, usage)
    dialogue.check(round_)
    await dialogue.keep(round_, results)
    yield deltas.tail()


async def _end(deltas: Deltas | _NativeRound, dialogue: Dialogue) -> bytes:
    """Return what the client gets once all of a round is known, but for its last events."""
    shown = deltas.end()
    if deltas.hidden:
        round_, _ = _heard(deltas)
        shown += await deltas.hand_on(dialogue.hand(round_))
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
