"""What was done to recent requests, told to whom it concerns: operators all of it, a client what is its own."""

from typing import Any

from proxy.asgi import Exchange
from proxy.chat import encode
from proxy.errors import BadRequest, NotFound
from proxy.identity import tenant_of
from proxy.peers import Answer, Peers, Question
from proxy.telemetry.observation import Observation
from proxy.telemetry.recent import MOST, Recent

_JSON = (b"content-type", b"application/json")
_PRIVATE = (b"cache-control", b"no-store")


class Records:
    """The recent requests of all workers of this server."""

    def __init__(self, recent: Recent, peers: Peers) -> None:
        self._recent = recent
        self._peers = peers
        peers.on("latest", self._latest_here)
        peers.on("find", self._find_here)

    async def latest(self, limit: int) -> list[dict[str, Any]]:
        """The last requests, the newest first; at most `limit`."""
        limit = min(limit, MOST)
        question = {"ask": "latest", "limit": limit}
        found = [record for answer in await self._everywhere(question, self._latest_here) for record in answer]
        found.sort(key=lambda record: str(record["ended"]), reverse=True)
        return found[:limit]

    async def find(self, request_id: str, tenant: str | None = None) -> dict[str, Any] | None:
        """The newest request of an id; with `tenant` only one of its own."""
        question = {"ask": "find", "id": request_id, "tenant": tenant}
        found = await self._everywhere(question, self._find_here)
        return max((one for one in found if one is not None), key=lambda one: str(one["ended"]), default=None)

    async def _everywhere(self, question: Question, here: Answer) -> list[Any]:
        return [await here(question), *await self._peers.ask(question)]

    async def _latest_here(self, question: Question) -> list[dict[str, Any]]:
        return [record.shown() for record in self._recent.latest(question["limit"])]

    async def _find_here(self, question: Question) -> dict[str, Any] | None:
        record = self._recent.find(question["id"], question["tenant"])
        return None if record is None else record.shown()

    async def explain(self, http: Exchange, seen: Observation) -> None:
        """`GET /v1/explain/{request-id}`: what was done to a request, for the key that it came with."""
        if http.scope["method"] not in ("GET", "HEAD"):
            raise BadRequest(
                f"{http.scope['method']} is not allowed here: use GET",
                status=405,
                code="method_not_allowed",
                headers={"allow": "GET"},
            )
        request_id = http.scope["path_params"].get("request_id", "").strip("/")
        tenant = tenant_of(http.headers) if http.caller is None else http.caller.tenant
        found = await self.find(request_id, tenant)
        if found is None:
            raise NotFound("no recent request of this key has this id", code="unknown_request")
        await http.respond(200, [_JSON, _PRIVATE], encode(found))
