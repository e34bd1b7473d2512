"""What was done to recent requests, told to the other replicas through the store that they share.

A record is a value of its own, under the tenant that may read it; beside it a name by its id leads operators there. It
is written after its request is over, together
with others, by a task that no request waits for. What cannot be written waits its turn, as far as there is room.
"""

import asyncio
import logging
import secrets
from collections import deque
from collections.abc import Collection
from typing import Any
from urllib.parse import quote

import orjson

from proxy.state.store import Cause, Store, StoreError
from proxy.telemetry.recent import MOST, Record

TTL = 3600.0
"""Seconds for which a record can be read: those of a replica that is gone have nobody else to remove them."""

LARGEST = 64 * 2**10
"""Bytes that a record may take. A larger one stays where it was made."""

AT_ONCE = 16
"""Records of one write: some hundred microseconds of the event loop's time, in which it does nothing else."""

_GATHER = 0.05
"""Seconds to wait for more before a write."""
_AGAIN_EVERY = 1.0
"""Seconds between two attempts where the store takes nothing."""
_PATIENCE = 2.0
"""Seconds after which a reader does without, and the end of the process without what is not written yet."""
_COPIES = 8
"""Records of one id that are looked at: each process may have one."""
_PREFIX = "explain/"
_BY_ID = "explained/"
"""What names start with that say where records of an id are, for operators, who need not know whose they are."""

_log = logging.getLogger("penstock.records")


class SharedRecords:
    """The recent requests of all processes on one store; of each process at most so many as it remembers itself."""

    def __init__(self, store: Store, *, most: int = MOST, ttl: float = TTL) -> None:
        """`most` bounds the records of this process, in the store and waiting for it; `ttl` is in seconds."""
        self._store = store
        self._most, self._ttl = most, ttl
        self._origin = secrets.token_hex(6)
        self._waiting: deque[Record] = deque(maxlen=most)
        self._kept: dict[str, None] = {}  # our keys in the store, the oldest first
        self._news = asyncio.Event()
        self._fault: Cause | None = None
        self.readable = True
        """Whether the last question was answered: without that, a record that was not found may be there."""

    def add(self, record: Record) -> None:
        """Have a record written, soon. It takes no time, and never fails."""
        self._waiting.append(record)
        self._news.set()

    async def find(self, request_id: str, tenant: str | None = None) -> list[dict[str, Any]]:
        """The records of an id, one for each process that has one; with `tenant` only its own.

        There are none where the store cannot be asked: see `readable`.
        """
        try:
            async with asyncio.timeout(_PATIENCE):
                values = [await self._store.get(key) for key in await self._keys(request_id, tenant)]
        except (StoreError, TimeoutError):
            self.readable = False
            return []
        self.readable = True
        records = [record for value in values if value is not None and (record := _record(value)) is not None]
        # whatever the key says: a record is told to nobody but its tenant
        return [each for each in records if each["request_id"] == request_id and tenant in (None, each["tenant"])]

    async def write(self) -> None:
        """Write what is added, until cancelled."""
        while True:
            await self._news.wait()
            await asyncio.sleep(_GATHER)
            self._news.clear()
            await self._flush()
            if self._waiting:
                await asyncio.sleep(_AGAIN_EVERY)
                self._news.set()

    async def aclose(self) -> None:
        """Write what still waits, as far as that is quick; `write` must have ended. What is written can be read on."""
        try:
            async with asyncio.timeout(_PATIENCE):
                await self._flush()
        except TimeoutError:
            self._failed("unreachable")

    async def _flush(self) -> None:
        while self._waiting:
            batch = [self._waiting.popleft() for _ in range(min(AT_ONCE, len(self._waiting)))]
            try:
                await self._put(batch)
                batch.clear()
            except StoreError as error:
                self._failed(error.cause)
                if error.cause == "too_large":  # it would be so again
                    batch.clear()
                    continue
                return
            finally:
                while batch and len(self._waiting) < self._most:
                    self._waiting.appendleft(batch.pop())
            if self._fault is not None:
                self._fault = None
                _log.info("records are shared again")

    async def _put(self, batch: Collection[Record]) -> None:
        values = {self._key(record): value for record in batch if (value := _value(record)) is not None}
        await self._store.put_all(values | dict.fromkeys(map(_name, values), b""), ttl=self._ttl)
        for key in values:
            self._kept.pop(key, None)
            self._kept[key] = None
        old = list(self._kept)[: max(0, len(self._kept) - self._most)]
        if old:
            await self._store.delete([*old, *map(_name, old)])
        for key in old:
            del self._kept[key]

    def _failed(self, cause: Cause) -> None:
        """Say so, once until it works again."""
        if self._fault is None:
            _log.warning("records are not shared", extra={"fields": {"cause": cause}})
        self._fault = cause

    def _key(self, record: Record) -> str:
        return f"{_of(record.tenant, record.request_id)}{self._origin}"

    async def _keys(self, request_id: str, tenant: str | None) -> Collection[str]:
        if tenant is not None:
            return await self._store.latest(_of(tenant, request_id), limit=_COPIES)
        names = await self._store.latest(f"{_BY_ID}{quote(request_id, safe='')}/", limit=_COPIES)
        return [f"{_PREFIX}{owner}/{id}/{origin}" for id, owner, origin in (name.split("/")[1:] for name in names)]


def _of(tenant: str, request_id: str) -> str:
    return f"{_PREFIX}{quote(tenant, safe='')}/{quote(request_id, safe='')}/"


def _name(key: str) -> str:
    """The name by its id of what has a key."""
    _, owner, id, origin = key.split("/")
    return f"{_BY_ID}{id}/{owner}/{origin}"


def _value(record: Record) -> bytes | None:
    try:
        value = orjson.dumps(record.shown())
    except TypeError:  # a policy of the operator's own may give as a fact what is none
        return None
    return value if len(value) <= LARGEST else None


def _record(value: bytes) -> dict[str, Any] | None:
    try:
        found = orjson.loads(value)
    except ValueError:
        return None
    return found if isinstance(found, dict) and {"request_id", "tenant", "ended"} <= found.keys() else None
