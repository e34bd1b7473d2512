"""Tools that are left out are found by the model and called by the client, and the client sees nothing of it."""

import asyncio
import json
from itertools import pairwise
from typing import Any

import openai
import pytest

from tests.e2e.conftest import Client, Lab
from tests.e2e.servers import Received, Respond, Upstream, say
from tests.scripted import answer

CONFIG = """
chains:
  default:
    - compact_tool_results: {over: 600, read_again: 0}
    - filter_tools: {strategy: defer, always: [pinned]}
    - offer_recall: {}
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


def call(name: str, arguments: Any, id: str) -> Any:
    return {"id": id, "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}


def weather(id: str, **arguments: str) -> Any:
    return call("call_tool", {"name": "get_weather", "arguments": arguments}, id)


def saying(*messages: dict[str, Any]) -> Respond:
    """A model that says one thing after the other."""
    waiting = list(messages)

    async def respond(behind: Upstream, received: Received, writer: asyncio.StreamWriter) -> None:
        message = {"role": "assistant", "content": None, **waiting.pop(0)}
        choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if "tool_calls" in message else "stop"}
        await say(writer, received, {**answer(), "id": f"x{len(behind.received)}", "choices": [choice]})

    return respond


async def ask(base: str, messages: list[Any], stream: bool = False, **more: Any) -> Any:
    """Return the message that the SDK gives its caller."""
    async with openai.AsyncOpenAI(base_url=f"{base}/v1", api_key="k", max_retries=0) as client:
        asked = {"model": "m", "messages": messages, "tools": TOOLS, **more}
        if not stream:
            return (await client.chat.completions.create(**asked)).choices[0].message
        async with client.chat.completions.stream(**asked) as streamed:
            return (await streamed.get_final_completion()).choices[0].message


def names(sent: Any) -> list[str]:
    return [tool["function"]["name"] for tool in sent["tools"]]


def as_sent_back(message: Any) -> Any:
    """What a client puts into its next request."""
    calls = [
        {"id": one.id, "type": "function", "function": {"name": one.function.name, "arguments": one.function.arguments}}
        for one in message.tool_calls or ()
    ]
    return {"role": "assistant", "content": message.content, **({"tool_calls": calls} if calls else {})}


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_a_tool_is_found_called_and_answered(lab: Lab, stream: bool) -> None:
    base = await lab.start(CONFIG)
    lab.behind.respond = saying(
        {"tool_calls": [call("search_tools", {"query": "weather"}, "s1")], "content": "Searching."},
        {"tool_calls": [weather("w1", town="Lima")]},
        {"tool_calls": [weather("w2", city="Lima")]},
        {"content": "It is 20 degrees."},
        {"content": "You are welcome."},
    )
    message = await ask(base, [USER], stream)

    assert message.content == "Searching."
    (made,) = message.tool_calls
    assert (made.id, made.function.name, json.loads(made.function.arguments)) == ("w2", "get_weather", {"city": "Lima"})
    talk = [USER, as_sent_back(message), {"role": "tool", "tool_call_id": "w2", "content": "20 degrees"}]
    message = await ask(base, talk, stream)
    assert message.content == "It is 20 degrees."
    talk += [as_sent_back(message), {"role": "user", "content": "Thanks!"}]
    assert (await ask(base, talk, stream)).content == "You are welcome."

    sent = [json.loads(received.body) for received in lab.behind.received]
    assert [names(one) for one in sent] == [["pinned", "search_tools", "call_tool"]] * 5
    for before, after in pairwise(sent):
        assert after["messages"][: len(before["messages"])] == before["messages"], "the cached prefix stays whole"
    results = [one["content"] for one in sent[-1]["messages"] if one["role"] == "tool"]
    assert {**json.loads(results[0].split("\n")[1]), "strict": True} == WEATHER["function"]
    assert "'city' is a required property" in results[1]
    assert results[2] == "20 degrees"
    assert len(lab.behind.last.body) < len(json.dumps(TOOLS)) / 3


async def test_a_search_goes_by_the_phrases_of_the_chain_that_the_request_has(lab: Lab) -> None:
    """Another chain has a step that brings the same tool: with signed reasoning that may be held, it may be needed."""
    phrase = "{strategy: defer, always: [pinned], examples: {%s: [zorbing]}}"
    chains = f"{{main: [filter_tools: {phrase % 'get_weather'}], other: [filter_tools: {phrase % 'other_7'}]}}"
    models = '[{match: "*", upstream: main, window: 100000, chain: main}]'
    url = f'upstreams: {{main: {{kind: openai, base_url: "{lab.behind.url}"}}}}'
    lab.behind.respond = saying({"tool_calls": [call("search_tools", {"query": "zorbing"}, "s")]}, {})

    await ask(await lab.start(f"{url}\nmodels: {models}\nchains: {chains}\n"), [USER])

    (result,) = [one["content"] for one in json.loads(lab.behind.last.body)["messages"] if one["role"] == "tool"]
    assert json.loads(result.split("\n")[1])["name"] == "get_weather"


async def test_where_no_search_is_run_all_tools_stay(client: Client, behind: Upstream) -> None:
    """Of several answers at once, and of a gateway that calls the model itself."""
    assert (await client.chat(messages=[USER], tools=TOOLS, n=2)).status == 200
    assert json.loads(behind.last.body)["tools"] == TOOLS
    told = (await client.post("/v1/compress", {"model": "m", "messages": [USER], "tools": TOOLS})).json
    assert told["tools"][: len(TOOLS)] == TOOLS
    assert "call_tool" not in names(told)
    assert {step["policy"]: step["verdict"] for step in told["steps"]}["filter_tools"] == "keep"
