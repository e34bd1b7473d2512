from proxy.context import Identity, Outage
from proxy.state.decisions import Memos
from proxy.state.sqlite import Overlay, SqliteStore
from tests.scripted import Away


async def test_after_a_failed_read_nothing_new_is_settled_until_the_next_request() -> None:
    store = Away(None, 10**6)
    assert await Memos(store, ttl=60).bind(Identity("t", "s")).settle("before", "first") == "first"
    memos, outage = Memos(store, ttl=60), Outage()  # another replica, which has not read it yet
    memo = memos.bind(Identity("t", "s"), outage)
    store.is_away = True
    assert await memo.known(["before"]) == [None]
    assert outage.begun
    store.is_away = False
    assert await memo.settle("before", "second") == "first"
    assert await memo.settle("after", "decided without it") == "decided without it"
    assert await memos.bind(Identity("t", "s")).settle("after", "decided again") == "decided again"


async def test_what_was_read_within_a_minute_needs_no_store() -> None:
    store, now = Away(None, 10**6), 0.0
    memo = (memos := Memos(store, ttl=3600, clock=lambda: now)).bind(Identity("t", "s"))
    await memo.settle("key", "value")
    store.is_away, now = True, 59.0
    assert await memo.known(["key"]) == [await memo.settle("key", "another")] == ["value"]
    for other in (Identity("t2", "s"), Identity("t", "s2")):
        assert await memos.bind(other).known(["key"]) == [None]
    now = 61.0
    assert await memo.known(["key"]) == [None]


async def test_what_the_store_has_lost_or_deleted_is_not_remembered() -> None:
    store = Overlay(SqliteStore(None, 10**6))
    memo = Memos(store, ttl=3600).bind(Identity("t", "s"))
    await memo.settle("key", "first")
    await store.clear()
    assert await memo.known(["key"]) == [None]
    assert await memo.settle("key", "second") == "second"
    emptied = SqliteStore(None, 10**6)
    memo = (memos := Memos(emptied, ttl=3600)).bind(Identity("t", "s"))
    await memo.settle("key", "value")
    await emptied.delete(await emptied.keys("memo/t/"))
    assert memos.forget("t") == 1
    assert await memo.known(["key"]) == [None]


async def test_what_was_read_while_the_store_lost_values_is_looked_up_again() -> None:
    class Emptied(SqliteStore):
        async def add(self, key: str, value: bytes, *, ttl: float) -> bytes:
            self._database.losses += 1
            return value

    memo = Memos(Emptied(None, 10**6), ttl=3600).bind(Identity("t", "s"))
    assert await memo.settle("key", "first") == "first"
    assert await memo.known(["key"]) == [None]
