"""The internal tool `search_tools`: how the model finds tools of the client that the request leaves out."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any

from proxy.chat import Message, Tool, called_name, encode, listed
from proxy.context import Context
from proxy.policy import InternalTool
from proxy.text.json_values import json_object
from proxy.tools.ranking import pooled, relevance
from proxy.tools.slicing import text_in

DEFINITION = Tool.function(
    "search_tools",
    "Finds more tools by what they do. Not all tools are listed here: search before you say that something cannot be "
    "done.",
    {"query": "string"},
    ["query"],
)

MOST = 5
FURTHER = 5
"""Tools that it names besides, the next best ones: some 25 tokens for each."""
_ABOUT = 80
MOST_CHARACTERS = 16_000
"""Characters of an answer: some 4,000 tokens. A definition that does not fit is shortened; a single one has all."""
_SHORT = 1500
"""Characters kept for each of the tools that are still to come."""
_MOST_ALONE = 60_000
_SHORTENED = "Shortened: search for its exact name to see all of it."
_STANDS = "Fits too; its definition is in another result. Search for its exact name to see it again."
_MOST_NAMES = 200
_PATIENCE = 2.0
"""Seconds that a search waits for vectors: far less than the model needs to ask for it."""
_FITS = 0.2
"""The least relevance of the best tool, where there are vectors: low, because who searches wants something."""

Rank = Callable[[str, Sequence[Tool]], Awaitable[Sequence[Tool]]]
"""The tools that fit a query, the best first; none where nothing fits."""


def left_out(sent: Sequence[Tool], offered: Sequence[Tool]) -> tuple[Tool, ...]:
    """Return the tools that a client sent and that a request no longer offers."""
    names = listed(offered).names
    return listed(sent).derive(
        ("left out", names), lambda: tuple(tool for tool in sent if tool.name and tool.name not in names)
    )


class SearchTools(InternalTool):
    """Searches the tools that one request leaves out. Whatever it is asked, it answers in words."""

    definition = DEFINITION

    def __init__(self, tools: Sequence[Tool], rank: Rank, *, how: str, messages: Sequence[Message] = ()) -> None:
        """`how` says how a found tool is called. Those found earlier in `messages` are only named."""
        self._tools = tools
        self._rank = rank
        self._how = how
        self._messages = messages
        self._shown: set[str] = set()
        self._in_turn = asyncio.Lock()

    async def run(self, arguments: str) -> str:
        query = text_in(arguments, "query")
        if not query:
            return 'Say what the tool should do: {"query": "..."}.' + self._names()
        async with self._in_turn:  # parallel searches give the same answers each time
            return await self._find(query)

    async def _find(self, query: str) -> str:
        named = [tool for tool in self._tools if tool.name == query][:1]
        ranked = named or [*await self._rank(query, self._tools)]
        best = ranked[:MOST]
        if not best:
            return "No tool fits: try other words." + self._names()
        standing = set() if named else {tool.name for tool in found_in(self._messages, best)} | self._shown
        new = [tool for tool in best if tool.name not in standing]
        self._shown |= {tool.name for tool in new}
        again = [encode({"name": tool.name, "note": _STANDS}).decode() for tool in best if tool.name in standing]
        others = [_named_only(tool) for tool in ranked[MOST : MOST + FURTHER]]
        further = [f"May fit too; an exact name as the query shows one: {'; '.join(others)}"] if others else []
        return "\n".join([f"{len(best)} of {len(self._tools)} tools. {self._how}", *_shown(new), *again, *further])

    def instead(self, messages: Sequence[Message], offered: Sequence[Tool]) -> Sequence[Tool]:
        """Return the tools that searches found last; where nothing is offered and nothing found, the first ones."""
        tools = found_in(messages, self._tools)[::-1] or (() if offered else self._tools)
        sizes = accumulate(len(encode(tool)) for tool in tools)
        return [tool for tool, size in zip(tools, sizes, strict=True) if size <= MOST_CHARACTERS] or tools[:1]

    def _names(self) -> str:
        names = ", ".join(tool.name[:100] for tool in self._tools[:_MOST_NAMES])
        more = len(self._tools) - _MOST_NAMES
        return f" There are: {names}{f' and {more} others' if more > 0 else ''}."


def found_in(messages: Sequence[Message], tools: Sequence[Tool]) -> tuple[Tool, ...]:
    """Return those of the tools that the searches in a conversation found, in the order of finding."""
    known = {tool.name: tool for tool in tools}
    names = dict.fromkeys(name for answer in _answers(messages) for name in _named(answer) if name in known)
    return tuple(known[name] for name in names)


def by_relevance(
    tools: Sequence[Tool], ctx: Context, examples: Mapping[str, Sequence[str]], groups: Mapping[str, Sequence[str]]
) -> Rank:
    """Rank by words and meaning among all of a client's `tools`, as the choice of what is offered does."""

    async def rank(query: str, wanted: Sequence[Tool]) -> Sequence[Tool]:
        relevant = await relevance(query, await pooled(tools, ctx, examples, groups), ctx, _PATIENCE)
        names = {tool.name for tool in wanted}
        fitting = [place for place, tool in enumerate(tools) if tool.name in names and relevant.scores[place] > 0]
        fitting.sort(key=lambda place: (-relevant.scores[place], place))
        lowest = _FITS if relevant.has_meaning else 0.0
        return [tools[place] for place in fitting] if fitting and relevant.scores[fitting[0]] >= lowest else []

    return rank


def _inner(tool: Tool) -> Mapping[str, Any]:
    inner = tool.get("function") or tool.get("custom")
    return inner if isinstance(inner, Mapping) else tool


def _shown(tools: Sequence[Tool]) -> Iterator[str]:
    """Return the definitions, whole where they fit; the best come first, so they have the most room."""
    room = MOST_CHARACTERS
    for others, tool in zip(range(len(tools) - 1, -1, -1), tools, strict=True):
        inner = _inner(tool)
        whole = encode({key: inner[key] for key in ("name", "description", "parameters") if inner.get(key)}).decode()
        line = whole if len(whole) <= room - _SHORT * others else _shortened(tool, alone=len(tools) == 1)
        room -= len(line)
        yield line


def _named_only(tool: Tool) -> str:
    about = " ".join(str(_inner(tool).get("description") or "").split())
    return f"{tool.name[:100]} ({about[:_ABOUT]})" if about else tool.name[:100]


def _shortened(tool: Tool, *, alone: bool) -> str:
    inner = _inner(tool)
    description = str(inner.get("description") or "")
    about: dict[str, Any] = {"name": tool.name, "description": description[:300]}
    parameters = inner.get("parameters")
    if alone:  # nothing else would show it
        whole = encode(parameters).decode()
        shown = parameters if len(whole) <= _MOST_ALONE else whole[:_MOST_ALONE]
        return encode({"name": tool.name, "description": description[:4000], "parameters": shown}).decode()
    properties = parameters.get("properties") if isinstance(parameters, Mapping) else None
    if isinstance(properties, Mapping):
        about["parameter_names"] = [str(name)[:40] for name in properties][:20]
    return encode({**about, "note": _SHORTENED}).decode()


def _answers(messages: Sequence[Message]) -> Iterator[str]:
    asked: set[str] = set()
    for message in messages:
        if message.get("role") == "tool":
            if message.get("tool_call_id") in asked:
                yield message.text
        else:
            calls = message.get("tool_calls") or ()
            asked = {str(call.get("id")) for call in calls if called_name(call) == DEFINITION.name}


def _named(answer: str) -> Iterator[str]:
    names = (json_object(line).get("name") for line in answer.split("\n") if line.startswith("{"))
    return (name for name in names if isinstance(name, str))
