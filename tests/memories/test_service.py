"""Memories are kept, merged, bounded and found, whatever store they stay in."""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Collection, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from proxy.context import Identity
from proxy.memories import Owner, id_of
from proxy.state.sqlite import SqliteStore
from proxy.state.store import Store, StoreError
from tests.clock import Clock
from tests.memories.made import ALL, ANN, BOB, ELSE, Terms, draft, found, remembering, texts
from tests.redis_process import redis_process


@pytest.fixture(params=["memory", "disk", "redis"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[Store, None]:
    if request.param == "redis":
        with redis_process() as server:
            made: Store = server.store(timeout=30.0)
            yield made
            await made.aclose()
        return
    made = SqliteStore(None, 2**26) if request.param == "memory" else SqliteStore(tmp_path / "store", 2**26)
    yield made
    await made.aclose()


ASKED_BY_ANN = Identity("t", user="user-ann")


async def test_what_was_added_is_there_and_belongs_to_its_owner(store: Store) -> None:
    async with remembering(store) as service:
        (added,) = await service.add(ANN, [draft("Ann likes tea", kind="preference", sources=("chat",))])
        assert (added.status, added.memory.kind, added.memory.sources) == ("added", "preference", ("chat",))
        assert await service.get(ANN, added.memory.id) == added.memory
        for other in (BOB, ALL, ELSE):
            assert await service.get(other, added.memory.id) is None
            assert await texts(service, other) == []
            assert await found(service, other, "tea") == []
            assert not await service.delete(other, added.memory.id)
            assert await service.forget(other) == 0
        assert await found(service, ANN, "who likes tea?") == ["Ann likes tea"]
    async with remembering(store) as again:
        assert await texts(again, ANN) == ["Ann likes tea"]
        assert await again.delete(ANN, added.memory.id)
        assert await texts(again, ANN) == []


async def test_a_text_that_is_said_again_gains_its_source(store: Store) -> None:
    time = Clock()
    async with remembering(store, clock=time) as service:
        await service.add(ANN, [draft("Ann likes tea.", sources=("one",), confidence=0.5)])
        time.now += 100
        (again,) = await service.add(ANN, [draft("ann  likes TEA", sources=("two",), confidence=0.4)])
        assert again.status == "repeated"
        (only,) = await service.all(ANN)
        assert only == again.memory
        assert (only.text, only.sources, only.confidence) == ("Ann likes tea.", ("one", "two"), 0.5)
        assert only.updated - only.created == 100


async def test_workers_see_each_others_changes_and_lose_none(store: Store) -> None:
    async with remembering(store) as one, remembering(store) as other:
        both = (("one", one), ("other", other))
        await asyncio.gather(
            *(each.add(ANN, [draft(f"{name} fact number {n}")]) for n in range(12) for name, each in both)
        )
        assert len(await texts(one, ANN)) == len(await texts(other, ANN)) == 24
        same = [service.add(ANN, [draft("the same", sources=(f"{n}",))]) for n in range(8) for service in (one, other)]
        await asyncio.gather(*same)
        assert {each.text: set(each.sources) for each in await one.all(ANN)}["the same"] == set(map(str, range(8)))
        await one.forget(ANN)
        assert await texts(other, ANN) == []
    assert await store.keys("memory-lease/") == ()


NEAR = [
    pytest.param("the user likes green tea", "the user likes black green tea", True, id="another word"),
    pytest.param("the user has 2 green cats", "the user has 3 green cats", False, id="another number"),
    pytest.param("the user likes green tea", "the user never likes green tea", False, id="a denial"),
    pytest.param("meets Anna for green tea", "meets Maria for green tea", False, id="another name"),
    pytest.param("green tea on Monday with jam", "green tea on Friday with jam", False, id="another day"),
    pytest.param("té verde el lunes en casa", "té verde el martes en casa", False, id="another day in Spanish"),
]


@pytest.mark.parametrize(("first", "second", "merges"), NEAR)
async def test_what_says_the_same_is_merged_and_nothing_of_it_is_lost(first: str, second: str, merges: bool) -> None:
    time = Clock()
    async with remembering(backend=Terms(), clock=time, merge_at=0.6) as service:
        (old,) = await service.add(ANN, [draft(first, sources=("one",))])
        time.now += 5
        (new,) = await service.add(ANN, [draft(second, sources=("two",))])
        assert new.status == ("merged" if merges else "added")
        if not merges:
            assert len(await service.all(ANN)) == 2
            return
        (only,) = await service.all(ANN)
        assert (only.text, only.sources) == (second, ("one", "two"))
        assert [each.text for each in only.earlier] == [first]
        assert await service.get(ANN, old.memory.id) == only, "the old id leads to it"
        said = await service.bind(ASKED_BY_ANN).texts([old.memory.id, only.id, "a" * 20])
        assert list(said) == [first, second, None]
        (again,) = await service.add(ANN, [draft(first)])
        assert (again.status, again.memory.text) == ("repeated", second), "the older text does not come back"
        assert await found(service, ANN, "green tea") == [second]


async def test_other_kinds_and_users_are_not_merged_and_a_bulk_as_one_by_one() -> None:
    async with remembering(backend=Terms(), merge_at=0.6) as service:
        for owner, kind in ((ANN, "fact"), (ANN, "note"), (BOB, "fact")):
            (added,) = await service.add(owner, [draft(f"the user likes green tea {kind}", kind=kind)])
            assert added.status == "added"
    said = ["the user likes green tea", "the user likes nice green tea", "Rome is a city", "the user likes green tea"]
    async with remembering(backend=Terms(), merge_at=0.6) as bulk, remembering(backend=Terms(), merge_at=0.6) as single:
        at_once = [each.status for each in await bulk.add(ANN, [draft(text) for text in said])]
        one_by_one = [(await single.add(ANN, [draft(text)]))[0].status for text in said]
        assert at_once == one_by_one == ["added", "merged", "added", "repeated"]
        assert sorted(await texts(bulk, ANN)) == sorted(await texts(single, ANN))


async def test_aggregate_merges_what_was_kept_apart() -> None:
    async with remembering(backend=Terms(), merge_at=1) as service:
        said = ["green tea is liked", "green tea is liked much", "green tea is liked much daily", "Rome is a city"]
        await service.add(ANN, [draft(text, created=float(n)) for n, text in enumerate(said)])
        assert await service.aggregate(ANN, 0.6) == 2
        assert sorted(await texts(service, ANN)) == ["Rome is a city", "green tea is liked much daily"]
        assert await service.aggregate(ANN, 0.6) == 0
        assert set(await found(service, ANN, "green tea")) >= {"green tea is liked much daily"}
        assert "green tea is liked" not in await found(service, ANN, "green tea")


async def test_the_least_sure_leave_and_of_these_the_oldest() -> None:
    time = Clock()
    async with remembering(clock=time, most=3) as service:
        for text, sure in (("sure and old", 0.9), ("unsure", 0.2), ("middling and old", 0.5), ("middling", 0.5)):
            time.now += 1
            await service.add(ANN, [draft(text, confidence=sure)])
        assert set(await texts(service, ANN)) == {"sure and old", "middling and old", "middling"}
        time.now += 1
        await service.add(ANN, [draft("new, though unsure", confidence=0.1)])
        assert set(await texts(service, ANN)) == {"sure and old", "middling", "new, though unsure"}
        await service.add(ANN, [draft(f"many {n}") for n in range(5)])
        assert len(await texts(service, ANN)) == 3


async def test_what_is_over_is_not_shown_and_leaves_with_the_next_change(store: Store) -> None:
    time = Clock()
    async with remembering(store, clock=time) as service:
        (added,) = await service.add(ANN, [draft("parked on level 3", expires=time.now + 10)])
        assert await texts(service, ANN) == ["parked on level 3"]
        time.now += 11
        assert await texts(service, ANN) == []
        assert await found(service, ANN, "parked where?") == []
        assert await service.get(ANN, added.memory.id) is None
        assert not await service.delete(ANN, added.memory.id)
        assert await service.bind(ASKED_BY_ANN).total() == 1
        await service.add(ANN, [draft("another")])
        assert await service.bind(ASKED_BY_ANN).total() == 1


async def test_users_beyond_the_bound_leave_the_least_used_first(store: Store) -> None:
    async with remembering(store, max_users=3) as service:
        await service.add(ALL, [draft("of all")])
        for name in ("a", "b", "c", "d"):
            await service.add(Owner("t", f"user-{name}"), [draft(f"of {name}")])
            await asyncio.sleep(0.01)
        await service.add(Owner("other", "user-z"), [draft("of z")])
        there = [name for name in "abcdz" if await texts(service, Owner("t", f"user-{name}"))]
        assert there == ["b", "c", "d"]
        assert await texts(service, ALL) == ["of all"]
        assert len(await store.keys("memory/t/")) == 4


async def test_a_tenant_is_forgotten_with_all_its_users_and_no_other(store: Store) -> None:
    async with remembering(store, backend=Terms()) as service:
        for owner in (ANN, BOB, ALL, ELSE):
            await service.add(owner, [draft("likes green tea"), draft("lives in Bremen")])
        await store.put("memory/t/user-bob/orphan", b"[]", ttl=60)
        assert await service.forget_tenant("t") == 6
        assert await service.forget_tenant("t") == 0
        for owner in (ANN, BOB, ALL):
            assert await texts(service, owner) == []
        assert len(await texts(service, ELSE)) == 2
    assert await store.keys("memory/t/") == ()


async def test_what_becomes_of_memories_is_told() -> None:
    counts, time, store = Counter[str](), Clock(), Failing(None, 2**26)

    def count(metric: str, label: str, number: int) -> None:
        counts[f"{metric} {label}".strip()] += number

    bounds: dict[str, Any] = {"most": 4, "max_users": 1, "merge_at": 0.7}
    async with remembering(store, backend=Terms(), count=count, clock=time, **bounds) as service:
        await service.add(ANN, [draft("the user likes green tea"), draft("rides a bicycle", expires=time.now + 5)])
        await service.add(ANN, [draft("The user likes green tea."), draft("the user likes black green tea")])
        time.now += 10
        await service.add(ANN, [draft(f"a planet is called {name}") for name in ("Mars", "Venus", "Saturn", "Neptune")])
        await service.search([ANN], "which planet?", limit=5, wait=10)
        await service.delete(ANN, id_of("a planet is called Mars"))
        await service.add(BOB, [draft("lives in Bremen")])
        await service.forget(BOB)
        assert counts.pop("memory_written_bytes") > 0
        store.fails = True
        with pytest.raises(StoreError):
            await service.add(ANN, [draft("one"), draft("two")])
        with pytest.raises(StoreError):
            await service.search([ANN], "which planet?", limit=5, wait=10)
    once = ("memories repeated", "memories merged", "memories expired", "memories evicted", "memory_losses user")
    searched = dict.fromkeys(("memory_searches meaning", "memory_searches failed"), 1)
    more = {"memories added": 7, "memories deleted": 2, "memories refused": 2}
    assert +counts == dict.fromkeys(once, 1) | searched | more


async def test_each_row_that_is_written_is_counted_and_those_that_stay_are_not_written_again() -> None:
    written: list[int] = []

    def count(metric: str, label: str, number: int) -> None:
        if metric == "memory_written_bytes":
            written.append(number)

    async with remembering(count=count) as service:
        await service.add(ANN, [draft("one" * 300), draft("two" * 300)])
        await service.add(ANN, [draft("one" * 300, sources=("again",))])
        await service.add(ANN, [draft("three")])
        await service.delete(ANN, id_of("three"))
    assert written[0] > 1800 > written[1] > 900 > 150 > written[2] > written[3] == 0


async def test_a_lost_row_costs_one_memory_and_no_more() -> None:
    store = SqliteStore(None, 2**26)
    async with remembering(store, merge_at=1) as service:
        await service.add(ANN, [draft(f"fact {n}: " + "x" * 300) for n in range(30)])
    rows = await store.keys("memory/")
    await store.put(rows[0], b"{broken", ttl=60)
    await store.delete(rows[1:2])
    async with remembering(store) as service:
        assert len(await texts(service, ANN)) == 28
        await service.add(ANN, [draft("a new one")])
        assert len(await texts(service, ANN)) == 29


async def test_a_crash_between_writing_and_removing_leaves_no_second_memory() -> None:
    class Crashing(SqliteStore):
        crashes = True

        async def delete(self, keys: Collection[str]) -> None:
            if self.crashes and any(key.startswith("memory/") for key in keys):
                raise StoreError("unreachable")
            await super().delete(keys)

    store, time = Crashing(None, 2**26), Clock()
    async with remembering(store, clock=time, merge_at=0.7) as service:
        await service.add(ANN, [draft("likes green tea", sources=("one",)), draft("lives in Rome", sources=("one",))])
        for text in ("likes nice green tea", "lives in Rome"):
            time.now += 5
            with suppress(StoreError):  # one that stays is written in place
                await service.add(ANN, [draft(text, sources=("two",))])
    assert len(await store.keys("memory/")) == 3
    async with remembering(store, clock=time, merge_at=0.7) as again:
        assert sorted(await texts(again, ANN)) == ["likes nice green tea", "lives in Rome"]
        store.crashes = False
        await again.add(ANN, [draft("is tall")])
        assert len(await texts(again, ANN)) == len(await store.keys("memory/")) == 3


class Failing(SqliteStore):
    fails = False

    async def get_all(self, keys: Sequence[str], *, ttl: float | None = None) -> list[bytes | None]:
        if self.fails:
            raise StoreError("unreachable")
        return await super().get_all(keys, ttl=ttl)


async def test_a_store_that_fails_is_told_to_applications_and_done_without_in_requests() -> None:
    store = Failing(None, 2**26)
    async with remembering(store) as service:
        await service.add(ANN, [draft("tea")])
        store.fails = True
        with pytest.raises(StoreError):
            await service.add(ANN, [draft("more tea")])
        bound = service.bind(ASKED_BY_ANN)
        assert await bound.total() == 0
        assert (await bound.nearest("tea", limit=3, wait=0)).items == ()
        assert list(await bound.texts(["a"])) == [None]
        store.fails = False
        assert await bound.total() == 1


async def test_a_request_sees_its_users_memories_and_the_tenants_own() -> None:
    time = Clock()
    async with remembering(backend=Terms(), clock=time) as service:
        await service.add(ANN, [draft("tea for ann", confidence=0.5)])
        await service.add(BOB, [draft("tea for bob")])
        await service.add(ALL, [draft("tea for all")])
        time.now += 60
        near = (await service.bind(ASKED_BY_ANN).nearest("tea", limit=9, wait=10)).items
        assert {(item.text, item.is_own, item.age, item.confidence) for item in near} == {
            ("tea for ann", True, 60.0, 0.5),
            ("tea for all", False, 60.0, 1.0),
        }
        assert await service.bind(ASKED_BY_ANN).total() == 2
        nobody = (await service.bind(Identity("t", user="")).nearest("tea", limit=9, wait=10)).items
        assert [item.text for item in nobody] == ["tea for all"]


async def test_memories_whose_vectors_are_late_are_found_by_words_then_by_meaning() -> None:
    backend = Terms()
    backend.free.clear()
    async with remembering(backend=backend) as service:
        await service.add(ANN, [draft("Ann likes tea"), draft("Ann has a cat")])
        bound = service.bind(ASKED_BY_ANN)
        early = await bound.nearest("who likes tea?", limit=5, wait=0)
        assert ([item.text for item in early.items], early.how) == (["Ann likes tea"], "words")
        backend.free.set()
        late = await bound.nearest("who likes tea?", limit=5, wait=10)
        assert (late.items[0].text, late.how) == ("Ann likes tea", "meaning")
