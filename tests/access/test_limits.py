"""Limits: what is taken before it is used, given back where it was not, and let pass where nobody can count."""

import asyncio
import json
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.access.callers import Caller
from proxy.access.limits import (
    FILE_TOKENS,
    MINUTE,
    Admission,
    Demand,
    KeyLimits,
    Terms,
    Window,
    check_caps,
    demand_of,
    duration,
)
from proxy.chat.errors import BadRequest, RateLimited
from proxy.chat.parse import Body
from proxy.config.settings import KeySettings, LimitsSettings
from proxy.context import CacheRules, ModelProfile, Prices, TokenCount
from proxy.http.headers import Headers, retry_after
from proxy.models.usage import Usage
from proxy.telemetry.metrics import Metrics
from proxy.upstreams.base import Call
from tests.access.counting import FallibleCounters

PROFILE = ModelProfile("m", 1000, 500, 0, prices=Prices(1e6, 2e6), cache=CacheRules(read=0.5))
"""A token costs a dollar, one of an answer two, one from the cache half a dollar."""

SOMEBODY = Caller("t")


class World:
    """Limits at a time that a test sets."""

    def __init__(self, **limits: Any) -> None:
        self.now = 86400.0 * 3
        self.counters = FallibleCounters(None, clock=lambda: self.now)
        self.metrics = Metrics("test")
        settings = LimitsSettings.model_validate(limits)
        self.limits = KeyLimits(settings, self.counters, self.metrics, clock=lambda: self.now)

    async def ask(
        self, prompt: int | None = None, answer: int = 0, caller: Caller = SOMEBODY
    ) -> tuple[Admission, dict[str, str]]:
        headers: Headers = []
        admission = Admission(self.limits, caller)
        await admission.begin(headers)
        if prompt is not None:
            counted = TokenCount(0, 0, prompt, exact=True)
            body = b'{"max_tokens":%d}' % answer
            await admission.reserve(Call("/c", "m", body, {}, counted=counted, profile=PROFILE), headers)
        return admission, {name.decode(): value.decode() for name, value in headers}

    async def refused(self, *arguments: Any, **more: Any) -> RateLimited:
        with pytest.raises(RateLimited) as caught:
            await self.ask(*arguments, **more)
        return caught.value

    async def has_left(self, tokens: int, admission: Admission) -> None:
        """Check that a minute has just so many tokens left behind a request that is settled."""
        await admission.settle()
        if tokens:
            _, headers = await self.ask(tokens)
            assert headers["x-ratelimit-remaining-tokens"] == "0"
        await self.refused(1)

    def shown(self) -> str:
        return self.metrics.render("")[1].decode()


def key(name: str, **fields: Any) -> Caller:
    return Caller("t", KeySettings.model_validate({"name": name, "hash": "0" * 64, **fields}))


async def test_a_refused_request_passes_after_its_retry_after() -> None:
    world = World(requests_per_minute=3)
    headers = [(await world.ask())[1] for _ in range(3)]
    assert [each["x-ratelimit-remaining-requests"] for each in headers] == ["2", "1", "0"]
    assert headers[0]["x-ratelimit-limit-requests"] == "3"
    assert headers[0]["x-ratelimit-reset-requests"] == "2m0s"
    for _ in range(5):
        error = await world.refused()
        assert (error.status, error.type, error.code) == (429, "requests", "rate_limit_exceeded")
        assert "x-should-retry" not in error.headers
    assert int(error.headers["retry-after-ms"]) == 80_000, "a third of them counts no more after 80 seconds"
    world.now += 79.9
    await world.refused()
    world.now += 0.2
    await world.ask()
    await world.refused()
    assert 'limited_requests_total{reason="requests"} 7.0' in world.shown()


async def test_users_of_two_identity_providers_with_one_name_have_limits_of_their_own() -> None:
    world = World()
    few, many = (
        Caller(tenant, KeySettings(name="ann", hash="0" * 64, requests_per_minute=most), issuer=tenant)
        for tenant, most in (("one", 1), ("two", 100))
    )
    assert [world.limits.terms(each).requests_per_minute for each in (few, many, few)] == [1, 100, 1]


@pytest.mark.parametrize(("noted", "failed", "left"), [
    pytest.param(Usage(input=30, output=5, cached=10), None, 65, id="what was reported counts"),
    pytest.param(Usage(input=90, output=40), None, 0, id="also where it is more"),
    pytest.param(Usage(), None, 20, id="without a report the estimate"),
    pytest.param(None, None, 100, id="nothing where nothing was answered"),
    pytest.param(None, Usage(), 100, id="nothing of a request that failed"),
    pytest.param(None, Usage(input=30, output=5), 65, id="what its rounds used before they failed"),
    pytest.param(Usage(input=30, output=5), Usage(), 65, id="what an earlier model used"),
    pytest.param(Usage(), Usage(), 100, id="nothing, though an earlier model had begun"),
])  # fmt: skip
async def test_reported_usage_corrects_the_estimate(noted: Usage | None, failed: Usage | None, left: int) -> None:
    world = World(tokens_per_minute=100)
    admission, _ = await world.ask(60, 20)
    admission.note(noted, None)
    if failed is not None:
        admission.note_failure(failed, None)
    await world.has_left(left, admission)


async def test_a_request_is_refused_without_retry_if_it_can_never_fit() -> None:
    world = World(tokens_per_minute=100)
    error = await world.refused(90, 20)
    assert error.headers == {"x-should-retry": "false"}
    assert "110" in error.message
    await world.ask(100)


@pytest.mark.parametrize(("limit", "usage", "cost"), [
    ({"budget_per_day": 10}, Usage(input=5, output=2), 10.0),
    ({"tokens_per_day": 7}, Usage(input=5, output=2), None),
    ({"tokens_per_day": 7}, Usage(), None),
    ({"budget_per_day": 10}, Usage(), None),
])  # fmt: skip
async def test_requests_are_refused_once_the_day_is_used_up(
    limit: dict[str, float], usage: Usage, cost: float | None
) -> None:
    world = World(**limit)
    first, _ = await world.ask(6, 2)  # an estimate of 10 dollars
    error = await world.refused(6, 2)
    assert (error.code, error.headers["retry-after"]) == ("rate_limit_exceeded", "1"), "the first one holds the rest"
    first.note(usage, cost)
    await first.settle()
    error = await world.refused()
    assert (error.type, error.code) == ("insufficient_quota", "insufficient_quota")
    until_midnight = {"retry-after": "86400", "retry-after-ms": "86400000"}
    assert error.headers == {"x-should-retry": "false", **until_midnight}
    world.now += 86399
    await world.refused()
    world.now += 1
    await world.ask(6)
    assert 'limited_requests_total{reason="budget"} 3.0' in world.shown()


@pytest.mark.parametrize(("limit", "estimate", "admitted"), [
    pytest.param({"tokens_per_day": 130}, (9, 4), 10, id="tokens"),
    pytest.param({"tokens_per_day": 130}, (9, 400), 1, id="a request that may need more than the day has"),
    pytest.param({"budget_per_day": 130}, (9, 2), 10, id="dollars"),
    pytest.param({"tokens_per_day": 130, "tokens_per_minute": 65}, (9, 4), 5, id="the minute first"),
])  # fmt: skip
async def test_concurrent_requests_reserve_no_more_than_the_rest_of_the_day(
    limit: dict[str, float], estimate: tuple[int, int], admitted: int
) -> None:
    world = World(**limit)
    done = await asyncio.gather(*(world.ask(*estimate) for _ in range(100)), return_exceptions=True)
    under_way = [each[0] for each in done if not isinstance(each, BaseException)]
    assert len(under_way) == admitted
    assert sum(isinstance(each, RateLimited) for each in done) == 100 - admitted
    for admission in under_way:
        admission.note(None, None)  # nothing was used
        await admission.settle()
    again = [await world.ask(*estimate) for _ in range(min(admitted, 1))]
    assert len(again) == 1, "all was given back"


async def test_reservations_of_a_killed_process_end_within_two_hours() -> None:
    world = World(tokens_per_day=130)
    await world.ask(100, 20)
    await world.refused(9, 4)
    world.now += 7199
    await world.refused(9, 4)
    world.now += 1
    await world.ask(9, 4)


async def test_a_key_has_the_common_limits_where_it_has_none_of_its_own() -> None:
    world = World(requests_per_minute=1, max_n=4, max_concurrent_per_key=9, max_concurrent=100)
    large, small, other = key("large", requests_per_minute=2), key("small"), Caller("someone else")
    assert world.limits.terms(large) == Terms(requests_per_minute=2, max_n=4, max_concurrent=9)
    own = key("own", max_concurrent=1, max_n=1)
    assert world.limits.terms(own) == Terms(requests_per_minute=1, max_n=1, max_concurrent=1)
    for caller in (large, large, small, other, Caller("t")):
        await world.ask(caller=caller)
    for caller in (large, small, other, Caller("t")):
        await world.refused(caller=caller)


@pytest.mark.parametrize("failure", ["refuses", "hangs"])
async def test_requests_pass_with_a_log_line_if_the_counters_fail(
    failure: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("proxy.access.limits._PAUSE", 600)
    world = World(requests_per_minute=1, tokens_per_minute=10, tokens_per_day=1)
    world.limits._patience = 0.01
    world.counters.failure = failure
    for _ in range(5):
        admission, headers = await world.ask(5)
        admission.note(Usage(input=3, output=1), None)
        await admission.settle()
        assert not [name for name in headers if name.startswith("x-ratelimit")]
    assert world.counters.asked == 1, "who does not answer is left alone for a while"
    assert [record.message for record in caplog.records] == ["limits are not counted"]
    assert "limits_unchecked_total 30.0" in world.shown()


async def test_only_counted_tokens_are_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proxy.access.limits._PAUSE", 0)
    world = World(tokens_per_minute=100)
    world.counters.failure = "refuses"
    admission, _ = await world.ask(80)
    world.counters.failure = None
    admission.note(Usage(input=10, output=0), None)
    await world.has_left(90, admission)


async def test_concurrent_requests_pass_up_to_the_limit() -> None:
    world = World(requests_per_minute=10)
    done = await asyncio.gather(*(world.ask() for _ in range(50)), return_exceptions=True)
    assert Counter(type(each) for each in done) == {tuple: 10, RateLimited: 40}


@pytest.mark.parametrize(("window", "used", "remaining", "reset"), [
    pytest.param(Window(0, 0, 9), 0, 10, 0, id="nothing was used"),
    pytest.param(Window(0, 3, 10), 3, 7, 110, id="this minute counts until the next one ends"),
    pytest.param(Window(6, 0, 0), 6, 4, 60, id="the minute before counts whole"),
    pytest.param(Window(6, 0, 30), 3, 7, 30, id="then by its share of sixty seconds"),
    pytest.param(Window(7, 3, 45), 4.75, 5, 75, id="both, and a part of one is none"),
    pytest.param(Window(6, 12, 30), 15, 0, 90, id="never less than nothing remains"),
])  # fmt: skip
def test_a_window_of_a_minute(window: Window, used: float, remaining: int, reset: float) -> None:
    assert (window.used, window.remaining(10), window.reset) == (used, remaining, reset)


@given(
    limit=st.integers(1, 10**6),
    before=st.integers(0, 10**6),
    current=st.integers(0, 10**6),
    elapsed=st.floats(0, 59.99),
    need=st.integers(1, 10**6),
)
def test_a_need_fits_after_the_wait(limit: int, before: int, current: int, elapsed: float, need: int) -> None:
    need = min(need, limit)
    wait = Window(before, current, elapsed).wait(need, limit)
    later = elapsed + wait
    if later < MINUTE:
        window = Window(before, current, later)
    else:
        assert later <= 2 * MINUTE + 1e-6
        window = Window(current, 0, later - MINUTE)
    assert window.used + need <= limit * (1 + 1e-9) + 1e-6
    if wait > 1e-3:
        sooner = later - 1e-3
        early = Window(before, current, sooner) if sooner < MINUTE else Window(current, 0, sooner - MINUTE)
        assert early.used + need > limit - 1e-6


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0ms"), (0.1201, "121ms"), (1, "1s"), (6.54, "6.6s"), (60, "1m0s"), (90.01, "1m30.1s")]
)
def test_durations_have_the_format_of_openai(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(("seconds", "whole", "exact"), [(0, "1", "1"), (0.2, "1", "200"), (1.0004, "2", "1001")])
def test_retry_after_rounds_up(seconds: float, whole: str, exact: str) -> None:
    assert retry_after(seconds) == {"retry-after": whole, "retry-after-ms": exact}


SMALL = ModelProfile("m", window=1000, max_output=500, reserve=100)


def call(fields: dict[str, Any], *, parsed: bool = False, **more: Any) -> Call:
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": "hi"}], **fields}).encode()
    request = Body(body).parse() if parsed else None
    return Call("/chat/completions", "m", body, {}, request=request, **{"profile": SMALL, **more})


def test_tokens_that_nobody_counted_are_guessed_of_bytes_and_files() -> None:
    made = call({})
    assert demand_of(made) == Demand(len(made.body) // 4, 100)
    assert demand_of(call({}, parsed=True, counted=TokenCount(1, 2, 4, exact=True))).prompt == 7
    url = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 400_000}}
    sound = {"type": "input_audio", "input_audio": {"data": "B" * 400_000, "format": "wav"}}
    for parts in ([url], [sound], [url, sound, url]):
        body = json.dumps({"messages": [{"role": "user", "content": parts}]}, separators=(",", ":")).encode()
        prompt = demand_of(Call("/chat/completions", "m", body, {})).prompt
        assert len(parts) * FILE_TOKENS <= prompt < len(parts) * FILE_TOKENS + 100
    assert demand_of(Call("/audio/transcriptions", "m", b"--form\r\n" * 1000, {})) == Demand(0, 0)


@pytest.mark.parametrize("parsed", [False, True])
@pytest.mark.parametrize(("fields", "answer"), [
    ({}, 100),
    ({"max_tokens": 7, "max_completion_tokens": 9}, 9),
    ({"max_tokens": 7, "n": 3}, 21),
    ({"n": None, "max_tokens": None}, 100),
    ({"n": "3", "max_tokens": True}, 100),
    ({"max_tokens": -1}, 100),
])  # fmt: skip
def test_demand_takes_the_longest_answer_allowed(fields: dict[str, Any], answer: int, parsed: bool) -> None:
    assert demand_of(call(fields, parsed=parsed)).answer == answer
    assert demand_of(call({"max_tokens": 5}, profile=None)).answer == 5
    assert demand_of(call({}, profile=None)).answer == 0


@pytest.mark.parametrize("parsed", [False, True])
@pytest.mark.parametrize("fields", [
    {"max_tokens": 11},
    {"max_completion_tokens": 10.5},
    {"max_output_tokens": 10**30},
    {"n": 3},
    {"best_of": 3},
    {"max_tokens": "11"},
    {"Max_Tokens": 11},
    {"n": True},
    {"options": {"num_predict": 11}},
    {"options": {"num_predict": -1}},
])  # fmt: skip
def test_a_request_is_refused_above_the_caps_of_its_key_only(fields: dict[str, Any], parsed: bool) -> None:
    with pytest.raises(BadRequest) as caught:
        check_caps(call(fields, parsed=parsed), 10, 2)
    assert caught.value.status == 400
    assert caught.value.param is not None
    check_caps(call(fields, parsed=parsed), None, None)
    for within in ({}, {"max_tokens": 10, "n": 2}, {"max_tokens": None, "n": None}, {"options": 5}):
        check_caps(call(within, parsed=parsed), 10, 2)
