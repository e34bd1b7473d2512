"""Deletion of a tenant: in the store, in the index of vectors and in the workers of this server."""

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any
from urllib.parse import quote

from proxy.gateway.prepare import Services
from proxy.identity import ANONYMOUS, tenant_named
from proxy.server.build import Stores
from proxy.state.store import StoreError
from proxy.state.workers import Peers, Question
from proxy.vectors.base import IndexFailed
from proxy.vectors.index import IndexService

Here = Callable[[str], object]

KEPT: Mapping[str, str] = {
    "share": "shares",
    "memo": "decisions",
    "correction": "corrections",
    "summary": "summaries",
    "loop": "tool_rounds",
    "prefix": "prefixes",
}
"""Prefixes of keys in the store that have the tenant behind them, and their contents."""

REMAINS = ("usage_counts", "metrics", "traces", "logs")
"""Data that stays: none of it has content, or it is another system's to delete."""

_HASH = re.compile(r"[0-9a-f]{32}")


class Forgetting:
    """The deletion of tenants. Failures are named, and all else is deleted; it may be asked for again."""

    def __init__(
        self, stores: Stores, services: Services, index: IndexService | None, peers: Peers, here: Sequence[Here]
    ) -> None:
        self._stores, self._services, self._index = stores, services, index
        self._peers, self._here = peers, here
        peers.on("forget", self._forgotten_here)

    async def tenant(self, named: str) -> dict[str, Any]:
        """Delete a tenant, by its hash or its name in the configuration. Return the report."""
        tenant = tenant_of_name(named)
        await self._peers.ask_all("forget", tenant=tenant)
        forgotten: dict[str, int | bool] = {}
        failed: dict[str, str] = {}
        for what, work in self._stored(tenant).items():
            try:
                forgotten[what] = await work()
            except (StoreError, IndexFailed) as error:
                failed[what] = error.cause
        return {
            "object": "tenant.forgotten",
            "tenant": tenant,
            "complete": not failed,
            "forgotten": forgotten,
            "failed": failed,
            "remains": REMAINS,
        }

    def _stored(self, tenant: str) -> dict[str, Callable[[], Awaitable[int | bool]]]:
        return {
            "memories": partial(self._services.memories.forget_tenant, tenant),
            "originals": partial(self._services.archives.forget, tenant),
            **{what: partial(self._removed, f"{kind}/{quote(tenant, safe='')}/") for kind, what in KEPT.items()},
            # behind memories, which take theirs along one by one
            "vectors": partial(self._vectors, tenant),
            "requests": partial(self._requests, tenant),
        }

    async def _removed(self, prefix: str) -> int:
        store, count = self._stores.store, 0
        while keys := await store.keys(prefix):
            await store.delete(keys)
            count += len(keys)
        return count

    async def _vectors(self, tenant: str) -> bool:
        if self._index is not None:
            await self._index.forget_tenant(tenant)
        return self._index is not None

    async def _requests(self, tenant: str) -> int:
        # one that was under way meanwhile may have remembered what was still there
        await self._peers.ask_all("forget", tenant=tenant)
        return await self._stores.records.forget(tenant)

    async def _forgotten_here(self, question: Question) -> bool:
        """Forget what this worker has in memory, and write down what it records, so that it is found."""
        for forget in self._here:
            forget(question["tenant"])
        await self._stores.records.flush()
        self._stores.records.forget_written(question["tenant"])
        return True


def tenant_of_name(named: str) -> str:
    """Return a tenant by its hash, or by the name that the configuration gives it."""
    return named if _HASH.fullmatch(named) or named == ANONYMOUS.tenant else tenant_named(named)
