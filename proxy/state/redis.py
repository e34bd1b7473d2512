"""The shared store: a Redis or Valkey server for several machines, which then behave as one.

A value is a key of the server's, with its time to live; before the value stand 16 digits, the time of its last use. One
sorted set holds the names of all, for finding them by prefix. What has expired leaves it by and by: each write looks at
three names at random, so at most about every third names nothing.

Scripts run on the server within a bounded time. Nothing waits for one that is away: after a few failures calls fail at
once, and a task looks once a second whether it is back. The only file that knows redis-py.
"""

import asyncio
import logging
import re
import secrets
import time
import zlib
from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from hashlib import sha1
from importlib.resources import files
from itertools import groupby
from typing import Any

from redis.asyncio import BlockingConnectionPool, Connection, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as Unconnected
from redis.exceptions import NoScriptError, RedisError, ResponseError

from proxy.state.store import Cause, Store, StoreError, batches
from proxy.state.warnings import Warnings

logger = logging.getLogger("penstock.state")

_TOLD = 60.0
"""Seconds for which health tells that something was corrupted, though it is repaired at once."""
FAILURES = 3
"""Failures in a row after which calls fail at once."""
PROBE_EVERY = 1.0
MOST_WAITING = 512
"""Calls that may wait for a connection; more are refused at once."""

_ERRORS: dict[str, Cause] = {
    "OutOfMemoryError": "full",
    "ReadOnlyError": "read_only",
    "OOM": "full",
    "READONLY": "read_only",
    "MISCONF": "read_only",
    "NOREPLICAS": "read_only",
    "BUSY": "busy",
    "WRONGTYPE": "corrupted",
    "not an integer": "corrupted",
}
_WORDS = re.compile(rf"\b({'|'.join(_ERRORS)})\b")
"""The library's and the server's words for what is wrong; older servers have theirs amid a script's error."""

_SCRIPTS = files("proxy") / "data" / "redis"


@dataclass(frozen=True, slots=True)
class Script:
    """A script in Lua. It finds `now` (microseconds, 16 digits) and `epoch`, and returns `{epoch, ...}`.

    Its first key is the epoch's, its first argument is text for making one; those of the call follow.
    """

    text: str
    digest: str
    writes: bool
    repeats: bool

    @classmethod
    def of(cls, *parts: str, writes: bool, repeats: bool = True) -> "Script":
        """Return the script of parts of `data/redis`; it `writes`, or fails, and may be run twice if it `repeats`."""
        text = "".join((_SCRIPTS / f"{part}.lua").read_text(encoding="utf-8") for part in ("head", *parts))
        return cls(text, sha1(text.encode(), usedforsecurity=False).hexdigest(), writes, repeats)


_PROBE = Script.of("probe", writes=True)
_REPAIR = Script.of("use", "repair", writes=False)


class RedisServer:
    """A server, by its address. For use on one event loop; nothing is connected before the first call."""

    def __init__(
        self,
        url: str,
        *,
        password: str | None = None,
        ca_file: str | None = None,
        prefix: str = "penstock",
        timeout: float = 0.5,
        connections: int = 32,
    ) -> None:
        """`timeout` is in seconds, for a whole call with connecting and waiting; `prefix` is that of every key."""
        options = {"password": password, "ssl_ca_certs": ca_file if url.startswith("rediss:") else None}
        self._options = {name: value for name, value in options.items() if value is not None}
        self._url, self._prefix, self._timeout, self._connections = url, prefix, timeout, connections
        self._waiting = 0
        self._client: Redis | None = None
        self._seed = secrets.token_hex(8)
        self._epoch: bytes | None = None
        self._run_id: str | None = None
        self._failures = 0
        self._mending: asyncio.Task[None] | None = None
        self._warnings = Warnings(logger, "state degraded")
        self._closed = False
        self.losses = 0
        """The number of times that the server was emptied, restarted or replaced."""
        self._cause: Cause | None = None
        self._corrupted_until = 0.0

    def key(self, kind: str, name: str = "") -> bytes:
        return f"{self._prefix}:{kind}{':' if name else ''}{name}".encode(errors="surrogatepass")

    @property
    def degraded(self) -> Cause | None:
        """The cause for which the server does not work, as far as the last answers tell."""
        return self._cause or ("corrupted" if self._corrupted_until > time.monotonic() else None)

    async def run(self, script: Script, keys: Sequence[bytes], arguments: Sequence[bytes | str | float]) -> list[Any]:
        """Run a script and return its answer without the epoch. Raise `StoreError`, at the latest after the timeout."""
        if self._closed:
            raise StoreError("closed")
        if self._failures >= FAILURES:
            raise StoreError("unreachable")
        if self._waiting >= MOST_WAITING:
            raise StoreError("busy")
        self._waiting += 1
        try:
            try:
                return await self._run(script, keys, arguments)
            except ResponseError as error:
                if _cause_of(error) != "corrupted":
                    raise
                await self._repair(keys)
            return await self._run(script, keys, arguments)
        except (RedisError, OSError, TimeoutError) as error:
            # its message may quote addresses and keys: it ends here
            raise StoreError(self._failed(error)) from None
        finally:
            self._waiting -= 1

    async def _repair(self, keys: Sequence[bytes]) -> None:
        """Remove foreign values of these keys. No script writes before it meets one, so it may be run again."""
        self._warnings.warn(cause="corrupted")
        self._corrupted_until = time.monotonic() + _TOLD
        begin = len(self.key(""))
        (removed,) = await self._run(_REPAIR, keys, [key[begin:].partition(b":")[0] for key in keys])
        self.losses += removed > 0

    async def look(self) -> None:
        """Find out whether it still takes writes, where no call would; one that is degraded is looked at anyway."""
        if self._cause is None:
            with suppress(StoreError):
                await self.run(_PROBE, (self.key("probe"),), ())

    async def aclose(self) -> None:
        self._closed = True
        if self._mending is not None:
            self._mending.cancel()
            await asyncio.gather(self._mending, return_exceptions=True)
        if self._client is not None:
            await self._client.connection_pool.disconnect()

    async def _run(self, script: Script, keys: Sequence[bytes], arguments: Sequence[bytes | str | float]) -> list[Any]:
        client = self._client = self._client or self._connecting()
        rest = (1 + len(keys), self.key("epoch"), *keys, self._seed, *arguments)
        async with _timeout(self._timeout):
            try:
                answer = await _evaluated(client, script, rest)
            except Unconnected:
                if self._closed or not script.repeats:
                    raise
                # most likely a connection that has ended since its last use, and so have all others
                await client.connection_pool.disconnect(inuse_connections=False)
                answer = await _evaluated(client, script, rest)
        self._answered(answer[0], script.writes)
        return answer[1:]

    def _connecting(self) -> Redis:
        pool: BlockingConnectionPool = BlockingConnectionPool.from_url(
            self._url,
            max_connections=self._connections,
            # `_run` has a time limit of its own: one more is a task for each command, and may lose a cancellation
            timeout=None,
            socket_timeout=None,
            socket_connect_timeout=None,
            protocol=2,
            retry=Retry(NoBackoff(), 0),
            redis_connect_func=self._connected,
            **self._options,
        )
        return Redis(connection_pool=pool)

    async def _connected(self, connection: Connection) -> None:
        """Count a loss where the server started again or is another one, which may lack confirmed values."""
        await connection.on_connect()
        await connection.send_command("INFO", "server")
        try:
            found = re.search(rb"run_id:(\w+)", await connection.read_response())
        except ResponseError:  # not allowed to ask
            found = None
        run_id = found[1].decode() if found is not None else secrets.token_hex(8)
        if self._run_id not in (None, run_id):
            self.losses += 1
        self._run_id = run_id

    def _answered(self, epoch: bytes, wrote: bool) -> None:
        if self._epoch not in (None, epoch):
            self.losses += 1
        self._epoch = epoch
        self._failures = 0
        if self._cause is not None and (wrote or self._cause == "unreachable"):
            self._cause = None
            logger.info("state recovered")

    def _failed(self, error: Exception) -> Cause:
        cause: Cause = "closed" if self._closed else _cause_of(error)
        self._failures = self._failures + 1 if cause == "unreachable" else 0
        if cause in ("unreachable", "full", "read_only"):
            self._warnings.warn({"exception": type(error).__name__}, cause=cause)
            self._cause = cause
            if self._mending is None or self._mending.done():
                self._mending = asyncio.get_running_loop().create_task(self._mend())
        return cause

    async def _mend(self) -> None:
        while self._cause is not None and not self._closed:
            await asyncio.sleep(PROBE_EVERY)
            try:
                await self._run(_PROBE, (self.key("probe"),), ())
            except (RedisError, OSError, TimeoutError) as error:
                self._failed(error)


def _cause_of(error: Exception) -> Cause:
    found = _WORDS.search(f"{type(error).__name__} {error}") if isinstance(error, ResponseError) else None
    return "unreachable" if found is None else _ERRORS[found[1]]


@asynccontextmanager
async def _timeout(seconds: float) -> AsyncGenerator[None, None]:
    """Raise `TimeoutError` after so many seconds; once more as many where the event loop is late.

    A busy loop reads an answer late that came in time. Taken for a server that is away, it would leave all callers
    without limits and without state.
    """
    loop = asyncio.get_running_loop()
    shortly_before = loop.time() + 0.9 * seconds

    async with asyncio.timeout(seconds) as limit:

        def look() -> None:
            if loop.time() - shortly_before > 0.1 * seconds:
                limit.reschedule(loop.time() + seconds)

        timer = loop.call_at(shortly_before, look)
        try:
            yield
        finally:
            timer.cancel()


async def _evaluated(client: Any, script: Script, rest: Sequence[Any]) -> list[Any]:
    try:
        answer = await client.execute_command("EVALSHA", script.digest, *rest)
    except NoScriptError:  # the server has not seen it yet, or has started again
        answer = await client.execute_command("EVAL", script.text, *rest)
    return list(answer)


# --- the store, the counters and the log on a server ---

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

    async def keys(self, prefix: str, *, limit: int = 1000, latest: bool = False) -> tuple[str, ...]:
        start = self._key(prefix)
        low, high = b"[" + start, b"[" + start + b"\xff"  # which is in no text
        used: list[tuple[bytes, bytes]] = []
        """Keys in order, each behind the time of its last use."""
        while latest or len(used) < limit:
            size = _PAGE if latest else min(_PAGE, limit - len(used))
            seen, last, found = await self.server.run(_NAMES, (self._index,), (low, high, size))
            used += found
            if seen < size:
                break
            low = b"(" + last
        if latest:
            used.sort(key=lambda each: each[0], reverse=True)
        return tuple(key.removeprefix(self._prefix).decode(errors="surrogatepass") for _, key in used[:limit])

    async def aclose(self) -> None:
        await self.server.aclose()

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
