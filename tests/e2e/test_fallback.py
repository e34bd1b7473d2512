"""Upstreams fail or are too small, and another model answers: with its own key, and never with that of another."""

import asyncio
import json
from collections import Counter
from dataclasses import dataclass
from typing import Any

import aiohttp
import pytest

from proxy.testing import chat
from tests.e2e.conftest import Lab
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
  main: {{kind: openai, base_url: "{main}", idle_timeout: {patience}, breaker: {{failures: {failures}, open_for: 60}}}}
  same: {{kind: openai, base_url: "{main}", breaker: {{failures: 0}}}}
  mine: {{kind: openai, base_url: "{main}", api_key: sk-of-main, breaker: {{failures: 0}}}}
  other: {{kind: openai, base_url: "{other}", api_key: sk-of-other, breaker: {{failures: 0}}}}
  strange: {{kind: openai, base_url: "{other}", provider: deepseek, api_key: sk-of-other, breaker: {{failures: 0}}}}
  dead: {{kind: openai, base_url: "http://127.0.0.1:9/v1"}}
  echo: {{kind: echo}}
models:
  - {{match: first, upstream: main, fallbacks: [second, third]}}
  - {{match: repeating, upstream: main, fallbacks: [second, third], may_repeat: true}}
  - {{match: second, upstream: other, model: second-there, fallbacks: [second]}}
  - {{match: third, upstream: echo}}
  - {{match: thinking, upstream: main, fallbacks: [stranger]}}
  - {{match: stranger, upstream: strange}}
  - {{match: thinking-fitting, upstream: main, fallbacks: [stranger-fitting]}}
  - {{match: stranger-fitting, upstream: strange, chain: fitting}}
  - {{match: round, upstream: mine, fallbacks: [about]}}
  - {{match: about, upstream: other, fallbacks: [round]}}
  - {{match: dead, upstream: dead, fallbacks: [second]}}
  - {{match: twin, upstream: main, fallbacks: [twin-too]}}
  - {{match: twin-too, upstream: same}}
  - {{match: alone, upstream: main}}
  - {{match: alone-repeating, upstream: main, may_repeat: true}}
  - {{match: small, upstream: main, chain: fitting, window: 60, reserve: 0, larger: large}}
  - {{match: late, upstream: main, chain: late, window: 60, reserve: 0}}
  - {{match: late-small, upstream: main, chain: late, window: 60, reserve: 0, larger: largest}}
  - {{match: unkept, upstream: main, chain: keeping, window: 400, reserve: 0}}
  - {{match: unkept-small, upstream: main, chain: keeping, window: 400, reserve: 0, larger: largest}}
  - {{match: unchecked, upstream: main, chain: cutting, window: 60, reserve: 0, larger: large}}
  - {{match: unknown, upstream: main, larger: large}}
  - {{match: large, upstream: other, chain: fitting, window: 500, reserve: 0, larger: largest}}
  - {{match: largest, upstream: echo, window: 100000, chain: empty}}
  - {{match: narrow, upstream: main, fallbacks: [tiny]}}
  - {{match: tiny, upstream: other, chain: fitting, window: 20, reserve: 0}}
chains:
  default: []
  empty: []
  fitting:
    - reject_oversize: {{}}
  late:
    - compact_tool_results: {{timeout: 0.000001}}
    - reject_oversize: {{}}
  keeping:
    - compress_history: {{keep_last: 2}}
    - reject_oversize: {{}}
  cutting:
    - consolidate_system: {{}}
state: {{directory: "{state}"}}
server: {{patience: 0.000001}}
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

    base: str
    main: Upstream
    other: Upstream
    session: aiohttp.ClientSession

    async def ask(self, model: str, content: str = "hi", **fields: Any) -> "Answer":
        body = {"model": model, "messages": [{"role": "user", "content": content}], **fields}
        url = f"{self.base}/v1/chat/completions?key=sk-of-client"
        async with self.session.post(url, json=body, headers=SECRETS) as response:
            try:
                text = await response.read()
            except aiohttp.ClientPayloadError:
                text = b"broken"
            return Answer(response.status, response.headers.get("x-penstock-fallback"), response.headers, text)

    async def metric(self, name: str) -> float:
        async with self.session.get(f"{self.base}/metrics") as response:
            lines = (await response.text()).splitlines()
        return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(name))


@dataclass
class Answer:
    status: int
    fallback: str | None
    headers: Any
    body: bytes

    @property
    def code(self) -> Any:
        return json.loads(self.body)["error"]["code"]


@pytest.fixture
async def world(lab: Lab, request: pytest.FixtureRequest) -> World:
    main, other, state = lab.behind, await lab.upstream(), lab.folder / "a file"
    failures, patience = getattr(request, "param", (0, 60))
    state.write_text("")
    config = CONFIG.format(main=main.url, other=other.url, failures=failures, patience=patience, state=state)
    return World(await lab.start(config), main, other, lab.http)


def error(status: int, message: str = "m", code: str | None = None, headers: str = "retry-after: 7\r\n") -> Respond:
    body = json.dumps({"error": {"message": message, "type": "t", "param": None, "code": code}}).encode()
    return answering(body, status=status, headers=f"{JSON}{headers}")


async def hangs_up(upstream: Upstream, received: Received, writer: asyncio.StreamWriter) -> None:
    writer.close()


head_only = streaming(ends=False)
streams = streaming(b'data: {"choices":[]}\n\n', b"data: [DONE]\n\n")
breaks_off = streaming(b'data: {"choices":[]}\n\n', ends=False)


REFUSING: list[tuple[Respond, str]] = [(error(500), "500"), (error(503), "503"), (error(429), "429")]
LATE: list[tuple[Respond, str]] = [(silent, "upstream_timeout")]
BREAKING: list[tuple[Respond, str]] = [(hangs_up, "upstream_broke_off"), (head_only, "upstream_broke_off")]


@pytest.mark.parametrize("world", [(0, 0.5)], indirect=True)
@pytest.mark.parametrize("stream", [False, True])
async def test_a_request_that_may_have_been_processed_goes_to_no_other_model(world: World, stream: bool) -> None:
    for world.main.respond, code in (*LATE, *BREAKING):
        world.main.received.clear()
        answer = await world.ask("first", stream=stream)
        assert (answer.status, answer.code) == (504 if code == "upstream_timeout" else 502, code)
        assert (answer.headers["x-should-retry"], answer.fallback) == ("false", None)
        assert b"may have processed the request" in answer.body
        assert (len(world.main.received), world.other.received) == (1, [])


async def test_sdks_may_repeat_what_the_operator_lets_be_repeated(world: World) -> None:
    world.main.respond = world.other.respond = hangs_up
    answer = await world.ask("repeating")
    assert (answer.status, answer.fallback) == (502, "second; reason=upstream_broke_off")
    assert (len(world.main.received), len(world.other.received)) == (1, 1)
    assert answer.headers["x-should-retry"] == "false"
    assert "x-should-retry" not in (await world.ask("alone-repeating")).headers


@pytest.mark.parametrize(
    ("world", "model", "failing"),
    [((0, 0.5), "repeating", LATE), ((0, 60), "repeating", BREAKING), ((0, 60), "first", REFUSING)],
    indirect=["world"],
    ids=["too late", "breaking off", "refusing"],
)
async def test_another_model_answers(world: World, model: str, failing: list[tuple[Respond, str]]) -> None:
    told: Counter[str] = Counter()
    for world.main.respond, reason in failing:
        for stream in (False, True):
            world.other.respond = streams if stream else plainly
            answer = await world.ask(model, stream=stream)

            assert (answer.status, answer.fallback) == (200, f"second; reason={reason}")
            assert answer.body == (b'data: {"choices":[]}\n\ndata: [DONE]\n\n' if stream else DEFAULT_ANSWER)
            told[reason] += 1
            assert len(world.other.received) == told.total()
            assert json.loads(world.other.last.body)["model"] == "second-there"
            assert json.loads(world.other.last.body)["messages"] == [{"role": "user", "content": "hi"}]
            series = f'penstock_fallbacks_total{{model="{model}",reason="{reason}",to="second-there"}}'
            assert await world.metric(series) == told[reason]
            answered = 'penstock_requests_total{model="second-there",status="200",upstream="other"}'
            assert await world.metric(answered) == told.total()


WAITING = b": OPENROUTER PROCESSING\n\n"


@pytest.mark.parametrize("before", [(), (WAITING,), (WAITING, WAITING)], ids=["at once", "a comment", "comments"])
@pytest.mark.parametrize("code", [429, 502, "500"])
async def test_a_stream_that_begins_with_a_failure_is_one(world: World, code: Any, before: tuple[bytes, ...]) -> None:
    told = json.dumps({"error": {"message": "Provider returned error", "code": code}}).encode()
    world.main.respond = streaming(*before, b"data: " + told + b"\n\ndata: [DONE]\n\n")
    world.other.respond = streams
    answer = await world.ask("first", stream=True)
    assert (answer.status, answer.fallback) == (200, f"second; reason={code}")
    assert answer.body == b'data: {"choices":[]}\n\ndata: [DONE]\n\n'
    world.other.respond = world.main.respond
    answer = await world.ask("round", stream=True)
    assert (answer.status, json.loads(answer.body)) == (int(code), json.loads(told))
    assert answer.headers["content-type"] == "application/json"


@pytest.mark.parametrize("after", [(), (b"data: {}\n\n",)], ids=["comments alone", "an event"])
async def test_comments_that_a_stream_begins_with_are_relayed(world: World, after: tuple[bytes, ...]) -> None:
    world.main.respond = streaming(WAITING, WAITING, *after)
    answer = await world.ask("first", stream=True)
    assert (answer.status, answer.body, answer.fallback) == (200, b"".join((WAITING, WAITING, *after)), None)


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
    async with world.session.post(f"{world.base}/v1/chat/completions", json=asked) as response:
        assert await response.content.readexactly(len(WAITING)) == WAITING
        heard.set()
        assert (response.status, await response.read()) == (200, told)


@pytest.mark.parametrize("told", [{"message": "m", "code": 400}, {"message": "m", "code": None}, "m"])
async def test_any_other_error_that_a_stream_begins_with_is_relayed(world: World, told: Any) -> None:
    data = b"data: " + json.dumps({"error": told}).encode() + b"\n\n"
    world.main.respond = streaming(data)
    answer = await world.ask("first", stream=True)
    assert (answer.status, answer.body, answer.fallback) == (200, data, None)


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
    answer = await world.ask("twin")
    assert (answer.status, answer.code) == (503, None)
    assert [received.header("authorization") for received in world.main.received] == ["Bearer sk-of-client"] * 2


async def test_a_server_that_is_not_there(world: World) -> None:
    answer = await world.ask("dead")
    assert (answer.status, answer.fallback) == (200, "second; reason=upstream_unreachable")


async def test_the_last_one_in_the_list(world: World) -> None:
    world.main.respond = world.other.respond = error(502)
    answer = await world.ask("first")
    assert (answer.status, answer.fallback) == (200, "third; reason=502")
    assert (len(world.main.received), len(world.other.received)) == (1, 1)


async def test_when_all_fail_the_last_failure_is_told(world: World) -> None:
    world.main.respond, world.other.respond = error(503, "main is full"), error(429, "other is busy", "slow_down")
    answer = await world.ask("round")
    assert (answer.status, answer.code, answer.headers["retry-after"]) == (429, "slow_down", "7")
    assert b"other is busy" in answer.body
    assert answer.headers["content-type"] == "application/json"
    assert (len(world.main.received), len(world.other.received)) == (1, 1), "nobody is asked twice"


async def test_a_refusal_that_is_about_the_request_is_relayed(world: World) -> None:
    world.main.respond = error(400, "wrong", "unsupported_parameter")
    answer = await world.ask("first")
    assert (answer.status, answer.code, answer.fallback) == (400, "unsupported_parameter", None)
    assert not world.other.received


async def test_an_answer_that_has_begun_is_never_made_again(world: World) -> None:
    world.main.respond = breaks_off
    answer = await world.ask("first", stream=True)
    assert (answer.status, answer.fallback) == (200, None)
    assert b"upstream_broke_off" in answer.body
    assert not world.other.received


@pytest.mark.parametrize("world", [(2, 60)], indirect=True)
async def test_a_breaker_spares_the_upstream(world: World) -> None:
    world.main.respond = error(503)
    for _ in range(3):
        assert (await world.ask("first")).status == 200
    assert len(world.main.received) == 2
    assert (await world.ask("first")).fallback == "second; reason=upstream_unavailable"
    alone = await world.ask("alone")
    assert (alone.status, alone.code) == (503, "upstream_unavailable")
    assert 50 <= int(alone.headers["retry-after"]) <= 60
    assert await world.metric('penstock_upstream_breaker{upstream="main"}') == 1
    assert await world.metric('penstock_upstream_breaker{upstream="other"}') == 0


@pytest.mark.parametrize("world", [(2, 60)], indirect=True)
async def test_streams_that_break_off_open_it(world: World) -> None:
    world.main.respond = breaks_off
    for _ in range(2):
        assert (await world.ask("alone", stream=True)).status == 200
    assert (await world.ask("alone", stream=True)).code == "upstream_unavailable"


class TestARequestThatDoesNotFit:
    async def test_goes_to_a_larger_model_untouched(self, world: World) -> None:
        for model, words, larger in (
            ("small", 200, "large"),
            ("small", 2000, "largest"),
            ("unchecked", 200, "large"),  # without a step that rejects
        ):
            asked = len(world.other.received)
            answer = await world.ask(model, "word " * words)
            assert (answer.status, answer.fallback) == (200, f"{larger}; reason=context_length_exceeded")
            assert not world.main.received
            if larger == "largest":
                assert len(world.other.received) == asked
                continue
            assert json.loads(world.other.last.body)["messages"][0]["content"] == "word " * words
            assert answer.headers["x-penstock-context"].endswith(";500")
            assert "of-client" not in str(world.other.last.headers)
        for count, model in enumerate(("small", "unchecked"), 1):
            assert (await world.ask(model)).fallback is None, "what fits stays"
            assert len(world.main.received) == count

    async def test_is_noticed_by_the_upstream_also_in_its_own_words(self, world: World) -> None:
        own = {"code": 400, "message": "the request exceeds the available context size, try increasing it",
               "type": "exceed_context_size_error", "n_prompt_tokens": 2324, "n_ctx": 2048}  # fmt: skip
        in_its_own_words = answering(json.dumps({"error": own}).encode(), status=400)
        for world.main.respond in (error(400, "too long", "context_length_exceeded"), in_its_own_words):
            answer = await world.ask("unknown")
            assert (answer.status, answer.fallback) == (200, "large; reason=context_length_exceeded")
        answer = await world.ask("alone")
        assert (answer.status, answer.code) == (400, "context_length_exceeded")

    async def test_may_be_tried_again_where_a_step_that_shortens_it_was_late(self, world: World) -> None:
        answer = await world.ask("late", messages=RECORDS)
        assert (answer.status, answer.code) == (503, "server_is_overloaded")
        assert answer.headers["retry-after"] == "1"
        assert "x-should-retry" not in answer.headers
        assert not world.main.received
        answer = await world.ask("late-small", messages=RECORDS)
        assert (answer.status, answer.fallback) == (200, "largest; reason=context_length_exceeded"), "if there is one"

    async def test_goes_to_the_larger_model_where_nothing_can_be_kept(self, world: World) -> None:
        talk = [{"role": role, "content": f"{n} " + "word " * 20} for n in range(20) for role in ("user", "assistant")]
        talk.append({"role": "user", "content": "And?"})
        answer = await world.ask("unkept", messages=talk)
        assert (answer.status, answer.code) == (503, "state_unavailable")
        answer = await world.ask("unkept-small", messages=talk)
        assert (answer.status, answer.fallback) == (200, "largest; reason=context_length_exceeded")
        assert not world.main.received

    @pytest.mark.parametrize("world", [(1, 60)], indirect=True)
    async def test_which_503_it_was_is_told_by_the_metrics(self, world: World) -> None:
        world.main.respond = error(503, "down", "engine_busy")
        talk = [{"role": role, "content": f"{n} " + "word " * 20} for n in range(20) for role in ("user", "assistant")]
        asked = {
            'penstock_limited_requests_total{reason="not_in_time"}': ("late", RECORDS, "server_is_overloaded"),
            "penstock_requests_without_state_total": ("unkept", [*talk, RECORDS[0]], "state_unavailable"),
            'penstock_upstream_errors_total{reason="engine_busy",upstream="main"}': ("alone", talk, "engine_busy"),
            'penstock_upstream_errors_total{reason="upstream_unavailable",upstream="main"}': ("alone", talk, "upstream_unavailable"),
        }  # fmt: skip
        for number, (model, messages, code) in enumerate(asked.values(), 1):
            answer = await world.ask(model, messages=messages)
            assert (answer.status, answer.code) == (503, code)
            expected = [1.0] * number + [0.0] * (len(asked) - number)
            async with asyncio.timeout(60):  # a request is counted behind its answer
                while [await world.metric(name) for name in asked] != expected:
                    await asyncio.sleep(0.02)
        assert await world.metric("penstock_context_overflows_total") == 0

    async def test_a_larger_one_that_fails_says_so(self, world: World) -> None:
        world.other.respond = error(503, "down")
        answer = await world.ask("small", "word " * 200)
        assert (answer.status, answer.fallback) == (503, None)
        assert b"down" in answer.body

    async def test_a_fallback_without_room_does_not_hide_the_failure(self, world: World) -> None:
        world.main.respond = error(503, "down")
        answer = await world.ask("narrow", "word " * 200)
        assert (answer.status, answer.headers["retry-after"]) == (503, "7")
        assert not world.other.received
