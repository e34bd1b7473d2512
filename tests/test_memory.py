import pytest

from proxy.memory import StoredMemory
from proxy.stores import MemoryStore, StoreError


async def test_what_was_put_is_there() -> None:
    memory = StoredMemory(MemoryStore(10**6), ttl=60)
    await memory.put("key", b"value")
    assert await memory.get("key") == b"value"
    assert await memory.get("other") is None


async def test_without_a_store_nothing_is_found_and_nothing_is_claimed_to_be_kept() -> None:
    store = MemoryStore(10**6)
    memory = StoredMemory(store, ttl=60)
    await store.aclose()
    assert await memory.get("key") is None
    with pytest.raises(StoreError):
        await memory.put("key", b"value")
