"""One Redis or Valkey server: scripts run on it within a bounded time, and what is known of its health.

Nothing waits for a server that is away: after a few failures calls fail at once, and a task looks once a second whether
it is back. The only file that knows redis-py.
"""

import asyncio
import logging
import re
import secrets
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha1
from importlib.resources import files
from typing import Any

from redis.asyncio import BlockingConnectionPool, Connection, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as Unconnected
from redis.exceptions import NoScriptError, RedisError, ResponseError

from proxy.state.store import Cause, StoreError
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
        async with asyncio.timeout(self._timeout):
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
            socket_connect_timeout=self._timeout,
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


async def _evaluated(client: Any, script: Script, rest: Sequence[Any]) -> list[Any]:
    try:
        answer = await client.execute_command("EVALSHA", script.digest, *rest)
    except NoScriptError:  # the server has not seen it yet, or has started again
        answer = await client.execute_command("EVAL", script.text, *rest)
    return list(answer)
