"""What keys use, as it is noted behind answers and read by whoever has the key."""

import asyncio
import logging

import pytest

from proxy.access import metering
from proxy.access.limits import DAY
from proxy.access.metering import ALL, Meter
from proxy.models.usage import Usage
from proxy.state.store import StoreError
from tests.access.counting import FallibleCounters


class World:
    """Two processes that share their counts, at a time that a test sets."""

    def __init__(self) -> None:
        self.now = DAY * 3
        self.counters = FallibleCounters(None, clock=lambda: self.now)
        self.one, self.other = (Meter(self.counters, clock=lambda: self.now) for _ in range(2))


def figures(
    requests: int = 0, *, without: int = 0, tokens: tuple[int, int, int] = (0, 0, 0), usd: float = 0.0
) -> object:
    used = dict(zip(("input_tokens", "cached_tokens", "output_tokens"), tokens, strict=True))
    return {"requests": requests, "without_usage": without, **used, "usd": usd}


async def test_use_of_a_day_is_summed_up_by_model_for_each_account() -> None:
    world = World()
    world.one.note("t/ann", "gpt-*", [Usage(input=10, output=2, cached=4)], 0.5)
    world.one.note("t/ann", "a/b", [Usage(input=1, output=1), Usage(input=2)], None)
    world.one.note("t/ann", "a/b", [Usage()], None)
    world.one.note("t/bob", "gpt-*", [Usage(input=1000)], None)
    world.now += DAY - 1
    assert await world.one.today("t/ann", ["gpt-*", "a/b", "unused"]) == {
        ALL: figures(3, without=1, tokens=(13, 4, 3), usd=0.5),
        "gpt-*": figures(1, tokens=(10, 4, 2), usd=0.5),
        "a/b": figures(2, without=1, tokens=(3, 0, 1)),
    }
    assert await world.one.today("t/nobody", ["gpt-*"]) == {ALL: figures()}
    world.now += 1
    assert await world.one.today("t/ann", ["gpt-*"]) == {ALL: figures()}


async def test_other_processes_see_use_once_it_is_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metering, "_GATHER", 0.0)
    world = World()
    sharing = asyncio.ensure_future(world.one.share())
    for n in (1, 2):
        world.one.note("t/ann", "m", [Usage(input=1)], None)
        async with asyncio.timeout(60):
            while (await world.other.today("t/ann", []))[ALL] != figures(n, tokens=(n, 0, 0)):
                await asyncio.sleep(0)
    sharing.cancel()
    world.one.note("t/ann", "m", [Usage(input=1)], None)
    await world.one.aclose()
    assert (await world.other.today("t/ann", []))[ALL] == figures(3, tokens=(3, 0, 0))


async def test_many_figures_are_added_in_batches() -> None:
    world = World()
    models = [f"m{n}" for n in range(400)]
    for model in models:
        world.one.note("t/ann", model, [Usage(input=1)], None)
    used = await world.one.today("t/ann", models)
    assert used.pop(ALL) == figures(400, tokens=(400, 0, 0))
    assert used == dict.fromkeys(models, figures(1, tokens=(1, 0, 0)))


async def test_use_is_lost_and_logged_once_if_the_counters_fail(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    world.counters.failure = "refuses"
    caplog.set_level(logging.ERROR, "penstock.limits")
    for _ in range(3):
        world.one.note("t/ann", "m", [Usage(input=1)], None)
        with pytest.raises(StoreError):
            await world.one.today("t/ann", ["m"])
    assert [record.message for record in caplog.records] == ["use of keys is not counted"]
    world.counters.failure = None
    world.one.note("t/ann", "m", [Usage(input=5)], None)
    assert (await world.one.today("t/ann", []))[ALL] == figures(1, tokens=(5, 0, 0))


async def test_days_are_known_for_a_month_by_all_processes() -> None:
    world = World()
    world.now = 20_000 * DAY
    for day, usd in ((0, 0.25), (0, None), (1, 1.5), (30, 2.0)):
        world.now = (20_000 + day) * DAY
        world.one.note("t/ann", "m", [Usage(input=1)], usd)
        await world.one.today("t/ann", [])
    assert await world.other.days(["t/ann", "t/bob"]) == {
        "t/ann": [
            {"day": "2024-10-04", "requests": 2, "usd": 0.25},
            {"day": "2024-10-05", "requests": 1, "usd": 1.5},
            {"day": "2024-11-03", "requests": 1, "usd": 2.0},
        ],
        "t/bob": [],
    }
    world.now += DAY
    assert [each["day"] for each in (await world.other.days(["t/ann"]))["t/ann"]] == ["2024-10-05", "2024-11-03"]
