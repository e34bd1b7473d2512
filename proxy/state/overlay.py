"""A store that reads another one and keeps what is written to itself: for work whose traces nobody must find."""

from collections.abc import Collection, Mapping, Sequence

from proxy.state.sqlite import SqliteStore
from proxy.state.store import Store

_MOST = 2**28


class Overlay(Store):
    """A `Store` over one of which nothing is changed, not even when a value was used last."""

    def __init__(self, below: Store) -> None:
        self._below, self._own = below, SqliteStore(None, _MOST)
        self._cleared = 0

    @property
    def losses(self) -> int:
        return self._below.losses + self._cleared

    async def get_all(self, keys: Sequence[str], *, ttl: float | None = None) -> list[bytes | None]:
        own, below = await self._own.get_all(keys, ttl=ttl), await self._below.get_all(keys)
        return [old if new is None else new for new, old in zip(own, below, strict=True)]

    async def put_all(self, values: Mapping[str, bytes], *, ttl: float) -> None:
        await self._own.put_all(values, ttl=ttl)

    async def add(self, key: str, value: bytes, *, ttl: float) -> bytes:
        found = await self._below.get(key)
        return await self._own.add(key, value if found is None else found, ttl=ttl)

    async def touch(self, keys: Collection[str], *, ttl: float) -> frozenset[str]:
        own = await self._own.touch(keys, ttl=ttl)
        return own | {key for key in keys if key not in own and await self._below.get(key) is not None}

    async def delete(self, keys: Collection[str]) -> None:
        await self._own.delete(keys)

    async def keys(self, prefix: str, *, limit: int = 1000) -> tuple[str, ...]:
        found = {*await self._own.keys(prefix, limit=limit), *await self._below.keys(prefix, limit=limit)}
        return tuple(sorted(found)[:limit])

    async def latest(self, prefix: str, *, limit: int) -> tuple[str, ...]:
        found = (*await self._own.latest(prefix, limit=limit), *await self._below.latest(prefix, limit=limit))
        return tuple(dict.fromkeys(found))[:limit]

    async def clear(self) -> None:
        await self._own.aclose()
        self._own = SqliteStore(None, _MOST)
        self._cleared += 1

    async def aclose(self) -> None:
        await self._own.aclose()
