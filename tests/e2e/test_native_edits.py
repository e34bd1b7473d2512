"""Behind signed reasoning a step has the vendor make its edit, in its own wire."""

import json
from typing import Any

import anthropic
import openai
import pytest
from anthropic.types.beta import BetaContextManagementConfigParam
from openai.types.responses.response_create_params import ContextManagement
from pydantic import TypeAdapter

from tests.e2e.conftest import Client, Lab
from tests.e2e.servers import answering

CONFIG = """
upstreams:
  claude: {kind: anthropic, base_url: "{url}", api_key: k}
  local: {kind: openai, base_url: "{url}", keyless: true}
models:
  - {match: "claude-*", upstream: claude, window: 20000, max_output: 2000, reserve: 1000, binds_reasoning: true}
  - {match: searching, upstream: claude, chain: searching, window: 20000}
  - {match: "gpt-*", upstream: local, chain: compacting, window: 20000, reserve: 1000, binds_reasoning: true}
  - {match: "*", upstream: local, chain: searching, window: 20000}
chains:
  default: [clear_tool_results: {clear_at: 0.5, stride: 0.2, keep_last: 3}]
  compacting: [compress_history: {native: true}]
  searching: [filter_tools: {strategy: native, keep: 5}]
"""
ANSWER = {
    "id": "msg_1", "type": "message", "role": "assistant", "model": "claude", "stop_reason": "end_turn",
    "stop_sequence": None, "content": [{"type": "text", "text": "ok"}], "usage": {"input_tokens": 9, "output_tokens": 2},
}  # fmt: skip
RESPONSE = {
    "id": "resp_1", "object": "response", "created_at": 1, "model": "gpt-x", "status": "completed", "tools": [],
    "parallel_tool_calls": True, "tool_choice": "auto", "output": [],
    "usage": {
        "input_tokens": 9, "output_tokens": 2, "total_tokens": 11, "input_tokens_details": {"cached_tokens": 0},
        "output_tokens_details": {"reasoning_tokens": 0},
    },
}  # fmt: skip
TOOLS: Any = [{"name": "read", "input_schema": {"type": "object"}}]


def talk(*, signed: bool) -> list[Any]:
    thought = [{"type": "thinking", "thinking": "Hm.", "signature": "c2ln"}] if signed else []
    messages: list[Any] = [{"role": "user", "content": "Read"}]
    for n in range(4):
        call = {"type": "tool_use", "id": f"t{n}", "name": "read", "input": {}}
        result = {"type": "tool_result", "tool_use_id": f"t{n}", "content": f"part {n}"}
        messages += [{"role": "assistant", "content": [*thought, call]}, {"role": "user", "content": [result]}]
    return messages


async def sent(lab: Lab, *, signed: bool = True, **asked: Any) -> tuple[Any, str | None]:
    """Return what reached the vendor of a request, and the betas that it was asked under."""
    base = await lab.start(CONFIG, url=lab.behind.url.removesuffix("/v1"))
    lab.behind.respond = answering(json.dumps(ANSWER).encode())
    async with anthropic.AsyncAnthropic(base_url=base, api_key="k", max_retries=0) as client:
        await client.messages.create(
            model="claude-x", max_tokens=500, messages=talk(signed=signed), tools=TOOLS, **asked
        )
    return json.loads(lab.behind.last.body), lab.behind.last.header("anthropic-beta")


async def test_results_are_cleared_by_the_vendor_where_reasoning_is_signed(lab: Lab) -> None:
    body, betas = await sent(lab, extra_headers={"anthropic-beta": "other-2026"})
    edits = body["context_management"]
    TypeAdapter(BetaContextManagementConfigParam).validate_python(edits)
    assert edits == {"edits": [{
        "type": "clear_tool_uses_20250919",
        "trigger": {"type": "input_tokens", "value": 9750},
        "keep": {"type": "tool_uses", "value": 3},
        "clear_at_least": {"type": "input_tokens", "value": 3900},
        "exclude_tools": ["recall", "search_tools"],
    }]}  # fmt: skip
    assert betas == "other-2026,context-management-2025-06-27"
    assert body["messages"] == talk(signed=True)


OTHERS: dict[str, tuple[bool, dict[str, Any]]] = {
    "nothing is signed": (False, {}),
    "own edits": (True, {"context_management": {"edits": []}}),
    "own compaction": (True, {"compaction": {"type": "summarize"}}),
}


@pytest.mark.parametrize(("signed", "own"), OTHERS.values(), ids=OTHERS)
async def test_nothing_is_added_where_it_is_not_ours_to_add(lab: Lab, signed: bool, own: dict[str, Any]) -> None:
    body, betas = await sent(lab, signed=signed, extra_body=own)
    assert (body.get("context_management"), betas) == (own.get("context_management"), None)


MANY: Any = [{"name": f"tool_{n}", "description": f"Does {n}", "input_schema": {"type": "object"}} for n in range(40)]
MANY += [{"name": "bash", "input_schema": {"type": "object"}}]
MARKED: Any = {"name": "marked", "input_schema": {"type": "object"}, "cache_control": {"type": "ephemeral"}}


async def test_tools_are_searched_by_the_vendor(lab: Lab) -> None:
    client = await lab.client(CONFIG, url=lab.behind.url.removesuffix("/v1"))
    lab.behind.respond = answering(json.dumps(ANSWER).encode())

    async def ask(tools: Any) -> tuple[Any, str]:
        asked = {"model": "searching", "max_tokens": 500, "messages": talk(signed=False)[:1], "tools": tools}
        answer = await client.post("/v1/messages", asked)
        assert answer.status == 200
        return json.loads(lab.behind.last.body)["tools"], answer.headers["x-penstock-context"]

    tools, context = await ask([*MANY, MARKED])
    assert tools[0] == {"type": "tool_search_tool_bm25_20251119", "name": "tool_search_tool_bm25"}
    assert [each["name"] for each in tools[1:]] == [each["name"] for each in (*MANY, MARKED)]
    assert [each["name"] for each in tools if not each.get("defer_loading")][1:] == ["bash", "marked"]
    assert tools[1] == {**MANY[0], "defer_loading": True}
    before, after, _ = map(int, context.split(";"))
    assert after < before / 4
    own = [{"type": "tool_search_tool_regex_20251119", "name": "tool_search_tool_regex"}, *tools[1:]]
    for others in (own, MANY[:3]):
        assert (await ask(others))[0] == others


async def test_responses_are_compacted_by_the_vendor_and_no_other_wire_has_edits(lab: Lab) -> None:
    base = await lab.start(CONFIG)
    lab.behind.respond = answering(json.dumps(RESPONSE).encode())
    signed = [{"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "c2ln"}]
    call = {"type": "function_call", "call_id": "c1", "name": "read", "arguments": "{}"}
    result = {"type": "function_call_output", "call_id": "c1", "output": "part 1"}
    ours, theirs = ([{"type": "compaction", "compact_threshold": most}] for most in (15200, 5000))
    rows: list[Any] = [(signed, {}, ours), ([], {}, None)]
    rows += [(thought, {"context_management": theirs}, theirs) for thought in (signed, [])]
    async with openai.AsyncOpenAI(base_url=f"{base}/v1", api_key="k", max_retries=0) as client:
        for thought, own, expected in rows:
            items: Any = [{"role": "user", "content": "Read"}, *thought, call, result]
            await client.responses.create(model="gpt-x", input=items, store=False, **own)
            body = json.loads(lab.behind.last.body)
            assert (body["input"], body.get("context_management")) == (items, expected)
            TypeAdapter(list[ContextManagement] | None).validate_python(expected)
    plain = {"model": "m", "max_tokens": 500, "messages": talk(signed=True), "tools": TOOLS}
    assert (await Client(base, lab.http).post("/v1/messages", plain)).status == 200
    assert "context_management" not in json.loads(lab.behind.last.body)
