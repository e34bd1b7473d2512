"""The dialogue between the model and the internal tools behind one request of a client."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any, Protocol, runtime_checkable

import orjson

from proxy.chat import ChatRequest, Message, Tool, called_name, chosen_tools, encode
from proxy.chat.errors import Unanswered
from proxy.chat.reasoning import signed_places
from proxy.gateway.hidden import Hidden, Record
from proxy.models.usage import earlier
from proxy.policy import InternalTool
from proxy.upstreams.base import Call, Reply, Upstream

CUT_OFF = frozenset({"length", "content_filter"})
"""Finish reasons behind which the last call may be half a call."""


Hand = Callable[[Mapping[str, Any]], Awaitable[Mapping[str, Any] | None]]
"""The client's call in place of a call of an internal tool; None for one that is answered inside."""


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


def heard(answer: Mapping[str, Any], finish: Any, names: frozenset[str]) -> Round:
    """Return the round that an assistant message is. The same message gives the same bytes, streamed or whole."""
    internal: list[InternalCall] = []
    client: list[Mapping[str, Any]] = []
    calls: list[Mapping[str, Any]] = []
    listed = answer.get("tool_calls")
    mentioned = [call for call in listed if isinstance(call, Mapping)] if isinstance(listed, list) else []
    taken_ids = {str(call.get("id", "")) for call in mentioned if called_name(call) not in names}
    for place, call in enumerate(mentioned):
        bare = {key: value for key, value in call.items() if key != "index"}
        if called_name(bare) in names:
            parsed = _internal(bare, place, taken_ids)
            internal.append(parsed)
            bare = _answerable(bare, parsed)
            taken_ids.add(parsed.id)
        else:
            client.append(bare)
        calls.append(bare)
    rest = {key: value for key, value in answer.items() if key not in ("role", "content", "tool_calls", "index")}
    fields = {key: value for key, value in rest.items() if value is not None and value != []}
    message = Message({"role": "assistant", "content": answer.get("content") or None, **fields})
    if calls:
        message = message.with_changes(tool_calls=calls)
    return Round(message, tuple(internal), tuple(client), whole=finish not in CUT_OFF)


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


def joined(before: str, after: str) -> str:
    """Return the texts of two rounds as one, set apart where they would run into each other."""
    return before + gap(before, after) + after


def gap(before: str, after: str) -> str:
    """Return what stands between the texts of two rounds."""
    return "\n\n" if before and after and not before[-1].isspace() and not after[0].isspace() else ""


_log = logging.getLogger("penstock.loop")

_COUNTS = ("prompt_tokens", "completion_tokens", "cached_tokens", "written_tokens")

_MOST_CALLS = 32
"""Internal calls of one round that are run; no model needs more, and each may search a long conversation."""

_NOT_RUN = f"Error: this call was not run. One answer may make {_MOST_CALLS} calls of such tools."

_NO_MORE = "\n\n[This was the last call of this kind in this turn. Go on with what is known now.]"

Facts = dict[str, str | int | float | bool]


@runtime_checkable
class HandsOn(Protocol):
    """An internal tool whose calls are the client's in another form; it runs those that cannot be."""

    async def handed(self, call: Mapping[str, Any], *, strict: bool) -> Mapping[str, Any] | None:
        """Return the call as the client gets it; None for one that cannot be handed on.

        With `strict`, the model can be told its flaw.
        """


@runtime_checkable
class StandsFor(Protocol):
    """An internal tool through which the model reaches tools of the client."""

    def instead(self, messages: Sequence[Message], offered: Sequence[Tool]) -> Sequence[Tool]:
        """Return the client's tools to offer once it is gone, beside those that are `offered`."""


class Dialogue:
    """The rounds so far: what they added to the request, said to the client and cost."""

    def __init__(
        self,
        upstream: Upstream,
        call: Call,
        request: ChatRequest,
        tools: Mapping[str, InternalTool],
        *,
        rounds: int,
        timeout: float,
        record: Record | None,
    ) -> None:
        self.wire = request.wire
        self.names = frozenset(tools)
        self.text = ""
        """The text that earlier rounds sent to the client."""
        self.facts: Facts = {"rounds": 1, "internal_calls": 0}
        self.added: tuple[Message, ...] = ()
        """The messages that earlier rounds added to the request."""
        self._upstream = upstream
        self._call = call
        self._request = request
        self._tools = tools
        self._rounds_left = rounds if request.rest.get("n") in (None, 1) else 0
        self._timeout = timeout
        self._record = record

    def note(self, facts: Mapping[str, Any]) -> None:
        """Take over what the upstream noticed in one round; tokens add up."""
        counts = {key: facts[key] for key in _COUNTS if isinstance(facts.get(key), int)}
        self.facts |= {**facts, **{key: count + int(self.facts.get(key, 0)) for key, count in counts.items()}}

    def runs(self, round_: Round) -> bool:
        """Return whether the internal calls of a round are answered."""
        return bool(round_.internal) and round_.whole and self._rounds_left > 0

    def hand(self, round_: Round) -> Hand:
        """Return how the calls of a round are handed on to the client."""
        strict = round_.whole and self._rounds_left > 0

        async def hand(call: Mapping[str, Any]) -> Mapping[str, Any] | None:
            tool = self._tools.get(called_name(call))
            if not isinstance(tool, HandsOn):
                return None
            try:
                async with asyncio.timeout(self._timeout):
                    return await tool.handed(call, strict=strict)
            except Exception as error:
                _tell(called_name(call), error)
                return None

        return hand

    async def run(self, round_: Round) -> tuple[Message, ...]:
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

    async def next(self, round_: Round, results: tuple[Message, ...], usage: Mapping[str, Any]) -> Reply:
        """Send the request again with a round and its results behind everything that was sent before."""
        self.added += (round_.message, *results)
        self.text = joined(self.text, round_.message.text)
        self.facts |= earlier(self.facts, usage)
        self.facts["rounds"] = int(self.facts["rounds"]) + 1
        request = self._request.with_messages((*self._request.messages, *self.added))
        if not self._rounds_left:
            request = self._last(request)
        tokens, counted = self._call.tokens, self._call.counted
        if counted is not None and tokens is not None:
            counted = await tokens.count(request)
        call = replace(self._call, request=request, body=request.encode(), counted=counted, keep=None)
        return await self._upstream.send(call.fitted() if self._upstream.abilities.limits_answers else call)

    def _last(self, request: ChatRequest) -> ChatRequest:
        """Return the request of the last round, in which the model has to answer: without internal tools.

        Reasoning that is bound to the tools would be refused without them, so there no tool may be called.
        """
        if (self._call.profile is None or self._call.profile.binds_reasoning) and signed_places(request):
            return request.with_field("tool_choice", "none")
        if not self.names.isdisjoint(chosen_tools(request.rest.get("tool_choice"))):
            request = request.without("tool_choice")
        tools = [tool for tool in request.tools if tool.name not in self.names]
        for internal in self._tools.values():
            if isinstance(internal, StandsFor):
                tools += internal.instead(request.messages, tools)
        return request.with_tools(tools)

    def check(self, round_: Round) -> None:
        """Raise `Unanswered` where the last round brings the client nothing: it called only internal tools."""
        said = self.text or round_.message.text or round_.message.get("refusal")
        exhausted = self.added and not self._rounds_left
        if exhausted and round_.internal and round_.whole and not (round_.client or said):
            told = "The model called only tools that Penstock runs, also when it was no longer offered any."
            raise Unanswered(told, code="no_answer")

    async def keep(self, round_: Round, results: tuple[Message, ...]) -> None:
        """Remember the hidden parts of the answer, of which this is the last round."""
        if self._record is None or not (self.added or results):
            return
        shown = round_.spoken.with_changes(content=joined(self.text, round_.message.text))
        last = round_.message if results else round_.spoken
        await self._record(Hidden(shown, self.added, last, results))


def _tell(tool: str, error: Exception) -> None:
    _log.warning("internal tool failed", extra={"fields": {"tool": tool, "error": type(error).__name__}})
