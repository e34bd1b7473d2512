"""Nothing crosses between tenants, conversations, agents and tasks: interleaved, with forged headers, over sockets."""

import itertools
import random
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.e2e.agents import CONFIG, World, act, world_of
from tests.e2e.conftest import Lab
from tests.redis_process import RedisProcess

_examples: Iterator[int] = itertools.count()
"""Each example has tenants of its own, so that one proxy serves them all."""


@pytest.fixture
async def base(lab: Lab) -> str:
    return await lab.start(CONFIG, state="{kind: memory, max_mib: 256}")


STEP = st.tuples(st.integers(0, 4), st.integers(0, 6), st.integers(0, 10_000))


@settings(
    max_examples=6,
    deadline=None,
    phases=(Phase.explicit, Phase.generate),  # smaller examples would take minutes of requests
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    cast=st.lists(st.integers(0, 31), min_size=3, max_size=5, unique=True),
    steps=st.lists(STEP, min_size=20, max_size=40),
)
async def test_nothing_crosses(lab: Lab, base: str, cast: list[int], steps: list[tuple[int, int, int]]) -> None:
    everybody = world_of(f"pk{next(_examples)}")
    assert len(everybody) == 32
    world, agents = World([base], lab.behind, lab.http, everybody), [everybody[n] for n in cast]
    for who, what, n in steps:
        await act(world, agents, who, what, n)


async def test_nothing_crosses_between_two_proxies_on_one_server(running: RedisProcess, lab: Lab) -> None:
    state = f'{{kind: redis, url: "{running.url}", timeout: 30}}'
    bases = await lab.two(CONFIG, state=state)
    everybody, chosen = world_of("pk"), random.Random(4)
    world = World(bases, lab.behind, lab.http, everybody)
    for agents in (everybody[:5], everybody[10:16], everybody[8:16:3] + everybody[24:32:3]):
        for _ in range(60):
            await act(world, agents, chosen.randrange(len(agents)), chosen.randrange(7), chosen.randrange(9999))
    assert all(world.saw.values()), world.saw
    assert len(world.handles) > 20
