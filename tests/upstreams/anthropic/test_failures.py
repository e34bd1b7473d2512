"""What a client gets where Anthropic refuses, breaks off or is overloaded."""

from typing import Any

import pytest

from proxy.chat.errors import UpstreamFailed
from proxy.upstreams.anthropic.answer import AnthropicAnswer
from tests.upstreams.anthropic.conftest import MODEL, Client, user
from tests.upstreams.anthropic.stand_in import StandIn

WAIT = {"retry-after": "7"}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("failure", "status", "kind", "code", "again"),
    [
        ((529, "overloaded_error", {}), 503, "service_unavailable_error", "server_is_overloaded", "2"),
        ((529, "overloaded_error", WAIT), 503, "service_unavailable_error", "server_is_overloaded", "7"),
        ((429, "rate_limit_error", WAIT), 429, "rate_limit_error", "rate_limit_exceeded", "7"),
    ],
)
async def test_refusals_are_openais(
    client: Client, anthropic: StandIn, failure: Any, status: int, kind: str, code: str, again: str | None, stream: bool
) -> None:
    anthropic.failures.append(failure)
    answered = await client.chat(stream=stream)

    assert (answered.status, answered.error["type"], answered.error["code"]) == (status, kind, code)
    assert "told by the test" in answered.error["message"]
    assert answered.headers.get("retry-after") == again


async def test_a_prompt_that_does_not_fit_has_openais_code(client: Client) -> None:
    answered = await client.chat(user("word " * 170_000), model="claude-haiku-4-5", max_tokens=10)

    assert (answered.status, answered.error["code"]) == (400, "context_length_exceeded")
    assert "maximum context length is 200000 tokens" in answered.error["message"]


async def test_a_body_that_is_nested_too_deeply_is_a_400(client: Client) -> None:
    schema = '{"type":"object","properties":{"a":' * 450 + "{}" + "}}" * 450
    wanted = f'{{"type":"json_schema","json_schema":{{"name":"n","schema":{schema}}}}}'
    body = f'{{"model":"{MODEL}","messages":[{{"role":"user","content":"Hi"}}],"response_format":{wanted}}}'
    assert (await client.send("/v1/chat/completions", body)).status == 400


async def test_pings_keep_a_stream_alive_and_are_no_data(client: Client) -> None:
    assert ": ping" in (await client.stream()).text


@pytest.mark.parametrize(
    "block",
    [
        {"type": "text"},
        {"type": ["text"]},
        {"type": "thinking", "thinking": 5},
        {"type": "text", "text": 5},
    ],
)
@pytest.mark.parametrize("stream", [False, True])
async def test_an_answer_that_makes_no_sense_is_a_failure_of_the_upstream(block: dict[str, Any], stream: bool) -> None:
    lines: list[dict[str, Any]] = [
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "a"}},
        {"type": "content_block_start", "index": 1, "content_block": block},
        {"type": "content_block_delta", "index": 1, "delta": {"type": "thinking_delta", "thinking": block}},
        {"type": "message_stop"},
    ]
    answer = AnthropicAnswer()
    with pytest.raises(UpstreamFailed):
        if stream:
            for line in lines:
                answer.deltas(line)
            answer.message()
        answer.read({"content": [block]})
        answer.message()
