"""The three wires are one to operators: compressed, explained, replayed, recorded and counted alike."""

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from proxy.chat.parse import Body, ParsedList
from proxy.config.keys_file import hash_of
from proxy.server.replay.reading import read, request_of
from proxy.state.cache import Cache, TenantCache
from proxy.wires import body_of
from proxy.wires.messages import MessagesBody
from proxy.wires.responses import ResponsesBody
from tests.e2e.conftest import Client, Lab
from tests.e2e.servers import DEFAULT_ANSWER, Upstream, answering, streaming
from tests.upstreams.anthropic.stand_in import stream_events
from tests.wires import openai_server
from tests.wires.test_policies import chat, messages, responses

CONFIG = """
upstreams:
  main: {kind: openai, base_url: "{url}", api_key: k}
  claude: {kind: anthropic, base_url: "{url}", api_key: k}
models:
  - {match: "claude-*", upstream: claude, window: 100000, tokenizer: chars}
  - {match: "*", upstream: main, window: 100000, tokenizer: chars}
chains: {default: [compact_tool_results: {over: 600, read_again: 0}], none: []}
records: {text: true}
"""
BODIES: Mapping[type[Body], Any] = {Body: chat(), MessagesBody: messages(), ResponsesBody: responses()}
KINDS = pytest.mark.parametrize("kind", BODIES, ids=lambda kind: kind.wire)
VENDORS = pytest.mark.parametrize("kind", [MessagesBody, ResponsesBody], ids=lambda kind: kind.wire)


def request_body(kind: type[Body], *, short: bool = False) -> dict[str, Any]:
    body = {**BODIES[kind], "model": "claude-opus-5" if kind is MessagesBody else "gpt-4.1"}
    if short:  # the first turn, and a question
        name = kind.conversation[0]
        body[name] = [*body[name][:4], {"role": "user", "content": "And now?"}]
    return body


async def recorded(client: Client, kind: type[Body], body: Any) -> Any:
    """Send a body on its wire; return what operators are told of it."""
    answer = await client.post(f"/v1{kind.path}", body)
    assert answer.status == 200, answer.body
    return (await client.get(f"/admin/requests/{answer.headers['x-request-id']}?text=true")).json


@KINDS
def test_a_body_is_read_in_its_wire(kind: type[Body]) -> None:
    assert type(body_of(json.dumps(request_body(kind)).encode())) is kind


def test_a_chat_request_is_no_other_whatever_its_texts_and_schemas_say() -> None:
    schema = {"type": "object", "properties": {"input_schema": {"type": "string"}, "input": {"type": "string"}}}
    tool = {"type": "function", "function": {"name": "f", "parameters": schema}}
    said = [{"role": "user", "content": json.dumps({"type": "tool_use", "system": 1})}]
    assert type(body_of(json.dumps({"model": "m", "messages": said, "tools": [tool]}).encode())) is Body


@pytest.mark.parametrize(
    ("fields", "kinds"),
    [
        ({"messages": [{"role": "user", "content": "word " * 1000}], "max_tokens": 9}, (MessagesBody, Body)),
        (
            {"tools": [{"type": "function", "name": "look", "description": "word " * 1000, "parameters": {}}]},
            (MessagesBody, ResponsesBody),
        ),
    ],
    ids=["messages", "tools"],
)
def test_the_same_bytes_on_another_wire_are_read_anew(fields: Any, kinds: tuple[type[Body], type[Body]]) -> None:
    raw = json.dumps({"model": "m", "messages": [{"role": "user", "content": "hi"}], **fields}).encode()
    earlier: TenantCache[bytes, ParsedList[Any]] = TenantCache(Cache(2**20), "ann")
    for kind in (*kinds, kinds[0]):
        request = kind(raw, earlier).parse()
        assert [message.role for message in request.messages] == ["user"] * (kind is not ResponsesBody)
        assert all(("function" in tool) is (kind is ResponsesBody) for tool in request.tools), kind


@KINDS
def test_the_next_request_has_the_same_list_of_tools(kind: type[Body]) -> None:
    tool: Any = {"name": "look", "description": "word " * 1000}
    tool |= {"input_schema": {}} if kind is MessagesBody else {"type": "function", "parameters": {}}
    tool = {"type": "function", "function": tool} if kind is Body else tool
    earlier: TenantCache[bytes, ParsedList[Any]] = TenantCache(Cache(2**20), "ann")
    found = []
    for text in ("hi", "bye"):
        body = {**request_body(kind), kind.conversation[0]: [{"role": "user", "content": text}], "tools": [tool]}
        found.append(kind(json.dumps(body).encode(), earlier).parse().tools)
    assert found[0] is found[1]
    assert found[0][0].name == "look"


async def test_all_are_compressed_and_explained_in_their_form_alike(client: Client, behind: Upstream) -> None:
    found = []
    for kind in BODIES:
        body, (name, *rest) = request_body(kind), kind.conversation
        compressed = (await client.post("/v1/compress", body)).json
        told = (await client.post("/v1/explain", {"request": body})).json
        assert len(compressed[name]) == len(body[name])
        assert {key: compressed[key] for key in rest if key in compressed} == {k: body[k] for k in rest if k in body}
        assert (told["wire"], told["steps"][0]["verdict"]) == (kind.wire, "rewrite")
        assert all(each["tokens_after"] < 0.6 * each["tokens_before"] for each in (compressed, told))
        found.append(told["tokens_before"])
    assert max(found) < 1.1 * min(found), found
    assert behind.received == []


@KINDS
async def test_an_empty_chain_sends_the_clients_bytes(client: Client, behind: Upstream, kind: type[Body]) -> None:
    for indent in (None, 1):
        raw = json.dumps({**request_body(kind), "x_odd": [1.50, "\u00e9"]}, indent=indent).encode()
        headers = {"content-type": "application/json", "x-penstock-chain": "none"}
        answer = await client.send("POST", f"/v1{kind.path}", headers, data=raw)
        assert (answer.status, answer.body, behind.last.body) == (200, DEFAULT_ANSWER, raw)


COUNTED = ("/messages/count_tokens", "/responses/input_tokens")


@pytest.mark.parametrize("raw", [b"", b" \n"])
@pytest.mark.parametrize("path", [f"/v1{path}" for path in (*(kind.path for kind in BODIES), *COUNTED)])
async def test_an_empty_body_is_refused_in_the_wires_form(
    client: Client, behind: Upstream, path: str, raw: bytes
) -> None:
    answer = await client.send("POST", path, {"content-type": "application/json"}, data=raw)
    error = answer.json["error"]
    assert (answer.status, error["type"], behind.received) == (400, "invalid_request_error", [])
    assert (answer.json.get("type"), "code" in error) == (("error", False) if "messages" in path else (None, True))


ANSWERS: Mapping[type[Body], Any] = {
    Body: {
        "id": "c", "object": "chat.completion", "created": 1, "model": "m",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "Done."}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 3000, "completion_tokens": 7, "total_tokens": 3007},
    },
    MessagesBody: {
        "id": "msg_1", "type": "message", "role": "assistant", "model": "m",
        "content": [{"type": "text", "text": "Done."}], "stop_reason": "end_turn", "stop_sequence": None,
        "usage": {"input_tokens": 3000, "cache_read_input_tokens": 0, "output_tokens": 7},
    },
    ResponsesBody: {
        "id": "resp_1", "object": "response", "status": "completed", "model": "m",
        "output": [{"type": "message", "id": "msg_1", "role": "assistant", "status": "completed",
                    "content": [{"type": "output_text", "text": "Done.", "annotations": []}]}],
        "usage": {
            "input_tokens": 3000, "input_tokens_details": {"cached_tokens": 0}, "output_tokens": 7, "total_tokens": 3007,
        },
    },
}  # fmt: skip


async def test_a_request_whose_conversation_is_with_the_vendor_is_sent_on(client: Client, behind: Upstream) -> None:
    await recorded(client, ResponsesBody, body := {"model": "gpt-4.1", "prompt": {"id": "pmpt_1"}})
    assert json.loads(behind.last.body) == body


async def test_all_are_recorded_and_counted_alike(client: Client, behind: Upstream) -> None:
    conversations = set()
    for kind in BODIES:
        behind.respond = answering(json.dumps(ANSWERS[kind]).encode())
        record = await recorded(client, kind, request_body(kind))
        assert (record["input_tokens"], record["output_tokens"]) == (3000, 7)
        assert [step["verdict"] for step in record["steps"]] == ["rewrite"]
        assert record["text"]["answer"]["content"] == "Done."
        conversations.add(record["conversation"])
    listed = (await client.get("/admin/conversations")).json["conversations"]
    assert conversations == {each["id"] for each in listed}


def exported(sink: Upstream) -> dict[str, Span]:
    sent = [ExportTraceServiceRequest.FromString(received.body) for received in sink.received]
    resources = [resource for each in sent for resource in each.resource_spans]
    return {span.name: span for resource in resources for scope in resource.scope_spans for span in scope.spans}


def attributes(span: Span) -> dict[str, object]:
    return {pair.key: getattr(pair.value, pair.value.WhichOneof("value") or "string_value") for pair in span.attributes}


@KINDS
async def test_each_is_a_trace_with_its_steps(lab: Lab, kind: type[Body], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "20")
    lab.behind.respond, sink = answering(json.dumps(ANSWERS[kind]).encode()), await lab.upstream()
    client = await lab.client(CONFIG + f'telemetry: {{endpoint: "{sink.url}"}}\n')
    await recorded(client, kind, body := request_body(kind))
    async with asyncio.timeout(60):
        while (name := f"POST /v1{kind.path}") not in exported(sink):
            await asyncio.sleep(0.02)

    spans = exported(sink)
    step = spans["policy compact_tool_results"]
    call = next(span for name, span in spans.items() if name.endswith(body["model"]))
    assert {call.parent_span_id, step.parent_span_id} == {spans[name].span_id}
    assert attributes(call)["gen_ai.usage.input_tokens"] == 3000
    assert attributes(step)["penstock.policy.verdict"] == "rewrite"


async def test_a_key_may_use_each_wire_within_its_day(lab: Lab) -> None:
    """Also without a step that counts tokens."""
    cases = {f"pk-{kind.wire}-{chain}": (kind, chain) for kind in BODIES for chain in ("default", "none")}
    keys = ", ".join(f"{{name: {key}, hash: {hash_of(key)}, tokens_per_day: 40000}}" for key in cases)
    client = await lab.client(CONFIG + f"auth: {{kind: keys, keys: [{keys}]}}\n")
    for key, (kind, chain) in cases.items():
        used = {"input_tokens": 39000, "output_tokens": 1000}
        if kind is Body:
            used = {"prompt_tokens": 39000, "completion_tokens": 1000, "total_tokens": 40000}
        lab.behind.respond = answering(json.dumps({**ANSWERS[kind], "usage": used}).encode())
        asked = (f"/v1{kind.path}", request_body(kind), {"x-penstock-chain": chain})
        assert [(await client.post(*asked, key=key)).status for _ in range(2)] == [200, 429]


MARK = {"cache_control": {"type": "ephemeral"}}
REPORTS: Mapping[type[Body], Any] = {
    MessagesBody: {
        "input_transformations": [
            {"type": "thinking_dropped", "reason": "prefix_binding_mismatch", "path": "messages.1.content.0"}
        ],
        "context_management": {"applied_edits": [{"type": "clear_tool_uses_20250919", "cleared_tool_uses": 3}]},
        "diagnostics": {"cache_miss_reason": {"type": "messages_changed", "cache_missed_input_tokens": 900}},
    },
    ResponsesBody: {
        "input_transformations": [{"id": "rs_1", "action": "removed", "reason": "prefix_mismatch"}],
        "prompt_cache_diagnostics": {"reason": "input_changed"},
    },
}


@pytest.mark.parametrize("stream", [False, True])
@VENDORS
async def test_a_harmful_step_is_on_hold(client: Client, behind: Upstream, kind: type[Body], stream: bool) -> None:
    answer, body = {**ANSWERS[kind], **REPORTS[kind]}, {**request_body(kind), "stream": stream}
    events = openai_server.stream_events(answer) if kind is ResponsesBody else stream_events(answer, "whole")
    parts = [f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode() for event in events]
    behind.respond = streaming(*parts) if stream else answering(json.dumps(answer).encode())
    name = kind.conversation[0]
    first, second, other = [
        await recorded(client, kind, asked) for asked in (body, body, {**body, name: body[name][4:]})
    ]
    assert [each["steps"][0]["verdict"] for each in (first, second, other)] == ["rewrite", "skip", "rewrite"]
    assert json.loads(behind.received[1].body) == body
    reason = REPORTS[kind]["input_transformations"][0]["reason"]
    assert f"dropped reasoning: {reason}" in first["vendor"]
    assert ("applied clear_tool_uses" in first["vendor"]) is (kind is MessagesBody)
    assert "missed its cache" in first["vendor"]
    counted = f'penstock_harmful_steps_total{{policy="compact_tool_results",reason="{reason}"}} 2.0'
    assert counted in await client.metrics()


@VENDORS
async def test_a_step_is_on_hold_where_a_read_is_missed(client: Client, behind: Upstream, kind: type[Body]) -> None:
    body = request_body(kind)
    report = {name: told for name, told in REPORTS[kind].items() if "diagnostics" in name}
    if kind is MessagesBody:
        body["messages"][-1] = {**body["messages"][-1], "content": [{"type": "text", "text": "And now?", **MARK}]}
    behind.respond = answering(json.dumps(ANSWERS[kind] | report).encode())
    verdicts = [(await recorded(client, kind, body))["steps"][0]["verdict"] for _ in range(3)]
    assert verdicts == ["rewrite", "rewrite", "skip"]


@KINDS
def test_saved_requests_are_read_with_their_answers(kind: type[Body], tmp_path: Path) -> None:
    path = tmp_path / "saved.jsonl"
    rows = [{"request": request_body(kind, short=each), "response": ANSWERS[kind]} for each in (True, False)]
    path.write_text("\n".join(map(json.dumps, rows)))

    points = [point for conversation in read(path) for point in conversation.points]
    assert [point.answer and point.answer["content"] for point in points] == ["Done.", "Done."]
    assert [point.usage and point.usage.input for point in points] == [3000, 3000]
    assert [point.raw for point in points] == [json.dumps(row["request"]).encode() for row in rows]


@VENDORS
def test_a_conversation_that_the_vendor_stores_is_read_whole(kind: type[Body], tmp_path: Path) -> None:
    path, name = tmp_path / "saved.jsonl", kind.conversation[0]
    first = request_body(kind, short=True)
    number, behind = ANSWERS[kind]["id"], [{"role": "user", "content": "Go on."}]
    named = {"previous_response_id": number} if kind is ResponsesBody else {
        "thread": {"type": "continue", "previous_message_id": number}
    }  # fmt: skip
    rows = [
        {"request": first, "response": ANSWERS[kind]},
        {"request": {"model": first["model"], name: behind, **named}},
    ]
    path.write_text("\n".join(map(json.dumps, rows)))

    points = [point for conversation in read(path) for point in conversation.points]
    before, after = (request_of(point.body).messages for point in points)
    tail = [message.text for message in after[-2:]]
    assert tail == ["Done.", "Go on."]
    assert len(after) == len([each for each in before if not each.is_system]) + 2
