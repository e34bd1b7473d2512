"""Counters that fail on demand."""

import asyncio
from collections.abc import Collection, Mapping

from proxy.state.sqlite import SqliteCounters
from proxy.state.store import StoreError


class FallibleCounters(SqliteCounters):
    """Counts until `failure` says that it refuses, or hangs."""

    failure: str | None = None
    asked = 0

    async def add(self, amounts: Mapping[str, float], *, ttl: float) -> Mapping[str, float]:
        await self._fail()
        return await super().add(amounts, ttl=ttl)

    async def read(self, keys: Collection[str]) -> Mapping[str, float]:
        await self._fail()
        return await super().read(keys)

    async def _fail(self) -> None:
        self.asked += 1
        if self.failure == "hangs":
            await asyncio.Event().wait()
        if self.failure:
            raise StoreError("unreachable")
