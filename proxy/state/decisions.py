"""What must stay the same from one request of a conversation to the next, kept in a store."""

from collections.abc import Sequence
from urllib.parse import quote

from proxy.context import Identity, Outage
from proxy.state.store import Store, StoreError


class StoredMemory:
    """Keeps bytes under a key for as long as conversations last; what the store cannot do is done without."""

    def __init__(self, store: Store, *, ttl: float, kind: str = "loop") -> None:
        """`ttl` is in seconds, from the last use; `kind` begins its keys in the store."""
        self._store = store
        self._ttl = ttl
        self._kind = kind

    async def get(self, key: str) -> bytes | None:
        return await self._store.get(f"{self._kind}/{key}", ttl=self._ttl)

    async def put(self, key: str, value: bytes) -> None:
        await self._store.put(f"{self._kind}/{key}", value, ttl=self._ttl)


class Memos:
    """Makes memos over one store."""

    def __init__(self, store: Store, *, ttl: float) -> None:
        """`ttl` is in seconds, from the last use."""
        self._store = store
        self._ttl = ttl

    def bind(self, who: Identity, outage: Outage | None = None) -> "BoundMemo":
        """The memo of a conversation, for one request."""
        prefix = f"memo/{quote(who.tenant, safe='')}/{quote(who.scope, safe='')}/"
        return BoundMemo(self._store, self._ttl, prefix, outage or Outage())


class BoundMemo:
    """The `Memo` of a request's context."""

    __slots__ = ("_outage", "_prefix", "_store", "_ttl")

    def __init__(self, store: Store, ttl: float, prefix: str, outage: Outage) -> None:
        self._store, self._ttl, self._prefix, self._outage = store, ttl, prefix, outage

    async def known(self, keys: Sequence[str]) -> Sequence[str | None]:
        return [await self._known(self._prefix + key) for key in keys]

    async def settle(self, key: str, value: str) -> str:
        """What is remembered under a key: `value`, unless there was something already.

        After a failed read of this request nothing new is remembered: it was decided without what is there.
        """
        if self._outage.begun:
            return await self._known(self._prefix + key) or value
        try:
            kept = await self._store.add(self._prefix + key, value.encode(errors="surrogatepass"), ttl=self._ttl)
        except StoreError:  # what is not kept is worked out again next time
            self._outage.begun = True
            return value
        return kept.decode(errors="surrogatepass")

    async def _known(self, key: str) -> str | None:
        try:
            value = await self._store.get(key, ttl=self._ttl)
        except StoreError:
            self._outage.begun = True
            return None
        return None if value is None else value.decode(errors="surrogatepass")
