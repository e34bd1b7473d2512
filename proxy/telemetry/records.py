"""Records of requests: kept in the background, read by views, shared by all workers and replicas.

Every process has a table in SQLite: that of the embedded store's directory, which all workers of a machine share, or
one of its own. Over Redis, rows also go into a log that all replicas share; a reader first puts the rows of others into
the own table. Requests never wait for any of it. Rows that cannot be written wait, as far as there is room.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice
from pathlib import Path
from sqlite3 import Connection
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from proxy.config.settings import RecordsSettings
from proxy.state.database import Database
from proxy.state.store import StoreError
from proxy.state.warnings import Warnings
from proxy.telemetry import record_table as table
from proxy.telemetry.ledger import Ledger
from proxy.telemetry.record import Record, Texts, row_of
from proxy.telemetry.record_table import Filters

if TYPE_CHECKING:
    from proxy.state.redis import RedisLog

P = ParamSpec("P")
T = TypeVar("T")
Rows = Sequence[tuple[str, bytes]]

_AT_ONCE = 32
_GATHER = 0.25
_MOST_WAITING = 10_000
_MOST_BYTES = 4 * 2**20
"""Bytes of rows that wait where they cannot be written."""
_PATIENCE = 2.0
"""Seconds after which a reader does without other replicas' records; the end of the process waits no less."""

_log = logging.getLogger("penstock.records")


class Records:
    """The records of requests. For use on one event loop."""

    def __init__(
        self,
        settings: RecordsSettings,
        file: Path | None = None,
        log: "RedisLog | None" = None,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Without a file they end with the process, but for those in the `log` of all replicas."""
        self.settings = settings
        self._table = Database(file, table.SCHEMA, name="records", synchronous="NORMAL")
        self._log, self._clock = log, clock
        self.shared = log is not None
        """True where requests of other replicas are found."""
        self._lasts = file is not None or self.shared
        self._ledger = Ledger()
        self._texts = Texts() if settings.text else None
        self._waiting: deque[Record] = deque()
        self._may, self._since = 2 * settings.per_second, clock()
        self._skipped = 0
        self.skipped: Callable[[float], None] = lambda count: None
        """A function that gets the number of requests that were not recorded."""
        self.forgotten: Callable[[str], object] = lambda tenant: None
        """A function that gets a tenant whose records were removed."""
        room = _MOST_BYTES * (8 if settings.text else 1)
        self._outlets = [_Outlet("kept", room, lambda rows: self._insert([row for _, row in rows]))]
        if log is not None:
            self._outlets.append(_Outlet("shared", room, log.append))
        self._news = asyncio.Event()
        self._writing, self._reading = asyncio.Lock(), asyncio.Lock()
        self._odd = Warnings(_log, "a record is not kept")
        self._overload = Warnings(_log, "some requests are not recorded: there are more than records.per_second")
        self.is_whole = True
        """True if the last answer had all that other replicas have written."""

    def takes_one(self, *, asked: bool) -> bool:
        """Return whether one more request is recorded now; one that asks for its record is before others."""
        now = self._clock()
        most = 2 * self.settings.per_second
        self._may = min(most, self._may + max(0.0, now - self._since) * self.settings.per_second)
        self._since = now
        if self._may >= 1 or (asked and self._may > -most):
            self._may -= 1
            return True
        self._skipped += 1
        return False

    def add(self, record: Record) -> None:
        """Add a record, to be written soon. It takes no time, and never fails."""
        if len(self._waiting) < _MOST_WAITING:
            self._waiting.append(record)
        else:
            self._skipped += 1
        self._news.set()

    async def write(self) -> None:
        with suppress(StoreError):
            await self._table.run(lambda database: None)  # the first request finds the file open
        while True:
            await self._news.wait()
            await asyncio.sleep(_GATHER)
            self._news.clear()
            await self.flush()
            if any(self._outlets):
                self._news.set()

    async def flush(self) -> None:
        async with self._writing:
            if self._skipped:
                self.skipped(self._skipped)
                self._overload.warn({"requests": self._skipped})
                self._skipped = 0
            while self._waiting:
                for record in [*islice(self._waiting, _AT_ONCE)]:
                    await self._make_row(record)
                    self._waiting.popleft()
                await asyncio.sleep(0)
                for outlet in self._outlets:
                    if outlet.is_filling:
                        await outlet.empty()
            for outlet in self._outlets:
                await outlet.empty()

    async def _make_row(self, record: Record) -> None:
        try:
            row = await row_of(record, self._ledger, self._texts)
        except Exception as error:  # clients and policies choose its content: none may hold up the others
            self._odd.warn(fault=type(error).__name__)
            return
        for outlet in self._outlets:
            outlet.add(record.tenant, row)

    async def aclose(self, seconds: float = 0.0) -> None:
        """Write waiting records, for so many seconds, and log how many could not be; `write` must have ended."""
        last = self._outlets[-1]
        if self._lasts:
            with suppress(TimeoutError):
                async with asyncio.timeout(max(seconds, _PATIENCE)):
                    await self.flush()
            with suppress(TimeoutError):
                async with asyncio.timeout(_PATIENCE):
                    await last.empty()  # what was ready when the time was over
        await self._table.aclose()
        if self._lasts and (lost := len(self._waiting) + len(last) + len(last.leaving) + last.lost):
            _log.error("records are lost: the process ends", extra={"fields": {"requests": lost}})

    async def latest(self, filters: Filters, limit: int, *, text: bool = False) -> list[dict[str, Any]]:
        text &= self.settings.text
        return await self.ask(table.latest, filters, limit, text=text)

    async def conversation(self, id: str, *, text: bool = False) -> dict[str, Any] | None:
        text &= self.settings.text

        def look(database: Connection) -> dict[str, Any] | None:
            conversations = table.conversations(database, Filters(conversation=id), 1)
            requests = table.latest(database, Filters(conversation=id), table.MOST_TURNS, text=text)
            return {**conversations[0], "requests": requests[::-1]} if conversations else None

        return await self.ask(look)

    async def forget(self, tenant: str) -> int:
        """Remove all records of a tenant, in the log too; return their number. Raise `StoreError` if that fails."""
        await self._catch_up()
        self.forget_written(tenant)
        count = await self._table.run(partial(table.forget, tenant=tenant))
        await self._table.tidy()
        if self._log is not None:
            await self._log.forget(tenant)
        return count

    def forget_written(self, tenant: str) -> None:
        """Forget the texts of a tenant that this process has written: removed ones must be written anew."""
        self.forgotten(tenant)
        self._ledger.forget(tenant)
        if self._texts is not None:
            self._texts.forget(tenant)

    async def ask(self, question: Callable[Concatenate[Connection, P], T], *args: P.args, **known: P.kwargs) -> T:
        """Return the answer to one of the table's questions. Raise `StoreError` if it cannot be read."""
        await self._catch_up()
        return await self._table.run(lambda database: question(database, *args, **known), writes=False)

    async def _catch_up(self) -> None:
        await self.flush()
        if self._log is None:
            return
        self.is_whole = False
        with suppress(StoreError, TimeoutError):
            async with asyncio.timeout(_PATIENCE), self._reading:
                while entries := await self._log.read():
                    for tenant, rows in entries:
                        if tenant is None:
                            await self._insert([rows])
                        else:
                            self.forget_written(tenant)
                            await self._table.run(partial(table.forget, tenant=tenant))
                self.is_whole = True

    async def _insert(self, rows: Sequence[bytes]) -> None:
        room, oldest = int(self.settings.max_mib * 2**20), self._clock() - 86400 * self.settings.days
        await self._table.run(partial(table.insert, rows=rows, max_bytes=room, oldest=oldest))


class _Outlet(deque[tuple[str, bytes]]):
    """Rows on their way to one place, within a bound of bytes; the oldest leave first."""

    def __init__(self, done: str, most: int, write: Callable[[Rows], Awaitable[None]]) -> None:
        super().__init__()
        self._done, self._most, self._write = done, most, write
        self._size = 0
        self._has_failed, self.lost = False, 0
        self.leaving: Rows = ()
        """The rows that are being written."""
        self._writing = asyncio.Lock()

    def add(self, tenant: str, row: bytes) -> None:
        self.append((tenant, row))
        self._size += len(row)
        while self._size > self._most:
            self._size -= len(self.popleft()[1])
            self.lost += 1

    @property
    def is_filling(self) -> bool:
        """True if rows would soon leave for want of room, although they can be written."""
        return self._size > self._most / 2 and not self._has_failed

    async def empty(self) -> None:
        """Write the rows. Cancelling this cancels no write that is under way."""
        await asyncio.shield(self._empty())

    async def _empty(self) -> None:
        async with self._writing:
            if not self:
                return
            self.leaving = rows = [*self]
            self.clear()
            self._size = 0
            try:
                await self._write(rows)
            except StoreError as error:
                for row in rows if error.cause != "too_large" else ():  # that would be so again
                    self.add(*row)
                if not self._has_failed:
                    _log.warning(f"records are not {self._done}", extra={"fields": {"cause": error.cause}})
                self._has_failed = True
            else:
                if self._has_failed:
                    _log.info(f"records are {self._done} again", extra={"fields": {"lost": self.lost}})
                self._has_failed, self.lost = False, 0
            self.leaving = ()
