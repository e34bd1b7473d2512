"""Records of requests and conversations: all for operators, its own for a client."""

import re
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from typing import Any, TypeVar

from starlette.requests import Request
from starlette.responses import Response

from proxy.access.exchange import Exchange
from proxy.chat.errors import BadRequest, NotFound, PenstockError, Rejected
from proxy.server.api.endpoint import check_method
from proxy.server.api.erase import tenant_of_name
from proxy.server.api.export import exported
from proxy.state.archive import Archives
from proxy.state.store import StoreError
from proxy.state.workers import Peers, Question
from proxy.telemetry import record_table as table
from proxy.telemetry.observation import Observation
from proxy.telemetry.record_table import GROUPS, Filters
from proxy.telemetry.records import Records

_SHOWN = 100
"""Requests in a list without `limit`."""
_CONVERSATIONS = 50
_MOST = 1000
_LONGEST = 200
"""Characters of a search."""

T = TypeVar("T")
Handler = Callable[[Request], Awaitable[dict[str, Any] | Response]]


class RecordsApi:
    """The records of all workers of this server, and of the replicas that share its state."""

    def __init__(self, records: Records | None, peers: Peers, archives: Archives) -> None:
        """Without records, there is nothing to tell."""
        self._records, self._archives = records, archives
        self._peers = peers
        peers.on("flush", self._flush_here)

    def paths(self) -> dict[str, Handler]:
        """Return the paths for operators below `/admin`, and what tells what is there."""
        return {
            "/requests": self._requests,
            "/requests/{request_id:path}/archive/{handle}": self._original,
            "/requests/{request_id:path}": self._request,
            "/conversations": self._conversations,
            "/conversations/{id}/export": self._export,
            "/conversations/{id}": self._conversation,
            "/policies": self._policies,
            "/periods": self._periods,
        }

    async def explain(self, http: Exchange, seen: Observation) -> None:
        """Serve `GET /v1/explain/{request-id}`, for the key that it came with."""
        check_method(http, "GET")
        request_id = http.scope["path_params"].get("request_id", "").strip("/")
        tenant = http.tenant
        found = await self._latest(Filters(request_id=request_id, tenant=tenant), 1)
        if not found:
            raise NotFound(f"no recent request of this key has this id{self._doubt}", code="unknown_request")
        await http.tell({**found[0], "title": None})

    async def _requests(self, request: Request) -> dict[str, Any]:
        asked = request.query_params
        limit = _limit(asked, _SHOWN)
        return {"requests": await self._latest(_filters(asked), limit), **self._about}

    async def _request(self, request: Request) -> dict[str, Any]:
        found = await self.find(request.path_params["request_id"], request.query_params)
        if found is None:
            raise NotFound(f"no recent request has this id{self._doubt}", code="unknown_request")
        return found

    async def _original(self, request: Request) -> dict[str, Any]:
        record, handle = await self._request(request), request.path_params["handle"]
        text = record.get("text")
        if text is None:
            told = "the text was not kept; set records: {text: true} in the configuration"
            raise Rejected(told, code="records_without_text", status=403)
        named = f'recall("{handle}")' in "".join(part for each in text["after"] if each for part in _strings(each))
        with _reading():
            found = await self._archives.find(record["tenant"], handle) if named else None
        if found is None:
            raise NotFound("unknown handle: this request names no original under it", code="unknown_handle")
        return {"text": found}

    async def find(self, request_id: str, asked: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return the newest record of an id that the filters let through, with its text where that is kept.

        Two clients may choose the same id: `tenant` and `until` tell which is meant. Raise `PenstockError`.
        """
        found = await self._latest(_filters(asked)._replace(request_id=request_id), 1, text=True)
        return found[0] if found else None

    async def _conversations(self, request: Request) -> dict[str, Any]:
        asked = request.query_params
        limit, filters, before = _limit(asked, _CONVERSATIONS), _filters(asked), _seconds(asked, "before")
        found: list[dict[str, Any]] = await self._ask(
            lambda records: records.ask(table.conversations, filters, limit + 1, before), []
        )
        return {"conversations": found[:limit], "more": len(found) > limit, **self._about}

    async def _conversation(self, request: Request) -> dict[str, Any]:
        id, text = request.path_params["id"], request.query_params.get("text") == "true"
        found = await self._ask(lambda records: records.conversation(id, text=text), None)
        if found is None:
            raise NotFound(f"no recent conversation has this id{self._doubt}", code="unknown_conversation")
        return {**found, **self._about}

    @property
    def has_text(self) -> bool:
        """True where records keep the text of requests."""
        return self._about["text"]

    async def newest(self, count: int) -> list[str]:
        """Return the ids of the conversations with the latest requests. Raise `PenstockError`."""
        found: list[dict[str, Any]] = await self._ask(
            lambda records: records.ask(table.conversations, Filters(), count), []
        )
        return [each["id"] for each in found]

    async def recorded(self, id: str) -> dict[str, Any] | None:
        """Return a conversation with its requests and their texts. Raise `PenstockError`."""
        return await self._ask(lambda records: records.conversation(id, text=True), None)

    async def _export(self, request: Request) -> Response:
        id = request.path_params["id"]
        found = await self.recorded(id)
        if found is None:
            raise NotFound(f"no recent conversation has this id{self._doubt}", code="unknown_conversation")
        kind = request.query_params.get("format")
        media, content = exported(found["requests"], kind)
        name = f'attachment; filename="conversation-{re.sub(r"[^0-9A-Za-z]", "", id)[:16]}.{kind}"'
        headers = {"cache-control": "no-store", "content-type": media, "content-disposition": name}
        return Response(content, headers=headers)

    async def _policies(self, request: Request) -> dict[str, Any]:
        filters = _filters(request.query_params)
        return {"policies": await self._ask(lambda records: records.ask(table.policies, filters), []), **self._about}

    async def _periods(self, request: Request) -> dict[str, Any]:
        filters, by = _filters(request.query_params), request.query_params.get("by") or "model"
        if by not in GROUPS:
            raise wrong_value("by", by, f"one of {', '.join(GROUPS)}")
        told: dict[str, Any] = await self._ask(
            lambda records: records.ask(table.periods, filters, by), {"seconds": 60, "groups": []}
        )
        return {**told, "by": by, **self._about}

    @property
    def _about(self) -> dict[str, bool]:
        """The settings of records: kept or not, with text or without, shared by replicas or not."""
        records = self._records
        if records is None:
            return {"on": False, "text": False, "shared": False}
        return {"on": True, "text": records.settings.text, "shared": records.shared}

    @property
    def _doubt(self) -> str:
        """An addition to a "not found": the workers that could not be asked."""
        if self._records is None:
            return "; records are off"
        return "" if self._records.is_whole else "; those of other replicas cannot be read right now"

    async def _latest(self, filters: Filters, limit: int, *, text: bool = False) -> list[dict[str, Any]]:
        return await self._ask(lambda records: records.latest(filters, limit, text=text), [])

    async def _ask(self, question: Callable[[Records], Awaitable[T]], otherwise: T) -> T:
        """Return the records' answer, after the other workers have written theirs; `otherwise` without records."""
        if self._records is None:
            return otherwise
        await self._peers.ask({"ask": "flush"})
        with _reading():
            return await question(self._records)

    async def _flush_here(self, question: Question) -> bool:
        if self._records is not None:
            await self._records.flush()
        return True


@contextmanager
def _reading() -> Iterator[None]:
    """Raise `PenstockError` with status 503 for what cannot be read."""
    try:
        yield
    except StoreError as error:
        told = f"records cannot be read right now ({error.cause}); requests go on"
        raise PenstockError(told, code="records_unavailable", status=503) from None


def _strings(value: Any) -> Iterator[str]:
    """Yield all texts in a JSON value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _strings(each)


def _filters(asked: Mapping[str, Any]) -> Filters:
    tenant, status = asked.get("tenant"), asked.get("status")
    if status not in (None, "", "ok", "error"):
        raise wrong_value("status", status, "'ok' or 'error'")
    return Filters(
        since=_seconds(asked, "since"),
        until=_seconds(asked, "until"),
        tenant=tenant_of_name(tenant) if tenant else None,
        model=asked.get("model") or None,
        chain=asked.get("chain") or None,
        words=(asked.get("words") or "")[:_LONGEST].strip() or None,
        failed={"ok": False, "error": True}.get(status or ""),
    )


def _limit(asked: Mapping[str, Any], usual: int) -> int:
    limit = asked.get("limit") or str(usual)
    if not (limit.isascii() and limit.isdigit()):
        raise wrong_value("limit", limit, "a number")
    return min(_MOST, int(limit[:9]))


def _seconds(asked: Mapping[str, Any], name: str) -> float | None:
    """Return a date and time in seconds since 1970; None if none is asked for."""
    date = asked.get(name)
    try:
        return datetime.fromisoformat(date).timestamp() if date else None
    except (ValueError, OverflowError, OSError):
        raise wrong_value(name, date, "a date and time, such as 2026-05-01T12:00:00Z") from None


def wrong_value(name: str, value: object, right: str) -> BadRequest:
    """Return the error for a parameter with a wrong value."""
    told = f"{name}={str(value)[:40]!r} is not {right}"
    return BadRequest(told, param=name, code="invalid_value")
