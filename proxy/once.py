"""Work on a text that is done once: what it gave is remembered by the text's content, for one tenant."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from hashlib import blake2b
from typing import Any, TypeVar, cast

Result = TypeVar("Result")

INLINE = 4 * 1024
"""Characters of new text that are worked on on the event loop: about a millisecond for the slowest function."""

_ENTRY = 300
"""Bytes that an entry takes besides its result."""


class OnceService:
    """Remembers results within a bound of bytes; what was used longest ago is forgotten. For use on one event loop."""

    def __init__(self, max_bytes: int = 64 * 2**20) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0
        self._known: OrderedDict[tuple[str, str, bytes], tuple[Any, int]] = OrderedDict()
        self._threads = ThreadPoolExecutor(max_workers=1, thread_name_prefix="penstock-once")

    def bound(self, tenant: str) -> "BoundOnce":
        """The service for one tenant; no tenant can time what another one's texts cost."""
        return BoundOnce(self, tenant)

    def close(self) -> None:
        """Stop the thread; work that has not begun is dropped."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def of(self, tenant: str, function: Callable[[str], Result], text: str) -> Result:
        """The result of a pure function of a text, from memory if it is there; large new texts go to a thread."""
        digest = blake2b(text.encode(errors="surrogatepass"), digest_size=16).digest()
        key = (tenant, f"{function.__module__}.{function.__qualname__}", digest)
        known = self._known.get(key)
        if known is not None:
            self._known.move_to_end(key)
            return cast(Result, known[0])
        if len(text) <= INLINE:
            result = function(text)
        else:
            result = await asyncio.get_running_loop().run_in_executor(self._threads, partial(function, text))
        self._remember(key, result)
        return result

    def _remember(self, key: tuple[str, str, bytes], result: Any) -> None:
        size = _ENTRY + _size(result)
        if size > self._max_bytes // 4 or key in self._known:
            return
        self._known[key] = (result, size)
        self._bytes += size
        while self._bytes > self._max_bytes:
            _, (_, gone) = self._known.popitem(last=False)
            self._bytes -= gone


class BoundOnce:
    """The `Once` of a request's context."""

    __slots__ = ("_service", "_tenant")

    def __init__(self, service: OnceService, tenant: str) -> None:
        self._service = service
        self._tenant = tenant

    async def of(self, function: Callable[[str], Result], text: str) -> Result:
        """The result of a pure function of a text."""
        return await self._service.of(self._tenant, function, text)


def _size(result: Any) -> int:
    if isinstance(result, str):
        return 4 * len(result)
    return sum(map(_size, result)) if isinstance(result, tuple) else 32
