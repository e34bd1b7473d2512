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
Forget = Callable[[str], Awaitable[int | bool]]

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
        tenant, services = tenant_of_name(named), self._services
        await self._peers.ask_all("forget", tenant=tenant)
        stored: dict[str, Forget] = {
            "memories": services.memories.forget_tenant,
            "originals": services.archives.forget,
            **{name: partial(self._remove, kind) for kind, name in KEPT.items()},
            "vectors": self._forget_vectors,  # behind memories, which take theirs along one by one
            "requests": self._forget_requests,
        }
        forgotten: dict[str, int | bool] = {}
        failed: dict[str, str] = {}
        for name, forget in stored.items():
            try:
                forgotten[name] = await forget(tenant)
            except (StoreError, IndexFailed) as error:
                failed[name] = error.cause
        return {
            "object": "tenant.forgotten",
            "tenant": tenant,
            "complete": not failed,
            "forgotten": forgotten,
            "failed": failed,
            "remains": REMAINS,
        }

    async def _remove(self, kind: str, tenant: str) -> int:
        store, count = self._stores.store, 0
        while keys := await store.keys(f"{kind}/{quote(tenant, safe='')}/"):
            await store.delete(keys)
            count += len(keys)
        return count

    async def _forget_vectors(self, tenant: str) -> bool:
        if self._index is not None:
            await self._index.forget_tenant(tenant)
        return self._index is not None

    async def _forget_requests(self, tenant: str) -> int:
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
