"""What was done to recent requests, told to whom it concerns: operators all of it, a client what is its own."""

import asyncio
from typing import Any

from proxy.access.exchange import Exchange
from proxy.chat import encode
from proxy.chat.errors import NotFound
from proxy.identity import tenant_of
from proxy.server.api.endpoint import not_allowed
from proxy.state.workers import Answer, Peers, Question
from proxy.telemetry.observation import Observation
from proxy.telemetry.recent import MOST, Recent
from proxy.telemetry.replicas import SharedRecords

_JSON = (b"content-type", b"application/json")
_PRIVATE = (b"cache-control", b"no-store")


class Records:
    """The recent requests of all workers of this server, and one by one those of the replicas that share its state."""

    def __init__(self, recent: Recent, peers: Peers, shared: SharedRecords | None = None) -> None:
        self._recent = recent
        self._peers = peers
        self._shared = shared
        if shared is not None:
            recent.tell(shared.add)
        peers.on("latest", self._latest_here)
        peers.on("find", self._find_here)

    @property
    def shared(self) -> bool:
        """Whether requests of other replicas are found."""
        return self._shared is not None

    async def share(self) -> None:
        """Tell other replicas, if there is a way to, until cancelled."""
        if self._shared is not None:
            await self._shared.write()

    async def aclose(self) -> None:
        """Tell them what is not told yet; `share` must have ended."""
        if self._shared is not None:
            await self._shared.aclose()

    async def latest(self, limit: int, since: float = 0.0) -> list[dict[str, Any]]:
        """The last requests of this server, the newest first; at most `limit`, and none that ended before `since`.

        `since` is in seconds since 1970.
        """
        limit = min(limit, MOST)
        question = {"ask": "latest", "limit": limit, "since": since}
        found = [record for answer in await self._everywhere(question, self._latest_here) for record in answer]
        found.sort(key=lambda record: str(record["ended"]), reverse=True)
        return found[:limit]

    async def find(self, request_id: str, tenant: str | None = None) -> dict[str, Any] | None:
        """The newest request of an id, on whatever replica; with `tenant` only one of its own."""
        question = {"ask": "find", "id": request_id, "tenant": tenant}
        here, elsewhere = await asyncio.gather(
            self._everywhere(question, self._find_here), self._find_elsewhere(request_id, tenant)
        )
        found = (one for one in (*here, *elsewhere) if one is not None)
        return max(found, key=lambda one: str(one["ended"]), default=None)

    @property
    def doubt(self) -> str:
        """What to add where a request was not found: whether there was somebody who could not be asked."""
        is_whole = self._shared is None or self._shared.readable
        return "" if is_whole else "; those of other replicas cannot be read right now"

    async def _everywhere(self, question: Question, here: Answer) -> list[Any]:
        return [await here(question), *await self._peers.ask(question)]

    async def _find_elsewhere(self, request_id: str, tenant: str | None) -> list[dict[str, Any]]:
        return [] if self._shared is None else await self._shared.find(request_id, tenant)

    async def _latest_here(self, question: Question) -> list[dict[str, Any]]:
        return [record.shown() for record in self._recent.latest(question["limit"], question["since"])]

    async def _find_here(self, question: Question) -> dict[str, Any] | None:
        record = self._recent.find(question["id"], question["tenant"])
        return None if record is None else record.shown()

    async def explain(self, http: Exchange, seen: Observation) -> None:
        """`GET /v1/explain/{request-id}`: what was done to a request, for the key that it came with."""
        if http.scope["method"] not in ("GET", "HEAD"):
            raise not_allowed(http, "GET")
        request_id = http.scope["path_params"].get("request_id", "").strip("/")
        tenant = tenant_of(http.headers) if http.caller is None else http.caller.tenant
        found = await self.find(request_id, tenant)
        if found is None:
            raise NotFound(f"no recent request of this key has this id{self.doubt}", code="unknown_request")
        await http.respond(200, [_JSON, _PRIVATE], encode(found))
