"""Agents on the vendors' own wires, with their SDKs, through the default chain: in front of servers that refuse what the
vendors refuse, sign reasoning over the exact prefix, and cache as they do."""

import json
from collections.abc import AsyncGenerator
from itertools import pairwise
from typing import Any

import anthropic
import openai
import pytest

from tests.e2e.conftest import Client, Lab
from tests.e2e.servers import filled, proxy
from tests.upstreams.anthropic.rules import bare
from tests.upstreams.anthropic.stand_in import KEY, stand_in
from tests.wires import openai_server

CONFIG = """
upstreams: {claude: {kind: anthropic, base_url: "{url}"}, main: {kind: openai, base_url: "{url}/v1"}}
models: [{match: "claude-*", upstream: claude}, {match: "gpt-*", upstream: main}]
chains:
  default: [isolate_tasks: {}, consolidate_system: {}, compact_tool_results: {}, offload_content: {},
    compress_history: {}, pin_context: {}, recall_history: {}, include_shared: {}, filter_tools: {},
    offer_recall: {}, reject_oversize: {share: 0.95}, mark_cache: {}]
state: {kind: memory}
server: {watch: false, admin_key: admin}
records: {text: true}
"""
NOTING = CONFIG.replace("offer_recall", "keep_notes")
UNBOUND, BOUND, GPT = "claude-opus-5", "claude-opus-5-5", "gpt-5.6"
SYSTEM: Any = [
    {"type": "text", "text": "x-anthropic-billing-header: cc_version=2"},
    {"type": "text", "text": "You keep a shop's books. " * 60, "cache_control": {"type": "ephemeral"}},
]
SCHEMA = {"type": "object", "properties": {"page": {"type": "integer"}}}
ABOUT = {name: f"Lists the {name} of the shop. " * 8 for name in ("orders", "invoices", "parcels")}
TOOLS: Any = [{"name": name, "description": about, "input_schema": SCHEMA} for name, about in ABOUT.items()]
FUNCTION = {"type": "function", "parameters": SCHEMA, "strict": False}
FUNCTIONS: Any = [*({**FUNCTION, "name": name, "description": about} for name, about in ABOUT.items())]
FUNCTIONS.append({"type": "web_search"})
STREAMED = pytest.mark.parametrize("stream", [False, True])


def listing(number: int, rows: int = 60) -> str:
    """A JSON result with white space, as tools give them."""
    order = {"state": "shipped", "weight": 1.5}
    found = [{**order, "id": f"ORD-{number}-{row}", "note": f"left the warehouse {row}"} for row in range(rows)]
    return json.dumps(found, indent=2)


class Agent:
    """Reads a listing in each step, and sends all reasoning back."""

    thought: Any
    names: tuple[str, str, str]
    """The types of reasoning, of text, and of calls."""
    conversation: str
    """The field of a body that holds it."""

    def __init__(self, server: Any, model: str) -> None:
        self.server, self.model, self.stream = server, model, True
        self.said: list[Any] = []
        self.headers: dict[str, str] = {}
        self.bases: list[str] = [server.url]
        """Replicas that are asked in turn, if there are several."""

    def shape(self, answer: Any) -> list[str]:
        """Its blocks: `t` for a thought, `m` for a text, `c` for a call."""
        blocks = answer.content if hasattr(answer, "content") else answer.output
        return ["tmc"[self.names.index(block.type)] for block in blocks]

    def sent(self, place: int = -1) -> list[Any]:
        """The conversation that reached the server, without marks of the cache."""
        return [bare(each) for each in self.server.bodies[place][self.conversation]]

    def blocks(self, kind: str, place: int = -1) -> list[Any]:
        """The blocks of a kind that reached the server."""
        found = [each if "type" in each else each.get("content") for each in self.sent(place)]
        flat = [block for each in found for block in (each if isinstance(each, list) else [each])]
        return [block for block in flat if isinstance(block, dict) and block["type"] == self.names["tmc".index(kind)]]

    async def turn(self: Any, steps: int, question: str, first: int = 0) -> None:
        items = [self.question(question)]
        for step in range(first, first + steps):
            self.server.say(self.thought, self.text(f"I read page {step}."), self.call(f"call_{step}", page=step))
            await self.ask(*items)
            items = [self.result(f"call_{step}", listing(step))]
        self.server.say(self.thought, self.text("All is well."))
        assert self.shape(await self.ask(*items)) == ["t", "m"]

    async def work(self) -> None:
        self.said.clear()
        await self.turn(6, "Where are the parcels?")
        await self.turn(6, "And the invoices?", 1000)

    @property
    def faults(self) -> int:
        """Requests that were refused, and reasoning that was lost."""
        return len(self.server.refused) + getattr(self.server, "lost", 0)

    async def goes_through(self, lab: Lab, config: str = CONFIG) -> str:
        """Start a proxy in front of the server, and ask that from now on; its base URL."""
        self.bases = [await lab.start(config, url=self.server.url)]
        return self.bases[0]

    def next_base(self) -> str:
        self.bases.append(self.bases.pop(0))
        return self.bases[0]


class MessagesAgent(Agent):
    """Marks the end of what it sends for the cache."""

    thought = {"type": "thinking", "thinking": "Hm."}  # noqa: RUF012
    names = ("thinking", "text", "tool_use")
    conversation = "messages"
    serves = staticmethod(stand_in)
    fixed = {"system": SYSTEM}  # noqa: RUF012
    tools = TOOLS

    @staticmethod
    def forget(server: Any) -> None:
        """Have a server whose cache is empty, and which has counted nothing."""
        server.usages.clear()
        server.cache = type(server.cache)()

    def client(self, base: str) -> anthropic.AsyncAnthropic:
        return anthropic.AsyncAnthropic(base_url=base, api_key=KEY, max_retries=0)

    async def ask(self, *items: Any) -> Any:
        for message in self.said[::2]:
            message["content"] = [{k: v for k, v in b.items() if k != "cache_control"} for b in message["content"]]
        items[-1]["cache_control"] = {"type": "ephemeral"}
        self.said.append({"role": "user", "content": [*items]})
        asked: Any = {"model": self.model, "max_tokens": 1000, "messages": self.said}
        asked |= {**self.fixed, "tools": self.tools, "extra_headers": self.headers}
        asked |= {"thinking": {"type": "adaptive"}} if self.model == UNBOUND else {}
        async with self.client(self.next_base()) as client:
            if self.stream:
                async with client.messages.stream(**asked) as stream:
                    answer: Any = await stream.get_final_message()
            else:
                answer = await client.messages.create(**asked)
        blocks = [block.model_dump(exclude_none=True, exclude={"parsed_output", "caller"}) for block in answer.content]
        self.said.append({"role": "assistant", "content": blocks})
        return answer

    def question(self, text: str) -> Any:
        return {"type": "text", "text": text}

    text = question

    def call(self, id: str, name: str = "orders", **arguments: Any) -> Any:
        return {"type": "tool_use", "id": id, "name": name, "input": arguments}

    def result(self, id: str, text: str) -> Any:
        return {"type": "tool_result", "tool_use_id": id, "content": text}

    @property
    def cost(self) -> Any:
        """The price of all prompts, in input tokens of full price."""
        prices = {"input_tokens": 1.0, "cache_creation_input_tokens": 1.25, "cache_read_input_tokens": 0.1}
        return sum(price * each[name] for each in self.server.usages for name, price in prices.items())


class ResponsesAgent(Agent):
    """Has the server store nothing."""

    thought = {"type": "reasoning"}  # noqa: RUF012
    names = ("reasoning", "message", "function_call")
    conversation = "input"
    serves = staticmethod(openai_server.openai_server)
    call = staticmethod(lambda id, name="orders", **arguments: openai_server.call(id, name, **arguments))
    text = staticmethod(openai_server.message)
    fixed = {"instructions": "You keep a shop's books. " * 300}  # noqa: RUF012
    tools = FUNCTIONS

    @staticmethod
    def forget(server: Any) -> None:
        server.usages.clear()
        server.kept.clear()

    def client(self, base: str) -> openai.AsyncOpenAI:
        return openai.AsyncOpenAI(base_url=f"{base}/v1", api_key="sk-any", max_retries=0)

    async def ask(self, *items: Any) -> Any:
        self.said += items if self.said else [{"role": "developer", "content": "Answer in English."}, *items]
        asked: Any = {"model": self.model, "input": self.said, "tools": self.tools, "extra_headers": self.headers}
        asked |= {**self.fixed, "store": False, "include": ["reasoning.encrypted_content"]}
        async with self.client(self.next_base()) as client:
            if self.stream:
                async with client.responses.stream(**asked) as stream:
                    response: Any = await stream.get_final_response()
            else:
                response = await client.responses.create(**asked)
        self.said += [item.model_dump(exclude_none=True, exclude={"parsed_arguments"}) for item in response.output]
        return response

    def question(self, text: str) -> Any:
        return {"role": "user", "content": text}

    def result(self, id: str, text: str) -> Any:
        return {"type": "function_call_output", "call_id": id, "output": text}

    @property
    def cost(self) -> Any:
        """The price of all prompts, in input tokens of full price."""
        return sum(
            each["input_tokens"] - 0.9 * each["input_tokens_details"]["cached_tokens"] for each in self.server.usages
        )


async def told(lab: Lab, base: str, name: str) -> Any:
    """Ask for what operators are told."""
    return (await Client(base, lab.http, "admin").get(f"/admin/{name}")).json[name]


@pytest.fixture(params=[UNBOUND, BOUND, GPT])
async def agent(request: pytest.FixtureRequest) -> AsyncGenerator[Any]:
    kind = ResponsesAgent if request.param == GPT else MessagesAgent
    async with kind.serves() as server:
        yield kind(server, request.param)


of_messages = pytest.mark.parametrize("agent", [UNBOUND], indirect=True)
of_responses = pytest.mark.parametrize("agent", [GPT], indirect=True)
of_each_wire = pytest.mark.parametrize("agent", [UNBOUND, GPT], indirect=True)


async def test_an_agent_finishes_and_pays_less(agent: Any, lab: Lab) -> None:
    agent.stream = agent.model != UNBOUND
    await agent.work()
    direct, asked, server = agent.cost, len(agent.server.bodies), agent.server
    thoughts = sum(len(agent.blocks("t", place)) for place in range(asked))
    server.bodies.clear()
    agent.forget(server)
    base = await agent.goes_through(lab)
    await agent.work()
    conversations, requests = await told(lab, base, "conversations"), await told(lab, base, "requests")

    assert agent.faults == 0
    assert len(server.bodies) == asked
    assert sum(len(agent.blocks("t", place)) for place in range(asked)) == thoughts > 0
    for body in server.bodies:
        assert agent.fixed.items() <= body.items()
        assert bare(body["tools"][: len(agent.tools)]) == agent.tools
    assert agent.cost < direct * 0.95
    assert len(conversations) == 1
    assert {each["turn"] for each in requests} == {*range(1, asked + 1)}
    verdicts = {step["verdict"] for each in requests for step in each["steps"]}
    assert "rewrite" in verdicts
    assert "fail" not in verdicts


@pytest.mark.parametrize("agent", [BOUND, GPT], indirect=True)
@pytest.mark.parametrize("fault", ["restart without its store", "bypass", "reload to nothing", "another replica"])
async def test_no_fault_breaks_signed_reasoning(fault: str, agent: Any, lab: Lab) -> None:
    config, state = filled(CONFIG, url=agent.server.url), "state: {kind: memory}"
    chain = config[config.index("  default:") : config.index("state:")]
    first = (
        config if fault == "restart without its store" else config.replace(state, f"state: {{directory: {lab.folder}}}")
    )
    later = first.replace(chain, "  default: []\n") if fault == "reload to nothing" else first
    async with proxy(first, lab.folder) as base:
        agent.bases = [base]
        await agent.turn(5, "Where are the parcels?")
    agent.bases = await lab.two(later) if fault == "another replica" else [await lab.start(later)]
    agent.headers = {"x-penstock-bypass": "true"} if fault == "bypass" else {}
    await agent.turn(3, "And the invoices?", 100)

    assert agent.faults == 0
    assert len(agent.blocks("t")) == 9


@STREAMED
async def test_internal_tools_stay_inside(agent: Any, stream: bool, lab: Lab) -> None:
    thought, text, call = agent.thought, agent.text, agent.call
    agent.server.say(thought, text("I look back."), call("in", "note", text="ORD-1 has left."))
    agent.server.say(thought, text("And there."), call("in2", "note", text="So has ORD-2."), call("out", page=1))
    agent.server.say(thought, text("Page 1 says it."))
    agent.server.say(thought, text("Yes."))
    await agent.goes_through(lab, NOTING)
    agent.stream = stream
    first = await agent.ask(agent.question("Where are the parcels?"))
    second = await agent.ask(agent.result("out", "ORD-1"))
    third = await agent.ask(agent.question("Sure?"))

    assert [agent.shape(each) for each in (first, second, third)] == [[*"tmtmc"], [*"tm"], [*"tm"]]
    assert (getattr(first, "stop_reason", "tool_use"), agent.faults, len(agent.server.bodies)) == ("tool_use", 0, 4)
    assert [each.get("call_id", each.get("id")) for each in agent.blocks("c")] == ["in", "in2", "out"]
    for place, (before, after) in enumerate(pairwise(agent.server.bodies)):
        assert agent.sent(place + 1)[: len(agent.sent(place))] == agent.sent(place)
        assert bare(after["tools"]) == bare(before["tools"])


@of_each_wire
@STREAMED
async def test_an_answer_of_internal_calls_alone_ends_its_turn(agent: Any, stream: bool, lab: Lab) -> None:
    agent.server.say(agent.text("I look."), agent.call("in", "note", text="ORD-1 has left."))
    agent.server.say(agent.text("Found."))
    await agent.goes_through(lab, NOTING)
    agent.stream = stream
    answer = await agent.ask(agent.question("Where are the parcels?"))

    assert agent.shape(answer) == ["m", "m"]
    assert getattr(answer, "stop_reason", "end_turn") == "end_turn"
    assert answer.usage.output_tokens == agent.server.usages[-1]["output_tokens"]


def exchange(agent: Any) -> list[Any]:
    """A question, a call, and a result that has a shorter form."""
    asked, called, result = agent.question("Where?"), agent.call("c1", page=1), agent.result("c1", listing(1))
    if agent.model == GPT:
        return [asked, called, result]
    return [{"role": role, "content": [each]} for role, each in zip(("user", "assistant", "user"), (asked, called, result), strict=True)]  # fmt: skip


@of_each_wire
async def test_a_count_is_of_what_would_be_sent(agent: Any, lab: Lab) -> None:
    said, base = exchange(agent), await agent.goes_through(lab)
    asked = {"model": agent.model, "tools": agent.tools, agent.conversation: said}
    async with agent.client(base) as client:
        if agent.model == GPT:
            counted = await client.responses.input_tokens.count(**asked)
            await client.responses.create(**asked)
        else:
            counted = await client.messages.count_tokens(**asked)
            await client.messages.create(max_tokens=100, **asked)
    path = "/v1/responses" if agent.model == GPT else "/v1/messages"
    assert agent.server.paths == [f"{path}/{'input_tokens' if agent.model == GPT else 'count_tokens'}", path]
    assert agent.sent(0) == agent.sent(1) != said
    assert counted.input_tokens < len(json.dumps(said)) // 4
    assert sorted([each["turn"] for each in await told(lab, base, "requests")], key=bool) == [None, 2]


@of_messages
async def test_errors_have_anthropics_shape(agent: Any, lab: Lab) -> None:
    said = [{"role": "user", "content": "Hi"}]
    async with agent.client(await agent.goes_through(lab)) as client:
        with pytest.raises(anthropic.NotFoundError) as unknown:
            await client.messages.create(model="no-such-model", max_tokens=1, messages=said)
        with pytest.raises(anthropic.BadRequestError) as wrong:
            await client.messages.create(model=UNBOUND, max_tokens=1, messages=[])
        agent.server.failures.append((429, "rate_limit_error", {"retry-after": "7"}))
        with pytest.raises(anthropic.RateLimitError) as limited:
            await client.messages.create(model=UNBOUND, max_tokens=1, messages=said)
    for error, kind in ((unknown, "not_found_error"), (wrong, "invalid_request_error"), (limited, "rate_limit_error")):
        body: Any = error.value.body
        assert (body["type"], body["error"]["type"]) == ("error", kind)
    assert limited.value.response.headers["retry-after"] == "7"


@of_messages
async def test_threads_are_declined_and_the_sdk_goes_on(agent: Any, lab: Lab) -> None:
    agent.server.say(agent.call("toolu_1", page=1))
    agent.server.say(agent.text("Done."))

    @anthropic.beta_async_tool
    async def orders(page: int) -> str:
        """List orders."""
        return listing(page, 3)

    async with agent.client(await agent.goes_through(lab)) as client:
        runner = client.beta.messages.tool_runner(
            model=UNBOUND, max_tokens=100, tools=[orders], messages=[{"role": "user", "content": "Go."}]
        )
        assert agent.shape(await runner.until_done()) == ["m"]
    assert [len(body["messages"]) for body in agent.server.bodies] == [1, 3]
    assert not any("thread" in body for body in agent.server.bodies)


@of_messages
async def test_a_compaction_of_the_clients_own_is_passed_whole(agent: Any, lab: Lab) -> None:
    said = [*exchange(agent), {"role": "assistant", "content": "They left."}, {"role": "user", "content": "Sum up."}]
    async with agent.client(await agent.goes_through(lab)) as client:
        for headers in ({}, {"x-claude-code-request-class": "compaction"}):
            asked: Any = {"model": UNBOUND, "max_tokens": 100, "messages": said, "tools": TOOLS}
            await client.messages.create(**asked, extra_headers=headers)
    assert [body["messages"] == said for body in agent.server.bodies] == [False, True]


@of_responses
async def test_a_compaction_of_responses_is_passed_whole(agent: Any, lab: Lab) -> None:
    said = [*exchange(agent), {"type": "compaction_trigger"}]
    async with agent.client(await agent.goes_through(lab)) as client:
        await client.responses.create(model=GPT, input=said)
        compacted = await client.responses.compact(model=GPT, input=said[:3])
    assert [body["input"] for body in agent.server.bodies] == [said, said[:3]]
    assert compacted.output[0].type == "compaction"


@of_responses
async def test_stored_conversations_pass_with_their_new_items(agent: Any, lab: Lab) -> None:
    output = agent.result("call_1", listing(1))
    async with agent.client(await agent.goes_through(lab)) as client:
        await client.responses.create(model=GPT, input=[output], previous_response_id="resp_1")
        await client.responses.create(model=GPT, input="Hello", conversation="conv_1")
    first, second = agent.server.bodies
    assert (first["previous_response_id"], first["input"][0]["call_id"]) == ("resp_1", "call_1")
    assert len(first["input"][0]["output"]) < len(output["output"])
    assert second == {"model": GPT, "input": "Hello", "conversation": "conv_1"}
