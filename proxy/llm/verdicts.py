"""Verdicts of a judge of texts, cached by content and computed in the background."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from proxy.context import Identity, Pair, Question
from proxy.state.background import BackgroundWork
from proxy.state.cache import Cache
from proxy.upstreams.base import Upstream

_REMEMBERED = 50_000
"""Largest number of verdicts in memory: some 10 MB."""
_LONGEST = 600
"""Characters of each text that are judged."""

_NOTHING: Mapping[str, str] = MappingProxyType({})

Key = tuple[str, Question, Pair]
"""Tenant, question and pair of texts."""


class Asker(NamedTuple):
    """The tenant that waits for a verdict."""

    tenant: str
    headers: Mapping[str, str]
    """Headers for the call, such as the client's key."""
    until: float
    """End of the wait, in seconds of the event loop's clock."""


class VerdictService(ABC):
    """Verdicts of a model, for each tenant. For use on one event loop."""

    def __init__(self, *, most: int, most_of_one: int) -> None:
        """Set the largest number of pairs that wait, in all and of one tenant. Further pairs are not judged."""
        self._most, self._most_of_one = most, most_of_one
        self._known: Cache[Key, float] = Cache(_REMEMBERED)
        self._work = BackgroundWork[Key]()

    def authorization(self, upstream: Upstream, headers: Mapping[str, str]) -> Mapping[str, str]:
        """Return the headers with which the model may be asked for a client of this upstream. None by default."""
        return _NOTHING

    def bind(self, who: Identity, headers: Mapping[str, str] = _NOTHING) -> "BoundJudge":
        """Return the judge of a request's context; `headers` are sent with its calls."""
        return BoundJudge(self, who.tenant, headers)

    def forget(self, tenant: str) -> int:
        """Forget the verdicts of a tenant, cancel its pairs that wait, and return the number of verdicts."""
        self._work.forget(tenant)
        return self._known.forget(tenant)

    async def aclose(self) -> None:
        await self._work.aclose()

    async def of(
        self, tenant: str, question: Question, pairs: Sequence[Pair], wait: float, headers: Mapping[str, str]
    ) -> list[float | None]:
        """Return the confidence of the model for each pair, None where there is none after `wait` seconds."""
        keys: list[Key] = [(tenant, question, (one[:_LONGEST], two[:_LONGEST])) for one, two in pairs]
        asker = Asker(tenant, headers, asyncio.get_running_loop().time() + wait)
        new = [key for key in dict.fromkeys(keys) if key not in self._known and key not in self._work]
        waiting = sum(key[0] == tenant for key in self._work)
        new = new[: max(0, min(self._most - len(self._work), self._most_of_one - waiting))]
        for key in new:
            self._work.begin(self._judge(asker, key), key)
        await self._work.wait(keys, wait)
        return self._known.get_each(keys)

    async def _judge(self, asker: Asker, key: Key) -> None:
        sure = await self.judged(asker, *key[1:])
        if sure is not None:
            self._known.put(key, sure)

    @abstractmethod
    async def judged(self, asker: Asker, question: Question, pair: Pair) -> float | None:
        """Return the confidence of the model; None without a verdict. Raise nothing but cancellation."""


class BoundJudge:
    """The `Judge` of a request's context."""

    __slots__ = ("_headers", "_service", "_tenant")

    def __init__(self, service: VerdictService, tenant: str, headers: Mapping[str, str]) -> None:
        self._service, self._tenant, self._headers = service, tenant, headers

    async def contradictions(self, pairs: Sequence[Pair], *, wait: float) -> Sequence[float | None]:
        return await self._service.of(self._tenant, "contradicts", pairs, wait, self._headers)

    async def replacements(self, pairs: Sequence[Pair], *, wait: float) -> Sequence[float | None]:
        return await self._service.of(self._tenant, "replaces", pairs, wait, self._headers)
