"""What comes back from a foreign provider: answers and streams in OpenAI's form."""

import json
from typing import Any

from proxy.upstreams.foreign.provider import ForeignStream, Provider, spent, whole
from tests.upstreams.foreign.calls import ask, send
from tests.upstreams.foreign.fake_anthropic import FakeAnthropic
from tests.upstreams.streams import events


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
