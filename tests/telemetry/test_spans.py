"""The spans of a request: their values, what must never be in them, and the trace that they belong to."""

from collections.abc import Mapping
from pathlib import Path
from time import perf_counter
from typing import Any

import pytest
from opentelemetry.semconv.schemas import Schemas
from opentelemetry.trace import SpanKind, StatusCode
from opentelemetry.util.types import AttributeValue

from proxy.chat.errors import UpstreamTimeout
from proxy.chat.parse import Body
from proxy.config.settings import TelemetrySettings
from proxy.context import CacheRules, Identity, Prices
from proxy.identity import session_key
from proxy.models.usage import Usage
from proxy.telemetry.observation import OPERATIONS, Telemetry
from proxy.telemetry.record import Rewriting, conversation_id
from proxy.testing import chat, context, profile
from tests.telemetry.recorded import Recorded, request, step

SECRET = "the-prompt-text"
SERVER, CLIENT = "POST /v1/chat/completions", "chat gpt-4o"


async def attributes_of(recorded: Recorded, name: str = SERVER) -> dict[str, AttributeValue]:
    return dict((await recorded.spans())[name].attributes or {})


async def test_a_request_is_a_server_span_with_its_steps_and_its_call_below(recorded: Recorded) -> None:
    request(recorded.telemetry, step(started=perf_counter(), seconds=0.25), step("filter_tools"))
    spans = await recorded.spans()
    server, first = spans[SERVER], spans["policy window_history"]
    assert {name: span.kind for name, span in spans.items()} == {
        SERVER: SpanKind.SERVER,
        "policy window_history": SpanKind.INTERNAL,
        "policy filter_tools": SpanKind.INTERNAL,
        CLIENT: SpanKind.CLIENT,
    }
    assert server.context is not None
    children = [span for span in spans.values() if span is not server]
    assert all(span.parent is not None and span.parent.span_id == server.context.span_id for span in children)
    assert dict(server.attributes or {}) == {
        "http.request.method": "POST",
        "http.route": "/v1/chat/completions",
        "url.path": "/v1/chat/completions",
        "url.scheme": "http",
        "http.response.status_code": 200,
        "penstock.request.id": "req_1",
        "penstock.model": "gpt-*",
        "penstock.upstream": "main",
        "penstock.chain": "default",
        "penstock.context.tokens_before": 900,
        "penstock.context.tokens_after": 400,
        "penstock.context.window": 8192,
    }
    assert dict(first.attributes or {}) == {
        "penstock.policy.name": "window_history",
        "penstock.policy.verdict": "rewrite",
        "penstock.policy.why": "dropped 10 of 47 turns",
        "penstock.policy.mode": "enforce",
        "penstock.policy.tokens_before": 900,
        "penstock.policy.tokens_after": 400,
        "penstock.policy.fact.dropped_turns": 10,
    }
    assert (first.end_time or 0) - (first.start_time or 0) == 250_000_000
    assert abs((first.start_time or 0) - (server.start_time or 0)) < 1_000_000_000
    assert first.status.status_code is StatusCode.UNSET


async def test_the_server_span_says_what_the_request_cost(recorded: Recorded) -> None:
    priced = profile(prices=Prices(2.0, 8.0), cache=CacheRules(read=0.1, write=1.0, ttl=300))
    seen = recorded.telemetry.begin("POST", "/v1/chat/completions", {})
    seen.routed(model="gpt-*", upstream="main", profile=priced)
    seen.ran([], before=900, after=400, window=8192)
    for _ in range(2):
        seen.call(provider="openai", model="gpt-4o").end(status=200, usage=Usage(input=400, output=10, cached=300))
    seen.end(200)

    assert (await attributes_of(recorded))["penstock.cost.usd"] == pytest.approx(2 * (2 * (100 + 30) + 80) / 1e6)


async def test_a_fault_marks_its_step_and_nothing_else(recorded: Recorded) -> None:
    request(recorded.telemetry, step(verdict="fail", why="ValueError"), step("shadow", observed=True))

    spans = await recorded.spans()
    faulty = [name for name, span in spans.items() if span.status.status_code is StatusCode.ERROR]
    assert faulty == ["policy window_history"]
    assert (spans["policy shadow"].attributes or {})["penstock.policy.mode"] == "observe"


async def test_the_client_span_follows_the_genai_conventions(recorded: Recorded) -> None:
    fields = {
        "max_completion_tokens": 64, "temperature": 0.5, "n": 2, "seed": 7, "stream": True, "user": SECRET,
        "reasoning": {"effort": "high"}, "previous_response_id": "resp_1",
    }  # fmt: skip
    names = ("gpt-4o-2024-08-06", "chatcmpl-1", ("stop", "length"))
    used = Usage(1000, 50, 900, *names, written=80, modalities=(("audio.input_tokens", 7),))
    request(recorded.telemetry, step(), fields=fields, usage=used)

    attributes = await attributes_of(recorded, CLIENT)
    assert 0 <= float(str(attributes.pop("gen_ai.response.time_to_first_chunk"))) < 1
    assert attributes == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "gpt-4o",
        "server.address": "api.example",
        "server.port": 8443,
        "gen_ai.request.max_tokens": 64,
        "gen_ai.request.temperature": 0.5,
        "gen_ai.request.choice.count": 2,
        "gen_ai.request.seed": 7,
        "gen_ai.request.stream": True,
        "gen_ai.response.id": "chatcmpl-1",
        "gen_ai.response.model": "gpt-4o-2024-08-06",
        "gen_ai.response.finish_reasons": ("stop", "length"),
        "gen_ai.usage.input_tokens": 1000,
        "gen_ai.usage.output_tokens": 50,
        "gen_ai.usage.cache_read.input_tokens": 900,
        "gen_ai.usage.cache_creation.input_tokens": 80,
        "gen_ai.usage.cache_write.input_tokens": 80,
        "gen_ai.usage.audio.input_tokens": 7,
        "gen_ai.conversation.compacted": True,
        "gen_ai.request.reasoning.level": "high",
        "gen_ai.request.previous_response.id": "resp_1",
        "penstock.upstream.fact.retries": 1,
    }


@pytest.mark.parametrize(
    ("ended", "reasons"),
    [
        ({"status": 200, "usage": Usage(error="upstream_broke_off")}, ("error",)),
        ({"error": UpstreamTimeout("no chunk came", code="upstream_timeout")}, ("error",)),
        ({"status": 200, "usage": Usage(error="server_error", finish_reasons=("stop",))}, ("stop",)),
        ({"status": 400, "usage": Usage(error="invalid")}, None),
        ({"status": 200, "usage": Usage()}, None),
    ],
)
async def test_an_answer_that_broke_off_finished_with_an_error(recorded: Recorded, ended: Any, reasons: object) -> None:
    seen = recorded.telemetry.begin("POST", "/v1/chat/completions", {})
    call = seen.call(provider="openai", model="gpt-4o")
    call.first_chunk()
    call.end(**({"error": ended["usage"].error} if "usage" in ended else {}) | ended)
    seen.end(200, stream=True)
    attributes = await attributes_of(recorded, CLIENT)
    assert (attributes.get("gen_ai.response.finish_reasons"), "error.type" in attributes) == (
        reasons,
        ended != {"status": 200, "usage": Usage()},
    )


RELEASED = {
    str: "conversation.id operation.name output.type provider.name request.model response.id response.model",
    int: """request.choice.count request.max_tokens request.seed usage.cache_creation.input_tokens
        usage.cache_read.input_tokens usage.input_tokens usage.output_tokens usage.reasoning.output_tokens""",
    float: """request.frequency_penalty request.presence_penalty request.temperature request.top_k request.top_p
        response.time_to_first_chunk""",
    tuple: "request.stop_sequences response.finish_reasons",
    bool: "request.stream",
}
"""Attributes of inferences in `model/gen-ai/registry.yaml` of the conventions 1.41.0, without `gen_ai.`, by type."""

LATEST = {
    str: "request.previous_response.id request.reasoning.level",
    int: """usage.audio.input_tokens usage.audio.output_tokens usage.cache_write.input_tokens
        usage.image.input_tokens usage.image.output_tokens usage.text.input_tokens usage.text.output_tokens""",
    bool: "conversation.compacted",
}
"""Attributes that the conventions' own repository has added, as of October 2026."""


def types_of(*tables: Mapping[type, str]) -> dict[str, type]:
    """Return the type of each attribute; of one that is in two tables, the last."""
    return {f"gen_ai.{name}": kind for table in tables for kind, names in table.items() for name in names.split()}


async def test_every_attribute_is_documented_and_those_of_the_conventions_have_their_type(recorded: Recorded) -> None:
    page = (Path(__file__).parent.parent.parent / "docs" / "telemetry.md").read_text()
    registered = types_of(RELEASED, LATEST)
    numbers = ["max_tokens", "temperature", "top_p", "top_k", "frequency_penalty", "presence_penalty", "seed", "n"]
    kinds = [f"{kind}.{side}_tokens" for kind in ("text", "image", "audio") for side in ("input", "output")]
    usage = Usage(1, 1, 1, "m", "i", ("stop",), written=1, reasoning=1, modalities=tuple((kind, 1) for kind in kinds))
    converse(recorded.telemetry, Identity("t", "named-x", agent="a", task="b"))
    others = {"stream": True, "reasoning_effort": "low", "previous_response_id": "resp_1", "stop": ["x"]}
    for number in (1, 1.0):
        request(recorded.telemetry, step(), fields={**dict.fromkeys(numbers, number), **others}, usage=usage)
    request(recorded.telemetry, step(), fields=dict.fromkeys(numbers, 1.5), usage=usage)
    request(recorded.telemetry, step(), fields={"seed": 2**64, "top_p": 10**400, "temperature": float("inf")})
    recorded.telemetry.begin("GET", "/v1/models", {}).end(500, error="internal_error")

    spans = await recorded.finished()
    (url,) = {scope.schema_url for scope in (span.instrumentation_scope for span in spans) if scope is not None}
    assert url in {schema.value for schema in Schemas}
    assert f"`{url}`" in page
    every = [pair for span in spans for pair in (span.attributes or {}).items()]
    found = [(name, value) for name, value in every if name.startswith("gen_ai.")]
    assert len({name for name, _ in found}) > 20
    assert {name: type(value) for name, value in found if registered.get(name) is not type(value)} == {}
    assert [name for name, _ in every if ".fact." not in name and f"`{name}`" not in page] == []


def converse(telemetry: Telemetry, who: Identity) -> None:
    """The second request of a conversation."""
    came = chat("s u1 a1 u2")
    seen = telemetry.begin("POST", "/v1/chat/completions", {})
    seen.rewriting = Rewriting(came, came, (), context(came, identity=who), None, None)
    seen.call(provider="openai", model="gpt-4o").end(status=200)
    seen.end(200)


@pytest.mark.parametrize("session", ["named-x", "opening-x"])
async def test_a_conversation_is_known_by_hashes_or_its_name(recorded: Recorded, session: str) -> None:
    who = Identity("t", session, agent="a", task="b")
    converse(recorded.telemetry, who)

    spans = await recorded.spans()
    server = spans[SERVER].attributes or {}
    id = conversation_id(who)
    assert {name: value for name, value in server.items() if name.endswith((".id", ".turn"))} == {
        "penstock.conversation.id": id, "penstock.conversation.turn": 2, "penstock.agent.id": "a", "penstock.task.id": "b",
        **({"penstock.session.id": session} if who.is_named else {}),
    }  # fmt: skip
    assert (spans[CLIENT].attributes or {}).get("gen_ai.conversation.id") == (id if who.is_named else None)


async def test_a_body_that_passes_has_the_name_of_its_headers(recorded: Recorded) -> None:
    seen = recorded.telemetry.begin("POST", "/v1/chat/completions", {})
    seen.called_by("t", None)
    seen.passed(Body(b'{"model": "m", "messages": []}'), {"x-penstock-session": "mine"})
    seen.call(provider="openai", model="gpt-4o").end(status=200)
    seen.end(200)

    named = conversation_id(Identity("t", session_key("mine")))
    assert (await attributes_of(recorded, CLIENT))["gen_ai.conversation.id"] == named


async def test_spans_of_steps_that_kept_the_request_can_be_left_out() -> None:
    recorded = Recorded(TelemetrySettings(spans="changes"))
    verdicts = ("keep", "skip", "rewrite", "fail", "reject")
    request(recorded.telemetry, *(step(verdict, verdict=verdict) for verdict in verdicts))

    spans = await recorded.spans()
    assert {name for name in spans if name.startswith("policy")} == {"policy rewrite", "policy fail", "policy reject"}


async def test_only_a_smaller_prompt_is_compacted(recorded: Recorded) -> None:
    request(recorded.telemetry, step(tokens_after=900), step("shadow", observed=True))

    assert "gen_ai.conversation.compacted" not in await attributes_of(recorded, CLIENT)


@pytest.mark.parametrize(
    ("model", "operation"), [("", "chat"), ("", None), ("gpt-4o", OPERATIONS.get("/audio/speech"))]
)
async def test_only_the_call_to_a_model_is_a_generation(recorded: Recorded, model: str, operation: str | None) -> None:
    request(recorded.telemetry, step())
    seen = recorded.telemetry.begin("GET", "/v1/{path}", {}, path="/v1/files")
    seen.call(provider="openai", model=model, operation=operation, address="http://127.0.0.1/v1").end(status=200)

    spans = await recorded.spans()
    assert dict(spans["call openai"].attributes or {}) == {"server.address": "127.0.0.1", "server.port": 80}
    generations = [s.name for s in spans.values() if any(key.startswith("gen_ai.") for key in s.attributes or {})]
    assert generations == ["chat gpt-4o"]


@pytest.mark.parametrize(("status", "error", "code"), [
    pytest.param(200, None, StatusCode.UNSET, id="fine"),
    pytest.param(400, "context_length_exceeded", StatusCode.UNSET, id="the client's mistake"),
    pytest.param(499, "client_gone", StatusCode.UNSET, id="the client left"),
    pytest.param(502, "upstream_unreachable", StatusCode.ERROR, id="ours or the upstream's"),
    pytest.param(200, "upstream_unreachable", StatusCode.ERROR, id="broken off"),
])  # fmt: skip
async def test_a_server_span_is_an_error_where_the_server_failed(
    recorded: Recorded, status: int, error: str | None, code: StatusCode
) -> None:
    recorded.telemetry.begin("POST", "/v1/chat/completions", {}).end(status, error=error)

    span = (await recorded.spans())[SERVER]
    assert span.status.status_code is code
    assert (span.attributes or {}).get("error.type") == error


async def test_an_error_without_a_code_is_named_by_its_status(recorded: Recorded) -> None:
    recorded.telemetry.begin("POST", "/v1/chat/completions", {}).end(503)

    assert (await attributes_of(recorded, SERVER))["error.type"] == "503"


@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens", "max_output_tokens"])
async def test_each_wire_has_its_own_name_for_the_longest_answer(recorded: Recorded, name: str) -> None:
    request(recorded.telemetry, step(), fields={name: 64})

    assert (await attributes_of(recorded, CLIENT))["gen_ai.request.max_tokens"] == 64


async def test_errors_are_recorded_by_kind_and_never_by_text(recorded: Recorded) -> None:
    seen = recorded.telemetry.begin("POST", "/v1/chat/completions", {})
    seen.call(provider="openai", model="gpt-4o").end(error=UpstreamTimeout(SECRET))

    span = (await recorded.spans())[CLIENT]
    assert span.status.status_code is StatusCode.ERROR
    assert (span.attributes or {})["error.type"] == "upstream_timeout"
    assert SECRET not in span.to_json()


async def test_no_text_of_a_request_is_in_any_span(recorded: Recorded) -> None:
    fields = {
        "messages": [{"role": "user", "content": SECRET}], "stop": [SECRET], "max_tokens": [SECRET],
        "metadata": {"note": SECRET}, "output_config": {"effort": SECRET},
        **dict.fromkeys(("user", "temperature", "stream"), SECRET),
        **dict.fromkeys(("reasoning_effort", "previous_response_id"), f"{SECRET} it is"),
    }  # fmt: skip
    request(recorded.telemetry, step(), headers={"authorization": SECRET, "cookie": SECRET}, fields=fields)

    spans = await recorded.spans()
    assert len(spans) == 3
    assert SECRET not in "".join(span.to_json() for span in spans.values())
    assert "key" not in "".join(str(span.attributes) for span in spans.values()), "the address has credentials"


async def test_values_from_outside_are_cut_to_a_bearable_length(recorded: Recorded) -> None:
    seen = recorded.telemetry.begin("POST", "/v1/chat/completions", {})
    seen.call(provider="openai", model="m" * 9000).end(usage=Usage(response_id="i" * 9000))

    (span,) = (await recorded.spans()).values()
    assert len(span.name) == len("chat ") + 128
    assert {len(str((span.attributes or {})[key])) for key in ("gen_ai.request.model", "gen_ai.response.id")} == {1024}


async def test_another_model_is_an_event_of_the_request(recorded: Recorded) -> None:
    seen = recorded.telemetry.begin("POST", "/v1/chat/completions", {})
    seen.routed(model="gpt-4o", upstream="main")
    seen.turned("claude", "upstream_timeout", named=True)
    seen.end(200)

    (event,) = (await recorded.spans())[SERVER].events
    assert event.name == "penstock.fallback"
    fallback = {"penstock.fallback.model": "claude", "penstock.fallback.reason": "upstream_timeout"}
    assert dict(event.attributes or {}) == {"penstock.model": "gpt-4o", **fallback}


TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
CALLER = {"traceparent": f"00-{TRACE}-00f067aa0ba902b7-01", "tracestate": "vendor=1"}


async def test_the_callers_trace_goes_on_to_the_upstream(recorded: Recorded) -> None:
    carried = request(recorded.telemetry, headers=CALLER)

    spans = await recorded.spans()
    server, client = spans["POST /v1/chat/completions"], spans["chat gpt-4o"]
    assert server.parent is not None
    assert f"{server.parent.span_id:016x}" == "00f067aa0ba902b7"
    assert client.context is not None
    assert carried == {
        "content-type": "application/json",
        "traceparent": f"00-{TRACE}-{client.context.span_id:016x}-01",
        "tracestate": "vendor=1",
    }


@pytest.mark.parametrize(("sample", "headers", "flag"), [
    pytest.param(1.0, {"traceparent": f"00-{TRACE}-00f067aa0ba902b7-00"}, "00", id="the caller said no"),
    pytest.param(0.0, {}, "", id="the share says no"),
])  # fmt: skip
async def test_an_unsampled_requests_trace_goes_on(sample: float, headers: dict[str, str], flag: str) -> None:
    recorded = Recorded(TelemetrySettings(sample=sample))
    carried = request(recorded.telemetry, step(), headers=headers)

    assert int(carried["traceparent"].rpartition("-")[2], 16) & 1 == 0
    assert TRACE in carried["traceparent"] or not flag
    assert await recorded.spans() == {}
