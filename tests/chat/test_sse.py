"""A server that never ends a line, an event or an answer fills no memory."""

import time
from collections.abc import AsyncGenerator, Callable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.chat import sse as held
from proxy.chat.errors import UpstreamFailed
from proxy.chat.sse import ByteStream, EventSplitter, split_lines
from proxy.models.usage import without_usage
from proxy.wires.chat_round import ChatRound


async def endless(chunk: bytes) -> AsyncGenerator[bytes, None]:
    while True:
        yield chunk


def rounds(chunks: ByteStream) -> AsyncGenerator[bytes, None]:
    """A stream in which internal tools may be called."""
    deltas = ChatRound(frozenset({"recall"}))

    async def fed() -> AsyncGenerator[bytes, None]:
        async for chunk in chunks:
            yield deltas.feed(chunk)

    return fed()


READERS: dict[str, Callable[[ByteStream], AsyncGenerator[object, None]]] = {
    "a line": split_lines,
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
    ("read", "event"), [(READERS["a line"], b'{"a":1}\n'), (READERS["an event without usage"], b"data: {}\n\n")]
)
async def test_any_number_of_events_may_come_in_one_chunk_and_in_many(
    monkeypatch: pytest.MonkeyPatch, read: Callable[..., object], event: bytes
) -> None:
    async def given() -> AsyncGenerator[bytes, None]:
        for chunk in (event * 1000, *[event] * 1000):
            yield chunk

    monkeypatch.setattr(held, "MOST", 100)
    found = [each async for each in read(given())]  # type: ignore[attr-defined]
    assert b"".join(each if isinstance(each, bytes) else bytes(each) for each in found).count(event.strip()) == 2000


@given(st.lists(st.sampled_from([b"a", b"\n", b"\r\n", b"\n\n", b"\r\n\r\n", b"data: x"]), max_size=20), st.data())
def test_events_are_the_same_however_the_stream_is_cut(parts: list[bytes], data: st.DataObject) -> None:
    whole = b"".join(parts)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=6)))
    pieces = [whole[start:end] for start, end in pairwise((0, *cuts, len(whole)))]
    at_once, cut = EventSplitter(), EventSplitter()
    expected = list(at_once.feed(whole))
    assert [event for piece in pieces for event in cut.feed(piece)] == expected
    assert cut.rest() == at_once.rest()


def test_a_long_event_is_looked_through_once() -> None:
    """Such as an image that a model has made."""
    splitter, started = EventSplitter(), time.process_time()
    for _ in range(2000):
        assert not list(splitter.feed(b"A" * 8192))
    assert [len(event) for event, _ in splitter.feed(b"\n\n")] == [2000 * 8192]
    assert time.process_time() - started < 2
