"""The internal tool `call_tool`: it becomes a call of the client's own tool, or tells the model why it cannot."""

import asyncio
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from difflib import get_close_matches
from functools import partial
from typing import Any

from proxy.chat import ChatRequest, Tool, encode
from proxy.policy import InternalTool
from proxy.tools.deferral import CALL_TOOL, Misfit, WantedCall, is_function, unwrapped
from proxy.tools.search_tools import Rank, SearchTools, left_out

_LONGEST_SCHEMA = 6000
"""Characters of a schema that an error repeats."""


class CallTool(InternalTool):
    """Hands calls on to the client. What it cannot hand on it answers, in words for the model."""

    definition = CALL_TOOL

    def __init__(self, tools: Sequence[Tool], threads: Executor | None = None) -> None:
        """Call the tools that the client sent. Checks run in `threads`, or the loop's default."""
        self._tools = {tool.name: tool for tool in tools}
        self._threads = threads

    async def handed(self, call: Mapping[str, Any], *, strict: bool) -> Mapping[str, Any] | None:
        """Return the call as the client gets it: of its own tool, with the same id. None for one that it cannot be.

        Only if `strict`, its arguments have to fit the tool's schema: where the model could not be told, it is for the
        client to judge, as it would be without the proxy.
        """
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
        """Return why a call was not handed on."""
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
    if not is_function(tool):
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
