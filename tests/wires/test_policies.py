"""All policies on all wires: what acts on one acts on each, and what it leaves is what the vendor takes."""

import json
import re

import pytest

from proxy.chat import ChatRequest
from proxy.chat.parse import Body
from proxy.config.load import policy_class, policy_names
from proxy.gateway.chain import Outcome, run
from proxy.testing import MemoryMemo, context
from proxy.wires.messages import MessagesBody
from proxy.wires.responses import ResponsesBody
from tests.wires.bodies import Json, refusals
from tests.wires.openai_server import flaws

HANDLE = re.compile(r"\b[0-9a-f]{16}\b|\bredacted-email-[a-z]+")
TURNS = 20


def rows(turn: int) -> str:
    found = [{"id": 1000 * turn + row, "mail": f"u{row}@example.com", "price": row * 1.25} for row in range(60)]
    return json.dumps(found, indent=1)


SCHEMA = {"type": "object", "properties": {"key": {"type": "string"}}}
TOOLS = [{"name": f"tool_{n}", "description": f"Does job {n} for printers.", "parameters": SCHEMA} for n in range(12)]


def chat() -> Json:
    said: list[Json] = [{"role": "system", "content": "You are an agent."}]
    for turn in range(TURNS):
        function = {"name": "tool_1", "arguments": '{"key":"k"}'}
        calls = [{"id": f"c{turn}{n}", "type": "function", "function": function} for n in "ab"]
        said += [
            {"role": "user", "content": f"Look up printer {turn}. Never use cartridges over 4{turn}.50 EUR."},
            {"role": "assistant", "content": "I look.", "tool_calls": calls},
            {"role": "tool", "tool_call_id": f"c{turn}a", "content": rows(turn)},
            {"role": "tool", "tool_call_id": f"c{turn}b", "content": "error 503: printer busy"},
            {"role": "assistant", "content": f"Job {turn} is done."},
        ]
    said.append({"role": "user", "content": "What did printer 2 cost? Tell ana@example.com."})
    offered = [{"type": "function", "function": tool} for tool in TOOLS]
    return {"model": "m", "max_tokens": 100, "messages": said, "tools": offered}


def messages() -> Json:
    said: list[Json] = []
    for message in chat()["messages"][1:]:
        content = message["content"]
        if message["role"] == "tool":
            result = {"type": "tool_result", "tool_use_id": message["tool_call_id"], "content": content}
            if said[-1]["role"] == "user":
                said[-1]["content"].append({**result, "content": [{"type": "text", "text": content}]})
            else:
                said.append({"role": "user", "content": [result]})
        elif "tool_calls" in message:
            turn = len(said) // 4
            calls = [
                {"type": "tool_use", "id": call["id"], "name": "tool_1", "input": {"key": "k"}}
                for call in message["tool_calls"]
            ]
            thought = {"type": "thinking", "thinking": f"Look {turn}.", "signature": f"c2ln{turn}"}
            said.append({"role": "assistant", "content": [thought, {"type": "text", "text": content}, *calls]})
        else:
            said.append(message)
    offered = [{"name": each["name"], "description": each["description"], "input_schema": SCHEMA} for each in TOOLS]
    return {"model": "m", "max_tokens": 100, "system": "You are an agent.", "messages": said, "tools": offered}


def responses() -> Json:
    items: list[Json] = []
    for message in chat()["messages"][1:]:
        text = [{"type": "output_text", "text": message["content"]}]
        spoken = {"role": "assistant", "type": "message", "content": text}
        if message["role"] == "tool":
            result = {"call_id": message["tool_call_id"], "output": message["content"]}
            items.append({"type": "function_call_output", **result})
        elif "tool_calls" in message:
            turn = len(items) // 8
            first = {"type": "function_call", "call_id": f"c{turn}a", "name": "tool_1", "arguments": '{"key":"k"}'}
            thought = {"type": "reasoning", "id": f"rs_{turn}", "summary": [], "encrypted_content": f"sealed {turn}"}
            items += [thought, first, spoken, {**first, "call_id": f"c{turn}b", "arguments": "{}"}]
        else:
            items.append(spoken if message["role"] == "assistant" else message)
    offered = [{"type": "function", **tool} for tool in TOOLS]
    body = {"model": "m", "max_output_tokens": 100, "instructions": "You are an agent."}
    return {**body, "input": items, "tools": offered}


def read(kind: type[Body], body: Json) -> ChatRequest:
    return kind(json.dumps(body).encode()).parse()


async def outcome(name: str, request: ChatRequest) -> Outcome:
    policy = policy_class(name).model_validate({})
    return await run([(name, policy)], context(request, window=6000, memo=MemoryMemo()))


@pytest.mark.parametrize("name", policy_names())
async def test_a_policy_acts_alike_on_each_wire(name: str) -> None:
    acted = {}
    for kind, body in ((Body, chat()), (MessagesBody, messages()), (ResponsesBody, responses())):
        made = await outcome(name, read(kind, body))
        (step,) = made.steps
        acted[kind.wire] = step.verdict
        written = json.loads(made.request.encode())
        assert step.verdict != "fail", (kind.wire, step.why)
        if kind is MessagesBody:
            assert refusals(written) == []
            thoughts = {json.dumps(block) for block in thinking(written)}
            assert thoughts <= {json.dumps(block) for block in thinking(body)}
        if kind is ResponsesBody:
            assert [*flaws(written)] == []
    assert len({*acted.values()}) == 1, acted


def thinking(body: Json) -> list[Json]:
    contents = [message["content"] for message in body["messages"] if isinstance(message["content"], list)]
    return [block for content in contents for block in content if block["type"] == "thinking"]


def unsigned(body: Json) -> Json:
    """Return a body without reasoning, of which chat has none to compare with."""
    said = [{**message} for message in body.get("messages", ())]
    for message in said:
        if isinstance(message["content"], list):
            message["content"] = [block for block in message["content"] if block["type"] != "thinking"]
    items = [item for item in body.get("input", ()) if item.get("type") != "reasoning"]
    return body | ({"input": items} if items else {"messages": said})


async def forwarded(name: str, kind: type[Body], body: Json) -> list[str]:
    """Return the texts that go out; handles are hashes of what left, in the form of its wire."""
    made = await outcome(name, read(kind, unsigned(body)))
    return [HANDLE.sub("HANDLE", each.text) for each in kind(made.request.encode()).parse().messages if each.text]


@pytest.mark.parametrize("name", policy_names())
async def test_a_policy_forwards_the_same_texts_on_each_wire(name: str) -> None:
    texts = await forwarded(name, Body, chat())
    assert await forwarded(name, MessagesBody, messages()) == texts
    assert await forwarded(name, ResponsesBody, responses()) == texts
