"""The protocol of stores, which hold bytes between requests.

Keys are text and start with whose they are; values are bytes; each value has a time to live that starts again with each
use. What grows by members, such as a set, has a key for each member: so nobody overwrites what another has added.
"""

from abc import abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Literal, Protocol, TypeVar

from proxy.context import Unavailable

Cause = Literal["busy", "closed", "corrupted", "full", "locked", "read_only", "too_large", "unreachable"]

PASSING: frozenset[Cause] = frozenset({"busy", "locked"})
"""Causes of failures that lose nothing."""

PROTECTED = 120.0
"""Seconds for which a store gives up nothing that was just used, however full it is: requests under way name it.

Not longer: a request that cannot leave out anything may be a 503; what was lost comes with the next request again.
"""

SHORT = 900.0
"""A store that is full of what was used within so many seconds says that it is degraded, before it refuses anything."""

FULL = 0.9

LARGEST_SHARE = 4
"""A value may have at most this fraction of a store's bound."""


class StoreError(Unavailable):
    """A store could not do what was asked. `cause` is one word, fit for logs and metrics: no path and no content."""

    def __init__(self, cause: Cause) -> None:
        super().__init__(cause)
        self.cause: Cause = cause


Item = TypeVar("Item")


def batches(items: Iterable[Item], most: int) -> Iterator[list[Item]]:
    """Yield lists of at most so many items, in their order."""
    rest = iter(items)
    while some := list(islice(rest, most)):
        yield some


class Store(Protocol):
    """Keeps values by key, bounded in bytes. All methods may be called at the same time; all raise `StoreError`.

    A store that is full gives up what was used longest ago, but nothing within its protected time: then it is `full`.
    """

    @property
    def losses(self) -> int:
        """The number of times that values may have been lost without having expired, as far as calls could tell."""

    async def get(self, key: str, *, ttl: float | None = None) -> bytes | None:
        return (await self.get_all((key,), ttl=ttl))[0]

    @abstractmethod
    async def get_all(self, keys: Sequence[str], *, ttl: float | None = None) -> list[bytes | None]:
        """Return the values of keys, None for one without. With `ttl` it is a use, if it can be written."""

    async def put(self, key: str, value: bytes, *, ttl: float) -> None:
        await self.put_all({key: value}, ttl=ttl)

    @abstractmethod
    async def put_all(self, values: Mapping[str, bytes], *, ttl: float) -> None:
        """Set several values at once for `ttl` seconds, all or none; then they are as durable as the store can be."""

    @abstractmethod
    async def add(self, key: str, value: bytes, *, ttl: float) -> bytes:
        """Set the value of a key that has none, at once for all who share the store; the value that it then has."""

    @abstractmethod
    async def touch(self, keys: Collection[str], *, ttl: float) -> frozenset[str]:
        """Use values without reading them: they live `ttl` seconds from now. Those that are there."""

    @abstractmethod
    async def delete(self, keys: Collection[str]) -> None:
        pass

    @abstractmethod
    async def keys(self, prefix: str, *, limit: int = 1000, latest: bool = False) -> tuple[str, ...]:
        """Return the first `limit` keys that start with `prefix`, in order; or those used last, the latest first."""

    @abstractmethod
    async def aclose(self) -> None:
        """Give back threads and connections. Later calls raise `closed`; closing twice is fine."""


class Counters(Protocol):
    """Counts that all who share the state share: for rates and budgets.

    A count is worth little: losing one lets a client have a little more. So none waits for a disk.
    """

    async def add(self, amounts: Mapping[str, float], *, ttl: float) -> Mapping[str, float]:
        """Add to counts and return their new values; each is forgotten after `ttl` seconds. Raise `StoreError`."""

    async def read(self, keys: Collection[str]) -> Mapping[str, float]:
        """Return several counts, 0 where there is none; nothing is added or used. Raise `StoreError`."""

    async def aclose(self) -> None:
        pass
