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
from tests.e2e.conftest import Lab
from tests.e2e.servers import DEFAULT_ANSWER, Upstream, answering, begin_stream, send, send_chunk
from tests.upstreams.anthropic.stand_in import stream_events
from tests.wires import openai_server
from tests.wires.test_policies import chat, messages, responses

CONFIG = """
upstreams:
  main: {{kind: openai, base_url: "{url}"}}
  claude: {{kind: anthropic, base_url: "{url}", api_key: k}}
models:
  - {{match: "claude-*", upstream: claude, window: 100000, tokenizer: chars}}
  - {{match: "*", upstream: main, window: 100000, tokenizer: chars}}
chains:
  default:
    - compact_tool_results: {{over: 600, read_again: 0}}
records: {{text: true}}
"""
BODIES: Mapping[type[Body], Any] = {Body: chat(), MessagesBody: messages(), ResponsesBody: responses()}
KINDS = pytest.mark.parametrize("kind", BODIES, ids=lambda kind: kind.wire)


def request_body(kind: type[Body], *, short: bool = False) -> dict[str, Any]:
    body = {**BODIES[kind], "model": "claude-opus-5" if kind is MessagesBody else "gpt-4.1"}
    if short:  # the first turn, and a question
        name = kind.conversation[0]
        body[name] = [*body[name][:4], {"role": "user", "content": "And now?"}]
    return body


async def posted(lab: Lab, base: str, kind: type[Body], body: Any) -> str:
    """Send a body on its wire; return the id of the request."""
    async with lab.http.post(f"{base}/v1{kind.path}", json=body) as response:
        assert response.status == 200, await response.text()
        await response.read()
        return response.headers["x-request-id"]


@KINDS
def test_a_body_is_read_in_its_wire(kind: type[Body]) -> None:
    assert type(body_of(json.dumps(request_body(kind)).encode())) is kind


def test_a_chat_request_is_no_other_whatever_its_texts_and_schemas_say() -> None:
    schema = {"type": "object", "properties": {"input_schema": {"type": "string"}, "input": {"type": "string"}}}
    tool = {"type": "function", "function": {"name": "f", "parameters": schema}}
    said = [{"role": "user", "content": json.dumps({"type": "tool_use", "system": 1})}]
    assert type(body_of(json.dumps({"model": "m", "messages": said, "tools": [tool]}).encode())) is Body


@KINDS
async def test_it_is_compressed_in_its_own_form(lab: Lab, kind: type[Body]) -> None:
    base, body = await lab.start(CONFIG.format(url=lab.behind.url)), request_body(kind)
    async with lab.http.post(f"{base}/v1/compress", json=body) as response:
        answer = await response.json()
        assert response.status == 200, answer

    name = kind.conversation[0]
    assert answer["tokens_after"] < 0.6 * answer["tokens_before"]
    assert len(answer[name]) == len(body[name])
    assert {key: answer[key] for key in kind.conversation[1:] if key in answer} == {
        key: body[key] for key in kind.conversation[1:] if key in body
    }
    assert lab.behind.received == []


async def test_all_are_explained_with_the_same_figures(lab: Lab) -> None:
    base, found = await lab.start(CONFIG.format(url=lab.behind.url)), {}
    for kind in BODIES:
        async with lab.http.post(f"{base}/v1/explain", json={"request": request_body(kind)}) as response:
            told = await response.json()
            assert response.status == 200, told
        assert told["wire"] == kind.wire
        found[kind.wire] = told
    before = {each["tokens_before"] for each in found.values()}
    assert max(before) < 1.1 * min(before), before
    assert all(each["tokens_after"] < 0.6 * each["tokens_before"] for each in found.values())
    assert {each["steps"][0]["verdict"] for each in found.values()} == {"rewrite"}


@KINDS
@pytest.mark.parametrize("indent", [None, 1])
async def test_an_empty_chain_sends_the_clients_bytes(lab: Lab, kind: type[Body], indent: int | None) -> None:
    config = CONFIG.replace("    - compact_tool_results: {{over: 600, read_again: 0}}\n", "").replace(
        "  default:\n", "  default: []\n"
    )
    base, body = await lab.start(config.format(url=lab.behind.url)), {**request_body(kind), "x_odd": [1.50, "\u00e9"]}
    raw = json.dumps(body, indent=indent).encode()
    headers = {"content-type": "application/json"}
    async with lab.http.post(f"{base}/v1{kind.path}", data=raw, headers=headers) as response:
        assert response.status == 200, await response.text()
        answer = await response.read()
    assert lab.behind.last.body == raw
    assert answer == DEFAULT_ANSWER


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


async def test_a_request_whose_conversation_is_with_the_vendor_is_sent_on(lab: Lab) -> None:
    base = await lab.start(CONFIG.format(url=lab.behind.url))
    await posted(lab, base, ResponsesBody, body := {"model": "gpt-4.1", "prompt": {"id": "pmpt_1"}})
    assert json.loads(lab.behind.last.body) == body


def test_the_same_messages_on_another_wire_are_read_anew() -> None:
    raw = json.dumps(
        {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "word " * 1000}]}
    ).encode()
    earlier: TenantCache[bytes, ParsedList[Any]] = TenantCache(Cache(2**20), "ann")
    for kind in (MessagesBody, Body, MessagesBody):
        (message,) = kind(raw).parse(earlier=earlier).messages
        assert message.role == "user"


def test_the_same_tools_on_another_wire_are_read_anew() -> None:
    tools = [{"type": "function", "name": "look", "description": "word " * 1000, "parameters": {}}]
    raw = json.dumps({"model": "m", "messages": [{"role": "user", "content": "hi"}], "tools": tools}).encode()
    earlier: TenantCache[bytes, ParsedList[Any]] = TenantCache(Cache(2**20), "ann")
    for kind, is_function in ((MessagesBody, False), (ResponsesBody, True), (MessagesBody, False)):
        (tool,) = kind(raw).parse(earlier=earlier).tools
        assert ("function" in tool) is is_function, kind


async def test_all_are_recorded_and_counted_alike(lab: Lab) -> None:
    base, records = await lab.start(CONFIG.format(url=lab.behind.url)), {}
    for kind in BODIES:
        lab.behind.respond = answering(json.dumps(ANSWERS[kind]).encode())
        number = await posted(lab, base, kind, request_body(kind))
        records[kind.wire] = (await lab.get(f"{base}/admin/requests/{number}?text=true"))[1]
    for record in records.values():
        assert (record["input_tokens"], record["output_tokens"]) == (3000, 7)
        assert [step["verdict"] for step in record["steps"]] == ["rewrite"]
        assert record["text"]["answer"]["content"] == "Done."
    listed = {each["id"] for each in (await lab.get(f"{base}/admin/conversations"))[1]["conversations"]}
    assert {record["conversation"] for record in records.values()} == listed


def exported(sink: Upstream) -> dict[str, Span]:
    spans: dict[str, Span] = {}
    for received in sink.received:
        message = ExportTraceServiceRequest.FromString(received.body)
        for resource in message.resource_spans:
            for scope in resource.scope_spans:
                spans |= {span.name: span for span in scope.spans}
    return spans


def attributes(span: Span) -> dict[str, object]:
    return {pair.key: getattr(pair.value, pair.value.WhichOneof("value") or "string_value") for pair in span.attributes}


async def until_exported(sink: Upstream, name: str) -> None:
    async with asyncio.timeout(60):
        while name not in exported(sink):
            await asyncio.sleep(0.02)


@KINDS
async def test_each_is_a_trace_with_its_steps(lab: Lab, kind: type[Body], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "20")
    lab.behind.respond, sink = answering(json.dumps(ANSWERS[kind]).encode()), await lab.upstream()
    config = CONFIG.format(url=lab.behind.url) + f'telemetry: {{endpoint: "{sink.url}"}}\n'
    base, body = await lab.start(config), request_body(kind)
    await posted(lab, base, kind, body)
    await until_exported(sink, f"POST /v1{kind.path}")

    spans = exported(sink)
    server, step = spans[f"POST /v1{kind.path}"], spans["policy compact_tool_results"]
    call = next(span for name, span in spans.items() if name.endswith(body["model"]))
    assert {call.parent_span_id, step.parent_span_id} == {server.span_id}
    assert attributes(call)["gen_ai.usage.input_tokens"] == 3000
    assert attributes(step)["penstock.policy.verdict"] == "rewrite"


@KINDS
@pytest.mark.parametrize("chain", ["default", "none"])
async def test_a_key_may_use_each_wire_within_its_day(lab: Lab, kind: type[Body], chain: str) -> None:
    key = "pk-" + "s3cret" * 8
    auth = f"auth: {{kind: keys, keys: [{{name: ann, hash: {hash_of(key)}}}]}}\nlimits: {{tokens_per_day: 40000}}\n"
    config = CONFIG if chain == "default" else CONFIG.replace("window: 100000", "window: 100000, chain: none")
    config = (
        config.replace("chains:\n", "chains:\n  none: []\n")
        .replace('"{url}"', '"{url}", api_key: k')
        .replace(", api_key: k, api_key: k", ", api_key: k")
    )
    base = await lab.start(auth + config.format(url=lab.behind.url))
    used = {"input_tokens": 39000, "output_tokens": 1000}
    if kind is Body:
        used = {"prompt_tokens": 39000, "completion_tokens": 1000, "total_tokens": 40000}
    lab.behind.respond = answering(json.dumps({**ANSWERS[kind], "usage": used}).encode())
    statuses = []
    for _ in range(2):
        headers = {"authorization": f"Bearer {key}"}
        async with lab.http.post(f"{base}/v1{kind.path}", json=request_body(kind), headers=headers) as response:
            statuses.append(response.status)
            await response.read()
    assert statuses == [200, 429]


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
@pytest.mark.parametrize("kind", REPORTS, ids=lambda kind: kind.wire)
async def test_a_step_that_the_vendor_reports_as_harmful_is_on_hold(lab: Lab, kind: type[Body], stream: bool) -> None:
    base, body = await lab.start(CONFIG.format(url=lab.behind.url)), {**request_body(kind), "stream": stream}
    answer = {**ANSWERS[kind], **REPORTS[kind]}

    async def reporting(upstream: Any, received: Any, writer: Any) -> None:
        if not stream:
            await send(writer, 200, json.dumps(answer).encode())
            return
        events = list(openai_server.stream_events(answer)) if kind is ResponsesBody else stream_events(answer, "whole")
        await begin_stream(writer)
        for event in events:
            await send_chunk(writer, f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode())
        await send_chunk(writer, b"")

    lab.behind.respond = reporting
    records = []
    for asked in (body, body, {**body, kind.conversation[0]: [*body[kind.conversation[0]][4:]]}):
        number = await posted(lab, base, kind, asked)
        records.append((await lab.get(f"{base}/admin/requests/{number}"))[1])
    first, second, other = (record["steps"][0] for record in records)
    assert (first["verdict"], second["verdict"], other["verdict"]) == ("rewrite", "skip", "rewrite")
    assert json.loads(lab.behind.received[1].body) == body
    reason = REPORTS[kind]["input_transformations"][0]["reason"]
    assert f"dropped reasoning: {reason}" in records[0]["vendor"]
    assert ("applied clear_tool_uses" in records[0]["vendor"]) is (kind is MessagesBody)
    assert "missed its cache" in records[0]["vendor"]
    counted = f'penstock_harmful_steps_total{{policy="compact_tool_results",reason="{reason}"}} 2.0'
    assert counted in await lab.metrics(base)


@pytest.mark.parametrize("kind", REPORTS, ids=lambda kind: kind.wire)
async def test_a_step_is_on_hold_where_an_expected_read_is_missed(lab: Lab, kind: type[Body]) -> None:
    base, body = await lab.start(CONFIG.format(url=lab.behind.url)), request_body(kind)
    report = {name: told for name, told in REPORTS[kind].items() if "diagnostics" in name}
    if kind is MessagesBody:
        body["messages"][-1] = {**body["messages"][-1], "content": [{"type": "text", "text": "And now?", **MARK}]}
    lab.behind.respond, verdicts = answering(json.dumps(ANSWERS[kind] | report).encode()), []
    for _ in range(3):
        number = await posted(lab, base, kind, body)
        verdicts.append((await lab.get(f"{base}/admin/requests/{number}"))[1]["steps"][0]["verdict"])
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


@pytest.mark.parametrize("kind", [MessagesBody, ResponsesBody], ids=lambda kind: kind.wire)
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
