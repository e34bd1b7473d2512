"""The pilot refreshes prefixes where that pays, within its budget, and lets one request of a fan-out go first."""

import asyncio
import json
import time
from typing import Any

import pytest

from proxy.gateway.pilot import WINDOWS, IdleTimes
from tests.e2e.conftest import Client, Lab
from tests.e2e.servers import DEFAULT_ANSWER, Received, Upstream, send

CONFIG = """
models:
  - match: m
    upstream: main
    window: 8192
    tokenizer: chars
    prices: {input: {price}, output: 1}
    cache: {read: 0.1, write: 1.25, minimum: 100, ttl: {ttl}}
chains: {default: [{consolidate_system: {}}]}
pilot: {pilot}
"""
SYSTEM = {"role": "system", "content": "You help with the garden. " * 40}
TALKS = 12


def learned(*shares: tuple[int, int]) -> IdleTimes:
    times = IdleTimes()
    for window, (waited, resumed) in enumerate(shares):
        times.waited[window], times.resumed[window] = waited, resumed
    return times


@pytest.mark.parametrize(
    ("times", "window", "pays"),
    [
        pytest.param(learned((1000, 86)), 0, False, id="below the break-even"),
        pytest.param(learned((1000, 88)), 0, True, id="above the break-even"),
        pytest.param(learned((100, 0), (100, 50)), 0, True, id="for what comes later"),
        pytest.param(learned((100, 0), (100, 15)), 0, False, id="too little comes later"),
        pytest.param(learned((9, 9)), 0, False, id="too little was seen"),
        pytest.param(IdleTimes(), WINDOWS - 1, False, id="nothing was seen"),
    ],
)
def test_a_refresh_pays(times: IdleTimes, window: int, pays: bool) -> None:
    price, gain = 0.1, 1.15  # of a token that is read at a tenth and written at a quarter more
    assert times.pays(window, price, gain) is pays


async def talk(lab: Lab, base: str, place: int, turn: int) -> None:
    messages = [SYSTEM, {"role": "user", "content": f"Talk {place}."}]
    for number in range(turn):
        messages += [{"role": "assistant", "content": "hi"}, {"role": "user", "content": f"Next {number}."}]
    answer = await Client(base, lab.http).chat(messages=messages, headers={"x-penstock-session": f"s{place}"})
    assert answer.status == 200, answer.body


async def rested(lab: Lab, **settings: Any) -> tuple[str, int]:
    """Let conversations go on after one idle time, and be idle again; return the number of the requests so far."""
    values = {"price": 1, "ttl": 2.0, "pilot": "{max_usd_per_day: 1}", **settings}
    base = await lab.start(CONFIG, **values)
    for turn in range(2):
        await asyncio.gather(*(talk(lab, base, place, turn) for place in range(TALKS)))
        assert len(lab.behind.received) == TALKS * (turn + 1)
        await asyncio.sleep(2.4)
    return base, 2 * TALKS


async def test_idle_conversations_are_refreshed_for_one_token(lab: Lab) -> None:
    _, sent = await rested(lab)
    refreshes = [json.loads(each.body) for each in lab.behind.received[sent:]]
    assert len(refreshes) == TALKS
    before = {json.dumps(json.loads(each.body)["messages"]) for each in lab.behind.received[TALKS:sent]}
    assert {json.dumps(each["messages"]) for each in refreshes} == before
    assert {each["max_tokens"] for each in refreshes} == {1}


async def test_nothing_is_refreshed_beyond_the_budget(lab: Lab) -> None:
    _, sent = await rested(lab, price=100_000)
    assert len(lab.behind.received) == sent


async def test_a_refused_refresh_is_the_last_of_its_conversation(lab: Lab) -> None:
    async def respond(upstream: Upstream, received: Received, writer: asyncio.StreamWriter) -> None:
        is_refresh = "max_tokens" in json.loads(received.body)
        await send(writer, 400 if is_refresh else 200, b"{}" if is_refresh else DEFAULT_ANSWER)

    lab.behind.respond = respond
    base, sent = await rested(lab)
    await asyncio.sleep(2.0)
    assert len(lab.behind.received) == sent + TALKS
    assert await Client(base, lab.http).metric('penstock_pilot_requests_total{outcome="failed"}') == TALKS


@pytest.mark.parametrize(
    ("hold", "answered", "least", "most"),
    [
        pytest.param(5.0, 0.5, 0.5, 60, id="until the first is answered"),
        pytest.param(0.3, 3, 0.25, 2.5, id="no longer than the bound"),
        pytest.param(0.0, 3, 0, 2.5, id="not by default"),
    ],
)
async def test_siblings_wait(lab: Lab, hold: float, answered: float, least: float, most: float) -> None:
    """Of three requests at once the first is answered after some seconds; the others arrive within bounds."""
    arrived: list[float] = []

    async def respond(upstream: Upstream, received: Received, writer: asyncio.StreamWriter) -> None:
        arrived.append(time.monotonic())
        if len(arrived) == 1:
            await asyncio.sleep(answered)
        await send(writer, 200, DEFAULT_ANSWER)

    lab.behind.respond = respond
    base = await lab.start(CONFIG, price=1, ttl=300, pilot=f"{{hold: {hold}}}")
    await asyncio.gather(*(talk(lab, base, place, 0) for place in range(3)))
    assert least <= min(arrived[1:]) - arrived[0] <= max(arrived) - arrived[0] < most
