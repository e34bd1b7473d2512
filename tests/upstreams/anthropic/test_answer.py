"""What a client gets of Anthropic's answers, refusals and own paths, and the keys that go out."""

from typing import Any

import openai
import pytest

from proxy.chat.errors import UpstreamFailed
from proxy.upstreams.anthropic import AnthropicAnswer
from tests.upstreams.anthropic.conftest import (
    MODEL,
    TOOL,
    Client,
    Start,
    assistant,
    result,
    text,
    thinking,
    tool_use,
    user,
)
from tests.upstreams.anthropic.stand_in import KEY, StandIn


@pytest.mark.parametrize(("stop_reason", "finish"), [
    ("end_turn", "stop"),
    ("stop_sequence", "stop"),
    ("max_tokens", "length"),
    ("model_context_window_exceeded", "length"),
    ("refusal", "content_filter"),
    (["end_turn"], "stop"),
])  # fmt: skip
def test_stop_reasons(stop_reason: Any, finish: str) -> None:
    answer = AnthropicAnswer()
    list(answer.deltas({"content": [text("so far")], "stop_reason": stop_reason}))
    assert answer.finish_reason == finish


async def test_thinking_is_told_as_text_and_as_signed_blocks(client: Client, anthropic: StandIn) -> None:
    redacted = {"type": "redacted_thinking", "data": "c2VjcmV0"}
    made = [thinking("Let me see."), thinking(""), redacted, text("Hi")]
    anthropic.say(*made)
    anthropic.say(*made)

    whole = (await client.chat()).message
    streamed = (await client.stream()).assembled

    assert whole["reasoning_content"] == streamed["reasoning_content"] == "Let me see."
    blocks = whole["thinking_blocks"]
    assert [(each["type"], each.get("thinking")) for each in blocks] == [
        ("thinking", "Let me see."), ("thinking", ""), ("redacted_thinking", None),
    ]  # fmt: skip
    assert all(block["signature"] for block in blocks[:2])
    assert [{**block, "index": n} for n, block in enumerate(blocks)] == streamed["thinking_blocks"]


async def test_openais_own_client_adds_up_a_stream_with_thinking(client: Client, anthropic: StandIn) -> None:
    anthropic.say(thinking(), text("I look."), tool_use(key="a"))
    strict = {"type": "function", "function": {**TOOL["function"], "strict": True}}
    asked: Any = {"model": MODEL, "messages": [user("Hi")], "tools": [strict]}
    sdk = openai.AsyncOpenAI(api_key=KEY, base_url=f"{client.base}/v1", max_retries=0)
    async with sdk, sdk.chat.completions.stream(**asked) as stream:
        async for _ in stream:
            pass
        message = (await stream.get_final_completion()).choices[0].message

    assert message.content == "I look."
    blocks = message.model_extra["thinking_blocks"]  # type: ignore[index]
    assert blocks[0]["thinking"] == "Let me see."
    assert message.tool_calls
    again = [user("Hi"), message.model_dump(exclude_none=True), result("toolu_1")]
    assert (await client.chat(*again, tools=[TOOL])).status == 200
    assert anthropic.bodies[-1]["messages"][1]["content"][0] == {
        "type": "thinking", "thinking": "Let me see.", "signature": blocks[0]["signature"],
    }  # fmt: skip


async def test_citations_are_annotations(client: Client, anthropic: StandIn) -> None:
    page = {"type": "web_search_result_location", "url": "https://a.example", "title": "A", "cited_text": "x",
            "encrypted_index": "e"}  # fmt: skip
    place = {"type": "page_location", "cited_text": "y", "document_index": 0, "document_title": None,
             "start_page_number": 1, "end_page_number": 2, "file_id": None}  # fmt: skip
    made = [text("So: "), text("it is.", citations=[page]), text(" Also.", citations=[place])]
    anthropic.say(*made)
    anthropic.say(*made)

    whole = (await client.chat()).message
    streamed = (await client.stream()).assembled

    assert whole["content"] == streamed["content"] == "So: it is. Also."
    cited = {"url": "https://a.example", "title": "A", "start_index": 4, "end_index": 10}
    assert whole["annotations"][0] == {"type": "url_citation", "url_citation": cited}
    assert whole["annotations"][1]["page_location"]["start_page_number"] == 1
    assert whole["annotations"] == streamed["annotations"]


@pytest.mark.parametrize("stream", [False, True])
async def test_a_paused_answer_goes_on(client: Client, anthropic: StandIn, stream: bool) -> None:
    search = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "q"}}
    found = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []}
    anthropic.say(text("I search."), search, found, stop_reason="pause_turn")
    anthropic.say(text(" Found."), stop_reason="pause_turn")
    anthropic.say(text(" Done."))
    tools = [{"type": "web_search_20250305", "name": "web_search"}]

    answered = await client.chat(tools=tools, stream=stream)

    message = answered.assembled if stream else answered.message
    assert message["content"] == "I search. Found. Done."
    said = [text("I search."), search, found]
    assert [body["messages"][1:] for body in anthropic.bodies] == [
        [], [assistant(said)], [assistant([*said, text(" Found.")])],
    ]  # fmt: skip
    if not stream:
        assert answered.json["usage"]["prompt_tokens"] == sum(used["input_tokens"] for used in anthropic.usages)


async def test_usage_tells_what_the_cache_gave(client: Client, anthropic: StandIn) -> None:
    told = [{"type": "text", "text": "word " * 20_000, "cache_control": {"type": "ephemeral"}}]
    asked = [{"role": "system", "content": told}, user("Hi")]

    first = (await client.chat(*asked)).json["usage"]
    again = (await client.stream(*asked, stream_options={"include_usage": True})).chunks[-2]["usage"]

    assert first["prompt_tokens_details"]["cache_write_tokens"] == anthropic.usages[0]["cache_creation_input_tokens"]
    assert first["prompt_tokens_details"]["cached_tokens"] == 0
    assert again["prompt_tokens_details"]["cached_tokens"] == anthropic.usages[1]["cache_read_input_tokens"] > 20_000
    assert first["prompt_tokens"] == again["prompt_tokens"]


WAIT = {"retry-after": "7"}


@pytest.mark.parametrize(("failure", "status", "code", "again"), [
    ((529, "overloaded_error", {}), 503, "server_is_overloaded", "2"),
    ((529, "overloaded_error", WAIT), 503, "server_is_overloaded", "7"),
    ((429, "rate_limit_error", WAIT), 429, "rate_limit_exceeded", "7"),
])  # fmt: skip
async def test_refusals(client: Client, anthropic: StandIn, failure: Any, status: int, code: str, again: str) -> None:
    anthropic.failures.append(failure)
    answered = await client.chat()

    assert (answered.status, answered.error["code"], answered.headers["retry-after"]) == (status, code, again)
    assert "told by the test" in answered.error["message"]


async def test_pings_keep_a_stream_alive_and_are_no_data(client: Client) -> None:
    assert b": ping" in (await client.stream()).body


@pytest.mark.parametrize(
    "block", [{"type": "text"}, {"type": ["text"]}, {"type": "thinking", "thinking": 5}, {"type": "text", "text": 5}]
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
                list(answer.deltas(line))
        list(answer.deltas({"content": [block]}))


MESSAGES = {"model": MODEL, "max_tokens": 10, "messages": [{"role": "user", "content": "Hi"}]}
VERSION = {"anthropic-version": "2023-06-01"}


@pytest.mark.parametrize("path", ["/v1/messages", "/v1/messages/count_tokens", "/v1/messages?beta=true"])
async def test_messages_pass_untouched(client: Client, anthropic: StandIn, path: str) -> None:
    headers = {"x-api-key": KEY, **VERSION, "anthropic-beta": "some-beta"}
    answered = await client.post(path, MESSAGES, headers)

    assert answered.status == 200
    assert ("input_tokens" in answered.json) or answered.json["type"] == "message"
    assert anthropic.paths == [path]
    assert anthropic.bodies == [MESSAGES]
    assert anthropic.headers[0]["anthropic-beta"] == "some-beta"


@pytest.mark.parametrize("path", ["/v1/messages", "/v1/messages/count_tokens", "/v1/chat/completions"])
async def test_the_operators_key_goes_out_in_place_of_the_clients(start: Start, anthropic: StandIn, path: str) -> None:
    given = {"authorization": "Bearer sk-clients", "x-api-key": "sk-clients", **VERSION}
    async with start(upstream=f", api_key: {KEY}") as client:
        assert (await client.post(path, MESSAGES, given)).status == 200

    assert anthropic.headers[0]["x-api-key"] == KEY
    assert "sk-clients" not in str(anthropic.headers)


@pytest.mark.parametrize("headers", [{"authorization": f"Bearer {KEY}"}, {"x-api-key": KEY}])
async def test_a_key_is_found_in_either_header(client: Client, anthropic: StandIn, headers: dict[str, str]) -> None:
    assert (await client.chat(headers=headers)).status == 200
    assert anthropic.headers[0]["x-api-key"] == KEY


async def test_without_any_key_nothing_is_sent(client: Client, anthropic: StandIn) -> None:
    answered = await client.chat(headers={})

    assert (answered.status, answered.error["code"]) == (401, "invalid_api_key")
    assert anthropic.paths == []


async def test_headers_of_a_translated_request(client: Client, anthropic: StandIn) -> None:
    headers = {"authorization": f"Bearer {KEY}", "anthropic-beta": "a,b", "x-secret": "s", "openai-organization": "o"}
    await client.chat(headers=headers)

    assert anthropic.headers[0]["anthropic-beta"] == "a,b"
    assert not {"x-secret", "openai-organization"} & anthropic.headers[0].keys()


async def test_its_models_are_listed(start: Start) -> None:
    async with start(upstream=f", api_key: {KEY}") as client:
        listed = (await client.any.get("/v1/models")).json["data"]

    (model,) = (each for each in listed if each["owned_by"] == "anthropic")
    assert (model["id"], model["context_length"], model["owned_by"]) == ("claude-opus-5", 10, "anthropic")
