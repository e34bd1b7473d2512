import pytest

from proxy.context import Identity, Outage
from proxy.state.decisions import Memos, StoredMemory
from proxy.state.store import MemoryStore, StoreError
from tests.scripted import Away


async def test_what_was_put_is_there() -> None:
    memory = StoredMemory(MemoryStore(10**6), ttl=60)
    await memory.put("key", b"value")
    assert await memory.get("key") == b"value"
    assert await memory.get("other") is None


async def test_a_store_that_is_away_is_not_an_empty_one() -> None:
    store = MemoryStore(10**6)
    memory = StoredMemory(store, ttl=60)
    await store.aclose()
    with pytest.raises(StoreError):
        await memory.get("key")
    with pytest.raises(StoreError):
        await memory.put("key", b"value")


async def test_after_a_failed_read_nothing_new_is_settled_until_the_next_request() -> None:
    store = Away(10**6)
    memos, outage = Memos(store, ttl=60), Outage()
    memo = memos.bind(Identity("t", "s"), outage)
    assert await memo.settle("before", "first") == "first"
    store.is_away = True
    assert await memo.known(["before"]) == [None]
    assert outage.begun
    store.is_away = False
    assert await memo.settle("before", "second") == "first"
    assert await memo.settle("after", "decided without it") == "decided without it"
    assert await memos.bind(Identity("t", "s")).settle("after", "decided again") == "decided again"
