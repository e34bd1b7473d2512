"""The index that the proxy uses: off the event loop, bounded in time, and left alone while it does not work."""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import TypeVar

from proxy.vectors.base import IndexFailed, Scope
from proxy.vectors.embedded import Embedded
from proxy.vectors.qdrant_server import PointServer

T = TypeVar("T")

logger = logging.getLogger("penstock.index")

_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 30.0
"""Seconds after a failure in which nothing is tried; doubled with each further one."""
_MOST_WAITING = 256
"""Calls that may be under way; more are refused at once."""
_IMPORT = 60.0
"""Seconds for a first call, which imports a library: that takes one where a core is free."""

Blocking = Embedded | PointServer


class IndexService:
    """Keeps points by scope, bounded in number. For use on one event loop; nothing is computed or waited for on it.

    What fails, or takes too long, is done without: there are no vectors, and what was not put is made again. Then
    nothing is tried for a second, then two, up to half a minute. There is no timer: the first call after the pause is
    the next try.
    """

    def __init__(
        self,
        index: Blocking,
        *,
        timeout: float = 1.0,
        threads: int = 1,
        failed: Callable[[str, str], None] | None = None,
        degraded: Callable[[bool], None] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Bound all calls by `timeout`, in seconds; `failed` gets each failure's operation and cause."""
        self._index, self._server = index, index if isinstance(index, PointServer) else None
        self._timeout, self._failed, self._tell, self._clock = timeout, failed, degraded, clock
        self._threads = ThreadPoolExecutor(max_workers=threads, thread_name_prefix="penstock-index")
        self._waiting = 0
        self.degraded: str | None = None
        """Why it does not work at present, in one word; None while it does, as far as is known."""
        self._paused_until = float("-inf")
        self._pause = _FIRST_PAUSE
        self._is_warm = self._server is None
        self._closed = False

    async def warm(self) -> None:
        if self._server is not None:
            with suppress(IndexFailed):
                await self._run("warm", self._server.warm)

    async def look(self) -> None:
        """Find out whether a server is there, where no call would; of one that is not, also whether it is back."""
        if self._server is not None:
            with suppress(IndexFailed):
                await self._run("look", self._server.look)

    async def put(self, scope: Scope, points: Mapping[str, bytes]) -> None:
        with suppress(IndexFailed):
            await self._run("put", partial(self._index.put, scope, points))

    async def vectors(self, scope: Scope, ids: Sequence[str]) -> list[bytes | None]:
        with suppress(IndexFailed):
            return await self._run("vectors", partial(self._index.vectors, scope, ids))
        return [None] * len(ids)

    async def forget_tenant(self, tenant: str) -> None:
        """Remove all points of a tenant. Raises `IndexFailed`."""
        await self._run("forget", partial(self._index.forget_tenant, tenant))

    async def aclose(self) -> None:
        if not self._closed:
            self._closed = True
            closing = self._threads.submit(self._index.close)  # in the thread that has opened it
            await asyncio.to_thread(self._threads.shutdown, wait=True)
            closing.result()

    async def _run(self, operation: str, work: Callable[[], T]) -> T:
        self._check()
        self._waiting += 1
        running = asyncio.get_running_loop().run_in_executor(self._threads, work)
        running.add_done_callback(self._ended)
        await asyncio.wait({running}, timeout=self._timeout if self._is_warm else _IMPORT)
        if not running.done():
            running.cancel()  # what has not begun need not begin
            self._broke(operation, "slow")
            raise IndexFailed("slow")
        if running.cancelled():
            raise IndexFailed("closed")
        error = running.exception()
        if error is not None:  # what nobody foresaw is a failure like others
            cause = error.cause if isinstance(error, IndexFailed) else type(error).__name__
            self._broke(operation, cause)
            raise IndexFailed(cause) from None
        self._is_warm = True
        if self.degraded is not None and self._clock() >= self._paused_until:
            self.degraded, self._pause = None, _FIRST_PAUSE
            logger.warning("the vector index works again")
            if self._tell is not None:
                self._tell(False)
        return running.result()

    def _check(self) -> None:
        if self._closed:
            raise IndexFailed("closed")
        if self._clock() < self._paused_until:
            raise IndexFailed(self.degraded or "paused")
        if self._waiting >= _MOST_WAITING:
            raise IndexFailed("busy")

    def _ended(self, running: "asyncio.Future[T]") -> None:
        self._waiting -= 1
        if not running.cancelled():
            running.exception()  # nobody may be there any more to take it

    def _broke(self, operation: str, cause: str) -> None:
        """Leave it alone for a while, and say so where that is news."""
        if self._failed is not None:
            self._failed(operation, cause)
        now = self._clock()
        if now >= self._paused_until:
            self._paused_until = now + self._pause
            self._pause = min(2 * self._pause, _LONGEST_PAUSE)
        if self.degraded is None:
            fields = {"operation": operation, "cause": cause}
            logger.warning("the vector index does not work; going on without it", extra={"fields": fields})
            if self._tell is not None:
                self._tell(True)
        self.degraded = cause
