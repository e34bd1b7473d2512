"""An agent on Anthropic's own wire, with its SDK, through the default chain: in front of a server that refuses what
Anthropic refuses, signs thinking over the exact prefix, and caches as it does."""

import json
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from itertools import pairwise
from pathlib import Path
from typing import Any

import aiohttp
import anthropic
import pytest

from tests.e2e.conftest import Lab
from tests.e2e.servers import proxy
from tests.upstreams.anthropic.rules import bare
from tests.upstreams.anthropic.stand_in import KEY, StandIn, stand_in

REST = """chains:
  default:
    - isolate_tasks: {{}}
    - consolidate_system: {{}}
    - compact_tool_results: {{}}
    - offload_content: {{}}
    - compress_history: {{}}
    - pin_context: {{}}
    - recall_history: {{}}
    - include_shared: {{}}
    - filter_tools: {{}}
    - offer_recall: {{}}
    - reject_oversize: {{share: 0.95}}
    - mark_cache: {{}}
state: {{kind: memory}}
server: {{watch: false, admin_key: admin}}
records: {{text: true}}
"""
CONFIG = (
    """
upstreams: {{claude: {{kind: anthropic, base_url: "{url}"}}}}
models: [{{match: "claude-*", upstream: claude}}]
"""
    + REST
)
SYSTEM: Any = [
    {"type": "text", "text": "x-anthropic-billing-header: cc_version=2"},
    {"type": "text", "text": "You keep a shop's books. " * 60, "cache_control": {"type": "ephemeral"}},
]
TOOLS: Any = [
    {
        "name": name,
        "description": f"Lists the {name} of the shop. " * 8,
        "input_schema": {"type": "object", "properties": {"page": {"type": "integer"}}},
    }
    for name in ("orders", "invoices", "parcels")
]
UNBOUND, BOUND = "claude-opus-5", "claude-opus-5-5"


def listing(number: int, rows: int) -> str:
    """A JSON result with white space, as tools give them."""
    found = [
        {"id": f"ORD-{number}-{row}", "state": "shipped", "weight": row * 1.5, "note": f"left the warehouse {row}"}
        for row in range(rows)
    ]
    return json.dumps(found, indent=2)


class Agent:
    """Reads a listing in each step, marks the end of what it sends, and sends all thinking back."""

    def __init__(self, base: str, model: str, server: StandIn, *, stream: bool) -> None:
        self.client = anthropic.AsyncAnthropic(base_url=base, api_key=KEY, max_retries=0)
        self.model, self.server, self.stream = model, server, stream
        self.messages: list[Any] = []
        self.headers: dict[str, str] = {}
        self.bases: list[str] = []
        """Replicas that are asked in turn, if there are several."""

    async def ask(self, content: Any) -> Any:
        for message in self.messages:
            if message["role"] == "user" and isinstance(message["content"], list):
                message["content"] = [{k: v for k, v in b.items() if k != "cache_control"} for b in message["content"]]
        if self.bases:
            self.bases.append(self.bases.pop(0))
            self.client.base_url = self.bases[0]
        content[-1]["cache_control"] = {"type": "ephemeral"}
        self.messages.append({"role": "user", "content": content})
        asked: Any = {
            "model": self.model,
            "max_tokens": 1000,
            "messages": self.messages,
            "system": SYSTEM,
            "tools": TOOLS,
            "extra_headers": self.headers,
        }
        asked |= {"thinking": {"type": "adaptive"}} if self.model == UNBOUND else {}
        if self.stream:
            async with self.client.messages.stream(**asked) as stream:
                answer: Any = await stream.get_final_message()
        else:
            answer = await self.client.messages.create(**asked)
        kept = [block.model_dump(exclude_none=True) for block in answer.content]
        kept = [{k: v for k, v in block.items() if k not in ("parsed_output", "caller")} for block in kept]
        self.messages.append({"role": "assistant", "content": kept})
        return answer

    async def work(self, steps: int, rows: int) -> None:
        async with self.client:
            await self.turn(steps // 2, rows, "Where are the parcels?", 0)
            await self.turn(steps - steps // 2, rows, "And the invoices?", 1000)

    async def turn(self, steps: int, rows: int, question: str, first: int) -> None:
        content: list[Any] = [{"type": "text", "text": question}]
        for step in range(first, first + steps):
            thought = {"type": "thinking", "thinking": f"Page {step}."}
            call = {"type": "tool_use", "id": f"toolu_{step}", "name": "orders", "input": {"page": step}}
            self.server.say(thought, {"type": "text", "text": f"I read page {step}."}, call)
            await self.ask(content)
            content = [{"type": "tool_result", "tool_use_id": f"toolu_{step}", "content": listing(step, rows)}]
        self.server.say({"type": "thinking", "thinking": "Done."}, {"type": "text", "text": f"All is well, {question}"})
        answer = await self.ask(content)
        assert answer.content[-1].type == "text"


async def told(base: str, name: str) -> Any:
    """What operators are told."""
    admin = {"authorization": "Bearer admin"}
    async with aiohttp.ClientSession(headers=admin) as http, http.get(f"{base}/admin/{name}") as response:
        return await response.json()


def cost(server: StandIn) -> float:
    """The price of all prompts, in input tokens of full price."""
    return sum(
        each["input_tokens"] + 1.25 * each["cache_creation_input_tokens"] + 0.1 * each["cache_read_input_tokens"]
        for each in server.usages
    )


@pytest.fixture
async def server() -> AsyncGenerator[StandIn]:
    async with stand_in() as made:
        yield made


@pytest.fixture
async def base(lab: Lab, server: StandIn) -> str:
    return await lab.start(CONFIG.format(url=server.url))


@pytest.fixture
async def client(base: str) -> AsyncGenerator[anthropic.AsyncAnthropic]:
    async with anthropic.AsyncAnthropic(base_url=base, api_key=KEY, max_retries=0) as made:
        yield made


@pytest.mark.parametrize(("model", "stream"), [(UNBOUND, False), (BOUND, True)])
async def test_an_agent_finishes_and_pays_less(model: str, stream: bool, server: StandIn, tmp_path: Path) -> None:
    await Agent(server.url, model, server, stream=stream).work(12, 60)
    direct, asked = cost(server), len(server.bodies)
    thoughts = sum(json.dumps(body["messages"]).count('"signature"') for body in server.bodies)
    server.usages.clear()
    server.bodies.clear()
    server.cache = type(server.cache)()
    async with proxy(CONFIG.format(url=server.url), tmp_path) as base:
        await Agent(base, model, server, stream=stream).work(12, 60)
        conversations = (await told(base, "conversations"))["conversations"]
        requests = (await told(base, "requests"))["requests"]

    assert server.refused == []
    assert len(server.bodies) == asked
    assert sum(json.dumps(body["messages"]).count('"signature"') for body in server.bodies) == thoughts
    assert all(body["system"] == SYSTEM for body in server.bodies)
    assert cost(server) < direct * 0.95
    assert len(conversations) == 1
    assert {each["turn"] for each in requests} == {*range(1, asked + 1)}
    assert any(step["verdict"] == "rewrite" for each in requests for step in each["steps"])
    assert not [step for each in requests for step in each["steps"] if step["verdict"] == "fail"]


@pytest.mark.parametrize("fault", ["restart without its store", "bypass", "reload to nothing", "another replica"])
async def test_no_fault_breaks_signed_thinking(fault: str, server: StandIn, tmp_path: Path) -> None:
    config = CONFIG.format(url=server.url)
    agent = Agent("http://127.0.0.1", BOUND, server, stream=True)
    before, after = tmp_path / "before", tmp_path / "after"
    for folder in (before, after):
        folder.mkdir()
    shared = f"state: {{directory: {tmp_path}/state}}"
    kept = config.replace("state: {kind: memory}", shared)
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
            await agent.turn(3, 60, "And the invoices?", 100)

    assert server.refused == []
    assert json.dumps(server.bodies[-1]).count('"signature"') == 9


async def test_errors_have_anthropics_shape(server: StandIn, client: anthropic.AsyncAnthropic) -> None:
    with pytest.raises(anthropic.NotFoundError) as unknown:
        await client.messages.create(model="no-such-model", max_tokens=1, messages=[{"role": "user", "content": "Hi"}])
    with pytest.raises(anthropic.BadRequestError) as wrong:
        await client.messages.create(model=UNBOUND, max_tokens=1, messages=[])
    server.failures.append((429, "rate_limit_error", {"retry-after": "7"}))
    with pytest.raises(anthropic.RateLimitError) as limited:
        await client.messages.create(model=UNBOUND, max_tokens=1, messages=[{"role": "user", "content": "Hi"}])

    for error, kind in ((unknown, "not_found_error"), (wrong, "invalid_request_error"), (limited, "rate_limit_error")):
        assert isinstance(error.value.body, dict)
        assert error.value.body["type"] == "error"
        assert error.value.body["error"]["type"] == kind
    assert limited.value.response.headers["retry-after"] == "7"


async def test_a_count_is_of_what_would_be_sent(server: StandIn, client: anthropic.AsyncAnthropic, base: str) -> None:
    said: Any = [
        {"role": "user", "content": "Where are the parcels?"},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "toolu_1", "name": "orders", "input": {}}]},
        {
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": listing(1, 60)}],
        },
    ]
    asked: Any = {"model": UNBOUND, "messages": said, "tools": TOOLS, "system": SYSTEM}
    counted = (await client.messages.count_tokens(**asked)).input_tokens
    await client.messages.create(max_tokens=100, **asked)
    turns = [each["turn"] for each in (await told(base, "requests"))["requests"]]

    assert server.paths == ["/v1/messages/count_tokens", "/v1/messages"]
    assert server.bodies[0]["messages"][2] == server.bodies[1]["messages"][2] != said[2]
    assert counted < len(json.dumps(said)) // 4
    assert sorted(turns, key=bool) == [None, 2]


async def test_threads_are_declined_and_the_sdk_goes_on(server: StandIn, client: anthropic.AsyncAnthropic) -> None:
    server.say({"type": "tool_use", "id": "toolu_1", "name": "orders", "input": {"page": 1}})
    server.say({"type": "text", "text": "Done."})

    @anthropic.beta_async_tool
    async def orders(page: int) -> str:
        """List orders."""
        return listing(page, 3)

    runner = client.beta.messages.tool_runner(
        model=UNBOUND, max_tokens=100, tools=[orders], messages=[{"role": "user", "content": "Go."}]
    )
    answer = await runner.until_done()

    assert answer.content[0].type == "text"
    assert [len(body["messages"]) for body in server.bodies] == [1, 3]
    assert not any("thread" in body for body in server.bodies)


async def test_a_compaction_of_the_clients_own_is_passed_whole(
    server: StandIn, client: anthropic.AsyncAnthropic
) -> None:
    said: Any = [
        {"role": "user", "content": "Where are the parcels?"},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "toolu_1", "name": "orders", "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": listing(1, 60)}]},
        {"role": "assistant", "content": "They left."},
        {"role": "user", "content": "Sum up what we did."},
    ]
    for headers in ({}, {"x-claude-code-request-class": "compaction"}):
        await client.messages.create(
            model=UNBOUND,
            max_tokens=100,
            messages=said,
            tools=TOOLS,
            extra_headers=headers,
        )

    assert server.bodies[0]["messages"] != said
    assert server.bodies[1]["messages"] == said


NOTING = CONFIG.replace("offer_recall", "keep_notes")
NOTE = {"type": "tool_use", "id": "toolu_in", "name": "note", "input": {"text": "ORD-1 has left."}}
ORDERS = {"type": "tool_use", "id": "toolu_out", "name": "orders", "input": {"page": 1}}


def thought(said: str) -> Any:
    return {"type": "thinking", "thinking": said}


def text(said: str) -> Any:
    return {"type": "text", "text": said}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("model", [UNBOUND, BOUND])
async def test_internal_tools_stay_inside(model: str, stream: bool, server: StandIn, tmp_path: Path) -> None:
    server.say(thought("Look back."), text("I look back."), NOTE)
    server.say(thought("And there."), text("And there."), {**NOTE, "id": "toolu_in2"}, ORDERS)
    server.say(thought("All."), text("Page 1 says it."))
    server.say(thought("So."), text("Yes."))
    async with proxy(NOTING.format(url=server.url), tmp_path) as base:
        agent = Agent(base, model, server, stream=stream)
        async with agent.client:
            first = await agent.ask([text("Where are the parcels?")])
            second = await agent.ask([{"type": "tool_result", "tool_use_id": "toolu_out", "content": "ORD-1"}])
            third = await agent.ask([text("Sure?")])

    kinds = [[block.type for block in answer.content] for answer in (first, second, third)]
    assert kinds == [["thinking", "text", "thinking", "text", "tool_use"], ["thinking", "text"], ["thinking", "text"]]
    assert first.stop_reason == "tool_use"
    assert first.content[-1].input == {"page": 1}
    assert server.refused == []
    assert len(server.bodies) == 4
    last = server.bodies[-1]["messages"]
    calls = [block["id"] for message in last for block in message["content"] if block["type"] == "tool_use"]
    assert calls == ["toolu_in", "toolu_in2", "toolu_out"]
    for before, after in pairwise(server.bodies):
        said = [bare(message) for message in after["messages"][: len(before["messages"])]]
        assert said == [bare(message) for message in before["messages"]]


@pytest.mark.parametrize("stream", [False, True])
async def test_an_answer_of_internal_calls_alone_ends_its_turn(stream: bool, server: StandIn, tmp_path: Path) -> None:
    server.say(text("I look."), NOTE)
    server.say(text("Found."))
    async with proxy(NOTING.format(url=server.url), tmp_path) as base:
        agent = Agent(base, UNBOUND, server, stream=stream)
        async with agent.client:
            answer = await agent.ask([text("Where are the parcels?")])

    assert [block.text for block in answer.content] == ["I look.", "Found."]
    assert answer.stop_reason == "end_turn"
    assert answer.usage.output_tokens == server.usages[-1]["output_tokens"]
