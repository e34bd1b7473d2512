"""What was done to requests and conversations: operators are told all of it, a client what is its own."""

from collections.abc import Awaitable, Callable, Iterator, Mapping
from datetime import datetime
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from proxy.access.exchange import Exchange
from proxy.chat.errors import BadRequest, NotFound, PenstockError, Rejected
from proxy.server.api.endpoint import not_allowed
from proxy.server.api.erase import tenant_of_name
from proxy.state.archive import Archives
from proxy.state.store import StoreError
from proxy.state.workers import Peers, Question
from proxy.telemetry.observation import Observation
from proxy.telemetry.record_table import Filters
from proxy.telemetry.records import Records

_NO_STORE = {"cache-control": "no-store"}
_SHOWN = 100
"""Requests in a list without `limit`."""
_CONVERSATIONS = 50
_MOST = 1000

Handler = Callable[[Request], Awaitable[Response]]


class RecordsApi:
    """The records of all workers of this server, and of the replicas that share its state."""

    def __init__(self, records: Records | None, peers: Peers, archives: Archives) -> None:
        """Without records, there is nothing to tell."""
        self._records, self._archives = records, archives
        self._peers = peers
        peers.on("flush", self._flush_here)

    def paths(self) -> dict[str, Handler]:
        """The paths for operators below `/admin`, and what answers them."""
        handlers: dict[str, Handler] = {
            "/requests": self._requests,
            "/requests/{request_id:path}/archive/{handle}": self._original,
            "/requests/{request_id:path}": self._request,
            "/conversations": self._conversations,
            "/conversations/{id}": self._conversation,
            "/policies": self._policies,
        }
        return {path: self._told(handler) for path, handler in handlers.items()}

    async def explain(self, http: Exchange, seen: Observation) -> None:
        """`GET /v1/explain/{request-id}`: what was done to a request, for the key that it came with."""
        if http.scope["method"] not in ("GET", "HEAD"):
            raise not_allowed(http, "GET")
        request_id = http.scope["path_params"].get("request_id", "").strip("/")
        tenant = http.tenant
        try:
            found = await self._latest(Filters(request_id=request_id, tenant=tenant), 1)
        except StoreError as error:
            raise _Unreadable(error) from None
        if not found:
            raise NotFound(f"no recent request of this key has this id{self._doubt}", code="unknown_request")
        await http.tell(found[0])

    def _told(self, handler: Handler) -> Handler:
        async def told(request: Request) -> Response:
            try:
                return await handler(request)
            except StoreError as error:
                return _refused(_Unreadable(error))
            except PenstockError as error:
                return _refused(error)

        return told

    async def _requests(self, request: Request) -> Response:
        asked = request.query_params
        limit = _limit(asked, _SHOWN)
        return _json({"requests": await self._latest(_filters(asked), limit), **self._about})

    async def _request(self, request: Request) -> Response:
        return _json(await self._one(request))

    async def _original(self, request: Request) -> Response:
        record, handle = await self._one(request), request.path_params["handle"]
        text = record.get("text")
        if text is None:
            told = "texts are shown only where the configuration has records: {text: true}"
            raise Rejected(told, code="records_without_text", status=403)
        named = f'recall("{handle}")' in "".join(part for each in text["after"] if each for part in _strings(each))
        found = await self._archives.find(record["tenant"], handle) if named else None
        if found is None:
            raise NotFound("nothing that this request names is kept under this handle", code="unknown_handle")
        return _json({"text": found})

    async def find(self, request_id: str, asked: Mapping[str, Any]) -> dict[str, Any] | None:
        """The newest record of an id that the filters let through, with its text where that is kept.

        Two clients may choose the same id: `tenant` and `until` tell which is meant. Raises `PenstockError`.
        """
        try:
            found = await self._latest(_filters(asked)._replace(request_id=request_id), 1, text=True)
        except StoreError as error:
            raise _Unreadable(error) from None
        return found[0] if found else None

    async def _one(self, request: Request) -> dict[str, Any]:
        found = await self.find(request.path_params["request_id"], request.query_params)
        if found is None:
            raise NotFound(f"no recent request has this id{self._doubt}", code="unknown_request")
        return found

    async def _conversations(self, request: Request) -> Response:
        limit = _limit(request.query_params, _CONVERSATIONS)
        found: list[dict[str, Any]] = []
        if self._records is not None:
            before = _seconds(request.query_params, "before")
            found = await (await self._whole()).conversations(_filters(request.query_params), limit + 1, before)
        return _json({"conversations": found[:limit], "more": len(found) > limit, **self._about})

    async def _conversation(self, request: Request) -> Response:
        found = None
        if self._records is not None:
            text = request.query_params.get("text") == "true"
            found = await (await self._whole()).conversation(request.path_params["id"], text=text)
        if found is None:
            raise NotFound(f"no recent conversation has this id{self._doubt}", code="unknown_conversation")
        return _json({**found, **self._about})

    async def _policies(self, request: Request) -> Response:
        found = [] if self._records is None else await (await self._whole()).policies(_filters(request.query_params))
        return _json({"policies": found, **self._about})

    @property
    def _about(self) -> dict[str, bool]:
        """Whether there are records, with text, and of other replicas."""
        records = self._records
        if records is None:
            return {"on": False, "text": False, "shared": False}
        return {"on": True, "text": records.settings.text, "shared": records.shared}

    @property
    def _doubt(self) -> str:
        """What to add where something was not found: whether there was somebody who could not be asked."""
        if self._records is None:
            return "; records are off"
        return "" if self._records.is_whole else "; those of other replicas cannot be read right now"

    async def _latest(self, filters: Filters, limit: int, *, text: bool = False) -> list[dict[str, Any]]:
        return [] if self._records is None else await (await self._whole()).latest(filters, limit, text=text)

    async def _whole(self) -> Records:
        """The records, with what the other workers of this server have not written yet."""
        if self._records is None:
            raise NotFound("records are off", code="unknown_request")
        await self._peers.ask({"ask": "flush"})
        return self._records

    async def _flush_here(self, question: Question) -> bool:
        if self._records is not None:
            await self._records.flush()
        return True


class _Unreadable(PenstockError):
    """A 503 for records that cannot be read."""

    def __init__(self, error: StoreError) -> None:
        told = f"records cannot be read right now ({error.cause}); requests go on"
        super().__init__(told, code="records_unavailable", status=503)


def _strings(value: Any) -> Iterator[str]:
    """All texts in a JSON value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _strings(each)


def _filters(asked: Mapping[str, Any]) -> Filters:
    tenant, status = asked.get("tenant"), asked.get("status")
    if status not in (None, "", "ok", "error"):
        raise _wrong("status", status, "'ok' or 'error'")
    return Filters(
        since=_seconds(asked, "since"),
        until=_seconds(asked, "until"),
        tenant=tenant_of_name(tenant) if tenant else None,
        model=asked.get("model") or None,
        chain=asked.get("chain") or None,
        failed={"ok": False, "error": True}.get(status or ""),
    )


def _limit(asked: Mapping[str, Any], usual: int) -> int:
    limit = asked.get("limit") or str(usual)
    if not (limit.isascii() and limit.isdigit()):
        raise _wrong("limit", limit, "a number")
    return min(_MOST, int(limit[:9]))


def _seconds(asked: Mapping[str, Any], name: str) -> float | None:
    """A date and time in seconds since 1970; None if none is asked for."""
    date = asked.get(name)
    try:
        return datetime.fromisoformat(date).timestamp() if date else None
    except (ValueError, OverflowError, OSError):
        raise _wrong(name, date, "a date and time, such as 2026-05-01T12:00:00Z") from None


def _wrong(name: str, value: object, right: str) -> BadRequest:
    told = f"{name}={str(value)[:40]!r} is not {right}"
    return BadRequest(told, param=name, code="invalid_value")


def _refused(error: PenstockError) -> Response:
    return Response(error.body(), error.status, _NO_STORE, "application/json")


def _json(answer: Any) -> Response:
    return JSONResponse(answer, headers=_NO_STORE)
