"""A server that never ends a line, an event or an answer fills no memory."""

from collections.abc import AsyncGenerator, Callable

import pytest

from proxy.chat import sse as held
from proxy.chat.errors import UpstreamFailed
from proxy.chat.sse import ByteStream
from proxy.gateway.deltas import Deltas
from proxy.models.usage import without_usage
from proxy.upstreams.ollama.answer import lines


async def endless(chunk: bytes) -> AsyncGenerator[bytes, None]:
    while True:
        yield chunk


def rounds(chunks: ByteStream) -> AsyncGenerator[bytes, None]:
    """A stream in which internal tools may be called."""
    deltas = Deltas(frozenset({"recall"}), head=None, text="")

    async def fed() -> AsyncGenerator[bytes, None]:
        async for chunk in chunks:
            yield deltas.feed(chunk)

    return fed()


READERS: dict[str, Callable[[ByteStream], AsyncGenerator[object, None]]] = {
    "a line of Ollama's": lines,
    "an event without usage": without_usage,
    "a round": rounds,
}


@pytest.mark.parametrize("read", READERS.values(), ids=READERS)
async def test_what_never_ends_is_given_up(monkeypatch: pytest.MonkeyPatch, read: Callable[..., object]) -> None:
    monkeypatch.setattr(held, "MOST", 10_000)
    with pytest.raises(UpstreamFailed) as caught:
        async for _ in read(endless(b"x" * 100)):  # type: ignore[attr-defined]
            pass
    assert caught.value.code == "upstream_answer_too_large"


@pytest.mark.parametrize(
    ("read", "event"),
    [(READERS["a line of Ollama's"], b'{"a":1}\n'), (READERS["an event without usage"], b"data: {}\n\n")],
)
async def test_what_does_end_may_go_on(
    monkeypatch: pytest.MonkeyPatch, read: Callable[..., object], event: bytes
) -> None:
    monkeypatch.setattr(held, "MOST", 100)
    count = 0
    async for _ in read(endless(event)):  # type: ignore[attr-defined]
        count += 1
        if count == 1000:
            break
    assert count == 1000
