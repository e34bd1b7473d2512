"""Tools that are left out are found by the model and called by the client, and the client sees nothing of it."""

import asyncio
import json
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import aiohttp
import openai
import pytest

from tests.e2e.conftest import Lab
from tests.e2e.servers import Received, Upstream, say
from tests.scripted import answer

CONFIG = """
upstreams: {{main: {{kind: openai, base_url: "{url}"}}}}
models: [{{match: "*", upstream: main, window: 100000}}]
chains:
  default:
    - compact_tool_results: {{over: 600, read_again: 0}}
    - filter_tools: {{strategy: defer, always: [pinned]}}
    - offer_recall: {{}}
"""


def definition(name: str, description: str, properties: Any) -> Any:
    parameters = {"type": "object", "properties": properties, "required": [*properties], "additionalProperties": False}
    function = {"name": name, "description": description, "parameters": parameters, "strict": True}
    return {"type": "function", "function": function}


OTHERS = [
    definition(f"other_{n}", f"Does the thing {n}. " + "padding " * 20, {"x": {"type": "string"}}) for n in range(58)
]
WEATHER = definition("get_weather", "The weather of a city.", {"city": {"type": "string"}})
TOOLS: list[Any] = [definition("pinned", "Always there.", {}), *OTHERS, WEATHER]
USER = {"role": "user", "content": "What is the weather in Lima?"}

Say = dict[str, Any]


def call(name: str, arguments: Any, id: str) -> Any:
    return {"id": id, "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}


def through(name: str, arguments: Any, id: str) -> Any:
    return call("call_tool", {"name": name, "arguments": arguments}, id)


@dataclass
class Model:
    """Says one thing after the other."""

    says: list[Say] = field(default_factory=list)

    async def __call__(self, behind: Upstream, received: Received, writer: asyncio.StreamWriter) -> None:
        message = {"role": "assistant", "content": None, **self.says.pop(0)}
        choice = {
            "index": 0,
            "message": message,
            "finish_reason": "tool_calls" if message.get("tool_calls") else "stop",
        }
        await say(writer, received, {**answer(), "id": f"x{len(behind.received)}", "choices": [choice]})


@dataclass
class Running:
    base: str
    behind: Upstream
    model: Model
    stream: bool = False

    def sent(self) -> list[Any]:
        return [json.loads(received.body) for received in self.behind.received]

    async def asks(self, messages: list[Any], **more: Any) -> Any:
        """The message that the SDK gives its caller."""
        async with openai.AsyncOpenAI(base_url=f"{self.base}/v1", api_key="k", max_retries=0) as client:
            asked = {"model": "m", "messages": messages, "tools": TOOLS, **more}
            if not self.stream:
                return (await client.chat.completions.create(**asked)).choices[0].message
            async with client.chat.completions.stream(**asked) as stream:
                return (await stream.get_final_completion()).choices[0].message


@pytest.fixture(params=[False, True], ids=["whole", "streamed"])
async def running(request: pytest.FixtureRequest, lab: Lab) -> Running:
    lab.behind.respond = model = Model()
    return Running(await lab.start(CONFIG.format(url=lab.behind.url)), lab.behind, model, request.param)


def names(sent: Any) -> list[str]:
    return [tool["function"]["name"] for tool in sent["tools"]]


def as_sent_back(message: Any) -> Any:
    """What a client puts into its next request."""
    calls = [
        {"id": one.id, "type": "function", "function": {"name": one.function.name, "arguments": one.function.arguments}}
        for one in message.tool_calls or ()
    ]
    return {"role": "assistant", "content": message.content, **({"tool_calls": calls} if calls else {})}


async def test_a_tool_is_found_called_and_answered(running: Running) -> None:
    running.model.says = [
        {"tool_calls": [call("search_tools", {"query": "weather"}, "s1")], "content": "Searching."},
        {"tool_calls": [through("get_weather", {"town": "Lima"}, "w1")]},
        {"tool_calls": [through("get_weather", {"city": "Lima"}, "w2")]},
        {"content": "It is 20 degrees."},
        {"content": "You are welcome."},
    ]
    talk: list[Any] = [USER]

    message = await running.asks(talk)

    assert message.content == "Searching."
    (made,) = message.tool_calls
    assert (made.id, made.function.name, json.loads(made.function.arguments)) == ("w2", "get_weather", {"city": "Lima"})
    talk += [as_sent_back(message), {"role": "tool", "tool_call_id": "w2", "content": "20 degrees"}]
    message = await running.asks(talk)
    assert message.content == "It is 20 degrees."
    talk += [as_sent_back(message), {"role": "user", "content": "Thanks!"}]
    assert (await running.asks(talk)).content == "You are welcome."

    sent = running.sent()
    assert [names(one) for one in sent] == [["pinned", "search_tools", "call_tool"]] * 5
    for before, after in pairwise(sent):
        assert after["messages"][: len(before["messages"])] == before["messages"], "the cached prefix stays whole"
    results = [one["content"] for one in sent[-1]["messages"] if one["role"] == "tool"]
    assert {**json.loads(results[0].split("\n")[1]), "strict": True} == WEATHER["function"]
    assert "'city' is a required property" in results[1]
    assert results[2] == "20 degrees"
    assert len(running.behind.last.body) < len(json.dumps(TOOLS)) / 3


async def test_a_search_goes_by_the_phrases_of_the_chain_that_the_request_has(lab: Lab) -> None:
    """Another chain has a step that brings the same tool: with signed reasoning that may be held, it may be needed."""
    phrase = "{strategy: defer, always: [pinned], examples: {%s: [zorbing]}}"
    chains = f"{{main: [filter_tools: {phrase % 'get_weather'}], other: [filter_tools: {phrase % 'other_7'}]}}"
    models = '[{match: "*", upstream: main, window: 100000, chain: main}]'
    url = f'upstreams: {{main: {{kind: openai, base_url: "{lab.behind.url}"}}}}'
    lab.behind.respond = model = Model([{"tool_calls": [call("search_tools", {"query": "zorbing"}, "s")]}, {}])
    running = Running(await lab.start(f"{url}\nmodels: {models}\nchains: {chains}\n"), lab.behind, model)

    await running.asks([USER])

    (result,) = [one["content"] for one in running.sent()[-1]["messages"] if one["role"] == "tool"]
    assert json.loads(result.split("\n")[1])["name"] == "get_weather"


async def test_several_answers_at_once_have_all_tools(running: Running) -> None:
    """No search is run for them."""
    running.model.says = [{"content": "one"}]
    await running.asks([USER], n=2)
    assert running.sent()[0]["tools"] == TOOLS


async def test_a_gateway_that_calls_the_model_itself_keeps_its_tools(running: Running) -> None:
    async with aiohttp.ClientSession() as session:
        body = {"model": "m", "messages": [USER], "tools": TOOLS}
        async with session.post(f"{running.base}/v1/compress", json=body) as response:
            answer = await response.json()
    assert answer["tools"][: len(TOOLS)] == TOOLS
    assert "call_tool" not in names(answer)
    assert {step["policy"]: step["verdict"] for step in answer["steps"]}["filter_tools"] == "keep"
