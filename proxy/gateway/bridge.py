"""An upstream that speaks only chat completions, as one that speaks the wire of a client."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import replace
from typing import Any, cast
from urllib.parse import urlsplit

from proxy.chat.errors import Unanswered
from proxy.chat.sse import ByteStream, EventSplitter
from proxy.context import ModelProfile
from proxy.state.threads import do_sized
from proxy.upstreams.base import CHAT, Abilities, Call, Reply, Upstream
from proxy.upstreams.completion import JSON_HEADERS, STREAM_HEADERS, nonsense, parsed
from proxy.upstreams.refusal import refusal_in
from proxy.upstreams.routing import Route
from proxy.wires import WIRES
from proxy.wires.from_chat import WRITERS, AnswerWriter
from proxy.wires.messages_answer import read_event
from proxy.wires.to_chat import bridge

_OWN_LIMIT = "api.openai.com"
"""The server whose newer models take no `max_tokens`."""


def bridged(route: Route, wire: str) -> Route:
    """Return a route whose upstream speaks a wire: the same one where it does by itself."""
    if wire in route.upstream.abilities.speaks:
        return route
    return replace(route, upstream=BridgedUpstream(route.upstream, wire))


class BridgedUpstream:
    """Asks an upstream for a chat completion, and gives the answer in the form of another wire."""

    def __init__(self, upstream: Upstream, wire: str) -> None:
        self._upstream, self._wire = upstream, WIRES[wire]
        self.name, self.address, self.provider = upstream.name, upstream.address, upstream.provider
        own = upstream.abilities
        self.abilities = Abilities(
            translates=False, limits_answers=own.limits_answers, speaks=frozenset({wire}), ask_usage=False
        )
        self._limit = "max_completion_tokens" if urlsplit(self.address or "").hostname == _OWN_LIMIT else "max_tokens"

    async def send(self, call: Call) -> Reply:
        """Forward a call. Raise `BadRequest` where chat cannot carry it, else what the upstream raises."""
        asked = call.request
        if asked is None:
            asked = await do_sized(len(call.body), lambda: self._wire.body(call.body).parse())
        made, ignored, custom = await do_sized(len(call.body), lambda: bridge(asked, limit=self._limit))
        forwarded = {name: value for name, value in call.headers.items() if not name.startswith("anthropic-")}
        chat = replace(call, path=CHAT, query="", headers=forwarded, request=made, body=made.encode(), keep=None)
        reply = await self._upstream.send(chat)
        if ignored:
            cast(dict[str, Any], reply.facts)["ignored"] = ",".join(filter(None, (_ignored(reply), *ignored)))
        if reply.status >= 400 or (reply.chunks is None and reply.status != 200):
            return replace(reply, body=self._wire.error(refusal_in(reply)))
        writer = WRITERS[self._wire.name](asked, custom, 0 if call.counted is None else call.counted.total)
        headers = [(name, value) for name, value in reply.headers if name not in (b"content-type", b"content-length")]
        if reply.chunks is None:
            body = writer.whole(parsed(reply.body or b"", "OpenAI"))
            return replace(reply, headers=[*headers, *JSON_HEADERS], body=body)
        chunks = self._written(reply.chunks, writer)
        await anext(chunks)  # a generator that was never begun ignores its closing
        return replace(reply, headers=[*headers, *STREAM_HEADERS], chunks=chunks)

    async def _written(self, chunks: ByteStream, writer: AnswerWriter) -> AsyncGenerator[bytes, None]:
        """Yield an empty chunk, then the events of the wire."""
        events, is_over = EventSplitter(), False
        async with aclosing(chunks):
            yield b""
            yield b"".join(writer.begin())
            async for chunk in chunks:
                written = b""
                for event, _ in events.feed(chunk):
                    is_over = is_over or b"[DONE]" in event
                    written += b"".join(self._event(event, writer))
                if written:
                    yield written
            if not is_over:
                written = b"".join(self._event(events.rest(), writer))
                if written:
                    yield written
        yield b"".join(writer.end())

    def _event(self, event: bytes, writer: AnswerWriter) -> list[bytes]:
        content = read_event(event)
        if (error := content.get("error")) and isinstance(error, Mapping):
            raise Unanswered(str(error.get("message") or "the upstream broke off"), code="upstream_broke_off")
        writer.take(content)
        choices = content.get("choices")
        if not isinstance(choices, list) or not choices:
            return []
        if not isinstance(choices[0], dict):
            raise nonsense("OpenAI")
        return [*writer.feed(choices[0].get("delta") or {}, choices[0].get("finish_reason"))]

    async def ignored(self, call: Call) -> tuple[str, ...]:
        return ()

    async def profile(self, known: ModelProfile) -> ModelProfile:
        return await self._upstream.profile(known)

    async def models(self, headers: Mapping[str, str]) -> list[dict[str, Any]]:
        return await self._upstream.models(headers)

    async def aclose(self) -> None:
        await self._upstream.aclose()


def _ignored(reply: Reply) -> str:
    return str(reply.facts.get("ignored") or "")
