"""Clients of Messages and Responses with an upstream that speaks only chat completions, by the vendors' own SDKs."""

import asyncio
import gzip
import json
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Any

import anthropic
import openai
import pytest

from proxy.chat.parse import Body
from proxy.chat.wire import flaws
from tests.e2e.conftest import Lab
from tests.e2e.servers import EVENTS, JSON, Received, Upstream, say, send, streaming
from tests.scripted import answer, event, events

CONFIG = """
upstreams:
  main: {kind: openai, base_url: "{url}", keyless: true, wires: []}
models: [{match: "*", upstream: main, window: 60000, tokenizer: chars}]
chains: {default: [compact_tool_results: {}, reject_oversize: {}]}
"""
PICTURE = "data:image/png;base64,iVBORw0KGgo="
IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}}
SCHEMA = {"type": "object", "properties": {"key": {"type": "string"}}, "required": ["key"]}


@dataclass
class World:
    """A proxy before a server that knows nothing but `/v1/chat/completions`, its script, and the vendors' clients."""

    claude: anthropic.AsyncAnthropic
    gpt: openai.AsyncOpenAI
    behind: Upstream
    script: list[Any]

    def sent(self, place: int = -1) -> Any:
        return json.loads(self.behind.received[place].body)

    async def message(self, streamed: bool, said: Any = "hi", **asked: Any) -> Any:
        asked = {"model": "llama", "max_tokens": 500, "messages": [{"role": "user", "content": said}], **asked}
        if not streamed:
            return await self.claude.messages.create(**asked)
        async with self.claude.messages.stream(**asked) as stream:
            return await stream.get_final_message()

    async def response(self, streamed: bool, said: Any = "hi", **asked: Any) -> Any:
        asked = {"model": "llama", "input": said, **asked}
        if not streamed:
            return await self.gpt.responses.create(**asked)
        async with self.gpt.responses.stream(**asked) as stream:
            return await stream.get_final_response()


@pytest.fixture
async def world(lab: Lab) -> AsyncGenerator[World, None]:
    base, script = await lab.start(CONFIG), list[Any]()

    async def respond(_: Upstream, received: Received, writer: asyncio.StreamWriter) -> None:
        assert received.path.endswith("/v1/chat/completions")
        assert not flaws(Body(received.body).parse())
        told = script.pop(0)
        await (send(writer, *told) if isinstance(told, tuple) else say(writer, received, told))

    lab.behind.respond = respond
    async with (
        anthropic.AsyncAnthropic(base_url=base, api_key="k", max_retries=0) as claude,
        openai.AsyncOpenAI(base_url=f"{base}/v1", api_key="k", max_retries=0) as gpt,
    ):
        yield World(claude, gpt, lab.behind, script)


STREAMED = pytest.mark.parametrize("streamed", [False, True])


@STREAMED
async def test_a_conversation_of_messages_is_served(world: World, streamed: bool) -> None:
    world.script += [answer("Hello there.", used=(100, 7, 40), reasoning_content="They greet.")]
    message = await world.message(
        streamed,
        [{"type": "text", "text": "Hi"}, IMAGE],
        system=[{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}],
        stop_sequences=["END"],
        extra_body={"temperature": 0.5, "top_k": 40},
    )
    blocks = [(block.type, getattr(block, block.type)) for block in message.content]
    assert blocks == [("thinking", "They greet."), ("text", "Hello there.")]
    assert (message.stop_reason, message.role) == ("end_turn", "assistant")
    used = message.usage
    assert (used.input_tokens, used.cache_read_input_tokens, used.output_tokens) == (60, 40, 7)
    sent = world.sent()
    assert sent["messages"] == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [
            {"type": "text", "text": "Hi"}, {"type": "image_url", "image_url": {"url": PICTURE}}]},
    ]  # fmt: skip
    assert (sent["max_tokens"], sent["stop"], sent["temperature"]) == (500, ["END"], 0.5)
    assert "top_k" not in sent


@STREAMED
async def test_an_agent_of_messages_calls_its_tools(world: World, streamed: bool) -> None:
    world.script += [answer("Let me see.", "look_up:c1", "look_up:c2", finish="tool_calls"), answer("Both are open.")]
    tools: Any = [{"name": "look_up", "description": "Look up", "input_schema": SCHEMA}]
    message = await world.message(streamed, tools=tools, tool_choice={"type": "any"})
    assert message.stop_reason == "tool_use"
    used = [(block.id, block.name, block.input) for block in message.content if block.type == "tool_use"]
    assert used == [("c1", "look_up", {"key": "c1"}), ("c2", "look_up", {"key": "c2"})]
    assert world.sent()["tool_choice"] == "required"
    function = {"name": "look_up", "description": "Look up", "parameters": SCHEMA}
    assert world.sent()["tools"][0]["function"] == function

    results: Any = [
        {"type": "tool_result", "tool_use_id": "c1", "content": [{"type": "text", "text": "open"}, IMAGE]},
        {"type": "tool_result", "tool_use_id": "c2", "content": "open too"},
        {"type": "text", "text": "And?"},
    ]
    talk = [("user", "hi"), ("assistant", message.content), ("user", results)]
    said = [{"role": role, "content": content} for role, content in talk]
    assert (await world.message(streamed, messages=said, tools=tools)).content[0].text == "Both are open."
    said = world.sent()["messages"]
    assert [each["role"] for each in said] == ["user", "assistant", "tool", "tool", "user", "user"]
    assert said[1]["content"] == "Let me see."
    assert [call["id"] for call in said[1]["tool_calls"]] == ["c1", "c2"]
    assert said[4]["content"][0]["type"] == "image_url"


@STREAMED
async def test_a_conversation_of_responses_is_served(world: World, streamed: bool) -> None:
    world.script += [answer("Hello there.", used=(100, 7, 40), reasoning_content="They greet.")]
    image = {"type": "input_image", "image_url": PICTURE, "detail": "low"}
    response = await world.response(
        streamed,
        [
            {"role": "developer", "content": "Be kind."},
            {"role": "user", "content": [{"type": "input_text", "text": "Hi"}, image]},
        ],
        instructions="Be brief.",
        max_output_tokens=500,
        reasoning={"effort": "low"},
    )
    assert (response.output_text, response.status) == ("Hello there.", "completed")
    assert [item.type for item in response.output] == ["reasoning", "message"]
    assert (response.usage.input_tokens, response.usage.output_tokens) == (100, 7)
    assert response.usage.input_tokens_details.cached_tokens == 40
    sent = world.sent()
    assert [each["role"] for each in sent["messages"]] == ["system", "system", "user"]
    assert sent["messages"][2]["content"][1]["image_url"] == {"url": PICTURE, "detail": "low"}
    assert (sent["max_tokens"], sent["reasoning_effort"]) == (500, "low")


@STREAMED
async def test_an_agent_of_responses_calls_functions_and_custom_tools(world: World, streamed: bool) -> None:
    patch = {"id": "c2", "type": "function", "function": {"name": "apply_patch", "arguments": '{"input":"*** Begin"}'}}
    first = answer(None, "look_up:c1", finish="tool_calls")
    first["choices"][0]["message"]["tool_calls"].append(patch)
    world.script += [first, answer("Done.")]
    grammar = {"type": "grammar", "syntax": "lark", "definition": "start: /x/"}
    tools: Any = [
        {"type": "function", "name": "look_up", "description": "Look up", "parameters": SCHEMA, "strict": False},
        {"type": "custom", "name": "apply_patch", "description": "Patch", "format": grammar},
        {"type": "web_search"},
    ]
    talk: list[Any] = [{"role": "user", "content": "Patch it."}]
    calls = (await world.response(streamed, talk, tools=tools)).output
    assert [(item.type, item.call_id) for item in calls] == [("function_call", "c1"), ("custom_tool_call", "c2")]
    assert (calls[0].arguments, calls[1].input) == ('{"key":"c1"}', "*** Begin")
    assert [tool["function"]["name"] for tool in world.sent()["tools"]] == ["look_up", "apply_patch"]
    assert "start: /x/" in world.sent()["tools"][1]["function"]["description"]

    talk += [item.model_dump(exclude_none=True) for item in calls]
    talk += [
        {"type": "function_call_output", "call_id": "c1", "output": "open"},
        {"type": "custom_tool_call_output", "call_id": "c2", "output": "patched"},
    ]
    assert (await world.response(streamed, talk, tools=tools)).output_text == "Done."
    said = world.sent()["messages"]
    assert [each["role"] for each in said] == ["user", "assistant", "tool", "tool"]
    assert json.loads(said[1]["tool_calls"][1]["function"]["arguments"]) == {"input": "*** Begin"}


async def test_what_chat_cannot_carry_is_told_or_refused(world: World) -> None:
    world.script += [answer("ok")]
    raw = await world.gpt.responses.with_raw_response.create(
        model="llama", input="hi", tools=[{"type": "web_search"}], service_tier="flex"
    )
    assert raw.headers["x-penstock-ignored"] == "tools[web_search],service_tier"
    for name, value in (("previous_response_id", "resp_1"), ("conversation", "conv_1"), ("background", True)):
        with pytest.raises(openai.BadRequestError) as refused:
            await world.response(False, **{name: value})
        assert refused.value.param == name
    with pytest.raises(openai.BadRequestError, match="item_reference"):
        await world.response(False, [{"type": "item_reference", "id": "msg_1"}])


@pytest.mark.parametrize(
    ("finish", "claude", "gpt"),
    [("length", "max_tokens", "max_output_tokens"), ("content_filter", "refusal", "content_filter")],
)
async def test_an_answer_that_was_cut_off_says_so(world: World, finish: str, claude: str, gpt: str) -> None:
    world.script += [answer("One, two,", finish=finish)] * 2
    assert (await world.message(True, "Count")).stop_reason == claude
    stream = await world.gpt.responses.create(model="llama", input="Count", stream=True)
    events = [event async for event in stream]
    assert [event.sequence_number for event in events] == [*range(len(events))]
    assert events[-1].type == "response.incomplete"
    assert events[-1].response.incomplete_details is not None
    assert events[-1].response.incomplete_details.reason == gpt


@pytest.mark.parametrize(
    ("last", "says"),
    [
        ({"error": {"message": "boom"}}, "boom"),
        ({"choices": [{"delta": {"tool_calls": ["hi"]}}]}, "no answer of OpenAI's"),
        ({"choices": []}, "broke off its answer"),
    ],
)
async def test_what_came_in_front_of_an_error_or_of_a_missing_end_reaches_the_client(
    world: World, last: Any, says: str
) -> None:
    told = {"choices": [{"index": 0, "delta": {"role": "assistant", "content": "One,"}}]}
    world.behind.respond = streaming(event(told) + event(last))
    said: Any = [{"role": "user", "content": "Count"}]
    async with world.claude.messages.stream(model="llama", max_tokens=9, messages=said) as stream:
        with pytest.raises(anthropic.APIStatusError, match=says):
            await stream.until_done()
    assert [each.to_dict() for each in stream.current_message_snapshot.content] == [{"type": "text", "text": "One,"}]


async def test_errors_have_the_form_of_the_wire(world: World) -> None:
    body = json.dumps({"error": {"message": "no such model", "type": "x", "code": "model_not_found"}}).encode()
    world.script += [(404, body), (404, body), (404, b"data: {}\n\n", EVENTS)]
    with pytest.raises(anthropic.NotFoundError) as refused:
        await world.message(False)
    assert refused.value.body == {
        "type": "error",
        "error": {"type": "not_found_error", "message": "no such model", "details": {"error_code": "model_not_found"}},
    }
    with pytest.raises(openai.NotFoundError, match="no such model"):
        await world.response(False)
    with pytest.raises(openai.NotFoundError, match="answered with status 404"):
        await world.response(True)


@STREAMED
async def test_answers_are_written_anew_without_the_coding_that_they_came_in(world: World, streamed: bool) -> None:
    body, coded = json.dumps(answer("Hello there.")).encode(), "content-encoding: {}\r\n"
    chunks = b"".join(events(answer("Hello there."), usage=True))
    zipped = gzip.compress(chunks if streamed else body), (EVENTS if streamed else JSON) + coded.format("gzip")
    unknown = (429, b"no text", JSON + coded.format("br"))
    world.script += [(200, *zipped), (200, *zipped), unknown, unknown]
    assert (await world.message(streamed)).content[0].text == "Hello there."
    assert (await world.response(streamed)).output_text == "Hello there."
    with pytest.raises(anthropic.RateLimitError, match="answered with status 429"):
        await world.message(streamed)
    with pytest.raises(openai.RateLimitError, match="answered with status 429"):
        await world.response(streamed)


@pytest.mark.parametrize(
    "told",
    [
        (204, b""),
        (200, b'{"choices":["hi"]}'),
        (200, b'{"choices":[{"message":"hi"}]}'),
        (200, b'{"choices":[{"message":{"tool_calls":["hi"]}}]}'),
    ],
)
async def test_an_answer_without_a_message_is_an_error_of_the_upstream(world: World, told: Any) -> None:
    world.script += [told] * 2
    with pytest.raises(anthropic.InternalServerError, match="no answer of OpenAI's"):
        await world.message(False)
    with pytest.raises(openai.InternalServerError, match="no answer of OpenAI's"):
        await world.response(False)


async def test_tokens_are_counted_here(world: World) -> None:
    asked: Any = [{"role": "user", "content": "x" * 400}]
    counted = await world.claude.messages.count_tokens(model="llama", messages=asked)
    assert 100 <= counted.input_tokens <= 120
    assert not world.behind.received
