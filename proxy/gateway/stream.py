"""A streamed answer of several rounds, as one stream."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any

import orjson

from proxy.chat.errors import UpstreamFailed
from proxy.chat.sse import ByteStream
from proxy.gateway.deltas import Deltas
from proxy.gateway.dialogue import Dialogue
from proxy.gateway.round import BLOCKS
from proxy.upstreams.base import Reply

_PASSED_ON = frozenset({b"retry-after", b"retry-after-ms", b"x-should-retry"})
"""Headers of an error that tell SDKs what to do."""


class Continuation:
    """The rounds of a dialogue as the chunks of one answer. Closing it drops the round that is under way."""

    def __init__(self, dialogue: Dialogue, reply: Reply) -> None:
        self._dialogue = dialogue
        self._chunks = reply.chunks
        self._flowing = self._flow(reply)

    def __aiter__(self) -> AsyncGenerator[bytes, None]:
        """The chunks; what a later round fails with is raised."""
        return self._flowing

    async def aclose(self) -> None:
        """Drop the rest."""
        await self._flowing.aclose()
        if self._chunks is not None:
            await self._chunks.aclose()

    async def _flow(self, reply: Reply) -> AsyncGenerator[bytes, None]:
        dialogue = self._dialogue
        head: Mapping[str, Any] | None = None
        while True:
            self._chunks = reply.chunks
            thoughts = sum(len(message.get(BLOCKS) or ()) for message in dialogue.added)
            deltas = Deltas(dialogue.names, head=head, text=dialogue.text, thoughts=thoughts)
            try:
                async with aclosing(await _events(reply)) as chunks:
                    async for chunk in chunks:
                        if shown := deltas.feed(chunk):
                            yield shown
            finally:
                dialogue.note(reply.facts)
            if shown := await _end(deltas, dialogue):
                yield shown
            if head is None and not deltas.hidden:
                return
            round_, usage = deltas.heard()
            results = await dialogue.run(round_) if dialogue.runs(round_) else ()
            if not results or round_.client:
                break
            head = deltas.head
            reply = await dialogue.next(round_, results, usage)
        dialogue.check(round_)
        await dialogue.keep(round_, results)
        if tail := deltas.tail():
            yield tail


async def _end(deltas: Deltas, dialogue: Dialogue) -> bytes:
    """What the client gets once all of a round is known, but for its last events."""
    shown = deltas.end()
    if deltas.hidden:
        round_, _ = deltas.heard()
        shown += await deltas.hand_on(dialogue.hand(round_))
    return shown


async def _events(reply: Reply) -> ByteStream:
    """The stream of a round. Raises the error that came instead of it."""
    if reply.status == 200 and reply.chunks is not None:
        return reply.chunks
    body = reply.body or b""
    if reply.chunks is not None:
        async with aclosing(reply.chunks) as chunks:
            body = b"".join([chunk async for chunk in chunks])
    raise _failure(reply, body)


def _failure(reply: Reply, body: bytes) -> UpstreamFailed:
    try:
        answer = orjson.loads(body)
    except orjson.JSONDecodeError:
        answer = None
    told = answer.get("error") if isinstance(answer, dict) and reply.status != 200 else None
    said: Mapping[str, Any] = told if isinstance(told, dict) else {}
    headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in reply.headers if name in _PASSED_ON}
    failure = UpstreamFailed(
        _text(said.get("message")) or "the upstream did not go on with its answer",
        param=_text(said.get("param")),
        code=_text(said.get("code")) or "upstream_broke_off",
        status=reply.status if reply.status >= 400 else None,
        headers=headers,
    )
    failure.type = _text(said.get("type")) or failure.type
    return failure


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None
