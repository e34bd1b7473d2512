"""The process caches: least recently used values leave first. `OnceService` keeps in one what work on content gave."""

import asyncio
import contextlib
import sys
from array import array
from collections import OrderedDict
from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from itertools import takewhile
from math import inf
from operator import attrgetter
from threading import Lock
from time import monotonic
from typing import Any, Generic, TypeVar, cast

from proxy.chat import JsonObject, Message
from proxy.context import Identity
from proxy.state.threads import Lanes
from proxy.work_time import current_work

Result = TypeVar("Result")
Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")

REMEMBERED = 128 * 2**20
"""Bytes that a process remembers, unless it is told otherwise."""
INLINE = 4 * 1024
"""Characters of new text that are worked on on the event loop: about a millisecond for the slowest function."""

_ENTRY = 350
"""Bytes that an entry takes besides its result."""
_LEAVES = frozenset({str, bytes, int, float, bool, type(None), array})
"""Types of values that refer to no others."""
_NUMBERS = frozenset({int, float})
_SIZE = attrgetter("size")
_SAMPLED = 32
"""Parts of a result of which the size is looked at; of many more, every n-th."""


class SharedLimit:
    """A bound that caches share. Beyond it, entries leave the cache that takes most of it."""

    def __init__(self, most: int, share: float = 0.5) -> None:
        """No entry may take more than a `share`: with one large request, a tenant would empty all caches for all."""
        self.most, self.largest, self.size, self.lock = most, int(most * share), 0, Lock()
        self.caches: list[Cache[Any, Any]] = []


class Cache(Generic[Key, Value]):
    """An LRU cache within a bound. Keys of content are tuples, the tenant first. Safe to use from any thread."""

    def __init__(
        self, limit: SharedLimit | int, *, age: float | None = None, clock: Callable[[], float] = monotonic
    ) -> None:
        """`limit` bounds the sum of the entries' sizes; `age` is in seconds after which an entry expires."""
        self.limit = SharedLimit(limit, 1) if isinstance(limit, int) else limit
        self.limit.caches.append(self)
        self._age, self._clock = age, clock
        self.size = 0
        self._entries: OrderedDict[Key, tuple[Value, int, float]] = OrderedDict()
        """Values with their sizes, and the times at which they expire."""
        self._lock = self.limit.lock

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: Key) -> bool:
        return bool(self.present((key,)))

    def present(self, keys: Iterable[Key]) -> list[Key]:
        entries, now = self._entries, self._clock()
        return [key for key in keys if (entry := entries.get(key)) is not None and entry[2] > now]

    def get(self, key: Key) -> Value | None:
        with self._lock:
            entry = self._entries.get(key)
            if entry is None or entry[2] <= self._clock():
                return None
            self._entries.move_to_end(key)
        return entry[0]

    def get_each(self, keys: Sequence[Key]) -> list[Value | None]:
        now = self._clock()
        with self._lock:
            found = list(map(self._entries.get, keys))
            for key, entry in zip(keys, found, strict=True):
                if entry is not None:
                    self._entries.move_to_end(key)
        return [None if entry is None or entry[2] <= now else entry[0] for entry in found]

    def put(self, key: Key, value: Value, size: int = 1) -> None:
        """Keep a value in place of an earlier one, unless it alone takes too much of the bound."""
        expires = inf if self._age is None else self._clock() + self._age
        with self._lock:
            self._drop(key)
            if size <= self.limit.largest:
                while self.limit.size > self.limit.most - size:
                    max(self.limit.caches, key=_SIZE).evict()
                self._entries[key] = (value, size, expires)
                self._take(size)

    def evict(self) -> None:
        """Drop the least recently used entry; for who holds the lock of the limit."""
        self._take(-self._entries.popitem(last=False)[1][1])

    def pop(self, key: Key) -> Value | None:
        with self._lock:
            return self._drop(key)

    def forget(self, *beginning: Hashable) -> int:
        """Forget all keys that begin so, such as those of a tenant; return how many."""
        with self._lock:
            gone = [key for key in self._entries if cast(tuple[Any, ...], key)[: len(beginning)] == beginning]
            for key in gone:
                self._drop(key)
        return len(gone)

    def clear(self) -> None:
        with self._lock:
            self._entries.clear()
            self._take(-self.size)

    def _drop(self, key: Key) -> Value | None:
        entry = self._entries.pop(key, None)
        if entry is None:
            return None
        self._take(-entry[1])
        return entry[0]

    def _take(self, size: int) -> None:
        self.size += size
        self.limit.size += size


@dataclass(slots=True)
class TenantCache(Generic[Key, Value]):
    """The part of a cache that is one tenant's."""

    _cache: Cache[tuple[str, Key], Value]
    _tenant: str

    def get(self, key: Key) -> Value | None:
        return self._cache.get((self._tenant, key))

    def put(self, key: Key, value: Value, size: int) -> None:
        self._cache.put((self._tenant, key), value, size)


class OnceService:
    """Keeps what work on content gave, within a bound of bytes. For use on one event loop."""

    def __init__(self, limit: SharedLimit | int = REMEMBERED) -> None:
        self.known: Cache[tuple[Hashable, ...], tuple[Any]] = Cache(limit)
        self.lanes = Lanes("once")

    def bind(self, who: Identity) -> "BoundOnce":
        return BoundOnce(self, who.tenant)

    def forget(self, tenant: str) -> int:
        return self.known.forget(tenant)

    def close(self) -> None:
        self.lanes.close()

    async def run(
        self, tenant: str, size: int, work: Callable[[], Result], remember: Callable[[Result], object]
    ) -> Result:
        """Do work and remember its result; in a thread where it reads more than `INLINE` characters."""
        if size <= INLINE:
            result = work()
            remember(result)
            return result
        # work that has begun is remembered also where nobody waits for it any more: under load, a step is late again
        # with the same text, and would else never find it done
        loop, work_time = asyncio.get_running_loop(), current_work()
        running = self.lanes.submit(tenant, size, work_time.measured(work))

        def done(running: Future[Result]) -> None:
            if not running.cancelled() and running.exception() is None:
                with contextlib.suppress(RuntimeError):  # the loop is closed already
                    loop.call_soon_threadsafe(remember, running.result())

        running.add_done_callback(done)
        return await work_time.job_done(asyncio.wrap_future(running))

    def put(self, key: tuple[Hashable, ...], result: Any, size: int | None = None) -> None:
        """Remember a result; `size` is what it takes in bytes, where that is known."""
        self.known.put(key, (result,), _ENTRY + (_size(result) if size is None else size))


class BoundOnce:
    """The `Once` of a request's context."""

    __slots__ = ("_is_given_up", "_service", "_tenant")

    def __init__(self, service: OnceService, tenant: str) -> None:
        self._service = service
        self._tenant = tenant
        self._is_given_up = False

    def give_up(self) -> None:
        """Nobody waits for the request any more: what has begun for it ends at the next message."""
        self._is_given_up = True

    async def of(self, function: Callable[[str], Result], text: str) -> Result:
        digest = blake2b(text.encode(errors="surrogatepass"), digest_size=16).digest()
        return await self.of_key((_name(function), digest), len(text), partial(function, text))

    async def of_each(self, function: Callable[[Message], Result], messages: Sequence[Message]) -> list[Result]:
        """Return the results of a pure function of a message. Once it is given up, the work ends behind a message."""
        name = _name(function)
        keys = [(self._tenant, name, hash(raw), len(raw)) for raw in [message.raw for message in messages]]
        results = self._service.known.get_each(keys)
        new = [place for place, known in enumerate(results) if known is None]
        if new:
            fresh = [messages[place] for place in new]

            def work() -> tuple[list[Result], float]:
                made = [*map(function, takewhile(lambda _: not self._is_given_up, fresh))]
                # of many, the sizes follow those of some and the lengths of their messages
                return made, _sizes(made) / max(1, sum(keys[place][3] for place in new[: len(made)]))

            def remember(done: tuple[list[Result], float]) -> None:
                for place, result in zip(new, done[0], strict=False):
                    results[place] = (result,)
                    self._service.put(keys[place], result, int(done[1] * keys[place][3]))

            await self._service.run(self._tenant, sum(keys[place][3] for place in new), work, remember)
        return [cast(Result, known[0]) for known in results if known is not None]

    async def of_key(self, key: Hashable, size: int, work: Callable[[], Result]) -> Result:
        await current_work().let_others_run()
        (known,) = self._service.known.get_each([(self._tenant, key)])
        if known is not None:
            return cast(Result, known[0])
        return await self._service.run(self._tenant, size, work, partial(self.remember, key))

    async def run(self, size: int, work: Callable[[], Result]) -> Result:
        return await self._service.run(self._tenant, size, work, lambda _: None)

    def known(self, keys: Sequence[Hashable]) -> list[Any]:
        found = self._service.known.get_each([(self._tenant, key) for key in keys])
        return [None if each is None else each[0] for each in found]

    def remember(self, key: Hashable, result: object) -> None:
        self._service.put((self._tenant, key), result)


def _name(function: Callable[..., Any]) -> str:
    return f"{function.__module__}.{function.__qualname__}"


def _size(result: Any) -> int:
    """Bytes that a result takes, with what it refers to, about; what parts of it share counts more than once."""
    if isinstance(result, JsonObject):
        return 4 * len(result.raw)
    own = sys.getsizeof(result)
    if isinstance(result, dict):
        values = [*{id(value): value for value in result.values()}.values()]
        return own + _sizes(result) + _sizes(values)
    if not isinstance(result, tuple | frozenset):
        return own
    if result and isinstance(result, tuple) and _NUMBERS.issuperset(map(type, (result[0], result[-1]))):
        return 32 * len(result)
    return own + _sizes(result)


def _sizes(values: Collection[Any]) -> int:
    some = values if len(values) < 2 * _SAMPLED else [*values][:: len(values) // _SAMPLED]
    size = sum(map(sys.getsizeof if _LEAVES.issuperset(map(type, some)) else _size, some))
    return size * len(values) // max(1, len(some))
