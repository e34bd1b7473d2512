"""The internal tool `recall`: how the model gets back what left its context."""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from functools import partial

from proxy.chat import ChatRequest, Message, Tool, listed
from proxy.chat.markers import MARKER
from proxy.compaction.form import weight
from proxy.context import Archive, Context, Unavailable
from proxy.policy import ORIGINALS_READ, InternalTool
from proxy.text import counted
from proxy.text.json_values import json_object
from proxy.tools.slicing import LONGEST, Mistake, Part, as_answer, best_passages, origins, part_of, text

MOST_TEXTS = 500
_SHORTEST = 1500
MOST_SEARCHED = 8 * 2**20
"""Texts and characters that a query searches: the latter take about half a second of a thread."""

DEFINITION = Tool.function(
    "recall",
    'Reads text that left this conversation, by its recall("HANDLE"): all, or by line, regex pattern or JMESPath path. '
    "query searches all of it.",
    {
        "handle": "string", "query": "string", "pattern": "string", "path": "string",
        "first_line": "integer", "last_line": "integer",
    },
)  # fmt: skip

_HANDLE = MARKER.rstrip('"').encode()

_NEITHER = 'Give a handle as it stands in the conversation, {"handle": "..."}, or words to search: {"query": "..."}.'
_GONE = "Nothing is kept under this handle, or no longer. Do not ask for it again; a query searches what there is."

_NOT_NOW = (
    "What left this conversation cannot be read right now. It is not lost: go on without it, and ask again later."
)


def is_wanted(request: ChatRequest) -> bool:
    """Return True for a request that has a handle, or has asked for one before."""
    return request.form.any("handle", has_handle)


def has_handle(message: Message) -> bool:
    """Return True for a message that has a handle, or asks for one."""
    if message.get("tool_calls") and DEFINITION.name in message.called_tools:
        return True
    # quotes read differently in text and in the arguments of a call: leave out what escapes them
    return _HANDLE in message.raw and MARKER.encode() in message.raw.replace(b"\\", b"")


def tokens_to_offer(request: ChatRequest) -> int:
    """Return the tokens that the tool adds to a request; 0 where it is there, and to a chat without tools."""
    is_there = not request.tools or DEFINITION.name in listed(request.tools).names
    return 0 if is_there else weight(DEFINITION.raw.decode())


def is_readable(request: ChatRequest, ctx: Context) -> bool:
    """Return True where a new handle can be read: tools that signed reasoning is bound to stay as they are."""
    return not ctx.frozen or not tokens_to_offer(request)


class Recall(InternalTool):
    """Reads and searches an archive for the model. Whatever it is asked, it answers in words, and never at length."""

    definition = DEFINITION
    counted = ORIGINALS_READ

    def __init__(
        self,
        archive: Archive,
        threads: Executor | None = None,
        *,
        messages: Sequence[Message] = (),
        longest: int = LONGEST,
    ) -> None:
        """Patterns and paths run in `threads`, or the loop's default. `messages` tell which call a text came from."""
        self._archive = archive
        self._threads = threads
        self._messages = messages
        self._longest = max(_SHORTEST, min(LONGEST, longest))

    async def run(self, arguments: str) -> str:
        """Return the text behind a handle, the part of it that was asked for, or where the words of a query stand."""
        try:
            asked = json_object(arguments)
            part, handle, query = Part.of(asked), text(asked, "handle"), text(asked, "query")
            if handle is not None:
                return await self._read(handle.removeprefix("recall").strip(" \"'`()"), part, query)
            return await self._search(query or part.pattern)
        except Mistake as mistake:
            return str(mistake)
        except Unavailable:
            return _NOT_NOW

    async def _read(self, handle: str, part: Part, query: str | None) -> str:
        content = await self._archive.fetch(handle)
        if content is None:
            raise Mistake(_GONE)
        if query is None:
            return await self._in_thread(partial(part_of, content, part, self._longest))
        found = await self._in_thread(partial(self._best, [(handle, content)], query))
        return found or "No line has these words: try others, or a pattern."

    async def _search(self, query: str | None) -> str:
        if query is None:
            raise Mistake(_NEITHER)
        handles = await self._archive.handles(MOST_TEXTS + 1)
        if not handles:
            raise Mistake("Nothing has left this conversation yet: it is all before you.")
        contents: list[tuple[str, str]] = []
        room = MOST_SEARCHED
        for handle in handles[:MOST_TEXTS]:
            content = await self._archive.fetch(handle)
            if content is not None and len(content) <= room:
                contents.append((handle, content))
                room -= len(content)
        found = await self._in_thread(partial(self._best, contents, query)) or "No text has these words: try others."
        if len(contents) < len(handles):
            searched = counted(len(contents), "text")
            found += f"\n[not all was searched, but {searched}: those used last that are not too long]"
        return found

    def _best(self, contents: list[tuple[str, str]], query: str) -> str:
        known = origins(self._messages, self._archive.handle)
        return as_answer(best_passages(contents, query, known), self._longest)

    async def _in_thread(self, work: Callable[[], str]) -> str:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)
