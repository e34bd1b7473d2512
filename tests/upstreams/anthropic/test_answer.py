"""What a client gets of Anthropic's answers, whole and streamed."""

from typing import Any

import openai
import pytest

from tests.upstreams.anthropic.conftest import MODEL, TOOL, Client, text, thinking, tool_use, user
from tests.upstreams.anthropic.stand_in import KEY, StandIn


async def test_a_whole_answer_is_a_chat_completion(client: Client, anthropic: StandIn) -> None:
    answered = await client.chat()

    assert answered.status == 200
    assert answered.body["object"] == "chat.completion"
    assert answered.message == {"role": "assistant", "content": "Hello there", "refusal": None}
    assert answered.body["choices"][0]["finish_reason"] == "stop"
    assert answered.body["usage"]["prompt_tokens"] == anthropic.usages[0]["input_tokens"]
    assert answered.body["service_tier"] == "default"
    assert anthropic.paths == ["/v1/messages"]
    assert anthropic.headers[0]["anthropic-version"] == "2023-06-01"
    assert "authorization" not in anthropic.headers[0]
    assert anthropic.refused == []


@pytest.mark.parametrize("piece", [0, 1, 7])
async def test_a_stream_is_openais_however_the_network_cuts_it(client: Client, anthropic: StandIn, piece: int) -> None:
    anthropic.piece = piece
    anthropic.say(text("Grüße 🦙\n!"))

    answered = await client.stream(stream_options={"include_usage": True})

    assert answered.deltas == [
        {"role": "assistant", "content": "", "refusal": None}, {"content": "Grüße"}, {"content": " 🦙\n!"}, {},
    ]  # fmt: skip
    assert answered.finish == "stop"
    *chunks, last = answered.chunks
    assert last == "[DONE]"
    assert len({(chunk["id"], chunk["created"], chunk["model"]) for chunk in chunks}) == 1
    assert chunks[-1]["choices"] == []
    assert chunks[-1]["usage"]["completion_tokens"] == anthropic.usages[0]["output_tokens"]


@pytest.mark.parametrize(
    ("stop_reason", "finish"),
    [
        ("end_turn", "stop"),
        ("stop_sequence", "stop"),
        ("max_tokens", "length"),
        ("model_context_window_exceeded", "length"),
        ("refusal", "content_filter"),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
async def test_stop_reasons(client: Client, anthropic: StandIn, stop_reason: str, finish: str, stream: bool) -> None:
    anthropic.say(text("so far"), stop_reason=stop_reason)
    answered = await client.chat(stream=stream)

    assert (answered.finish if stream else answered.body["choices"][0]["finish_reason"]) == finish


async def test_thinking_is_told_as_text_and_as_signed_blocks(client: Client, anthropic: StandIn) -> None:
    redacted = {"type": "redacted_thinking", "data": "c2VjcmV0"}
    made = [thinking("Let me see."), thinking(""), redacted, text("Hi")]
    anthropic.say(*made)
    anthropic.say(*made)

    whole = (await client.chat()).message
    streamed = (await client.stream()).assembled

    assert whole["reasoning_content"] == streamed["reasoning_content"] == "Let me see."
    blocks = whole["thinking_blocks"]
    assert [block["type"] for block in blocks] == ["thinking", "thinking", "redacted_thinking"]
    assert blocks[0]["signature"]
    assert blocks[1]["thinking"] == ""
    assert blocks[1]["signature"]
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
    again = [
        user("Hi"),
        message.model_dump(exclude_none=True),
        {"role": "tool", "tool_call_id": "toolu_1", "content": "x"},
    ]
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
    assert [body["messages"][1:] for body in anthropic.bodies] == [
        [],
        [{"role": "assistant", "content": [text("I search."), search, found]}],
        [{"role": "assistant", "content": [text("I search."), search, found, text(" Found.")]}],
    ]
    if not stream:
        assert answered.body["usage"]["prompt_tokens"] == sum(used["input_tokens"] for used in anthropic.usages)


async def test_usage_tells_what_the_cache_gave(client: Client, anthropic: StandIn) -> None:
    told = [{"type": "text", "text": "word " * 20_000, "cache_control": {"type": "ephemeral"}}]
    asked = [{"role": "system", "content": told}, user("Hi")]

    first = (await client.chat(*asked)).body["usage"]
    again = (await client.stream(*asked, stream_options={"include_usage": True})).chunks[-2]["usage"]

    assert first["prompt_tokens_details"]["cache_write_tokens"] == anthropic.usages[0]["cache_creation_input_tokens"]
    assert first["prompt_tokens_details"]["cached_tokens"] == 0
    assert again["prompt_tokens_details"]["cached_tokens"] == anthropic.usages[1]["cache_read_input_tokens"] > 20_000
    assert first["prompt_tokens"] == again["prompt_tokens"]
