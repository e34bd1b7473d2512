"""Decisions that stay the same from one request of a conversation to the next, kept in a store."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import monotonic
from urllib.parse import quote

from proxy.context import Identity, Outage
from proxy.state.cache import Cache, SharedLimit
from proxy.state.store import Store, StoreError

Key = tuple[str, str, str, int]
"""Tenant, scope and key of a decision, and the store's losses: what was read before the last one is not found."""

_ENTRY = 600
"""Bytes that a decision takes in memory besides its value, about."""


class StoredMemory:
    """Keeps bytes under a key for as long as conversations last; what the store cannot do is done without."""

    def __init__(self, store: Store, *, ttl: float, kind: str = "loop") -> None:
        self._store, self._ttl, self._kind = store, ttl, kind

    async def get(self, key: str) -> bytes | None:
        return (await self.get_all((key,)))[0]

    async def get_all(self, keys: Sequence[str]) -> list[bytes | None]:
        return await self._store.get_all([f"{self._kind}/{key}" for key in keys], ttl=self._ttl)

    async def put(self, key: str, value: bytes) -> None:
        await self._store.put(f"{self._kind}/{key}", value, ttl=self._ttl)


class Memos:
    """Makes memos over one store, and keeps for a minute what they read: what is settled never changes."""

    def __init__(
        self,
        store: Store,
        *,
        ttl: float,
        limit: SharedLimit | int = 2**20,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        """`ttl` is in seconds, from the last use; what was used within the last minute is not used again."""
        self.store = store
        self.ttl = ttl
        self.fresh: Cache[Key, str] = Cache(limit, age=min(60.0, ttl / 10), clock=clock)
        """Decisions that were in the store so recently that they are not looked up."""

    def bind(self, who: Identity, outage: Outage | None = None) -> "BoundMemo":
        return BoundMemo(self, who.tenant, who.scope, outage or Outage())

    def forget(self, tenant: str) -> int:
        """Forget what was read of a tenant's, because somebody deletes it in the store."""
        return self.fresh.forget(tenant)


@dataclass(slots=True)
class BoundMemo:
    """The `Memo` of a request's context."""

    _memos: Memos
    _tenant: str
    _scope: str
    _outage: Outage

    async def known(self, keys: Sequence[str]) -> Sequence[str | None]:
        losses = self._memos.store.losses
        values = dict(zip(keys, self._memos.fresh.get_each([self._key(key, losses) for key in keys]), strict=True))
        values |= await self._read([key for key, value in values.items() if value is None])
        return [values[key] for key in keys]

    async def settle(self, key: str, value: str) -> str:
        """Remember a value under a key, unless one was there or the store failed; return the one that counts."""
        memos, losses = self._memos, self._memos.store.losses
        if (known := memos.fresh.get(self._key(key, losses))) is not None:
            return known
        if self._outage.begun:
            return (await self._read([key])).get(key) or value
        data = value.encode(errors="surrogatepass")
        try:
            kept = await memos.store.add(self._name(key), data, ttl=memos.ttl)
        except StoreError:  # what is not kept is worked out again next time
            self._outage.begun = True
            return value
        return self._seen(key, kept, losses)

    async def _read(self, keys: Sequence[str]) -> dict[str, str]:
        store, losses = self._memos.store, self._memos.store.losses
        try:
            values = await store.get_all([self._name(key) for key in keys], ttl=self._memos.ttl) if keys else []
        except StoreError:
            self._outage.begun = True
            return {}
        pairs = zip(keys, values, strict=True)
        return {key: self._seen(key, value, losses) for key, value in pairs if value is not None}

    def _seen(self, key: str, stored: bytes, losses: int) -> str:
        value = stored.decode(errors="surrogatepass")
        self._memos.fresh.put(self._key(key, losses), value, _ENTRY + len(stored))
        return value

    def _key(self, key: str, losses: int) -> Key:
        return self._tenant, self._scope, key, losses

    def _name(self, key: str) -> str:
        return f"memo/{quote(self._tenant, safe='')}/{quote(self._scope, safe='')}/{key}"
