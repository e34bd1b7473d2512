"""Upstreams fail or are too small, and another model answers: with its own key, and never with that of another."""

import asyncio
import json
from dataclasses import dataclass
from typing import Any

import pytest

from proxy.testing import chat
from tests.e2e.conftest import Answer, Client, Lab
from tests.e2e.servers import (
    DEFAULT_ANSWER,
    JSON,
    Received,
    Respond,
    Upstream,
    answering,
    begin_stream,
    plainly,
    send_chunk,
    silent,
    streaming,
)

CONFIG = """
upstreams:
  main: {kind: openai, base_url: "{url}", idle_timeout: {patience}, breaker: {failures: {failures}, open_for: 60}}
  same: {kind: openai, base_url: "{url}", breaker: {failures: 0}}
  mine: {kind: openai, base_url: "{url}", api_key: sk-of-main, breaker: {failures: 0}}
  other: {kind: openai, base_url: "{other}", api_key: sk-of-other, breaker: {failures: 0}}
  strange: {kind: openai, base_url: "{other}", provider: deepseek, api_key: sk-of-other, breaker: {failures: 0}}
  dead: {kind: openai, base_url: "http://127.0.0.1:9/v1"}
  echo: {kind: echo}
models:
  - {match: first, upstream: main, fallbacks: [second, third]}
  - {match: repeating, upstream: main, fallbacks: [second, third], may_repeat: true}
  - {match: second, upstream: other, model: second-there, fallbacks: [second]}
  - {match: third, upstream: echo}
  - {match: thinking, upstream: main, fallbacks: [stranger]}
  - {match: stranger, upstream: strange}
  - {match: thinking-fitting, upstream: main, fallbacks: [stranger-fitting]}
  - {match: stranger-fitting, upstream: strange, chain: fitting}
  - {match: round, upstream: mine, fallbacks: [about]}
  - {match: about, upstream: other, fallbacks: [round]}
  - {match: dead, upstream: dead, fallbacks: [second]}
  - {match: twin, upstream: main, fallbacks: [twin-too]}
  - {match: twin-too, upstream: same}
  - {match: alone, upstream: main}
  - {match: alone-repeating, upstream: main, may_repeat: true}
  - {match: small, upstream: main, chain: fitting, window: 60, reserve: 0, larger: large}
  - {match: late, upstream: main, chain: late, window: 60, reserve: 0}
  - {match: late-small, upstream: main, chain: late, window: 60, reserve: 0, larger: largest}
  - {match: unkept, upstream: main, chain: keeping, window: 400, reserve: 0}
  - {match: unkept-small, upstream: main, chain: keeping, window: 400, reserve: 0, larger: largest}
  - {match: unchecked, upstream: main, chain: cutting, window: 60, reserve: 0, larger: large}
  - {match: unknown, upstream: main, larger: large}
  - {match: large, upstream: other, chain: fitting, window: 500, reserve: 0, larger: largest}
  - {match: largest, upstream: echo, window: 100000}
  - {match: narrow, upstream: main, fallbacks: [tiny]}
  - {match: tiny, upstream: other, chain: fitting, window: 20, reserve: 0}
chains:
  default: []
  fitting: [reject_oversize: {}]
  late: [compact_tool_results: {timeout: 0.000001}, reject_oversize: {}]
  keeping: [compress_history: {keep_last: 2}, reject_oversize: {}]
  cutting: [consolidate_system: {}]
state: {directory: "{state}"}
server: {patience: 0.000001}
"""
SECRETS = {
    "authorization": "Bearer sk-of-client",
    "x-api-key": "sk-of-client",
    "openai-organization": "org-of-client",
    "x-my-own": "sk-of-client",
}
RECORDS = [
    {"role": "user", "content": "Which of them are open?"},
    {"role": "assistant", "content": None, "tool_calls": [
        {"id": "c1", "type": "function", "function": {"name": "list", "arguments": "{}"}}]},
    {"role": "tool", "tool_call_id": "c1", "content": json.dumps([{"id": n, "state": "open"} for n in range(3000)])},
]  # fmt: skip
"""A prompt with a result that takes longer to shorten than the time a step may have here."""


@dataclass
class World:
    """A proxy, two upstreams behind it, and a client."""

    client: Client
    main: Upstream
    other: Upstream

    async def ask(self, model: str, words: int = 1, **fields: Any) -> Answer:
        path = "/v1/chat/completions?key=sk-of-client"
        return await self.client.chat("word " * words, model, path=path, headers=SECRETS, **fields)

    @property
    def asked(self) -> tuple[int, int]:
        """How often each upstream was asked."""
        return len(self.main.received), len(self.other.received)


def outcome(answer: Answer) -> tuple[int, str | None, str | None]:
    """The status, who answered instead and why, and the code of an error."""
    code = None if answer.status == 200 else answer.json["error"]["code"]
    return answer.status, answer.headers.get("x-penstock-fallback"), code


@pytest.fixture
async def world(lab: Lab, request: pytest.FixtureRequest) -> World:
    main, other, state = lab.behind, await lab.upstream(), lab.folder / "a file"
    failures, patience = getattr(request, "param", (0, 60))
    state.write_text("")
    values: dict[str, Any] = {"failures": failures, "patience": patience, "state": state}
    return World(await lab.client(CONFIG, other=other.url, **values), main, other)


def error(status: int, code: str | None = None) -> Respond:
    body = json.dumps({"error": {"message": "m", "type": "t", "param": None, "code": code}}).encode()
    return answering(body, status=status, headers=f"{JSON}retry-after: 7\r\n")


async def hangs_up(upstream: Upstream, received: Received, writer: asyncio.StreamWriter) -> None:
    writer.close()


STREAM = b'data: {"choices":[]}\n\ndata: [DONE]\n\n'
OVERFLOW, BROKE = "context_length_exceeded", "upstream_broke_off"
LARGE, LARGEST = f"large; reason={OVERFLOW}", f"largest; reason={OVERFLOW}"
in_its_own_words = answering(
    b'{"error":{"code":400,"message":"the request exceeds the available context size, try increasing it",'
    b'"type":"exceed_context_size_error","n_prompt_tokens":2324,"n_ctx":2048}}',
    status=400,
)


CASES: dict[str, tuple[str, int, Respond, Respond, Any, tuple[int, int]]] = {
    "the last of the list": ("first", 1, error(502), error(502), (200, "third; reason=502", None), (1, 1)),
    "not there": ("dead", 1, plainly, plainly, (200, "second; reason=upstream_unreachable", None), (0, 1)),
    "a repetition that fails": ("repeating", 1, hangs_up, hangs_up, (502, f"second; reason={BROKE}", BROKE), (1, 1)),
    "the last failure is told": ("round", 1, error(503), error(429, "slow"), (429, None, "slow"), (1, 1)),
    "a refusal of the request": ("first", 1, error(400, "wrong"), plainly, (400, None, "wrong"), (1, 0)),
    "what fits stays": ("small", 1, plainly, plainly, (200, None, None), (1, 0)),
    "and without a step that rejects": ("unchecked", 1, plainly, plainly, (200, None, None), (1, 0)),
    "too long for the larger one too": ("small", 2000, plainly, plainly, (200, LARGEST, None), (0, 0)),
    "too long for its upstream": ("unknown", 1, error(400, OVERFLOW), plainly, (200, LARGE, None), (1, 1)),
    "which says so in its own words": ("unknown", 1, in_its_own_words, plainly, (200, LARGE, None), (1, 1)),
    "a fallback is not larger": ("first", 1, error(400, OVERFLOW), plainly, (400, None, OVERFLOW), (1, 0)),
    "nothing is larger": ("alone", 1, in_its_own_words, plainly, (400, None, OVERFLOW), (1, 0)),
    "the larger one fails": ("small", 200, plainly, error(503, "down"), (503, None, "down"), (0, 1)),
    "a fallback without room": ("narrow", 200, error(503, "down"), plainly, (503, None, "down"), (1, 0)),
}
"""A model and the words of a prompt, what both upstreams do, who answers with which code, and how often each was asked."""


@pytest.mark.parametrize(("model", "words", "main", "other", "expected", "asked"), CASES.values(), ids=CASES)
async def test_who_answers(
    world: World, model: str, words: int, main: Respond, other: Respond, expected: Any, asked: tuple[int, int]
) -> None:
    world.main.respond, world.other.respond = main, other
    answer = await world.ask(model, words)
    assert (outcome(answer), world.asked) == (expected, asked)
    assert answer.headers["content-type"] == "application/json"
    if answer.status in (429, 503):
        assert answer.headers["retry-after"] == "7"


LATE: list[tuple[Respond, str]] = [(silent, "upstream_timeout")]
BREAKING: list[tuple[Respond, str]] = [(hangs_up, BROKE), (streaming(ends=False), BROKE)]
REFUSING: list[tuple[Respond, str]] = [(error(status), str(status)) for status in (500, 503, 429)]


@pytest.mark.parametrize("world", [(0, 0.5)], indirect=True)
@pytest.mark.parametrize("stream", [False, True])
async def test_a_request_that_may_have_been_processed_goes_to_no_other_model(world: World, stream: bool) -> None:
    for world.main.respond, code in (*LATE, *BREAKING):
        world.main.received.clear()
        answer = await world.ask("first", stream=stream)
        assert outcome(answer) == (504 if code == "upstream_timeout" else 502, None, code)
        assert answer.headers["x-should-retry"] == "false"
        assert b"may have processed the request" in answer.body
        assert world.asked == (1, 0)


async def test_sdks_may_repeat_what_the_operator_lets_be_repeated(world: World) -> None:
    world.main.respond = world.other.respond = hangs_up
    assert (await world.ask("repeating")).headers["x-should-retry"] == "false", "the fallback's own failure"
    assert "x-should-retry" not in (await world.ask("alone-repeating")).headers


@pytest.mark.parametrize(
    ("world", "model", "failing"),
    [((0, 0.5), "repeating", LATE), ((0, 60), "repeating", BREAKING), ((0, 60), "first", REFUSING)],
    indirect=["world"],
    ids=["too late", "breaking off", "refusing"],
)
async def test_another_model_answers(world: World, model: str, failing: list[tuple[Respond, str]]) -> None:
    told = [reason for _, reason in failing for _ in range(2)]
    for number, reason in enumerate(told):
        stream, world.main.respond = number % 2 == 1, failing[number // 2][0]
        world.other.respond = streaming(STREAM) if stream else plainly
        answer = await world.ask(model, stream=stream)
        assert outcome(answer) == (200, f"second; reason={reason}", None)
        assert answer.body == (STREAM if stream else DEFAULT_ANSWER)
        sent = json.loads(world.other.last.body)
        assert (sent["model"], sent["messages"]) == ("second-there", [{"role": "user", "content": "word "}])
        series = f'penstock_fallbacks_total{{model="{model}",reason="{reason}",to="second-there"}}'
        assert await world.client.metric(series) == told[: number + 1].count(reason)
        answered = 'penstock_requests_total{model="second-there",status="200",upstream="other"}'
        assert await world.client.metric(answered) == len(world.other.received) == number + 1


WAITING = b": OPENROUTER PROCESSING\n\n"


@pytest.mark.parametrize("before", [(), (WAITING,), (WAITING, WAITING)], ids=["at once", "a comment", "comments"])
@pytest.mark.parametrize("code", [429, 502, "500"])
async def test_a_stream_that_begins_with_a_failure_is_one(world: World, code: Any, before: tuple[bytes, ...]) -> None:
    told = json.dumps({"error": {"message": "Provider returned error", "code": code}}).encode()
    world.main.respond = streaming(*before, b"data: " + told + b"\n\ndata: [DONE]\n\n")
    world.other.respond = streaming(STREAM)
    answer = await world.ask("first", stream=True)
    assert (outcome(answer), answer.body) == ((200, f"second; reason={code}", None), STREAM)
    world.other.respond = world.main.respond
    answer = await world.ask("round", stream=True)
    assert (answer.status, answer.json) == (int(code), json.loads(told))
    assert answer.headers["content-type"] == "application/json"


@pytest.mark.parametrize(("told", "status"), [
    (b'data: {"error": {"message": "The server had an error", "type": "server_error", "code": null}}\n\n', 500),
    (b'event: error\ndata: {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}\n\n', 529),
])  # fmt: skip
async def test_a_failure_that_begins_a_stream_may_come_in_pieces(world: World, told: bytes, status: int) -> None:
    async def in_pieces(upstream: Upstream, received: Received, writer: asyncio.StreamWriter) -> None:
        await begin_stream(writer)
        for piece in (told[:20], told[20:50], told[50:], b""):
            await send_chunk(writer, piece)
            await asyncio.sleep(0.02)  # else they may come as one

    world.main.respond, world.other.respond = in_pieces, streaming(STREAM)
    answer = await world.ask("first", stream=True)
    assert (outcome(answer), answer.body) == ((200, f"second; reason={status}", None), STREAM)


RELAYED = {
    "comments alone": [WAITING, WAITING],
    "comments and an event": [WAITING, WAITING, b"data: {}\n\n"],
    "an error about the request": [b'data: {"error": {"message": "m", "code": 400}}\n\n'],
    "an error without a code": [b'data: {"error": {"message": "m", "code": null}}\n\n'],
    "an error of words": [b'data: {"error": "m"}\n\n'],
}


@pytest.mark.parametrize("chunks", RELAYED.values(), ids=RELAYED)
async def test_any_other_beginning_of_a_stream_is_relayed(world: World, chunks: list[bytes]) -> None:
    world.main.respond = streaming(*chunks)
    answer = await world.ask("first", stream=True)
    assert (outcome(answer), answer.body) == ((200, None, None), b"".join(chunks))


async def test_a_stream_of_comments_is_not_held_for_long(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proxy.gateway.fallback._PATIENCE", 0.0)
    heard, told = asyncio.Event(), b'data: {"error":{"code":502}}\n\n'

    async def wait(upstream: Upstream, received: Received, writer: asyncio.StreamWriter) -> None:
        await begin_stream(writer)
        await send_chunk(writer, WAITING)
        await asyncio.wait_for(heard.wait(), 60)
        await send_chunk(writer, told)
        await send_chunk(writer, b"")

    world.main.respond = wait
    asked = {"model": "first", "messages": [{"role": "user", "content": "hi"}], "stream": True}
    async with world.client.http.post(f"{world.client.base}/v1/chat/completions", json=asked) as response:
        assert await response.content.readexactly(len(WAITING)) == WAITING
        heard.set()
        assert (response.status, await response.read()) == (200, told)


async def test_what_is_the_clients_goes_to_no_other_server(world: World) -> None:
    world.main.respond = error(503)
    assert (await world.ask("first")).status == 200
    (first,), (second,) = world.main.received, world.other.received
    sent = {**SECRETS, "x-api-key": None}  # it is Anthropic's
    assert {name: first.header(name) for name in SECRETS} == sent
    assert "sk-of-client" in first.path
    assert second.header("authorization") == "Bearer sk-of-other"
    whole = f"{second.path} {second.headers} {second.body!r}"
    assert "of-client" not in whole
    assert "sk-of-other" not in f"{first.headers}"


@pytest.mark.parametrize("model", ["thinking", "thinking-fitting"])
async def test_another_provider_gets_no_reasoning_of_the_first_ones_models(world: World, model: str) -> None:
    """It may refuse it; what is left out is told."""
    world.main.respond = error(503)
    thought = {
        "thinking_blocks": [{"type": "thinking", "thinking": "Hm.", "signature": "s"}],
        "reasoning_content": "Hm.",
        "reasoning": "Hm.",
        "reasoning_details": [{"type": "reasoning.text", "text": "Hm.", "index": 0}],
    }
    said = [dict(each) for each in chat("u1 a1 u2").messages]
    answer = await world.ask(model, messages=[said[0], {**said[1], **thought}, said[2]])

    (first,), (second,) = world.main.received, world.other.received
    assert json.loads(first.body)["messages"][1] == {**said[1], **thought}
    assert json.loads(second.body)["messages"] == said
    assert answer.headers["x-penstock-ignored"] == ",".join(f"messages[].{name}" for name in sorted(thought))


async def test_the_same_server_gets_the_clients_key_again(world: World) -> None:
    world.main.respond = error(503)
    assert outcome(await world.ask("twin")) == (503, None, None)
    assert [received.header("authorization") for received in world.main.received] == ["Bearer sk-of-client"] * 2


async def test_an_answer_that_has_begun_is_never_made_again(world: World) -> None:
    world.main.respond = streaming(b'data: {"choices":[]}\n\n', ends=False)
    answer = await world.ask("first", stream=True)
    assert (outcome(answer), world.asked) == ((200, None, None), (1, 0))
    assert b"upstream_broke_off" in answer.body


@pytest.mark.parametrize("world", [(2, 60)], indirect=True)
async def test_a_breaker_spares_the_upstream(world: World) -> None:
    world.main.respond = error(503)
    told = [outcome(await world.ask("first"))[1] for _ in range(3)]
    assert told == [*["second; reason=503"] * 2, "second; reason=upstream_unavailable"]
    assert len(world.main.received) == 2
    alone = await world.ask("alone")
    assert outcome(alone) == (503, None, "upstream_unavailable")
    assert 50 <= int(alone.headers["retry-after"]) <= 60
    assert await world.client.metric('penstock_upstream_breaker{upstream="main"}') == 1
    assert await world.client.metric('penstock_upstream_breaker{upstream="other"}') == 0
    for reason in ("503", "upstream_unavailable"):
        series = f'penstock_upstream_errors_total{{reason="{reason}",upstream="main"}}'
        assert await world.client.metric(series) == 2


@pytest.mark.parametrize("model", ["small", "unchecked"])
async def test_a_larger_model_gets_the_whole_prompt_and_no_key_of_the_client(world: World, model: str) -> None:
    answer = await world.ask(model, 200)
    assert (outcome(answer), world.asked) == ((200, LARGE, None), (0, 1))
    assert json.loads(world.other.last.body)["messages"][0]["content"] == "word " * 200
    assert answer.headers["x-penstock-context"].endswith(";500")
    assert "of-client" not in str(world.other.last.headers)


TALK = [{"role": role, "content": f"{n} " + "word " * 20} for n in range(20) for role in ("user", "assistant")]
TALK.append({"role": "user", "content": "And?"})


NOT_IN_TIME, NOT_KEPT = 'penstock_limited_requests_total{reason="not_in_time"}', "penstock_requests_without_state_total"
COUNTS = (NOT_IN_TIME, NOT_KEPT, "penstock_upstream_errors_total", "penstock_context_overflows_total")


@pytest.mark.parametrize(
    ("model", "messages", "code", "seconds", "counted"),
    [
        pytest.param("late", RECORDS, "server_is_overloaded", "1", NOT_IN_TIME, id="a step that shortens it was late"),
        pytest.param("unkept", TALK, "state_unavailable", "5", NOT_KEPT, id="nothing can be kept"),
    ],
)
async def test_what_was_not_shortened_this_time_goes_to_a_larger_model_or_may_be_tried_again(
    world: World, model: str, messages: Any, code: str, seconds: str, counted: str
) -> None:
    answer = await world.ask(model, messages=messages)
    assert outcome(answer) == (503, None, code)
    assert (answer.headers["retry-after"], "x-should-retry" in answer.headers) == (seconds, False)
    await world.client.until(f"{counted} 1.0")
    assert [await world.client.metric(each) for each in COUNTS] == [float(each == counted) for each in COUNTS]
    assert outcome(await world.ask(f"{model}-small", messages=messages)) == (200, LARGEST, None)
    assert not world.main.received
