"""Signed thinking goes on over a tool loop, whatever a client sends back of it."""

import json
from typing import Any

import pytest

from proxy.state.sqlite import SqliteStore
from proxy.state.store import StoreError
from tests.e2e.servers import Upstream
from tests.upstreams.anthropic.conftest import TOOL, Client, Start, result, system, text, thinking, tool_use, user
from tests.upstreams.anthropic.stand_in import KEY, StandIn

OLDER, BOUND = "claude-opus-4-5", "claude-opus-5-5"
DEFAULT = (
    "[isolate_tasks: {}, consolidate_system: {}, compact_tool_results: {}, offload_content: {}, compress_history: {}, "
    "pin_context: {}, recall_history: {}, filter_tools: {}, offer_recall: {}, reject_oversize: {share: 0.95}]"
)


def bare(message: dict[str, Any]) -> dict[str, Any]:
    """What many clients echo of an answer: role, content and calls."""
    kept = {key: message[key] for key in ("role", "content", "tool_calls") if message.get(key)}
    calls = [{k: v for k, v in call.items() if k != "index"} for call in kept.get("tool_calls", ())]
    return {**kept, **({"tool_calls": calls} if calls else {})}


async def asked(client: Client, stream: bool, messages: list[dict[str, Any]], **fields: Any) -> dict[str, Any]:
    answered = await client.chat(*messages, stream=stream, tools=[TOOL], reasoning_effort="low", **fields)
    assert answered.status == 200, answered.body
    return answered.assembled if stream else answered.message


def thought(body: dict[str, Any]) -> list[list[str]]:
    """The types of the blocks of each answer in a request."""
    return [[block["type"] for block in each["content"]] for each in body["messages"] if each["role"] == "assistant"]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("echo", ["everything", "role, content and calls"])
@pytest.mark.parametrize("model", [OLDER, BOUND])
@pytest.mark.parametrize("chain", ["[]", DEFAULT])
async def test_thinking_goes_on_over_a_tool_loop(
    start: Start, anthropic: StandIn, stream: bool, echo: str, model: str, chain: str
) -> None:
    anthropic.say(thinking("First."), text("I look."), tool_use("toolu_1", key="a"))
    anthropic.say(thinking(""), tool_use("toolu_2", key="b"), tool_use("toolu_3", key="c"))
    anthropic.say(thinking("Third."), text("Done."))
    messages = [system("Be brief."), user("Hi")]
    async with start(chain=chain) as client:
        for results in (["toolu_1"], ["toolu_2", "toolu_3"], []):
            said = await asked(client, stream, messages, model=model)
            messages += [said if echo == "everything" else bare(said), *map(result, results)]
        messages.append(user("Thanks"))
        await asked(client, stream, messages, model=model)

    assert anthropic.refused == []
    assert thought(anthropic.bodies[-1]) == [
        ["thinking", "text", "tool_use"], ["thinking", "tool_use", "tool_use"], ["thinking", "text"],
    ]  # fmt: skip
    assert anthropic.bodies[-1]["messages"][: len(anthropic.bodies[0]["messages"])] == anthropic.bodies[0]["messages"]


@pytest.mark.parametrize("stream", [False, True])
async def test_blocks_in_an_order_of_their_own_keep_it(client: Client, anthropic: StandIn, stream: bool) -> None:
    made = [thinking("a"), text("one"), thinking("b"), tool_use("toolu_1"), thinking("c"), tool_use("toolu_2")]
    anthropic.say(*made)
    said = await asked(client, stream, [user("Hi")], model=BOUND)
    await asked(client, stream, [user("Hi"), said, result("toolu_1"), result("toolu_2")], model=BOUND)

    assert anthropic.refused == []
    assert thought(anthropic.bodies[-1]) == [[block["type"] for block in made]]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("model", [OLDER, BOUND])
async def test_thinking_outlives_internal_rounds(start: Start, anthropic: StandIn, stream: bool, model: str) -> None:
    long = system("Be brief. " * 3000)  # a note is offered where the prompt is cached
    note = tool_use("toolu_1", "note", text="remember this")
    anthropic.say(thinking("First."), thinking("Then."), note)
    anthropic.say(thinking("Second."), text("Noted."))
    anthropic.say(text("Bye."))
    async with start(chain="[keep_notes: {}]") as client:
        said = await asked(client, stream, [long, user("Hi")], model=model)
        assert said["content"] == "Noted."
        if stream:
            assert [block["thinking"] for block in said["thinking_blocks"]] == ["First.", "Then.", "Second."]
        await asked(client, stream, [long, user("Hi"), said, user("Bye")], model=model)
        await asked(client, stream, [long, user("Hi"), bare(said), user("Bye")], model=model)

    assert anthropic.refused == []
    for body in anthropic.bodies[2:]:
        assert thought(body) == [["thinking", "thinking", "tool_use"], ["thinking", "text"]]


async def test_what_is_kept_stays_within_tenant_and_conversation(start: Start, anthropic: StandIn) -> None:
    anthropic.say(thinking("Secret."), tool_use("toolu_1"))
    async with start(upstream=f", api_key: {KEY}") as client:
        mine, other = {"authorization": "Bearer mine"}, {"authorization": "Bearer other"}
        said = (await client.chat(user("Hi"), tools=[TOOL], headers=mine)).message
        follow = [user("Hi"), bare(said), result("toolu_1")]
        await client.chat(*follow, tools=[TOOL], headers=other)
        await client.chat(*follow, tools=[TOOL], headers={**mine, "x-penstock-session": "another"})
        await client.chat(*follow, tools=[TOOL], headers=mine)

    assert [thought(body) for body in anthropic.bodies[1:]] == [[["tool_use"]]] * 2 + [[["thinking", "tool_use"]]]


async def test_thinking_is_kept_over_a_restart(start: Start, anthropic: StandIn) -> None:
    anthropic.say(thinking(), tool_use("toolu_1"))
    async with start() as client:
        said = await asked(client, False, [user("Hi")])
    async with start() as client:
        await asked(client, False, [user("Hi"), bare(said), result("toolu_1")])

    assert thought(anthropic.bodies[-1]) == [["thinking", "tool_use"]]


async def test_thinking_that_is_lost_is_told(client: Client, anthropic: StandIn) -> None:
    """A loop of calls that began with thinking, which neither the client nor the proxy has: it goes on without."""
    calls = [{"id": "toolu_1", "type": "function", "function": {"name": "look_up", "arguments": "{}"}}]
    lost = {"role": "assistant", "content": None, "reasoning_content": "I thought.", "tool_calls": calls}
    answered = await client.chat(user("Hi"), lost, result("toolu_1"), tools=[TOOL], reasoning_effort="low")

    assert answered.status == 200
    assert "thinking" not in anthropic.bodies[0]
    assert answered.headers["x-penstock-ignored"] == "messages[].reasoning_content,reasoning_effort"


async def test_thinking_that_could_not_be_kept_is_told(
    client: Client, anthropic: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def failing(*given: object, **named: object) -> None:
        raise StoreError("full")

    monkeypatch.setattr(SqliteStore, "put", failing)
    anthropic.say(thinking(), tool_use("toolu_1"))
    answered = await client.chat(tools=[TOOL])

    assert answered.headers["x-penstock-unkept"] == "thinking_blocks"
    assert answered.message["thinking_blocks"]


async def test_unsigned_blocks_are_left_out_and_told(client: Client, anthropic: StandIn) -> None:
    said = {"role": "assistant", "content": "a", "thinking_blocks": [thinking("of another provider")]}
    answered = await client.chat(user("Hi"), said, user("b"))

    assert answered.headers["x-penstock-ignored"] == "messages[].thinking_blocks"
    assert "another provider" not in json.dumps(anthropic.bodies)


async def test_another_upstream_gets_no_thinking_left_out(start: Start, anthropic: StandIn, behind: Upstream) -> None:
    """The client goes on with another model: what Claude signed is none of its business, and it may refuse it."""
    anthropic.say(thinking("Mine."), text("a"), thinking("Odd."), tool_use("toolu_1"))
    async with start(chain="[keep_notes: {}]") as client:
        said = await asked(client, False, [user("Hi")])
        await asked(client, False, [user("Hi"), bare(said), result("toolu_1")], model="gpt-5")

    assert [message.get("content") for message in json.loads(behind.last.body)["messages"]][1] == "a"
    assert b"Mine." not in behind.last.body
