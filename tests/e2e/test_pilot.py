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


async def talk(client: Client, place: int, turn: int) -> None:
    messages = [SYSTEM, {"role": "user", "content": f"Talk {place}."}]
    for number in range(turn):
        messages += [{"role": "assistant", "content": "hi"}, {"role": "user", "content": f"Next {number}."}]
    answer = await client.chat(messages=messages, headers={"x-penstock-session": f"s{place}"})
    assert answer.status == 200, answer.body


async def test_idle_conversations_are_refreshed_within_the_budget_until_that_is_refused(lab: Lab) -> None:
    async def refuse(upstream: Upstream, received: Received, writer: asyncio.StreamWriter) -> None:
        is_refresh = "max_tokens" in json.loads(received.body)
        await send(writer, 400 if is_refresh else 200, b"{}" if is_refresh else DEFAULT_ANSWER)

    refreshed, dear, refusing = lab.behind, await lab.upstream(), await lab.upstream()
    refusing.respond = refuse

    async def rest(behind: Upstream, price: int) -> Client:
        """Let conversations go on after one idle time, and be idle again."""
        values: dict[str, Any] = {"url": behind.url, "price": price, "ttl": 2.0, "pilot": "{max_usd_per_day: 1}"}
        client = await lab.client(CONFIG, name=str(behind.port), **values)
        for turn in range(2):
            await asyncio.gather(*(talk(client, place, turn) for place in range(TALKS)))
            assert len(behind.received) == TALKS * (turn + 1)
            await asyncio.sleep(2.4)
        return client

    *_, refused = await asyncio.gather(rest(refreshed, 1), rest(dear, 100_000), rest(refusing, 1))
    refreshes = [json.loads(each.body) for each in refreshed.received[2 * TALKS :]]
    assert len(refreshes) == TALKS
    before = {json.dumps(json.loads(each.body)["messages"]) for each in refreshed.received[TALKS : 2 * TALKS]}
    assert {json.dumps(each["messages"]) for each in refreshes} == before
    assert {each["max_tokens"] for each in refreshes} == {1}
    assert len(dear.received) == 2 * TALKS
    await asyncio.sleep(2.0)
    assert len(refusing.received) == 3 * TALKS, "a refused refresh is the last of its conversation"
    assert await refused.metric('penstock_pilot_requests_total{outcome="failed"}') == TALKS


@pytest.mark.parametrize(
    ("hold", "answered", "least"),
    [
        pytest.param(10, 0.5, 0.5, id="until the first is answered"),
        pytest.param(0.3, None, 0.25, id="no longer than the bound"),
        pytest.param(0.0, None, 0, id="not by default"),
    ],
)
async def test_siblings_wait(lab: Lab, hold: float, answered: float | None, least: float) -> None:
    """Of three requests at once the first is answered after some seconds, or once the others have arrived."""
    arrived: list[float] = []

    async def respond(upstream: Upstream, received: Received, writer: asyncio.StreamWriter) -> None:
        arrived.append(time.monotonic())
        if len(arrived) == 1:
            await (lab.behind.arrived(3) if answered is None else asyncio.sleep(answered))
        await send(writer, 200, DEFAULT_ANSWER)

    lab.behind.respond = respond
    client = await lab.client(CONFIG, price=1, ttl=300, pilot=f"{{hold: {hold}}}")
    await asyncio.gather(*(talk(client, place, 0) for place in range(3)))
    assert least <= min(arrived[1:]) - arrived[0]
