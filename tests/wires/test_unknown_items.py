"""Calls and results of types that nobody here knows, in Responses: pairs that leave and stay together."""

import json
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import pytest

from proxy.chat import ChatRequest
from proxy.gateway.chain import run
from proxy.testing import MemoryMemo, context
from proxy.wires.responses import ResponsesBody
from tests.test_conversations import CHAIN
from tests.wires.bodies import Json

SHELL = (
    {"type": "shell_call", "action": {"commands": ["cat notes.txt"]}},
    {"type": "shell_call_output", "output": [{"stdout": "a note\n" * 40, "stderr": "", "outcome": {"type": "exit"}}]},
)
PATCH = (
    {"type": "apply_patch_call", "operation": {"type": "update_file", "path": "a.py", "diff": "@@\n-a\n+b\n"}},
    {"type": "apply_patch_call_output", "status": "completed", "output": "Done. " * 60},
)
LOCAL = (
    {"type": "local_shell_call", "action": {"type": "exec", "command": ["ls"]}},
    {"type": "local_shell_call_output", "output": "a file\n" * 40},
)
SCREEN = (
    {"type": "computer_call", "action": {"type": "click", "x": 1, "y": 2}},
    {"type": "computer_call_output", "output": {"type": "computer_screenshot", "image_url": "data:image/png;base64,"}},
)
FUTURE = ({"type": "quantum_call", "qubits": 4}, {"type": "quantum_call_output", "payload": "spin up " * 40})
CODEX = (LOCAL[0], {"type": "function_call_output", "output": "a file\n" * 40})
PAIRS = {"shell": SHELL, "patch": PATCH, "local": LOCAL, "screen": SCREEN, "future": FUTURE, "codex": CODEX}


def said(text: str) -> Json:
    return {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}


def paired(pair: tuple[Json, Json], number: int) -> tuple[Json, Json]:
    call, result = pair
    name = f"c{number}"
    # this one names its call by `id`
    key = "id" if result["type"] == "local_shell_call_output" else "call_id"
    return {**call, "id": f"i{number}", "call_id": name}, {**result, key: name}


def session(pairs: Sequence[tuple[Json, Json]], turns: int, more: Mapping[int, Json] = {}) -> Json:
    items: list[Json] = []
    for turn in range(turns):
        call, result = paired(pairs[turn % len(pairs)], turn)
        thought = {"type": "reasoning", "id": f"rs_{turn}", "summary": []}
        items += [{"role": "user", "content": f"Do step {turn}."}, thought, call, result, said(f"Step {turn} is done.")]
        items += [more[turn]] if turn in more else []
    return {"model": "m", "instructions": "Work.", "input": [*items, {"role": "user", "content": "Go on."}]}


def read(body: Json) -> ChatRequest:
    return ResponsesBody(json.dumps(body).encode()).parse()


async def forwarded(body: Json) -> list[Json]:
    outcome = await run(CHAIN, context(read(body), window=4000, memo=MemoryMemo()))
    assert outcome.rejected is None
    assert [(step.policy, step.why) for step in outcome.steps if step.verdict == "fail"] == []
    found: list[Json] = json.loads(outcome.request.encode())["input"]
    return found


def unpaired(items: Sequence[Json]) -> set[Any]:
    results = [item for item in items if str(item.get("type")).endswith("_output")]
    calls = {item["call_id"] for item in items if "call_id" in item and item not in results}
    return calls ^ {item.get("call_id", item.get("id")) for item in results}


@pytest.mark.parametrize("pairs", [*((pair,) for pair in PAIRS.values()), [*PAIRS.values()]], ids=[*PAIRS, "all"])
async def test_a_long_session_is_cut_between_pairs(pairs: Sequence[tuple[Json, Json]]) -> None:
    body = session(pairs, turns=60)

    found = await forwarded(body)

    before = [json.dumps(item) for item in body["input"]]
    assert len(found) < len(before) // 2
    assert unpaired(found) == set()
    places = [before.index(text) for text in map(json.dumps, found) if text in before]
    assert places == sorted(places)
    assert found[-6:-3] == body["input"][-6:-3]
    for item, behind in pairwise(found):
        assert item.get("type") != "reasoning" or "call_id" in behind


@pytest.mark.parametrize(
    ("item", "stays"),
    [
        ({"type": "additional_tools", "role": "developer", "tools": []}, True),
        ({"type": "configuration_update", "reasoning": {"effort": "low"}}, True),
        ({"type": "compaction", "encrypted_content": "sealed"}, True),
        ({"type": "item_reference", "id": "rs_x"}, True),
        ({"type": "image_generation_call", "id": "ig_1", "result": "aGk="}, False),
        ({"type": "mcp_approval_response", "approval_request_id": "r1", "approve": True}, False),
    ],
    ids=lambda value: value["type"] if isinstance(value, dict) else "",
)
async def test_an_opaque_item_leaves_with_what_is_beside_it(item: Json, *, stays: bool) -> None:
    found = await forwarded(session([SHELL], turns=60, more={3: item, 59: {**item, "note": "last"}}))

    assert (item in found) == stays
    assert {**item, "note": "last"} in found
    assert unpaired(found) == set()


APPROVAL = {"type": "mcp_approval_request", "id": "r1", "name": "pay", "arguments": "{}"}
APPROVED = {"type": "mcp_approval_response", "approval_request_id": "r1", "approve": True}


@pytest.mark.parametrize(
    ("items", "roles"),
    [
        (paired(SHELL, 1), ["assistant", "tool"]),
        ([paired(SHELL, 1)[0]], ["opaque"]),
        ([paired(SHELL, 1)[1]], ["opaque"]),
        ([paired(SHELL, 1)[1], paired(SHELL, 1)[0]], ["opaque", "opaque"]),
        ([paired(SHELL, 1)[0], paired(SHELL, 2)[1]], ["opaque", "opaque"]),
        ([paired(SHELL, 1)[0], paired(PATCH, 2)[0], paired(PATCH, 2)[1]], ["opaque", "assistant", "tool"]),
        ([APPROVAL, APPROVED], ["opaque", "opaque"]),
    ],
)
def test_only_a_call_with_a_result_is_a_pair(items: Sequence[Json], roles: list[str]) -> None:
    assert [message.role for message in read({"model": "m", "input": [*items]}).messages] == roles


@pytest.mark.parametrize(
    ("items", "gone", "is_written"),
    [
        ([APPROVAL, APPROVED, said("Paid.")], {0, 1}, True),
        ([{"role": "user", "content": "Go."}, APPROVED, said("Paid.")], {1}, False),
        ([{"role": "user", "content": "Go."}, APPROVED, said("Paid.")], {0, 1}, True),
        ([{"type": "item_reference", "id": "fc_1"}, paired(CODEX, 1)[1], said("Done.")], {1}, False),
        ([paired(CODEX, 1)[1], said("Done.")], {0}, True),
    ],
    ids=["both of a pair", "alone", "with what is beside it", "its call is stored", "it has no call at all"],
)
def test_what_may_be_taken_out(items: list[Json], gone: set[int], *, is_written: bool) -> None:
    request = read({"model": "m", "input": items})

    kept = [message for place, message in enumerate(request.messages) if place not in gone]

    assert (request.with_messages(kept).flaw() is None) == is_written


STREAMS = [{"stdout": "out", "stderr": "err", "outcome": {"type": "exit"}}]


@pytest.mark.parametrize(("result", "shown", "content", "written"), [
    ({"output": "out"}, "out", "o", {"output": "o"}),
    ({"output": [{"type": "input_text", "text": "out"}]}, "out", "o", {"output": [{"type": "input_text", "text": "o"}]}),
    ({"output": STREAMS}, "out\nerr", "o", {"output": [{**STREAMS[0], "stdout": "o", "stderr": ""}]}),
    ({"status": "completed", "result": "out"}, "out", "o", {"status": "completed", "result": "o"}),
    ({"output": {"type": "computer_screenshot", "image_url": "data:"}}, "", "o", None),
])  # fmt: skip
def test_a_result_is_read_and_written_in_its_form(result: Json, shown: str, content: str, written: Json | None) -> None:
    named = {"type": "new_output", "call_id": "c"}
    request = read({"model": "m", "input": [{"type": "new", "call_id": "c"}, {**named, **result}]})
    call, message = request.messages

    changed = request.with_messages([call, message.with_changes(content=content)])

    assert message.text == shown
    if written is None:
        assert changed.flaw()
    else:
        assert json.loads(changed.encode())["input"][1] == {**named, **written}


def test_a_call_of_an_unknown_type_stays_as_it_is_or_leaves() -> None:
    items = [{"type": "reasoning", "id": "rs_1", "summary": []}, paired(SHELL, 1)[0], paired(PATCH, 2)[0]]
    request = read({"model": "m", "input": [*items, paired(SHELL, 1)[1], paired(PATCH, 2)[1]]})
    answer, first, second = request.messages
    calls = answer["tool_calls"]
    renamed = {**calls[0], "custom": {**calls[0]["custom"], "input": "{}"}}

    one = request.with_messages([answer.with_changes(tool_calls=calls[1:]), second])

    assert answer.called_tools == ("shell_call", "apply_patch_call")
    assert json.loads(one.encode())["input"] == [items[0], items[2], paired(PATCH, 2)[1]]
    assert request.with_messages([answer.with_changes(tool_calls=[renamed, calls[1]]), first, second]).flaw()
