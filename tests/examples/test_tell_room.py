"""The test of a policy that brings an internal tool: what its author writes, and one over a real socket."""

import asyncio
import json
from collections.abc import Sequence
from typing import Any, ClassVar

import pytest

from proxy.policy import InternalTool, ToolContext
from proxy.testing import chat, check, conform, context, tool
from tests.e2e.conftest import Lab
from tests.e2e.servers import Received, Upstream, say
from tests.examples.tell_room import ContextRoom, TellRoom
from tests.scripted import answer, assembled

CONFIG = """
models: [{match: "*", upstream: main, window: 9000, reserve: 1000}]
chains: {default: [tests.examples.tell_room: {}]}
"""
OFFERED = dict(ContextRoom.definition)
READ: Any = dict(tool("read_file"))


async def test_it_keeps_to_the_contract_and_tells_the_room_of_its_request() -> None:
    await conform(TellRoom, [chat("u1", tools=[tool()])])
    request = chat("u1", tools=[tool()])
    for free, told in ((1200, "1200 tokens are free."), (-5, "0 tokens are free.")):
        (built,) = TellRoom().build_tools(ToolContext(context(request), request, free))
        assert await built.run("{}") == told


async def test_a_tool_that_is_not_declared_or_not_built_is_told() -> None:
    class Undeclared(TellRoom):
        """Offers a tool that nothing runs."""

        internal_tools: ClassVar[Any] = ()

    class Unbuilt(TellRoom):
        """Declares a tool that it does not build."""

        def build_tools(self, made: ToolContext) -> Sequence[InternalTool]:
            return ()

    request = chat("u1", tools=[tool()])
    with pytest.raises(AssertionError, match="offers context_room, which nothing runs"):
        await check(Undeclared(), request, context(request))
    with pytest.raises(AssertionError, match="Unbuilt builds other tools than it declares"):
        await conform(Unbuilt, [request])


async def model(behind: Upstream, received: Received, writer: asyncio.StreamWriter) -> None:
    """A model that asks for its room, and then says what it was told."""
    last = json.loads(received.body)["messages"][-1]
    said = answer(f"I was told: {last['content']}") if last["role"] == "tool" else answer(None, "context_room:r1")
    await say(writer, received, said)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_the_model_calls_it_and_the_client_sees_the_answer(lab: Lab, behind: Upstream, stream: bool) -> None:
    behind.respond = model
    made = await (await lab.client(CONFIG)).chat("How much fits?", tools=[READ], stream=stream)
    said = assembled(made.body) if stream else made.json["choices"][0]["message"]
    assert not said.get("calls")
    assert "tool_calls" not in said
    first, second = (json.loads(received.body) for received in behind.received)
    assert first["tools"] == second["tools"] == [READ, OFFERED]
    told = second["messages"][-1]
    assert told["tool_call_id"] == "r1"
    assert 7500 < int(told["content"].split()[0]) < 8000
    assert said["content"] == f"I was told: {told['content']}"
