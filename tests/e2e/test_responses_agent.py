"""An agent on Responses, with OpenAI's SDK, through the default chain: in front of a server that refuses what OpenAI
refuses, and seals reasoning over the exact prefix."""

import json
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from itertools import pairwise
from pathlib import Path
from typing import Any

import openai
import pytest

from tests.e2e.conftest import Lab
from tests.e2e.servers import proxy
from tests.e2e.test_messages_agent import REST, listing, told
from tests.wires.openai_server import OpenAIServer, call, message, openai_server

CONFIG = (
    """
upstreams: {{main: {{kind: openai, base_url: "{url}/v1"}}}}
models: [{{match: "gpt-*", upstream: main}}]
"""
    + REST
)
TOOLS: Any = [
    {
        "type": "function",
        "name": name,
        "description": f"Lists the {name} of the shop. " * 8,
        "parameters": {"type": "object", "properties": {"page": {"type": "integer"}}},
        "strict": False,
    }
    for name in ("orders", "invoices", "parcels")
] + [{"type": "web_search"}]
INSTRUCTIONS = "You keep a shop's books. " * 300
MODEL = "gpt-5.6"
REASONING = {"type": "reasoning"}


class Agent:
    """Reads a listing in each step, and sends all items back."""

    def __init__(self, base: str, server: OpenAIServer, *, stream: bool) -> None:
        self.client = openai.AsyncOpenAI(base_url=f"{base}/v1", api_key="sk-any", max_retries=0)
        self.server, self.stream = server, stream
        self.items: list[Any] = [{"role": "developer", "content": "Answer in English."}]
        self.headers: dict[str, str] = {}
        self.bases: list[str] = []
        """Replicas that are asked in turn, if there are several."""

    async def ask(self, *items: Any) -> Any:
        self.items += items
        if self.bases:
            self.bases.append(self.bases.pop(0))
            self.client.base_url = f"{self.bases[0]}/v1"
        asked: Any = {
            "extra_headers": self.headers,
            "model": MODEL,
            "instructions": INSTRUCTIONS,
            "input": self.items,
            "tools": TOOLS,
        }
        asked |= {"store": False, "include": ["reasoning.encrypted_content"]}
        if self.stream:
            async with self.client.responses.stream(**asked) as stream:
                response: Any = await stream.get_final_response()
        else:
            response = await self.client.responses.create(**asked)
        self.items += [item.model_dump(exclude_none=True, exclude={"parsed_arguments"}) for item in response.output]
        return response

    async def work(self, steps: int, rows: int) -> None:
        async with self.client:
            await self.turn(steps, rows, "Where are the parcels?", 0)

    async def turn(self, steps: int, rows: int, question: str, first: int) -> None:
        items: Any = [{"role": "user", "content": question}]
        for step in range(first, first + steps):
            self.server.say(REASONING, call(f"call_{step}", "orders", page=step), message(f"I read page {step}."))
            await self.ask(*items)
            items = [{"type": "function_call_output", "call_id": f"call_{step}", "output": listing(step, rows)}]
        self.server.say(REASONING, message("All is well."))
        assert (await self.ask(*items)).output_text == "All is well."


def cost(server: OpenAIServer) -> Any:
    """The price of all prompts, in input tokens of full price."""
    return sum(
        float(each["input_tokens"]) - 0.9 * each["input_tokens_details"]["cached_tokens"] for each in server.usages
    )


@pytest.fixture
async def server() -> AsyncGenerator[OpenAIServer]:
    async with openai_server() as made:
        yield made


@pytest.fixture
async def client(lab: Lab, server: OpenAIServer) -> AsyncGenerator[openai.AsyncOpenAI]:
    base = await lab.start(CONFIG.format(url=server.url))
    async with openai.AsyncOpenAI(base_url=f"{base}/v1", api_key="sk-any", max_retries=0) as made:
        yield made


async def test_an_agent_finishes_and_pays_less(server: OpenAIServer, tmp_path: Path) -> None:
    await Agent(server.url, server, stream=True).work(12, 60)
    direct, asked = cost(server), len(server.bodies)
    for each in (server.usages, server.bodies, server.kept):
        each.clear()
    async with proxy(CONFIG.format(url=server.url), tmp_path) as base:
        await Agent(base, server, stream=True).work(12, 60)
        conversations = (await told(base, "conversations"))["conversations"]
        requests = (await told(base, "requests"))["requests"]

    assert server.refused == []
    assert server.lost == 0
    assert len(server.bodies) == asked
    assert server.bodies[-1]["tools"][: len(TOOLS)] == TOOLS
    assert server.bodies[-1]["instructions"] == INSTRUCTIONS
    assert cost(server) < direct * 0.95
    assert len(conversations) == 1
    assert {each["turn"] for each in requests} == {*range(1, asked + 1)}
    assert not [step for each in requests for step in each["steps"] if step["verdict"] == "fail"]


@pytest.mark.parametrize("fault", ["restart without its store", "bypass", "reload to nothing", "another replica"])
async def test_no_fault_breaks_sealed_reasoning(fault: str, server: OpenAIServer, tmp_path: Path) -> None:
    config = CONFIG.format(url=server.url)
    agent = Agent("http://127.0.0.1", server, stream=True)
    before, after = tmp_path / "before", tmp_path / "after"
    for folder in (before, after):
        folder.mkdir()
    kept = config.replace("state: {kind: memory}", f"state: {{directory: {tmp_path}/state}}")
    chain = kept[kept.index("  default:") : kept.index("state:")]
    first = config if fault == "restart without its store" else kept
    later = first.replace(chain, "  default: []\n") if fault == "reload to nothing" else first
    async with agent.client:
        async with proxy(first, before) as base:
            agent.bases = [base]
            await agent.turn(5, 60, "Where are the parcels?", 0)
        replicas = (before, after) if fault == "another replica" else (after,)
        async with AsyncExitStack() as stack:
            agent.bases = [await stack.enter_async_context(proxy(later, folder)) for folder in replicas]
            agent.headers = {"x-penstock-bypass": "true"} if fault == "bypass" else {}
            await agent.turn(4, 60, "And the invoices?", 100)

    assert (server.refused, server.lost) == ([], 0)
    assert sum(item.get("type") == "reasoning" for item in server.bodies[-1]["input"]) == 10


async def test_stored_conversations_pass_with_their_new_items(server: OpenAIServer, client: openai.AsyncOpenAI) -> None:
    output = {"type": "function_call_output", "call_id": "call_1", "output": listing(1, 60)}
    items: Any = [output]
    await client.responses.create(model=MODEL, input=items, previous_response_id="resp_1")
    await client.responses.create(model=MODEL, input="Hello", conversation="conv_1")

    assert server.bodies[0]["previous_response_id"] == "resp_1"
    assert server.bodies[0]["input"][0]["call_id"] == "call_1"
    assert len(server.bodies[0]["input"][0]["output"]) < len(output["output"])
    assert server.bodies[1] == {"model": MODEL, "input": "Hello", "conversation": "conv_1"}


async def test_a_compaction_is_passed_whole(server: OpenAIServer, client: openai.AsyncOpenAI) -> None:
    items: Any = [
        {"role": "user", "content": "Where are the parcels?"},
        call("call_1", "orders", page=1),
        {"type": "function_call_output", "call_id": "call_1", "output": listing(1, 60)},
        {"type": "compaction_trigger"},
    ]
    await client.responses.create(model=MODEL, input=items)
    compacted = await client.responses.compact(model=MODEL, input=items[:3])

    assert [body["input"] for body in server.bodies] == [items, items[:3]]
    assert compacted.output[0].type == "compaction"


async def test_a_count_is_of_what_would_be_sent(server: OpenAIServer, client: openai.AsyncOpenAI) -> None:
    items: Any = [
        {"role": "user", "content": "Where are the parcels?"},
        call("call_1", "orders", page=1),
        {"type": "function_call_output", "call_id": "call_1", "output": listing(1, 60)},
    ]
    counted = await client.responses.input_tokens.count(model=MODEL, input=items)
    await client.responses.create(model=MODEL, input=items)

    assert server.paths == ["/v1/responses/input_tokens", "/v1/responses"]
    assert server.bodies[0]["input"] == server.bodies[1]["input"] != items
    assert counted.input_tokens < len(json.dumps(items)) // 4


@pytest.mark.parametrize("stream", [False, True])
async def test_internal_tools_stay_inside(stream: bool, server: OpenAIServer, tmp_path: Path) -> None:
    server.say(REASONING, message("I look back."), call("call_in", "note", text="ORD-1 has left."))
    server.say(
        REASONING,
        message("And there."),
        call("call_in2", "note", text="So has ORD-2."),
        call("call_out", "orders", page=1),
    )
    server.say(REASONING, message("Page 1 says it."))
    server.say(REASONING, message("Yes."))
    async with proxy(CONFIG.replace("offer_recall", "keep_notes").format(url=server.url), tmp_path) as base:
        agent = Agent(base, server, stream=stream)
        async with agent.client:
            first = await agent.ask({"role": "user", "content": "Where are the parcels?"})
            second = await agent.ask({"type": "function_call_output", "call_id": "call_out", "output": "ORD-1"})
            third = await agent.ask({"role": "user", "content": "Sure?"})

    kinds = [[item.type for item in response.output] for response in (first, second, third)]
    said = ["reasoning", "message"]
    assert kinds == [[*said, *said, "function_call"], said, said]
    assert first.output[-1].name == "orders"
    assert first.output_text == "I look back.And there."
    assert (server.refused, server.lost, len(server.bodies)) == ([], 0, 4)
    calls = [item["call_id"] for item in server.bodies[-1]["input"] if item.get("type") == "function_call"]
    assert calls == ["call_in", "call_in2", "call_out"]
    for before, after in pairwise(server.bodies):
        assert after["input"][: len(before["input"])] == before["input"]
        assert after["tools"] == before["tools"]
