"""Memories of one session, agent or task."""

from proxy.memories import kinds_of, scope_of
from tests.clock import Clock
from tests.memories.made import ANN, draft, remembering, texts

PLANNER = ANN._replace(scope=scope_of(agent="agent-planner"))
WRITER = ANN._replace(scope=scope_of(agent="agent-writer"))
TRIP = ANN._replace(scope=scope_of("named-trip", "agent-planner", "task-hotel"))
EVERY = [ANN, PLANNER, WRITER, TRIP]


def test_a_scope_says_what_it_is_limited_by() -> None:
    assert [kinds_of(each.scope or "") for each in EVERY] == [(), ("agent",), ("agent",), ("session", "agent", "task")]


async def test_the_scope_that_has_the_most_gives_way() -> None:
    time = Clock()
    async with remembering(clock=time, most=6) as service:
        await service.add(ANN, [draft("ann's", confidence=0.1)])
        await service.add(PLANNER, [draft("the planner's first", confidence=0.1), draft("its second", confidence=0.2)])
        time.now += 5
        for n in range(4):
            await service.add(WRITER, [draft(f"flood {n} {m}") for m in range(10)])
        assert await texts(service, ANN) == ["ann's"]
        assert len(await texts(service, PLANNER)) == 2
        assert len(await texts(service, WRITER)) == 3
        await service.add(TRIP, [draft("a fourth scope")])
        assert [len(await texts(service, each)) for each in EVERY] == [1, 2, 2, 1]
        await service.add(ANN, [draft("more", confidence=0.9)])
        assert set(await texts(service, ANN)) == {"ann's", "more"}, "of scopes that have as many the least sure leaves"
        assert await texts(service, PLANNER) == ["its second"]
