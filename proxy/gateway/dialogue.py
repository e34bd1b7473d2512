"""The dialogue between the model and the internal tools behind one request of a client."""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol, runtime_checkable

from proxy.chat import ChatRequest, Message, Tool, called_name, chosen_tools
from proxy.chat.errors import UpstreamFailed
from proxy.chat.reasoning import signed_places
from proxy.gateway.calls import Hand
from proxy.gateway.replay import Hidden, Record
from proxy.gateway.round import InternalCall, Round, joined
from proxy.models.usage import earlier
from proxy.policy import InternalTool
from proxy.upstreams.base import Call, Reply, Upstream

_log = logging.getLogger("penstock.loop")

_COUNTS = ("prompt_tokens", "completion_tokens", "cached_tokens", "written_tokens")

_NO_MORE = "\n\n[This was the last call of this kind in this turn. Go on with what is known now.]"

Facts = dict[str, str | int | float | bool]


@runtime_checkable
class HandsOn(Protocol):
    """An internal tool whose calls are the client's in another form; it runs those that cannot be."""

    async def handed(self, call: Mapping[str, Any], *, strict: bool) -> Mapping[str, Any] | None:
        """The call as the client gets it; None for one that cannot be handed on. With `strict`, the model can be told
        what is wrong with it."""


@runtime_checkable
class StandsFor(Protocol):
    """An internal tool through which the model reaches tools of the client."""

    def instead(self, messages: Sequence[Message], offered: Sequence[Tool]) -> Sequence[Tool]:
        """The client's tools to offer once it is gone, beside those that are `offered`."""


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
        self.names = frozenset(tools)
        self.text = ""
        """What earlier rounds said to the client."""
        self.facts: Facts = {"rounds": 1, "internal_calls": 0}
        self.added: tuple[Message, ...] = ()
        """What earlier rounds added to the request."""
        self._upstream = upstream
        self._call = call
        self._request = request
        self._tools = tools
        self._left = rounds if request.rest.get("n") in (None, 1) else 0
        self._timeout = timeout
        self._record = record

    def note(self, facts: Mapping[str, Any]) -> None:
        """Take over what the upstream noticed in one round; tokens add up."""
        counts = {key: facts[key] for key in _COUNTS if isinstance(facts.get(key), int)}
        self.facts |= {**facts, **{key: count + int(self.facts.get(key, 0)) for key, count in counts.items()}}

    def runs(self, round_: Round) -> bool:
        """Whether the internal calls of a round are answered."""
        return bool(round_.internal) and round_.whole and self._left > 0

    def hand(self, round_: Round | None) -> Hand:
        """How the calls of a round are handed on to the client."""
        strict = round_ is not None and round_.whole and self._left > 0

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
        """The results of a round's internal calls, made at the same time. Cancelling it cancels them."""
        self._left -= 1
        self.facts["internal_calls"] = int(self.facts["internal_calls"]) + len(round_.internal)
        for called in round_.internal:
            self.facts[f"calls_{called.name}"] = int(self.facts.get(f"calls_{called.name}", 0)) + 1
        async with asyncio.TaskGroup() as group:
            running = [group.create_task(self._answer(call)) for call in round_.internal]
        # A task that was cancelled by its own tool does not end the group.
        texts = ["Error: it was given up." if task.cancelled() else task.result() for task in running]
        suffix = "" if self._left else _NO_MORE
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
        if not self._left:
            request = self._last(request)
        call = replace(self._call, request=request, body=request.encode(), counted=None, keep=None)
        return await self._upstream.send(call)

    def _last(self, request: ChatRequest) -> ChatRequest:
        """The request of the last round, in which the model has to answer: without internal tools. Reasoning that is
        bound to the tools would be refused then, so there no tool may be called."""
        if (self._call.profile is None or self._call.profile.binds_reasoning) and signed_places(request.messages):
            return request.with_field("tool_choice", "none")
        if not self.names.isdisjoint(chosen_tools(request.rest.get("tool_choice"))):
            request = request.without("tool_choice")
        tools = [tool for tool in request.tools if tool.name not in self.names]
        for internal in self._tools.values():
            if isinstance(internal, StandsFor):
                tools += internal.instead(request.messages, tools)
        return request.with_tools(tools)

    def check(self, round_: Round) -> None:
        """Raise `UpstreamFailed` where the last round brings the client nothing: it called only internal tools."""
        said = self.text or round_.message.text or round_.message.get("refusal")
        exhausted = self.added and not self._left
        if exhausted and round_.internal and round_.whole and not (round_.client or said):
            told = "The model called only tools that Penstock runs, also when it was no longer offered any."
            raise UpstreamFailed(told, code="no_answer", headers={"x-should-retry": "false"})

    async def keep(self, round_: Round, results: tuple[Message, ...]) -> None:
        """Remember what the client does not see of the answer, of which this is the last round."""
        if self._record is None or not (self.added or results):
            return
        shown = round_.spoken.with_changes(content=joined(self.text, round_.message.text))
        last = round_.message if results else round_.spoken
        await self._record(Hidden(shown, self.added, last, results))


def _tell(tool: str, error: Exception) -> None:
    _log.warning("internal tool failed", extra={"fields": {"tool": tool, "error": type(error).__name__}})
