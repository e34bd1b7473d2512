"""Verdicts of a judge of texts: remembered by content, and waited for no longer than a step says."""

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
"""Verdicts in memory: some 10 MB."""
_LONGEST = 600
"""Characters of each text that are read."""

_NOTHING: Mapping[str, str] = MappingProxyType({})

Key = tuple[str, Question, Pair]
"""A tenant, what is asked, and the two texts."""


class Asker(NamedTuple):
    """Who asks, and until when it is of use to them."""

    tenant: str
    headers: Mapping[str, str]
    """What a call may carry of the client's headers."""
    until: float
    """On the event loop's clock, in seconds."""


class VerdictService(ABC):
    """Verdicts of a model, for each tenant. For use on one event loop."""

    def __init__(self, *, most: int, most_of_one: int) -> None:
        """So many pairs may wait in all and of one tenant; more are not judged."""
        self._most, self._most_of_one = most, most_of_one
        self._known: Cache[Key, float] = Cache(_REMEMBERED)
        self._work = BackgroundWork[Key]()

    def authorization(self, upstream: Upstream, headers: Mapping[str, str]) -> Mapping[str, str]:
        """What of the headers of a client of this upstream may be used to ask: nothing where nobody else is asked."""
        return _NOTHING

    def bind(self, who: Identity, headers: Mapping[str, str] = _NOTHING) -> "BoundJudge":
        """The judge of a request's context; `headers` are for calls."""
        return BoundJudge(self, who.tenant, headers)

    def forget(self, tenant: str) -> int:
        """Forget the verdicts on a tenant's texts, and judge no more of them; return how many there were."""
        self._work.forget(tenant)
        return self._known.forget(tenant)

    async def aclose(self) -> None:
        await self._work.aclose()

    async def of(
        self, tenant: str, question: Question, pairs: Sequence[Pair], wait: float, headers: Mapping[str, str]
    ) -> list[float | None]:
        """How sure the model is of each pair; None for those of which it is not known within `wait` seconds."""
        keys: list[Key] = [(tenant, question, (one[:_LONGEST], two[:_LONGEST])) for one, two in pairs]
        asker = Asker(tenant, headers, asyncio.get_running_loop().time() + wait)
        new = [key for key in dict.fromkeys(keys) if key not in self._known and key not in self._work]
        taken = sum(key[0] == tenant for key in self._work)
        new = new[: max(0, min(self._most - len(self._work), self._most_of_one - taken))]
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
        """How sure the model is of a pair; None where it gives no verdict. Never raises but for cancellation."""


class BoundJudge:
    """The `Judge` of a request's context."""

    __slots__ = ("_headers", "_service", "_tenant")

    def __init__(self, service: VerdictService, tenant: str, headers: Mapping[str, str]) -> None:
        self._service, self._tenant, self._headers = service, tenant, headers

    async def contradictions(self, pairs: Sequence[Pair], *, wait: float) -> Sequence[float | None]:
        return await self._service.of(self._tenant, "contradicts", pairs, wait, self._headers)

    async def replacements(self, pairs: Sequence[Pair], *, wait: float) -> Sequence[float | None]:
        return await self._service.of(self._tenant, "replaces", pairs, wait, self._headers)
