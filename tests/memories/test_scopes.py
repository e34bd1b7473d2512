"""Memories of one session, agent or task: another one's text is another memory, and all of a user's leave together."""

import asyncio

from proxy.memories import Owner, kinds_of, scope_of
from proxy.state.sqlite import SqliteStore
from tests.clock import Clock
from tests.memories.made import ALL, ANN, draft, remembering, texts

PLANNER = ANN._replace(scope=scope_of(agent="agent-planner"))
WRITER = ANN._replace(scope=scope_of(agent="agent-writer"))
TRIP = ANN._replace(scope=scope_of("named-trip", "agent-planner", "task-hotel"))
EVERY = [ANN, PLANNER, WRITER, TRIP]


def test_a_scope_says_what_it_is_limited_by() -> None:
    assert [kinds_of(each.scope or "") for each in EVERY] == [(), ("agent",), ("agent",), ("session", "agent", "task")]


async def test_one_scope_is_forgotten_alone_and_a_user_with_all() -> None:
    store = SqliteStore(None, 2**26)
    async with remembering(store) as service:
        for owner in [*EVERY, ALL._replace(scope=PLANNER.scope)]:
            await service.add(owner, [draft("likes green tea")])
        assert await service.forget(PLANNER) == 1
        assert await service.forget(PLANNER) == 0
        there = [await texts(service, owner) for owner in EVERY]
        assert there == [["likes green tea"], [], ["likes green tea"], ["likes green tea"]]
        assert await service.forget(ANN.whole) == 3
        assert not any([await texts(service, owner) for owner in EVERY])
        assert await store.keys("memory/t/user-ann") == ()
        assert await service.forget_tenant("t") == 1, "what an agent of no user has is the tenant's too"
    assert await store.keys("memor") == ()


async def test_a_user_who_makes_room_leaves_with_all_scopes() -> None:
    async with remembering(max_users=1) as service:
        for owner in (ANN, TRIP):
            await service.add(owner, [draft("likes green tea")])
            await asyncio.sleep(0.01)
        await service.add(Owner("t", "user-new", PLANNER.scope), [draft("likes green tea")])
        assert [await texts(service, owner) for owner in (ANN, TRIP)] == [[], []]


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


async def test_an_expired_memory_is_not_there_to_delete() -> None:
    time = Clock()
    async with remembering(clock=time) as service:
        (added,) = await service.add(TRIP, [draft("parked on level 3", expires=time.now + 10)])
        time.now += 11
        assert not await service.delete(TRIP, added.memory.id)
