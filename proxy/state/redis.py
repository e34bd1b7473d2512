"""The shared store: a Redis or Valkey server for several machines, which then behave as one.

A value is a key of the server's, with its time to live; before the value stand 16 digits, the time of its last use. One
sorted set holds the names of all, for finding them by prefix. What has expired leaves it by and by: each write looks at
three names at random, so at most about every third names nothing.
"""

import asyncio
import secrets
import zlib
from collections.abc import Collection, Mapping, Sequence
from itertools import groupby
from typing import Any

from proxy.state.redis_server import RedisServer, Script
from proxy.state.store import Store, StoreError, batches

LARGEST = 8 * 2**20
"""Bytes that a value may have: more would hold up the server, and all others with it."""

_PAGE = 1000
_AT_ONCE = 256
"""Keys of one call: some hundred microseconds of the server's time, in which it does nothing else."""
_STAMP = 16

_GET = Script.of("use", "get", writes=False)
# a server that is full refuses the first write of a script, and so all of them
_PUT = Script.of("write", "put", writes=True)
_ADD = Script.of("use", "write", "add", writes=False)
_TOUCH = Script.of("use", "touch", writes=False)
_DELETE = Script.of("delete", writes=False)
_NAMES = Script.of("names", writes=False)
_COUNT = Script.of("count", writes=True, repeats=False)  # nobody would know what was counted twice
_READ = Script.of("read", writes=False)
_APPEND = Script.of("append", writes=True, repeats=False)  # rows would be there twice
_TAIL = Script.of("tail", writes=False)
_ERASE = Script.of("erase", writes=False)


class RedisStore(Store):
    """A `Store` on a server, bounded by the server's `maxmemory`, and as durable as the server is set up to be."""

    def __init__(self, server: RedisServer, *, largest: int = LARGEST) -> None:
        self.server = server
        self._largest = largest
        self._index = server.key("names")
        self._prefix = server.key("value") + b":"

    @property
    def losses(self) -> int:
        return self.server.losses

    @property
    def degraded(self) -> str | None:
        return self.server.degraded

    async def look(self) -> None:
        await self.server.look()

    async def get_all(self, keys: Sequence[str], *, ttl: float | None = None) -> list[bytes | None]:
        values: list[bytes | None] = []
        for some in batches(keys, _AT_ONCE):
            (found,) = await self.server.run(_GET, self._keys(some), (0 if ttl is None else _milliseconds(ttl),))
            values += [None if value is None else bytes(value[_STAMP:]) for value in found]
        return values

    async def put_all(self, values: Mapping[str, bytes], *, ttl: float) -> None:
        self._check(values.values())
        if values:
            await self.server.run(_PUT, self._keys(values), (_milliseconds(ttl), *values.values()))

    async def add(self, key: str, value: bytes, *, ttl: float) -> bytes:
        self._check((value,))
        (found,) = await self.server.run(_ADD, self._keys((key,)), (_milliseconds(ttl), value))
        return bytes(found[_STAMP:])

    async def touch(self, keys: Collection[str], *, ttl: float) -> frozenset[str]:
        found: set[str] = set()
        for some in batches(keys, _AT_ONCE):
            (places,) = await self.server.run(_TOUCH, self._keys(some), (_milliseconds(ttl),))
            found.update(some[place] for place in places)
        return frozenset(found)

    async def delete(self, keys: Collection[str]) -> None:
        for some in batches(keys, _AT_ONCE):
            await self.server.run(_DELETE, self._keys(some), ())

    async def keys(self, prefix: str, *, limit: int = 1000) -> tuple[str, ...]:
        return tuple(key for _, key in await self._used(prefix, limit))

    async def latest(self, prefix: str, *, limit: int) -> tuple[str, ...]:
        used = await self._used(prefix, None)
        used.sort(key=lambda each: each[0], reverse=True)
        return tuple(key for _, key in used[:limit])

    async def aclose(self) -> None:
        await self.server.aclose()

    async def _used(self, prefix: str, limit: int | None) -> list[tuple[bytes, str]]:
        """Return the keys that start with a prefix, in order, each behind the time of its last use."""
        start = self._key(prefix)
        low, high = b"[" + start, b"[" + start + b"\xff"  # which is in no text
        used: list[tuple[bytes, str]] = []
        while limit is None or len(used) < limit:
            size = _PAGE if limit is None else min(_PAGE, limit - len(used))
            seen, last, found = await self.server.run(_NAMES, (self._index,), (low, high, size))
            used += [(when, key.removeprefix(self._prefix).decode(errors="surrogatepass")) for when, key in found]
            if seen < size:
                break
            low = b"(" + last
        return used

    def _keys(self, keys: Collection[str]) -> list[bytes]:
        return [self._index, *map(self._key, keys)]

    def _key(self, key: str) -> bytes:
        return self._prefix + key.encode(errors="surrogatepass")

    def _check(self, values: Collection[bytes]) -> None:
        if max(map(len, values), default=0) > self._largest:
            raise StoreError("too_large")


class RedisCounters:
    """`Counters` on a server: exact for all who share it."""

    def __init__(self, server: RedisServer) -> None:
        self._server = server

    async def add(self, amounts: Mapping[str, float], *, ttl: float) -> Mapping[str, float]:
        if not amounts:
            return {}
        keys = [self._server.key("count", name) for name in amounts]
        added = [format(amount, ".17g") for amount in amounts.values()]
        (counts,) = await self._server.run(_COUNT, keys, (_milliseconds(ttl), *added))
        return dict(zip(amounts, map(float, counts), strict=True))

    async def read(self, keys: Collection[str]) -> Mapping[str, float]:
        found: dict[str, float] = {}
        for some in batches(keys, _AT_ONCE):
            (counts,) = await self._server.run(_READ, [self._server.key("count", name) for name in some], ())
            found.update(zip(some, map(float, counts), strict=True))
        return found

    async def aclose(self) -> None:
        pass  # the connections are the store's


class RedisLog:
    """A log that all replicas append rows to and read from, bounded in bytes and age: a stream.

    An entry has the rows of one tenant, so that they can be removed; one without rows says that this was done. All
    methods raise `StoreError`. Where the server's user has no right to streams, only the log does without.
    """

    def __init__(self, server: RedisServer, *, max_bytes: int, age: float) -> None:
        self._server = server
        self._keys = (server.key("records"), server.key("records-size"))
        self._max_bytes, self._age = max_bytes, age
        self._own = secrets.token_hex(6).encode()
        self._seen = b"0"

    async def append(self, rows: Sequence[tuple[str, bytes]]) -> None:
        batch: list[str | bytes] = []
        for tenant, each in groupby(sorted(rows, key=lambda row: row[0]), key=lambda row: row[0]):
            packed = await asyncio.to_thread(zlib.compress, b",".join(row for _, row in each), 1)
            batch += [tenant, packed]
        await self._append(batch)

    async def read(self) -> Sequence[tuple[str | None, bytes]]:
        """Return the next rows of others, behind None; a tenant and nothing, if it was forgotten. Empty at the end."""
        rows: list[tuple[str | None, bytes]] = []
        while not rows:
            entries = await self._run(_TAIL, b"(" + self._seen, _AT_ONCE)
            if not entries:
                break
            for id, (_, by, _, tenant, _, packed) in entries:
                self._seen = id
                if not packed:
                    rows.append((tenant.decode(), b""))
                elif by != self._own:
                    rows.append((None, await asyncio.to_thread(zlib.decompress, packed)))
        return rows

    async def forget(self, tenant: str) -> None:
        """Remove the rows of a tenant, here and from what others have read."""
        place: bytes = b"-"
        while place:
            last = await self._run(_ERASE, place, _AT_ONCE, tenant)
            place = b"(" + last if last else b""
        await self._append([tenant, b""])

    async def _append(self, batch: Sequence[str | bytes]) -> None:
        await self._run(_APPEND, self._own, self._max_bytes, _milliseconds(self._age), *batch)

    async def _run(self, script: Script, *arguments: bytes | str | float) -> Any:
        (answer,) = await self._server.run(script, self._keys, arguments)
        if answer == 0:
            raise StoreError("read_only")
        return answer


def _milliseconds(seconds: float) -> int:
    return max(1, round(seconds * 1000))
