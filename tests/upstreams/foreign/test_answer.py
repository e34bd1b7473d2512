"""What comes back from a foreign provider: answers and streams in OpenAI's form."""

import json
from typing import Any

from proxy.testing import tool
from proxy.upstreams.foreign.answer import ForeignStream, spent, whole
from proxy.upstreams.foreign.provider import Provider
from tests.upstreams.foreign.calls import ask, send
from tests.upstreams.foreign.fake_anthropic import FakeAnthropic
from tests.upstreams.streams import events

THOUGHT = {"type": "thinking", "thinking": "hm", "signature": "signed"}
CALLS = [
    {"type": "tool_use", "id": "tu_1", "name": "look_up", "input": {"key": "a"}},
    {"type": "tool_use", "id": "tu_2", "name": "look_up", "input": {"key": "b"}},
]


async def test_an_answer_has_openais_form_exactly(fake: FakeAnthropic, upstream: Provider) -> None:
    fake.content, fake.stop_reason = [THOUGHT, {"type": "text", "text": "hello"}, CALLS[0]], "tool_use"

    reply = await send(upstream, ask(tools=(tool(),)))

    assert reply.headers == [(b"content-type", b"application/json")]
    assert reply.body is not None
    body = json.loads(reply.body)
    assert isinstance(body.pop("created"), int)
    assert body.pop("id").startswith("chatcmpl-")
    (made,) = body["choices"][0]["message"].pop("tool_calls")
    assert (made["id"], made["type"], made["function"]["name"]) == ("tu_1", "function", "look_up")
    assert json.loads(made["function"]["arguments"]) == {"key": "a"}
    assert set(made) == {"id", "type", "function"}
    body["usage"]["completion_tokens_details"].pop("reasoning_tokens")
    assert body == {
        "object": "chat.completion",
        "model": "claude-test-20990101",
        "choices": [{
            "index": 0,
            "message": {
                "role": "assistant", "content": "hello", "refusal": None,
                "reasoning_content": "hm", "thinking_blocks": [THOUGHT],
            },
            "logprobs": None,
            "finish_reason": "tool_calls",
        }],
        "usage": {
            "prompt_tokens": 17, "completion_tokens": 7, "total_tokens": 24,
            "prompt_tokens_details": {"cached_tokens": 5, "cache_write_tokens": 2},
            "completion_tokens_details": {},
        },
    }  # fmt: skip


async def test_a_stream_says_everything_once(fake: FakeAnthropic, upstream: Provider) -> None:
    fake.content, fake.stop_reason = [THOUGHT, {"type": "text", "text": "hello"}, *CALLS], "tool_use"

    reply = await send(upstream, ask(tools=(tool(),), stream=True))
    *chunks, done = await events(reply)

    assert reply.headers == [(b"content-type", b"text/event-stream; charset=utf-8")]
    assert done == "[DONE]"
    assert len({(chunk["id"], chunk["created"], chunk["model"]) for chunk in chunks}) == 1
    assert {chunk["object"] for chunk in chunks} == {"chat.completion.chunk"}
    assert not any("usage" in chunk for chunk in chunks)
    assert not any(set(chunk["choices"][0]) - {"index", "delta", "logprobs", "finish_reason"} for chunk in chunks)
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks]
    assert deltas[0] == {"role": "assistant", "content": "", "refusal": None, "reasoning_content": "h"}
    assert deltas[1] == {"reasoning_content": "m"}
    assert deltas[-1] == {}
    assert all(set(delta) in ({"content"}, {"tool_calls"}) for delta in deltas[2:-1])
    assert "".join(delta.get("content", "") for delta in deltas) == "hello"
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks] == [None] * (len(chunks) - 1) + ["tool_calls"]
    parts = [part for delta in deltas for part in delta.get("tool_calls", ())]
    for index, id_ in enumerate(("tu_1", "tu_2")):
        first, *more = [part for part in parts if part["index"] == index]
        assert first == {
            "index": index, "id": id_, "type": "function", "function": {"name": "look_up", "arguments": ""}
        }  # fmt: skip
        assert all(set(part) == {"index", "function"} and set(part["function"]) == {"arguments"} for part in more)
        assert json.loads("".join(part["function"]["arguments"] for part in more)) == CALLS[index]["input"]


async def test_usage_is_streamed_to_those_who_ask(fake: FakeAnthropic, upstream: Provider) -> None:
    reply = await send(upstream, ask(stream=True, stream_options={"include_usage": True}))
    *chunks, last, done = await events(reply)

    assert done == "[DONE]"
    assert all(chunk["usage"] is None and chunk["choices"] for chunk in chunks)
    assert last["choices"] == []
    assert (last["usage"]["prompt_tokens"], last["usage"]["completion_tokens"]) == (17, 7)
    assert last["id"] == chunks[0]["id"]


async def test_a_model_may_repeat_itself(fake: FakeAnthropic, upstream: Provider) -> None:
    fake.content = [{"type": "text", "text": "........"}] * 100

    *chunks, done = await events(await send(upstream, ask(stream=True)))

    assert done == "[DONE]"
    assert "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks) == "." * 800


def test_calls_that_share_an_index_are_told_apart_by_id() -> None:
    chunks = ForeignStream(show_usage=False)
    head = {"id": "x", "created": 1, "model": "m"}

    def said(*calls: dict[str, Any]) -> list[Any]:
        choice = {"index": 0, "delta": {"tool_calls": list(calls)}}
        (event,) = chunks.events({**head, "choices": [choice]})
        return list(json.loads(event.removeprefix(b"data: "))["choices"][0]["delta"]["tool_calls"])

    def piece(**fields: Any) -> dict[str, Any]:
        return {"index": 0, "type": "function", "function": {"name": "f", "arguments": "{}"}, **fields}

    assert [part["index"] for part in said(piece(id="a"), piece(id="b"))] == [0, 1]
    assert said(piece(id="b")) == [{"index": 1, "function": {"arguments": "{}"}}]
    assert said(piece(id="c"))[0]["index"] == 2
    assert said(piece(id=None, index=5))[0]["id"].startswith("call_")


def test_images_reach_the_client() -> None:
    """As a Gemini model that makes images answers through litellm."""
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,aaaa"}, "index": 0}
    said, head = {"content": None, "images": [image]}, {"id": "x", "created": 1, "model": "m"}
    (event,) = ForeignStream(show_usage=False).events({**head, "choices": [{"index": 0, "delta": said}]})

    assert json.loads(event.removeprefix(b"data: "))["choices"][0]["delta"]["images"] == [image]
    assert whole({**head, "choices": [{"message": said}]})["choices"][0]["message"]["images"] == [image]


def test_usage_has_the_tokens_written_to_the_cache() -> None:
    details = {"cached_tokens": 3, "cache_creation_tokens": 4}
    used = {"prompt_tokens": 9, "completion_tokens": 2, "prompt_tokens_details": details}
    assert spent(used)["prompt_tokens_details"] == {"cached_tokens": 3, "cache_write_tokens": 4}
