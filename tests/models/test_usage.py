"""Usage, read from answers as they pass by, and taken out of streams whose client did not ask for it."""

import json
import tracemalloc
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import aclosing
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.models.usage import Usage, UsageReader, without_usage

thorough = settings(max_examples=100, deadline=None)

CHUNK = b'data: {"id":"c1","object":"chat.completion.chunk","model":"m-1","choices":[{"index":0,"delta":{"content":"caf\\u00e9"},"finish_reason":null}]}'
LAST = b'data: {"id":"c1","model":"m-1","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}'
USED = (
    b'data: {"id":"c1","model":"m-1","choices":[],"usage":{"prompt_tokens":90,"completion_tokens":7,"total_tokens":97,'
    b'"prompt_tokens_details":{"cached_tokens":64}}}'
)
DONE = b"data: [DONE]"
FOUND = Usage(input=90, output=7, cached=64, model="m-1", response_id="c1", finish_reasons=("stop",))


def stream(*events: bytes, end: bytes = b"\n") -> bytes:
    return b"".join(event + end + end for event in events)


def splits(data: bytes) -> st.SearchStrategy[list[bytes]]:
    cuts = st.lists(st.integers(0, len(data)), max_size=8).map(sorted)
    return cuts.map(lambda at: [data[a:b] for a, b in zip([0, *at], [*at, len(data)], strict=True)])


def read(chunks: Iterable[bytes]) -> Usage:
    reader = UsageReader()
    for chunk in chunks:
        reader.feed(chunk)
    return reader.of_stream()


@pytest.mark.parametrize(("data", "found"), [
    pytest.param(stream(CHUNK, LAST, USED, DONE), FOUND, id="in an event of its own"),
    pytest.param(stream(CHUNK, LAST, USED, DONE).rstrip(), FOUND, id="no blank line at the end"),
    pytest.param(stream(b"event: x\n" + CHUNK, b"id: 1\n" + LAST, b"event: y\n" + USED, DONE), FOUND,
                 id="named events"),
    pytest.param(b"x" * 3_000_000 + b"\n" + stream(LAST, USED, DONE), FOUND, id="at the end of a huge chunk"),
    pytest.param(stream(USED.replace(b":90,", b":80,"), LAST, USED, DONE), FOUND, id="the last one counts"),
    pytest.param(stream(CHUNK, LAST, DONE), Usage(model="m-1", response_id="c1", finish_reasons=("stop",)),
                 id="no usage, but the rest"),
    pytest.param(b"", Usage(), id="nothing"),
    pytest.param(b"\xff\x00{[", Usage(), id="no stream at all"),
    pytest.param(stream(b"data: {", b"data: []", b'data: "x"', b"data: 1", DONE), Usage(), id="no objects"),
])  # fmt: skip
def test_usage_of_a_stream(data: bytes, found: Usage) -> None:
    assert read([data]) == found


@given(st.data())
@thorough
def test_usage_does_not_depend_on_how_a_stream_is_cut(data: st.DataObject) -> None:
    filler = CHUNK.replace(b"caf", b"caf" * data.draw(st.integers(0, 1500)))
    whole = stream(CHUNK, filler, filler, LAST, USED, DONE, end=data.draw(st.sampled_from([b"\n", b"\r\n"])))

    assert read(data.draw(splits(whole))) == read([whole]) == FOUND
    assert read(whole[i : i + 1] for i in range(max(0, len(whole) - 600), len(whole))) == FOUND


@given(st.lists(st.binary(max_size=40), max_size=5))
@thorough
def test_whatever_passes_by_is_read_without_failing(chunks: list[bytes]) -> None:
    assert isinstance(read(chunks), Usage)
    assert isinstance(UsageReader().of_body(b"".join(chunks)), Usage)


@pytest.mark.parametrize(("answer", "found"), [
    pytest.param({"usage": {"prompt_tokens": 5, "completion_tokens": 0}}, Usage(5, 0), id="chat"),
    pytest.param({"usage": {"input_tokens": 5, "output_tokens": 2}}, Usage(5, 2), id="responses"),
    pytest.param({"usage": {"prompt_tokens": 5, "prompt_tokens_details": None}}, Usage(5), id="details that are null"),
    pytest.param({"usage": {"prompt_tokens": "5", "completion_tokens": 1.5}}, Usage(), id="no integers"),
    pytest.param({"usage": {"prompt_tokens": True, "completion_tokens": -1}}, Usage(), id="no counts"),
    pytest.param({"usage": {"prompt_tokens": 9, "prompt_tokens_details": {"cached_tokens": 6, "cache_creation_tokens": 2}}},
                 Usage(9, cached=6, written=2), id="tokens written into the cache"),
    pytest.param({"usage": {"prompt_tokens": 9, "prompt_tokens_details": {"cached_tokens": 6, "cache_write_tokens": 2}}},
                 Usage(9, cached=6, written=2), id="by their other name"),
    pytest.param({"choices": [{"finish_reason": "stop"}, {"finish_reason": "length"}]},
                 Usage(finish_reasons=("stop", "length")), id="several choices"),
    pytest.param({"choices": [{"finish_reason": None}, {}, None, 7, {"finish_reason": 1}]}, Usage(), id="none"),
    pytest.param({"choices": {"finish_reason": "stop"}}, Usage(), id="choices that are no list"),
    pytest.param({"model": "m", "id": "x"}, Usage(model="m", response_id="x"), id="names"),
    pytest.param({"error": {"message": "m", "type": "t", "param": None, "code": "c"}}, Usage(error="c"), id="an error body"),
    pytest.param({"error": {"message": "m", "code": 429}}, Usage(), id="a number for a code"),
    pytest.param({"error": "model not found"}, Usage(), id="a sentence for an error"),
])  # fmt: skip
def test_what_a_body_tells(answer: Any, found: Usage) -> None:
    assert UsageReader().of_body(json.dumps(answer).encode()) == found


def test_of_a_large_answer_and_a_long_stream_little_is_held() -> None:
    body = json.dumps({"data": [{"embedding": [0.123456789] * 100_000}], "usage": {"prompt_tokens": 5}}).encode()
    tracemalloc.start()
    try:
        assert UsageReader().of_body(body) == Usage(input=5)
        assert tracemalloc.get_traced_memory()[1] < 50_000
        assert read(b"%s\n\n" % each for each in (*[CHUNK] * 10_000, LAST, USED, DONE)) == FOUND
        assert tracemalloc.get_traced_memory()[1] < 200_000
    finally:
        tracemalloc.stop()


def test_what_earlier_rounds_used_and_the_upstream_noticed_counts_where_the_answer_failed() -> None:
    noticed = {"prompt_tokens": 11, "completion_tokens": 2, "cached_tokens": 8, "written_tokens": 4, "truncated": True}

    assert Usage(model="m").completed(noticed) == Usage(input=11, output=2, cached=8, written=4, model="m")
    assert FOUND.completed(noticed) == FOUND
    assert Usage(model="m").completed({"prompt_tokens": "11", "ignored": "x"}) == Usage(model="m")
    facts = {"rounds": 3, "earlier_input": 100, "earlier_output": 10, "earlier_written": 5}
    assert Usage().completed(facts) == Usage(input=100, output=10, written=5)
    assert FOUND.completed(facts) == FOUND._replace(input=190, output=17, written=5)
    assert FOUND.completed({**facts, "rounds": 1}) == FOUND


class Source:
    """A stream that knows whether it was closed."""

    def __init__(self, chunks: Sequence[bytes], error: Exception | None = None) -> None:
        self.chunks = chunks
        self.error = error
        self.closed = False

    async def __call__(self) -> AsyncGenerator[bytes, None]:
        try:
            for chunk in self.chunks:
                yield chunk
            if self.error is not None:
                raise self.error
        finally:
            self.closed = True


async def hidden(chunks: Sequence[bytes]) -> list[bytes]:
    async with aclosing(without_usage(Source(chunks)())) as passed:
        return [chunk async for chunk in passed]


NULL = b'data: {"id":"c1","choices":[{"index":0,"delta":{"content":"a"}}],"usage":null}'
BOTH = b'data: {"id":"c1","choices":[{"index":0,"delta":{}}],"usage":{"prompt_tokens":1}}'
ODD = b'data:  { "a" : 1.0, "b":1e5 , "c":"caf\\u00e9 \\/", "n": 1180591620717411303424 }'
SAID = b'data: {"id":"c1","choices":[{"index":0,"delta":{"content":"\\"usage\\": null"}}]}'


async def test_the_usage_event_alone_leaves_and_null_usage_leaves_its_event() -> None:
    kept = [CHUNK, b": ping", ODD, SAID, b"event: x\ndata: {}", LAST, DONE]

    assert b"".join(await hidden([stream(*kept[:-1], USED, DONE)])) == stream(*kept)
    passed = b"".join(await hidden([stream(NULL, BOTH, DONE)])).split(b"\n\n")

    choices = [{"index": 0, "delta": {"content": "a"}}], [{"index": 0, "delta": {}}]
    events = [json.loads(event.removeprefix(b"data:")) for event in passed[:2]]
    assert events == [{"id": "c1", "choices": each} for each in choices]
    assert passed[2:] == [DONE, b""]


@pytest.mark.parametrize("sent", [
    pytest.param(stream(b'data: {"usage', DONE), id="an event that is no JSON"),
    pytest.param(stream(b'data: {"choices":[],"prompt_filter_results":["usage"]}'), id="no usage, empty choices"),
    pytest.param(stream(b': "usage"', DONE), id="a comment"),
    pytest.param(stream(CHUNK) + DONE, id="behind the last blank line"),
])  # fmt: skip
async def test_an_event_without_a_usage_key_is_passed_on_as_it_is(sent: bytes) -> None:
    assert b"".join(await hidden([sent])) == sent


@given(st.data(), st.sampled_from([b"\n", b"\r\n"]))
@thorough
async def test_hiding_usage_does_not_depend_on_how_a_stream_is_cut(data: st.DataObject, end: bytes) -> None:
    whole = stream(CHUNK, ODD, SAID, LAST, USED, DONE, end=end)

    assert b"".join(await hidden(data.draw(splits(whole)))) == stream(CHUNK, ODD, SAID, LAST, DONE, end=end)


async def test_an_event_is_passed_on_as_soon_as_it_is_complete() -> None:
    source = Source([CHUNK + b"\n", b"\n" + LAST + b"\n\n" + USED[:30], USED[30:] + b"\n\n" + DONE, b"\n\n"])

    async with aclosing(without_usage(source())) as passed:
        assert await anext(passed) == stream(CHUNK, LAST)
        assert await anext(passed) == stream(DONE)


async def test_a_stream_that_ends_or_breaks_off_is_closed() -> None:
    ended, broken = Source([stream(CHUNK)]), Source([stream(CHUNK)], ConnectionError("gone"))

    async with aclosing(without_usage(ended())) as passed:
        assert [chunk async for chunk in passed] == [stream(CHUNK)]
    async with aclosing(without_usage(broken())) as passed:
        assert await anext(passed) == stream(CHUNK)
        with pytest.raises(ConnectionError, match="gone"):
            await anext(passed)

    assert ended.closed
    assert broken.closed


def test_anthropics_own_answers_count_their_cache_beside_the_rest() -> None:
    used = b'"usage":{"input_tokens":5,"cache_read_input_tokens":70,"cache_creation_input_tokens":20,"output_tokens":7}'
    expected = Usage(input=95, output=7, cached=70, written=20)

    assert UsageReader().of_body(b'{"type":"message",' + used + b"}") == expected
    assert read([b'event: message_delta\ndata: {"type":"message_delta",' + used + b"}\n\n"]) == expected


RESPONSE: dict[str, Any] = {
    "type": "response.completed",
    "response": {
        "id": "r1", "object": "response", "model": "m-1",
        "output": [{"type": "message", "content": [{"type": "output_text", "text": 'Write "usage": {"input_tokens": 1}.'}]}],
        "tools": [{"type": "function", "parameters": {"properties": {"usage": {"type": "string"}}}}],
        "usage": {"input_tokens": 90, "input_tokens_details": {"cached_tokens": 64}, "output_tokens": 7, "total_tokens": 97},
        "user": None, "metadata": {},
    },
}  # fmt: skip


@pytest.mark.parametrize("length", [1, 20_000, 200_000])
def test_usage_of_responses_is_read_whatever_their_last_event_repeats(length: int) -> None:
    said: list[dict[str, Any]] = [{"type": "response.output_text.delta", "delta": "x" * 30}] * (length // 30)
    last = {**RESPONSE, "response": {"instructions": "x" * length, **RESPONSE["response"]}}
    parts = [f"event: {each['type']}\ndata: {json.dumps(each)}\n\n".encode() for each in (*said, last)]

    found = read(parts)

    assert (found.input, found.output, found.cached) == (90, 7, 64)
    assert UsageReader().of_body(json.dumps(last["response"]).encode()) == Usage(90, 7, 64, "m-1", "r1")


@pytest.mark.parametrize("length", [0, 20_000, 200_000])
@pytest.mark.parametrize("told", [{}, {"input_tokens": 0}])
def test_of_messages_the_first_event_may_tell_the_prompt_alone(length: int, told: dict[str, int]) -> None:
    start = {"input_tokens": 5, "cache_read_input_tokens": 70, "cache_creation_input_tokens": 20, "output_tokens": 1}
    sent: list[dict[str, Any]] = [
        {"type": "message_start", "message": {"id": "msg_1", "model": "m-1", "usage": start}},
        *[{"type": "content_block_delta", "delta": {"type": "text_delta", "text": "x" * 30}}] * (length // 30),
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {**told, "output_tokens": 7}},
        {"type": "message_stop"},
    ]

    found = read(f"event: {each['type']}\ndata: {json.dumps(each)}\n\n".encode() for each in sent)

    assert (found.input, found.output, found.cached, found.written) == (95, 7, 70, 20)


@pytest.mark.parametrize(("event", "code"), [
    pytest.param({"error": {"message": "m", "type": "t", "code": "c"}}, "c", id="OpenAI"),
    pytest.param({"error": {"message": "m", "type": "InternalServerError", "code": 500}}, "500", id="vLLM"),
    pytest.param({"error": {"message": "m", "type": "server_error", "code": None}}, "server_error", id="no code"),
    pytest.param({"error": {"message": "m", "type": "t", "code": ["c"]}}, "t", id="a list for a code"),
    pytest.param({"error": "m"}, "error", id="a sentence"),
    pytest.param({"type": "error", "error": {"type": "overloaded_error"}}, "overloaded_error", id="Anthropic"),
    pytest.param({"type": "error", "code": "c", "message": "m"}, "c", id="Responses"),
    pytest.param({"type": "response.failed", "response": {"error": {"code": "c"}}}, "c", id="a failed response"),
])  # fmt: skip
def test_an_error_in_a_stream_is_one_whatever_its_code_is(event: Any, code: str | None) -> None:
    data = b"data: " + json.dumps(event).encode()
    assert read([stream(CHUNK, data, DONE)]).error == code


CHAT: Any = {"choices": [{"index": 0, "delta": {"content": "x"}, "finish_reason": None}]}
DELTA = {"type": "response.output_text.delta", "delta": "x"}
BLOCK = {"type": "content_block_delta", "delta": {"type": "text_delta", "text": "x"}}


@pytest.mark.parametrize(("events", "is_cut"), [
    pytest.param([CHAT, CHAT], True, id="chat"),
    pytest.param([CHAT, {"choices": [], "usage": {"prompt_tokens": 5}}], True, id="chat with usage"),
    pytest.param([CHAT] * 500, True, id="a long chat"),
    pytest.param([CHAT, {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}], False, id="a finished chat"),
    pytest.param([CHAT, "[DONE]"], False, id="a chat with its end alone"),
    pytest.param([BLOCK, {"type": "ping"}], True, id="Messages"),
    pytest.param([BLOCK, {"type": "message_stop"}], False, id="finished Messages"),
    pytest.param([DELTA], True, id="Responses"),
    pytest.param([DELTA, {"type": "response.incomplete", "response": {}}], False, id="finished Responses"),
    pytest.param([DELTA, {"type": "response.completed", "response": {"output": "x" * 20_000}}], False, id="a long end"),
    pytest.param([{"type": "transcript.text.delta", "delta": "x"}], False, id="another kind of stream"),
    pytest.param([], False, id="none"),
])  # fmt: skip
def test_a_stream_that_lacks_its_end_was_broken_off(events: list[Any], is_cut: bool) -> None:
    data = (each if isinstance(each, str) else json.dumps(each) for each in events)
    assert read(f"data: {each}\n\n".encode() for each in data).error == ("upstream_broke_off" if is_cut else None)
