"""Forgets a tenant: what the store, the index of vectors and the workers of this server keep of it."""

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any
from urllib.parse import quote

from proxy.identity import ANONYMOUS, tenant_named
from proxy.memories.service import MemoryService
from proxy.state.archive import Archives
from proxy.state.store import Store, StoreError
from proxy.state.workers import Peers, Question
from proxy.vectors.base import IndexFailed, VectorIndex

Here = Callable[[str], int]
"""Forgets what this process has in memory of a tenant; how much that was."""

KEPT: Mapping[str, str] = {
    "share": "shares",
    "memo": "decisions",
    "correction": "corrections",
    "summary": "summaries",
    "loop": "tool_rounds",
    "prefix": "prefixes",
    "explain": "shared_records",
}
"""How keys in the store begin that have the tenant behind it, and what they are."""

REMAINS = ("usage_counts", "metrics", "traces", "logs")
"""What is not forgotten: none of it has content, or it is somebody else's to delete."""

_HASH = re.compile(r"[0-9a-f]{32}")


class Forgetting:
    """Forgets tenants. What fails is named, and all else is forgotten all the same; it may be asked for again."""

    def __init__(
        self,
        store: Store,
        archives: Archives,
        memories: MemoryService,
        index: VectorIndex | None,
        peers: Peers,
        *,
        requests: Here,
        here: Sequence[Here],
    ) -> None:
        """`requests` forgets records of requests, each of `here` something else that this process keeps in memory."""
        self._store, self._archives, self._memories, self._index = store, archives, memories, index
        self._peers, self._requests, self._here = peers, requests, here
        peers.on("forget", self._forgotten_here)

    async def tenant(self, named: str) -> dict[str, Any]:
        """Forget a tenant, by its hash or by the name that the configuration gives it; what was forgotten, and not."""
        tenant = named if _HASH.fullmatch(named) or named == ANONYMOUS.tenant else tenant_named(named)
        forgotten: dict[str, int | bool] = {"requests": await self._from_memory(tenant)}
        failed: dict[str, str] = {}
        for what, work in self._stored(tenant).items():
            try:
                forgotten[what] = await work()
            except (StoreError, IndexFailed) as error:
                failed[what] = error.cause
        # a request that was under way meanwhile may have remembered what was still there
        forgotten["requests"] += await self._from_memory(tenant)
        return {
            "object": "tenant.forgotten",
            "tenant": tenant,
            "complete": not failed,
            "forgotten": forgotten,
            "failed": failed,
            "remains": REMAINS,
        }

    def _stored(self, tenant: str) -> dict[str, Callable[[], Awaitable[int | bool]]]:
        """What is stored, and how it is forgotten."""
        index = self._index

        async def vectors() -> bool:
            if index is not None:
                await index.forget_tenant(tenant)
            return index is not None

        def removed(kind: str) -> Callable[[], Awaitable[int]]:
            return lambda: self._removed(f"{kind}/{quote(tenant, safe='')}/")

        return {
            "memories": lambda: self._memories.forget_tenant(tenant),
            "originals": lambda: self._archives.forget(tenant),
            **{what: removed(kind) for kind, what in KEPT.items()},
            # last: memories that are forgotten one by one take theirs along
            "vectors": vectors,
        }

    async def _removed(self, prefix: str) -> int:
        count = 0
        while keys := await self._store.keys(prefix):
            await self._store.delete(keys)
            count += len(keys)
        return count

    async def _from_memory(self, tenant: str) -> int:
        """Forget what the workers have in memory; how many records of requests that were."""
        question = {"ask": "forget", "tenant": tenant}
        counts = await asyncio.gather(self._forgotten_here(question), self._peers.ask(question))
        return int(counts[0]) + sum(map(int, counts[1]))

    async def _forgotten_here(self, question: Question) -> int:
        for forget in self._here:
            forget(question["tenant"])
        return self._requests(question["tenant"])
