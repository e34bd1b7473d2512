"""Behind signed reasoning a step has the vendor make its edit, in its own wire."""

import json
from pathlib import Path
from typing import Any

import aiohttp
import anthropic
import openai
import pytest
from anthropic.types.beta import BetaContextManagementConfigParam
from openai.types.responses.response_create_params import ContextManagement
from pydantic import TypeAdapter

from tests.e2e.servers import answering, proxy, upstream

CONFIG = """
upstreams:
  claude: {{kind: anthropic, base_url: "{url}", api_key: k}}
  local: {{kind: openai, base_url: "{url}", keyless: true}}
models:
  - {{match: "claude-*", upstream: claude, window: 20000, max_output: 2000, reserve: 1000, binds_reasoning: true}}
  - {{match: searching, upstream: claude, chain: searching, window: 20000}}
  - {{match: "gpt-*", upstream: local, chain: compacting, window: 20000, reserve: 1000, binds_reasoning: true}}
  - {{match: "*", upstream: local, chain: searching, window: 20000}}
chains:
  default: [clear_tool_results: {{clear_at: 0.5, stride: 0.2, keep_last: 3}}]
  compacting: [compress_history: {{native: true}}]
  searching: [filter_tools: {{strategy: native, keep: 5}}]
state: {{kind: memory}}
embedding: {{kind: none}}
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


async def sent(folder: Path, *, signed: bool = True, **asked: Any) -> tuple[Any, str | None]:
    """What reached the vendor of a request, and the betas that it was asked under."""
    async with upstream() as behind, proxy(CONFIG.format(url=behind.url.removesuffix("/v1")), folder) as base:
        behind.respond = answering(json.dumps(ANSWER).encode())
        async with anthropic.AsyncAnthropic(base_url=base, api_key="k", max_retries=0) as client:
            await client.messages.create(
                model="claude-x", max_tokens=500, messages=talk(signed=signed), tools=TOOLS, **asked
            )
        return json.loads(behind.last.body), behind.last.header("anthropic-beta")


async def test_results_are_cleared_by_the_vendor_where_reasoning_is_signed(tmp_path: Path) -> None:
    body, betas = await sent(tmp_path, extra_headers={"anthropic-beta": "other-2026"})
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


@pytest.mark.parametrize(
    ("signed", "asked"),
    [
        (False, {}),
        (True, {"extra_body": {"context_management": {"edits": []}}}),
        (True, {"extra_body": {"compaction": {"type": "summarize"}}}),
    ],
    ids=["nothing is signed", "own edits", "own compaction"],
)
async def test_nothing_is_added_where_it_is_not_ours_to_add(tmp_path: Path, signed: bool, asked: Any) -> None:
    body, betas = await sent(tmp_path, signed=signed, **asked)
    assert body.get("context_management") == asked.get("extra_body", {}).get("context_management")
    assert betas is None


async def test_no_other_wire_gets_it(tmp_path: Path) -> None:
    async with upstream() as behind, proxy(CONFIG.format(url=behind.url), tmp_path) as base:
        async with aiohttp.ClientSession() as http:
            body = {"model": "m", "max_tokens": 500, "messages": talk(signed=True), "tools": TOOLS}
            async with http.post(f"{base}/v1/messages", json=body) as answer:
                assert answer.status == 200
        assert "context_management" not in json.loads(behind.last.body)


MANY: Any = [{"name": f"tool_{n}", "description": f"Does {n}", "input_schema": {"type": "object"}} for n in range(40)]
MANY += [{"name": "bash", "input_schema": {"type": "object"}}]
MARKED: Any = {"name": "marked", "input_schema": {"type": "object"}, "cache_control": {"type": "ephemeral"}}


async def test_tools_are_searched_by_the_vendor(tmp_path: Path) -> None:
    async with upstream() as behind, proxy(CONFIG.format(url=behind.url.removesuffix("/v1")), tmp_path) as base:
        behind.respond = answering(json.dumps(ANSWER).encode())
        async with aiohttp.ClientSession() as http:

            async def ask(model: str, tools: Any) -> tuple[Any, str]:
                asked = {"model": model, "max_tokens": 500, "messages": talk(signed=False)[:1], "tools": tools}
                async with http.post(f"{base}/v1/messages", json=asked) as answer:
                    assert answer.status == 200
                return json.loads(behind.last.body)["tools"], answer.headers["x-penstock-context"]

            tools, context = await ask("searching", [*MANY, MARKED])
            assert tools[0] == {"type": "tool_search_tool_bm25_20251119", "name": "tool_search_tool_bm25"}
            assert [each["name"] for each in tools[1:]] == [each["name"] for each in (*MANY, MARKED)]
            assert [each["name"] for each in tools if not each.get("defer_loading")][1:] == ["bash", "marked"]
            assert tools[1] == {**MANY[0], "defer_loading": True}
            before, after, _ = map(int, context.split(";"))
            assert after < before / 4

            own = [{"type": "tool_search_tool_regex_20251119", "name": "tool_search_tool_regex"}, *tools[1:]]
            assert (await ask("searching", own))[0] == own
            few, _ = await ask("searching", MANY[:3])
            assert few == MANY[:3]


@pytest.mark.parametrize("own", [None, [{"type": "compaction", "compact_threshold": 5000}]], ids=["ours", "their own"])
@pytest.mark.parametrize("signed", [True, False])
async def test_responses_are_compacted_by_the_vendor_where_reasoning_is_signed(
    tmp_path: Path, signed: bool, own: Any
) -> None:
    thought = [{"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "c2ln"}] if signed else []
    call = {"type": "function_call", "call_id": "c1", "name": "read", "arguments": "{}"}
    result = {"type": "function_call_output", "call_id": "c1", "output": "part 1"}
    items: Any = [{"role": "user", "content": "Read"}, *thought, call, result]
    asked = {} if own is None else {"context_management": own}
    async with upstream() as behind, proxy(CONFIG.format(url=behind.url), tmp_path) as base:
        behind.respond = answering(json.dumps(RESPONSE).encode())
        async with openai.AsyncOpenAI(base_url=f"{base}/v1", api_key="k", max_retries=0) as client:
            await client.responses.create(model="gpt-x", input=items, store=False, **asked)
    body = json.loads(behind.last.body)
    ours = [{"type": "compaction", "compact_threshold": 15200}] if signed else None
    assert body.get("context_management") == (own or ours)
    TypeAdapter(list[ContextManagement] | None).validate_python(body.get("context_management"))
    assert body["input"] == items
