"""Tools that a request leaves out and the model calls through a constant one. Pure.

A deferred tool is found by `search_tools` and called by `call_tool`, so the tool block stays in the provider's cache.
The client sees calls of its own tools; in the conversation that it sends back they are calls of `call_tool` again.
"""

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence, Set
from concurrent.futures import Executor
from difflib import get_close_matches
from functools import partial
from operator import is_
from typing import Any, NamedTuple

import msgspec
import orjson

from proxy.chat import ChatRequest, Message, Tool, chosen_tools, encode, listed
from proxy.policy import InternalTool
from proxy.tools.search_tools import DEFINITION as SEARCH_TOOLS
from proxy.tools.search_tools import Rank, SearchTools, left_out

CALL_TOOL = Tool.function(
    "call_tool",
    "Calls a tool that search_tools found.",
    {"name": "string", "arguments": {"type": "object", "description": "As the tool's own parameters say."}},
    ["name", "arguments"],
)

OURS = listed((SEARCH_TOOLS, CALL_TOOL))

_NAMES = frozenset(tool.name for tool in OURS)

_fields = msgspec.json.Decoder(dict[str, msgspec.Raw])


class WantedCall(NamedTuple):
    """The call that a call of `call_tool` asks for."""

    name: str
    arguments: str
    """A JSON object, as the model wrote it."""


class Misfit(Exception):
    """A call that cannot become one of the client's tools; the message tells the model why."""


def deferrable(request: ChatRequest, client: Sequence[Tool]) -> tuple[Tool, ...]:
    """Return the tools of a request that may be left out, in their order; `client` are those that the client sent.

    Only functions may, with a name of their own, which `tool_choice` does not name; none where a client's has ours.
    """
    names = [tool.name for tool in client]
    if not _NAMES.isdisjoint(names) and any(tool.name in _NAMES and not is_ours(tool) for tool in client):
        return ()
    count = Counter(names if request.tools is client else [tool.name for tool in request.tools])
    sent = {*names} - {*chosen_tools(request.rest.get("tool_choice"))} - _NAMES
    once = {name for name in sent if count[name] == 1}
    return tuple([tool for tool in request.tools if tool.is_function and tool.name in once])


def deferred(request: ChatRequest, left_out: Set[str], staying: Sequence[Tool] | None = None) -> ChatRequest:
    """Return a request without the tools of these names; calls of them then are calls of `call_tool`."""
    tools = listed([tool for tool in request.tools if tool.name not in left_out] if staying is None else staying)
    if len(tools) == len(request.tools):
        return request
    offered = tools.derive("with ours", lambda: listed([*tools, *(tool for tool in OURS if tool not in tools)]))
    names = frozenset(left_out)

    def extend(before: tuple[Message, ...], messages: Sequence[Message]) -> tuple[Message, ...]:
        return (*before, *through_call_tool(messages, names))

    messages = request.form.fold(("call_tool", names), tuple[Message, ...](), extend)
    if all(map(is_, messages, request.messages)):  # the same list: what is known of it need not be found again
        messages = request.messages
    return request.with_tools(offered).with_messages(messages)


def through_call_tool(messages: Sequence[Message], left_out: Set[str]) -> list[Message]:
    """Return messages whose calls of the tools of these names go through `call_tool`, as the model made them."""
    return [_wrapped(message, left_out) for message in messages]


def is_ours(tool: Tool) -> bool:
    """Return whether a tool is one of ours, not a client's own of the same name."""
    return tool.name in _NAMES and tool in OURS


def unwrapped(arguments: str) -> WantedCall:
    """Return the call that the arguments of a call of `call_tool` ask for. Raises `Misfit`."""
    try:
        fields = _fields.decode(arguments)
        name = orjson.loads(bytes(fields.get("name", b"null")))
        inner = bytes(fields.get("arguments", b"{}")).decode()
        value = orjson.loads(inner)
    except (msgspec.DecodeError, msgspec.ValidationError, orjson.JSONDecodeError, UnicodeError):
        raise Misfit('The arguments are no JSON object with "name" and "arguments".') from None
    if not isinstance(name, str) or not name.strip():
        raise Misfit('There is no "name": it is the tool\'s name as search_tools gives it.')
    if others := [key for key in fields if key not in ("name", "arguments")]:
        raise Misfit(f'All but "name" belongs into "arguments", an object: {", ".join(others)[:200]}.')
    if isinstance(value, str):
        inner, value = value, _parsed(value)
    if not isinstance(value, dict):
        raise Misfit('"arguments" must be a JSON object.')
    return WantedCall(name.strip(), inner)


def _wrapped(message: Message, names: Set[str]) -> Message:
    called = message.called_tools
    if not called or names.isdisjoint(called):
        return message
    left_out = names & {*called}

    def through() -> Message:
        return message.with_changes(tool_calls=[_through(call, left_out) for call in message["tool_calls"]])

    return message.derive(("call_tool", frozenset(left_out)), through)


def _through(call: Mapping[str, Any], names: Set[str]) -> Mapping[str, Any]:
    function = call.get("function")
    if not isinstance(function, Mapping) or function.get("name") not in names:
        return call
    given = function.get("arguments")
    text = given if isinstance(given, str) else encode(given or {}).decode()
    text = text.strip() or "{}"
    inner = text if isinstance(_parsed(text), dict) else encode(text).decode()
    arguments = f'{{"name":{encode(function["name"]).decode()},"arguments":{inner}}}'
    return {**call, "function": {**function, "name": CALL_TOOL.name, "arguments": arguments}}


def _parsed(text: str) -> Any:
    try:
        return orjson.loads(text)
    except (orjson.JSONDecodeError, UnicodeError):
        return None


_LONGEST_SCHEMA = 6000


class CallTool(InternalTool):
    """Hands calls on to the client. What it cannot hand on it answers, in words for the model."""

    definition = CALL_TOOL

    def __init__(self, tools: Sequence[Tool], threads: Executor | None = None) -> None:
        """Call the tools that the client sent. Checks run in `threads`, or the loop's default."""
        self._tools = listed(tools).derive("by name", lambda: {tool.name: tool for tool in tools})
        self._threads = threads

    async def handed(self, call: Mapping[str, Any], *, strict: bool) -> Mapping[str, Any] | None:
        """Return the call as one of the client's tools, or None; only if `strict` its arguments must fit the schema."""
        function = call.get("function")
        arguments = function.get("arguments") if isinstance(function, Mapping) else None
        if not isinstance(function, Mapping) or not isinstance(arguments, str):
            return None
        try:
            wanted = await self._in_thread(arguments, strict=strict)
        except Misfit:
            return None
        return {**call, "function": {**function, "name": wanted.name, "arguments": wanted.arguments}}

    async def run(self, arguments: str) -> str:
        try:
            await self._in_thread(arguments, strict=True)
        except Misfit as misfit:
            return f"Error: {misfit} Nothing was called."
        return "Error: nothing was called. Try again."

    async def _in_thread(self, arguments: str, *, strict: bool) -> WantedCall:
        work = partial(_checked, self._tools, arguments, strict=strict)
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)


def searching(sent: ChatRequest, request: ChatRequest, rank: Rank) -> SearchTools:
    """Return what runs `search_tools` for a request that was made of the one that the client sent."""
    how = 'Call one by call_tool: {"name": "...", "arguments": {...}}.'
    return SearchTools(left_out(sent.tools, request.tools), rank, how=how, messages=request.messages)


def _checked(tools: Mapping[str, Tool], arguments: str, *, strict: bool) -> WantedCall:
    """Return what a call asks for. Raises `Misfit` where there is no such tool, or the arguments do not fit it."""
    wanted = unwrapped(arguments)
    tool = tools.get(wanted.name)
    if tool is None:
        near = get_close_matches(wanted.name, tools, n=3)
        raise Misfit(
            f"There is no tool of this name{'; near it: ' + ', '.join(near) if near else ''}. Use search_tools."
        )
    if not tool.is_function:
        raise Misfit(f"{wanted.name} is called directly.")
    if strict:
        _fit(tool, wanted)
    return wanted


def _fit(tool: Tool, wanted: WantedCall) -> None:
    from proxy.tools.json_schema import misfits

    schema = tool["function"].get("parameters")
    if found := misfits(schema, wanted.arguments):
        shown = encode(schema).decode()
        told = f" Its parameters: {shown}" if len(shown) <= _LONGEST_SCHEMA else ""
        raise Misfit(f"The arguments do not fit {wanted.name}: {'; '.join(found)}.{told}")
