"""Records of requests and conversations: all for operators, its own for a client, and conversations as files."""

import csv
import io
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any, Literal, TypeVar

import orjson
from pydantic import AfterValidator, BaseModel, Field
from starlette.requests import Request
from starlette.responses import Response

from proxy.access.exchange import Exchange
from proxy.chat import encode
from proxy.chat.errors import BadRequest, NotFound, Rejected
from proxy.chat.markers import named_handles
from proxy.server.api.endpoint import NO_STORE, Fields, valid
from proxy.server.api.erase import tenant_of_name
from proxy.server.replay.reading import saved_form
from proxy.state.archive import Archives
from proxy.state.workers import Peers, Question
from proxy.telemetry import record_table as table
from proxy.telemetry.record_table import Filters
from proxy.telemetry.records import Records

_MOST = 1000
_LONGEST = 200

_COSTS = (
    "turn", "started", "ended", "request_id", "key", "model", "chain", "status", "tokens_before", "tokens_after",
    "input_tokens", "cached_tokens", "written_tokens", "output_tokens", "usd", "usd_unchanged", "usd_saved", "trace_id",
)  # fmt: skip
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""Beginnings of a text that a spreadsheet would take for a formula."""

T = TypeVar("T")
Record = Mapping[str, Any]


class RecordsApi:
    """The records of all workers of this server, and of the replicas that share its state."""

    def __init__(self, records: Records, peers: Peers, archives: Archives) -> None:
        self._records, self._archives = records, archives
        self._peers = peers
        peers.on("flush", self._flush_here)

    async def explain(self, http: Exchange) -> Any:
        """`GET /v1/explain/{request-id}`, for the key that it came with."""
        filters = Filters(request_id=http.scope["path_params"]["request_id"], tenant=http.caller.tenant)
        if not (newest := await self._latest(filters, 1)):
            raise NotFound(f"no recent request of this key has this id{self._doubt}", code="unknown_request")
        return {**newest[0], "title": None}

    async def requests(self, request: Request) -> dict[str, Any]:
        asked = _asked(_AskedRecords, request.query_params)
        return {"requests": await self._latest(asked.filters, min(asked.limit, _MOST)), **self._about}

    async def request(self, request: Request) -> dict[str, Any]:
        record = await self.find(request.path_params["request_id"], request.query_params)
        if record is None:
            raise NotFound(f"no recent request has this id{self._doubt}", code="unknown_request")
        return record

    async def original(self, request: Request) -> dict[str, Any]:
        """`GET /admin/requests/{request_id}/archive/{handle}`: an original that the request names."""
        record, handle = await self.request(request), request.path_params["handle"]
        if (text := record.get("text")) is None:
            raise without_text()
        is_named = handle in named_handles(encode(text["after"]))
        original = await self._archives.find(record["tenant"], handle) if is_named else None
        if original is None:
            raise NotFound("unknown handle: this request names no original under it", code="unknown_handle")
        return {"text": original}

    async def find(self, request_id: str, asked: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return the newest record of an id; `tenant` and `until` say which, as clients may share one."""
        filters = _asked(_AskedRecords, asked).filters._replace(request_id=request_id)
        return next(iter(await self._latest(filters, 1, text=True)), None)

    async def conversations(self, request: Request) -> dict[str, Any]:
        asked = _asked(_AskedConversations, request.query_params)
        limit = min(asked.limit, _MOST)
        listed = await self._ask(table.conversations, asked.filters, limit + 1, asked.before)
        return {"conversations": listed[:limit], "more": len(listed) > limit, **self._about}

    async def conversation(self, request: Request) -> dict[str, Any]:
        text = request.query_params.get("text") == "true"
        return {**await self.recorded(request.path_params["id"], text=text), **self._about}

    @property
    def has_text(self) -> bool:
        return self._about["text"]

    async def newest(self, count: int) -> list[str]:
        """Return the ids of the conversations with the latest requests. Raise `PenstockError`."""
        return [each["id"] for each in await self._ask(table.conversations, Filters(), count)]

    async def recorded(self, id: str, *, text: bool = True) -> dict[str, Any]:
        """Return a conversation with its requests. Raise `PenstockError`."""
        await self._written()
        conversation = await self._records.conversation(id, text=text)
        if conversation is None:
            raise NotFound(f"no recent conversation has this id{self._doubt}", code="unknown_conversation")
        return conversation

    async def export(self, request: Request) -> Response:
        id, kind = request.path_params["id"], request.query_params.get("format")
        records = (await self.recorded(id))["requests"]
        if kind == "jsonl":
            if any(record.get("text") is None for record in records):
                raise without_text()
            media, content = (
                "application/jsonl",
                b"".join(orjson.dumps(saved_form(record)) + b"\n" for record in records),
            )
        elif kind == "csv":
            media, content = "text/csv; charset=utf-8", _costs(records)
        else:
            raise BadRequest(f"format is {kind!r}; it must be jsonl or csv", param="format", code="invalid_value")
        name = f'attachment; filename="conversation-{re.sub(r"[^0-9A-Za-z]", "", id)[:16]}.{kind}"'
        return Response(content, headers={**NO_STORE, "content-type": media, "content-disposition": name})

    async def policies(self, request: Request) -> dict[str, Any]:
        asked = _asked(_AskedRecords, request.query_params)
        return {"policies": await self._ask(table.policies, asked.filters), **self._about}

    async def periods(self, request: Request) -> dict[str, Any]:
        asked = _asked(_AskedRecords, request.query_params)
        return {**await self._ask(table.periods, asked.filters, asked.by), "by": asked.by, **self._about}

    @property
    def _about(self) -> dict[str, bool]:
        """The settings of records: kept or not, with text or without, shared by replicas or not."""
        settings = self._records.settings
        return {"on": settings.keep, "text": settings.keep and settings.text, "shared": self._records.shared}

    @property
    def _doubt(self) -> str:
        """An addition to a "not found": the workers that could not be asked."""
        if not self._records.settings.keep:
            return "; records are off"
        return "" if self._records.is_whole else "; those of other replicas cannot be read right now"

    async def _latest(self, filters: Filters, limit: int, *, text: bool = False) -> list[dict[str, Any]]:
        await self._written()
        return await self._records.latest(filters, limit, text=text)

    async def _ask(self, question: Callable[..., T], *asked: Any) -> T:
        await self._written()
        return await self._records.ask(question, *asked)

    async def _written(self) -> None:
        """Wait until the other workers have written their records."""
        await self._peers.ask({"ask": "flush"})

    async def _flush_here(self, question: Question) -> bool:
        await self._records.flush()
        return True


def without_text() -> Rejected:
    """Return the error that operators get where records have no text."""
    told = "the text was not kept; set records: {text: true} in the configuration"
    return Rejected(told, code="records_without_text", status=403)


def _costs(records: Sequence[Record]) -> bytes:
    table = io.StringIO(newline="")
    csv.writer(table).writerows([_COSTS, *([_cell(record.get(name)) for name in _COSTS] for record in records)])
    return table.getvalue().encode()


def _cell(value: Any) -> Any:
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value


Time = Annotated[datetime, AfterValidator(lambda date: (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp())]
"""A date, of which the seconds since 1970 are taken."""


class _AskedRecords(BaseModel):
    """A query string for records; others may have further parameters."""

    since: Time | None = None
    until: Time | None = None
    tenant: Annotated[str, AfterValidator(tenant_of_name)] | None = None
    model: str | None = None
    chain: str | None = None
    words: Annotated[str, AfterValidator(lambda words: words[:_LONGEST].strip() or None)] | None = None
    status: Literal["ok", "error"] | None = None
    limit: Annotated[int, Field(ge=0)] = 100
    by: Literal["model", "key", "chain", "policy"] = "model"

    @property
    def filters(self) -> Filters:
        conditions = {name: value for name, value in self if name in Filters._fields}
        return Filters(**conditions, failed=None if self.status is None else self.status == "error")


class _AskedConversations(_AskedRecords):
    before: Time | None = None
    limit: Annotated[int, Field(ge=0)] = 50


def _asked(kind: type[Fields], query: Mapping[str, Any]) -> Fields:
    return valid(kind, {name: value for name, value in query.items() if value})
