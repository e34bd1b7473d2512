"""Deletion of a tenant: in the store, in the index of vectors and in the workers of this server."""

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any
from urllib.parse import quote

from proxy.identity import ANONYMOUS, tenant_named
from proxy.memories.service import MemoryService
from proxy.state.archive import Archives
from proxy.state.store import Store, StoreError
from proxy.state.workers import Peers, Question
from proxy.telemetry.records import Records
from proxy.vectors.base import IndexFailed
from proxy.vectors.index import IndexService

Here = Callable[[str], object]
"""Forgets what this process has in memory of a tenant."""

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
        self,
        store: Store,
        archives: Archives,
        memories: MemoryService,
        index: IndexService | None,
        peers: Peers,
        *,
        records: Records | None,
        here: Sequence[Here],
    ) -> None:
        """Each of `here` forgets something that this process keeps in memory."""
        self._store, self._archives, self._memories, self._index = store, archives, memories, index
        self._peers, self._records, self._here = peers, records, here
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
        """Return the stored contents, and the deletion of each."""
        index = self._index

        async def vectors() -> bool:
            if index is not None:
                await index.forget_tenant(tenant)
            return index is not None

        async def requests() -> int:
            # one that was under way meanwhile may have remembered what was still there
            await self._peers.ask_all("forget", tenant=tenant)
            return 0 if self._records is None else await self._records.forget(tenant)

        def removed(kind: str) -> Callable[[], Awaitable[int]]:
            return lambda: self._removed(f"{kind}/{quote(tenant, safe='')}/")

        return {
            "memories": lambda: self._memories.forget_tenant(tenant),
            "originals": lambda: self._archives.forget(tenant),
            **{what: removed(kind) for kind, what in KEPT.items()},
            # behind memories, which take theirs along one by one
            "vectors": vectors,
            "requests": requests,
        }

    async def _removed(self, prefix: str) -> int:
        count = 0
        while keys := await self._store.keys(prefix):
            await self._store.delete(keys)
            count += len(keys)
        return count

    async def _forgotten_here(self, question: Question) -> bool:
        """Forget what this worker has in memory, and write down what it records, so that it is found."""
        for forget in self._here:
            forget(question["tenant"])
        if self._records is not None:
            await self._records.flush()
            self._records.forget_written(question["tenant"])
        return True


def tenant_of_name(named: str) -> str:
    """Return a tenant by its hash, or by the name that the configuration gives it."""
    return named if _HASH.fullmatch(named) or named == ANONYMOUS.tenant else tenant_named(named)
