"""What was sent in front of an answer, kept so that later requests of the conversation have the same bytes there.

A request is kept by what the client sent: its tools and messages, without reasoning. When the client sends the
conversation again with the answer, the part in front of the answer is looked up. So a reload that changes the chain, a
bypass or a failed step changes nothing that stands before signed reasoning. Only what differs from the client's
messages is stored.
"""

import asyncio
import json
import logging
import re
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Any, NamedTuple
from urllib.parse import quote

from proxy.chat import ChatRequest, Message, Tool, encode
from proxy.chat.reasoning import without_reasoning
from proxy.context import Outage
from proxy.gateway.fingerprint import Trail
from proxy.gateway.replay import Memory
from proxy.state.background import BackgroundWork
from proxy.state.store import StoreError

_log = logging.getLogger("penstock.api")

_PATIENCE = 1.0
"""Seconds that the store has to find something."""

_HANDLE = re.compile(rb'recall\(\\?"([a-z2-7]{20})\\?"\)')


class Prefix(NamedTuple):
    """What was sent in front of an answer."""

    end: int
    """The place of the answer in the client's messages."""
    request: ChatRequest
    """Its tools and messages are those that were sent."""
    handles: frozenset[str]
    """Of the originals of what was shortened in it."""


class Prefixes:
    """Keeps prefixes in a store, in the background: no request waits for it."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._waiting: dict[str, bytes] = {}
        self._work = BackgroundWork[str]()

    def bound(self, tenant: str, scope: str, outage: Outage | None = None) -> "Settled":
        """Those of one conversation of a tenant, for one request."""
        return Settled(self, tenant, scope, outage or Outage())

    async def get(self, key: str) -> bytes | None:
        """What was kept, also where it is not in the store yet."""
        return self._waiting.get(key) or await self._memory.get(key)

    def put(self, key: str, value: bytes) -> None:
        """Have it kept."""
        self._waiting[key] = value
        self._work.begin(self._put(key, value))

    async def _put(self, key: str, value: bytes) -> None:
        try:
            await self._memory.put(key, value)
        except StoreError:  # health and metrics tell; what is not kept is worked out again
            pass
        finally:
            if self._waiting.get(key) is value:
                del self._waiting[key]

    async def aclose(self) -> None:
        """Wait for what is being kept."""
        await self._work.drain()


class Settled:
    """The prefixes of one conversation of one tenant. Nothing here raises."""

    def __init__(self, prefixes: Prefixes, tenant: str, scope: str, outage: Outage) -> None:
        self._prefixes, self._tenant, self._scope, self._outage = prefixes, quote(tenant, safe=""), scope, outage

    async def find(self, request: ChatRequest, answers: Sequence[int]) -> Prefix | None:
        """What was sent in front of the latest of these answers of which it is known."""
        keys = self._keys(request, answers)
        try:
            async with asyncio.timeout(_PATIENCE):
                for end in sorted(keys, reverse=True):
                    kept = await self._prefixes.get(keys[end])
                    if kept is not None:
                        return _read(kept, request, end)
        except Exception as error:
            self._outage.begun = True
            _log.warning("what was sent before is not found", extra={"fields": {"error": type(error).__name__}})
        return None

    def keep(self, sent: ChatRequest, made: ChatRequest) -> None:
        """Keep what was made of a request that the client sent."""
        end = len(sent.messages)
        try:
            self._prefixes.put(self._keys(sent, [end])[end], _written(sent, made))
        except Exception as error:  # such as a message that JSON cannot hold
            _log.warning("what was sent is not kept", extra={"fields": {"error": type(error).__name__}})

    def _keys(self, request: ChatRequest, ends: Sequence[int]) -> dict[int, str]:
        """The keys of the conversation up to these places."""
        tools = blake2b(digest_size=16)
        for tool in request.tools:
            tools.update(tool.raw)
        trail, keys, wanted = Trail(f"{self._scope}\0{tools.hexdigest()}"), dict[int, str](), frozenset(ends)
        for place in range(max(ends) + 1):
            if place in wanted:
                keys[place] = f"{self._tenant}/{trail.here()}"
            if place < len(request.messages):
                trail.add(request.messages[place])
        return keys


def _written(sent: ChatRequest, made: ChatRequest) -> bytes:
    """The tools and messages that were made: a place for what is the client's, itself for what is not."""
    places = {id(message): place for place, message in enumerate(sent.messages)}
    tools = {id(tool): place for place, tool in enumerate(sent.tools)}
    messages = [_message(message, sent.messages, places) for message in made.messages]
    return encode({"tools": [tools.get(id(tool), tool) for tool in made.tools], "messages": messages})


def _message(message: Message, sent: Sequence[Message], places: Mapping[int, int]) -> Any:
    """A place in what was sent; below zero for the message there without its reasoning, counted from -1."""
    place = places.get(id(message))
    if place is not None:
        return place
    place = places.get(id(message.made_of))
    return -1 - place if place is not None and message == without_reasoning(sent[place]) else message


def _read(kept: bytes, request: ChatRequest, end: int) -> Prefix:
    found = json.loads(kept)
    sent = request.messages
    messages = [
        Message(each) if isinstance(each, dict) else sent[each] if each >= 0 else without_reasoning(sent[-1 - each])
        for each in found["messages"]
    ]
    tools = [Tool(each) if isinstance(each, dict) else request.tools[each] for each in found["tools"]]
    handles = {handle.decode() for handle in _HANDLE.findall(kept)}
    return Prefix(end, request.with_tools(tools).with_messages(messages), frozenset(handles))
