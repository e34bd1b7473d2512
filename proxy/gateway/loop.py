"""The internal tool loop: calls of tools that the proxy offers are answered here, and the client never sees them."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from typing import Any

import orjson

from proxy.chat import ChatRequest, Message, called_name, chosen_tools, encode, with_fields
from proxy.chat.cache_marks import FIELD
from proxy.chat.errors import Unanswered, UpstreamFailed
from proxy.chat.reasoning import signed_places
from proxy.chat.sse import ByteStream
from proxy.gateway.hidden import Hidden, Record
from proxy.models.usage import earlier
from proxy.policy import InternalTool
from proxy.text.json_values import json_object, json_objects
from proxy.upstreams.base import Call, Reply, Upstream
from proxy.upstreams.refusal import advice
from proxy.wires import WIRES
from proxy.wires.chat_round import joined
from proxy.wires.rounds import AnswerRound, understanding

_log = logging.getLogger("penstock.loop")

CUT_OFF = frozenset({"length", "content_filter"})
"""Finish reasons behind which the last call may be half a call."""


@dataclass(frozen=True, slots=True)
class InternalCall:
    """One call of an internal tool."""

    id: str
    name: str
    arguments: str
    """A JSON object, or what the model wrote instead of one."""
    flaw: str | None = None
    """Why the arguments cannot be used."""


@dataclass(frozen=True, slots=True)
class Round:
    """The model's answer in one round."""

    message: Message
    """As it goes back to the model: everything that it said, signed reasoning included."""
    internal: tuple[InternalCall, ...]
    client: tuple[Mapping[str, Any], ...]
    """The calls that the client has to answer."""
    whole: bool = True
    """True if it is complete: one choice, not cut off, no error in between."""

    @property
    def spoken(self) -> Message:
        """The message without the internal calls."""
        message = self.message.without("tool_calls")
        hidden = {call.id for call in self.internal}
        for name in ("content", "items"):  # in the vendor's own blocks or items
            if isinstance(own := message.get(name), list):
                kept = [part for part in own if hidden.isdisjoint((part.get("id"), part.get("call_id")))]
                message = message.with_changes(**{name: kept or None})
        return message.with_changes(tool_calls=list(self.client)) if self.client else message


def heard(read: AnswerRound) -> Round:
    """Return what the model said in a round. The same message gives the same bytes, streamed or whole."""
    result, internal = read.result(), list[InternalCall]()
    calls = [
        {key: value for key, value in call.items() if key != "index"}
        for call in json_objects(result.message.get("tool_calls"))
    ]
    client = [call for call in calls if called_name(call) not in read.names]
    taken_ids = {str(call.get("id", "")) for call in client}
    for place, call in enumerate(calls):
        if called_name(call) in read.names:
            internal.append(_internal(call, place, taken_ids))
            calls[place] = _answerable(call, internal[-1])
            taken_ids.add(internal[-1].id)
    others = {key: value for key, value in result.message.items() if key not in ("role", "content", "index")}
    fields = {key: value for key, value in {**others, "tool_calls": calls}.items() if value is not None and value != []}
    message = Message({"role": "assistant", "content": result.message.get("content") or None, **fields})
    return Round(message, tuple(internal), tuple(client), whole=result.is_whole and result.stop not in CUT_OFF)


def _internal(call: Mapping[str, Any], place: int, taken_ids: set[str]) -> InternalCall:
    name = called_name(call)
    inner = call.get("function") or call.get("custom")
    own = inner.get("arguments", inner.get("input")) if isinstance(inner, Mapping) else None
    text = own if isinstance(own, str) else encode(own or {}).decode(errors="replace")
    call_id = call.get("id")
    if not isinstance(call_id, str) or not call_id or call_id in taken_ids:
        # A result must be told apart from the others; nothing random, so that a replay has the same bytes.
        call_id = "call_" + sha256(f"{place}\0{name}\0{text}".encode(errors="replace")).hexdigest()[:24]
    if not text.strip():
        text = "{}"
    return InternalCall(call_id, name, text, _flaw(text))


def _flaw(arguments: str) -> str | None:
    try:
        value = orjson.loads(arguments)
    except (orjson.JSONDecodeError, UnicodeEncodeError) as error:
        return f"the arguments are not valid JSON ({error})"
    return None if isinstance(value, dict) else "the arguments are not a JSON object"


def _answerable(call: Mapping[str, Any], parsed: InternalCall) -> dict[str, Any]:
    """Return the call as history: many servers refuse a request with old calls whose arguments are invalid JSON."""
    function = call.get("function")
    if not isinstance(function, Mapping):
        return {**call, "id": parsed.id}
    function = {**function, "arguments": "{}" if parsed.flaw else parsed.arguments}
    return {**call, "id": parsed.id, "function": function}


_COUNTS = ("prompt_tokens", "completion_tokens", "cached_tokens", "written_tokens")

_MOST_CALLS = 32
"""Internal calls of one round that are run; no model needs more, and each may search a long conversation."""

_NOT_RUN = f"Error: this call was not run. One answer may make {_MOST_CALLS} calls of such tools."

_NO_MORE = "\n\n[This was the last call of this kind in this turn. Go on with what is known now.]"

Facts = dict[str, str | int | float | bool]


@dataclass(slots=True)
class Dialogue:
    """The rounds so far: what they added to the request, said to the client and cost."""

    _upstream: Upstream
    _call: Call
    _request: ChatRequest
    _tools: Mapping[str, InternalTool]
    _timeout: float
    _record: Record | None
    _rounds_left: int
    facts: Facts = field(default_factory=lambda: Facts(rounds=1, internal_calls=0))
    _text: str = ""
    """The text that earlier rounds sent to the client."""
    _added: tuple[Message, ...] = ()
    """The messages that earlier rounds added to the request."""

    def note(self, facts: Mapping[str, Any]) -> None:
        """Take over what the upstream noticed in one round; tokens add up."""
        counts = {key: facts[key] for key in _COUNTS if isinstance(facts.get(key), int)}
        self.facts |= {**facts, **{key: count + int(self.facts.get(key, 0)) for key, count in counts.items()}}

    def begin(self, before: Any) -> AnswerRound:
        return WIRES[self._request.wire].round(frozenset(self._tools), before)

    async def end(self, read: AnswerRound) -> bytes:
        """Return what the client gets once all of a round is known, but for its last events."""
        shown = read.end()
        if not read.hidden:
            return shown
        return shown + await read.hand_on(partial(self._hand, heard(read).whole and self._rounds_left > 0))

    async def _hand(self, strict: bool, call: Mapping[str, Any]) -> Mapping[str, Any] | None:
        tool = self._tools.get(called_name(call))
        if tool is None:
            return None
        try:
            async with asyncio.timeout(self._timeout):
                return await tool.handed(call, strict=strict)
        except Exception as error:
            _tell(called_name(call), error)
            return None

    async def go_on(self, read: AnswerRound) -> Reply | None:
        """Run the internal calls of a round, and send what they gave; None where the round is the last one."""
        round_, results = heard(read), tuple[Message, ...]()
        if round_.internal and round_.whole and self._rounds_left > 0:
            results = await self._run(round_)
            if not round_.client:
                return await self._next(round_, results, read.result().usage)
        self._check(round_)
        await self._keep(round_, results)
        return None

    async def _run(self, round_: Round) -> tuple[Message, ...]:
        """Run a round's internal calls concurrently, up to the most; cancelling it cancels them."""
        self._rounds_left -= 1
        self.facts["internal_calls"] = int(self.facts["internal_calls"]) + len(round_.internal)
        for called in round_.internal:
            self.facts[f"calls_{called.name}"] = int(self.facts.get(f"calls_{called.name}", 0)) + 1
        async with asyncio.TaskGroup() as group:
            running = [group.create_task(self._answer(call)) for call in round_.internal[:_MOST_CALLS]]
        # A task that was cancelled by its own tool does not end the group.
        texts = ["Error: it was given up." if task.cancelled() else task.result() for task in running]
        texts += [_NOT_RUN] * (len(round_.internal) - len(texts))
        suffix = "" if self._rounds_left else _NO_MORE
        return tuple(
            Message({"role": "tool", "tool_call_id": call.id, "content": text + suffix})
            for call, text in zip(round_.internal, texts, strict=True)
        )

    async def _answer(self, call: InternalCall) -> str:
        if call.flaw is not None:
            return f"Error: {call.flaw}. Call {call.name} again with a JSON object."
        try:
            async with asyncio.timeout(self._timeout):
                result = await self._tools[call.name].run(call.arguments)
            return result.encode(errors="replace").decode()
        except TimeoutError:
            return f"Error: {call.name} took longer than {self._timeout:g} seconds."
        except Exception as error:
            _tell(call.name, error)
            return f"Error: {call.name} failed."

    async def _next(self, round_: Round, results: tuple[Message, ...], usage: Mapping[str, Any]) -> Reply:
        """Send the request again with a round and its results behind everything that was sent before."""
        self._added += (round_.message, *results)
        self._text = joined(self._text, round_.message.text)
        self.facts |= earlier(self.facts, usage)
        self.facts["rounds"] = int(self.facts["rounds"]) + 1
        request = self._request.with_messages((*self._request.messages, *self._added))
        if not self._rounds_left:
            request = self._last(request)
        tokens, counted = self._call.tokens, self._call.counted
        if counted is not None and tokens is not None:
            counted = await tokens.count(request)
        call = with_fields(self._call, request=request, body=request.encode(), counted=counted, keep=None)
        return await self._upstream.send(call.fitted() if self._upstream.abilities.limits_answers else call)

    def _last(self, request: ChatRequest) -> ChatRequest:
        """Return the request of the last round, in which the model has to answer: without internal tools.

        Reasoning that is bound to the tools would be refused without them, so there no tool may be called.
        """
        if (self._call.profile is None or self._call.profile.binds_reasoning) and signed_places(request):
            return request.with_field("tool_choice", "none")
        if not self._tools.keys().isdisjoint(chosen_tools(request.rest.get("tool_choice"))):
            request = request.without("tool_choice")
        tools = [tool for tool in request.tools if tool.name not in self._tools]
        for internal in self._tools.values():
            tools += internal.instead(request.messages, tools)
        return request.with_tools(tools)

    def _check(self, round_: Round) -> None:
        """Raise `Unanswered` where the last round brings the client nothing: it called only internal tools."""
        said = self._text or round_.message.text or round_.message.get("refusal")
        exhausted = self._added and not self._rounds_left
        if exhausted and round_.internal and round_.whole and not (round_.client or said):
            told = "The model called only tools that Penstock runs, also when it was no longer offered any."
            raise Unanswered(told, code="no_answer")

    async def _keep(self, round_: Round, results: tuple[Message, ...]) -> None:
        if self._record is None or not (self._added or results):
            return
        shown = round_.spoken.with_changes(content=joined(self._text, round_.message.text))
        last = round_.message if results else round_.spoken
        await self._record(Hidden(shown, self._added, last, results))


def _tell(tool: str, error: Exception) -> None:
    _log.warning("internal tool failed", extra={"fields": {"tool": tool, "error": type(error).__name__}})


async def send(
    upstream: Upstream,
    call: Call,
    tools: Sequence[InternalTool],
    record: Record | None = None,
    *,
    rounds: int = 4,
    seconds: float = 20.0,
) -> Reply:
    """Send a call, run the internal tools that the model calls, and send what they said, until there is an answer.

    A round in which the model calls only internal tools is followed by another one. One in which it calls tools of the
    client as well is the answer, without the internal calls. The texts of all rounds are one text to the client. Its
    usage is that of the last round, the size of the client's context; the facts tell what earlier rounds used, of a
    stream at its end. Where no internal tool is called, the answer is the upstream's, bytes and all.

    At most so many `rounds` of calls are run; each call has so many `seconds`. The last round is asked for without
    internal tools, so the model answers. No call is run of an answer that was cut off, nor with `n` above one, where
    each choice would go on by itself. `record` is given what the client did not see, before it gets the end of the
    answer. Raises what the upstream raises.
    """
    request = call.request
    offered = {} if request is None else _offered(tools, request)
    reply = await upstream.send(call)
    if request is None or not offered or reply.status != 200:
        return reply
    rounds_left = rounds if request.rest.get("n") in (None, 1) else 0
    dialogue = Dialogue(upstream, call, request, offered, seconds, record, rounds_left)
    if reply.chunks is None:
        return await _whole(dialogue, reply)
    dialogue.facts |= reply.facts
    chunks = _continued(dialogue, reply)
    await anext(chunks)  # a generator that was never begun ignores its closing
    return Reply(reply.status, reply.headers, chunks=chunks, facts=dialogue.facts)


def _offered(tools: Sequence[InternalTool], request: ChatRequest) -> dict[str, InternalTool]:
    """Return the internal tools that a request offers, marked for a cache or not, and no client's of the same name."""
    names = [tool.name for tool in request.tools]
    return {
        tool.name: tool
        for tool in tools
        if names.count(tool.name) == 1 and request.tools[names.index(tool.name)].without(FIELD) == tool.definition
    }


async def _whole(dialogue: Dialogue, reply: Reply) -> Reply:
    read: AnswerRound | None = None
    while True:
        dialogue.note(reply.facts)
        if reply.chunks is not None:
            await reply.chunks.aclose()
            raise Unanswered("the upstream streamed an answer that was not to be streamed", code="upstream_invalid")
        answer = json_object(reply.body or b"") if reply.status == 200 else {}
        read = dialogue.begin(read)
        if not read.take(answer) or not (read.before or read.hidden):
            return with_fields(reply, facts=dialogue.facts)
        with understanding():
            await dialogue.end(read)
            later = await dialogue.go_on(read)
            if later is None:
                return with_fields(reply, body=orjson.dumps(read.whole(answer)), facts=dialogue.facts)
        reply = later


async def _continued(dialogue: Dialogue, reply: Reply) -> AsyncGenerator[bytes, None]:
    """Yield an empty chunk, then the rounds of a dialogue as one answer. Raise the error of a later round.

    Closing it drops the round that is under way.
    """
    read: AnswerRound | None = None
    later: Reply | None = reply
    while later is not None:
        is_first, read = read is None, dialogue.begin(read)
        try:
            async with aclosing(await _events(later)) as chunks:
                if is_first:
                    yield b""
                async for chunk in chunks:
                    if shown := read.feed(chunk):
                        yield shown
        finally:
            dialogue.note(later.facts)
        with understanding():
            shown = await dialogue.end(read)
        if shown:
            yield shown
        if is_first and not read.hidden:
            return
        with understanding():
            later = await dialogue.go_on(read)
    if read is not None:
        with understanding():
            shown = read.tail()
        yield shown


async def _events(reply: Reply) -> ByteStream:
    """Return the stream of a round. Raises the error that came instead of it."""
    if reply.status == 200 and reply.chunks is not None:
        return reply.chunks
    body = reply.body or b""
    if reply.chunks is not None:
        async with aclosing(reply.chunks) as chunks:
            body = b"".join([chunk async for chunk in chunks])
    error = json_object(body).get("error") if reply.status >= 400 else None
    fields = {name: text for name, text in error.items() if isinstance(text, str)} if isinstance(error, dict) else {}
    raise (UpstreamFailed if reply.status >= 400 else Unanswered)(
        fields.get("message") or "the upstream did not go on with its answer",
        param=fields.get("param"),
        code=fields.get("code") or "upstream_broke_off",
        status=reply.status if reply.status >= 400 else None,
        headers=advice(reply.headers),
        kind=fields.get("type"),
    )
