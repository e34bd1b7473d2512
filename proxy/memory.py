"""What the internal tools added to conversations, kept in a store."""

from proxy.stores import Store, StoreError


class StoredMemory:
    """Keeps bytes under a key for as long as conversations last; what the store cannot do is done without."""

    def __init__(self, store: Store, *, ttl: float) -> None:
        """`ttl` is in seconds, from the last use."""
        self._store = store
        self._ttl = ttl

    async def get(self, key: str) -> bytes | None:
        """What was kept; None where there is nothing, no longer, or no store to ask."""
        try:
            return await self._store.get(f"loop/{key}", ttl=self._ttl)
        except StoreError:
            return None

    async def put(self, key: str, value: bytes) -> None:
        """Keep it. Raises `StoreError` where that cannot be done."""
        await self._store.put(f"loop/{key}", value, ttl=self._ttl)
