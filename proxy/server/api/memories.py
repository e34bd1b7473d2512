"""The endpoints for memories: what an application stores about its users, finds, and forgets."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Annotated, Any, NamedTuple, TypeVar

import orjson
from msgspec.structs import asdict
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints, ValidationError

from proxy.access.exchange import Exchange
from proxy.chat.errors import BadRequest, NotFound, NotKept
from proxy.chat.names import key_of
from proxy.config.settings import MemoriesSettings, Settings
from proxy.identity import session_key
from proxy.memories import ID, KIND, SOURCES, Draft, Memory, Owner, kinds_of, scope_of
from proxy.memories.change import Added
from proxy.memories.service import Hit, MemoryService
from proxy.server.api.endpoint import check_method, parameters
from proxy.state.store import StoreError
from proxy.telemetry.observation import Observation

_CODES = {"model_type": "invalid_type"}

Name = Annotated[str, StringConstraints(min_length=1, max_length=512)] | None
Source = Annotated[str, StringConstraints(min_length=1, max_length=200)]
Number = Annotated[float, Field(ge=-1e12, le=1e12, allow_inf_nan=False)]


class Names(NamedTuple):
    """The owner and scope that a request names; empty for what it does not name."""

    user: str = ""
    session: str = ""
    agent: str = ""
    task: str = ""


Entry = tuple[Names, Draft]
"""A memory to be added, behind its owner."""


class NamedFields(BaseModel):
    """The fields that name an owner and a scope."""

    model_config = ConfigDict(strict=True, extra="ignore")

    user: Name = None
    session: Name = None
    agent: Name = None
    task: Name = None

    @property
    def names(self) -> Names:
        """The names, empty where there is none."""
        return Names(self.user or "", self.session or "", self.agent or "", self.task or "")


def _listed(value: Any) -> Any:
    return [] if value is None else value if isinstance(value, list) else [value]


Sources = Annotated[list[Source], BeforeValidator(_listed), Field(max_length=SOURCES)]


class _ListBody(NamedFields):
    model_config = ConfigDict(extra="forbid")

    memories: list[Any]


class _MemoryBody(NamedFields):
    model_config = ConfigDict(extra="forbid")

    text: Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]
    kind: Annotated[str, StringConstraints(pattern=f"^{KIND.pattern}$")] = "fact"
    source: Sources = []
    sources: Sources = []
    confidence: Annotated[Number, Field(ge=0, le=1)] | None = None
    created: Number | None = None
    expires: Number | None = None

    @property
    def draft(self) -> Draft:
        sources = tuple(dict.fromkeys(self.sources or self.source))
        sure = 1.0 if self.confidence is None else self.confidence
        return Draft(self.text, self.kind, sources, sure, self.created, self.expires)


Fields = TypeVar("Fields", bound=NamedFields)


def entries(raw: bytes, bounds: MemoriesSettings) -> tuple[list[Entry], bool]:
    """Return the memories of a body, and whether it has a list of them. Raise `BadRequest`."""
    body = parsed(raw)
    if not isinstance(body, dict) or "memories" not in body:
        return [_entry(body, "", bounds)], False
    body_fields = _valid(_ListBody, body, "")
    _check_count(len(body_fields.memories), bounds, "memories")
    read = [_entry(each, f"memories[{number}]", bounds) for number, each in enumerate(body_fields.memories)]
    shared = body_fields.names
    return [(Names(*(own or other for own, other in zip(names, shared, strict=True))), d) for names, d in read], True


def lines(raw: bytes, bounds: MemoriesSettings) -> list[Entry]:
    """Return the memories of JSON lines; empty lines are passed over. Raise `BadRequest`, which names the line."""
    read: list[Entry] = []
    for number, line in enumerate(raw.splitlines(), 1):
        if line.strip():
            _check_count(len(read) + 1, bounds, None)
            place = f"line {number}"
            read.append(_entry(parsed(line, place), place, bounds))
    return read


def parsed(raw: bytes, place: str = "the body") -> Any:
    """Return the JSON of a body. Raise `BadRequest`."""
    try:
        return orjson.loads(raw)
    except orjson.JSONDecodeError:
        raise BadRequest(f"{place} is not valid JSON", code="invalid_json") from None


def _entry(value: Any, place: str, bounds: MemoriesSettings) -> Entry:
    body_fields = _valid(_MemoryBody, value, place)
    if len(body_fields.text) > bounds.max_characters:
        param = f"{place}.text" if place else "text"
        message = f"{param}: must have at most {bounds.max_characters} characters"
        raise BadRequest(message, param=param, code="string_above_max_length")
    return body_fields.names, body_fields.draft


def _valid(kind: type[Fields], value: Any, place: str) -> Fields:
    try:
        return kind.model_validate(value)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        field = next((str(part) for part in first["loc"]), "")
        param = ".".join(filter(None, (place, field[:50])))
        message, code = f"{param or 'the body'}: {first['msg']}", _CODES.get(first["type"], "invalid_value")
        raise BadRequest(message, param=param or None, code=code) from None


def _check_count(count: int, bounds: MemoriesSettings, param: str | None) -> None:
    if count > bounds.max_import:
        raise BadRequest(f"at most {bounds.max_import} memories in one request", param=param, code="too_many_memories")


_INLINE = 16 * 1024
"""Bytes of a body that is read on the event loop."""
_LISTED, _MOST_LISTED = 100, 1000
_WAIT = 5.0
"""Seconds to wait for the vector of a query."""

T = TypeVar("T")


class MemoriesApi:
    """`/v1/memories` and what is below. Nothing of it reaches an upstream."""

    def __init__(self, settings: Settings, service: MemoryService) -> None:
        self._bounds = settings.memories
        self._service = service

    async def collection(self, http: Exchange, seen: Observation) -> None:
        """`/v1/memories`: `POST` adds, `GET` lists or searches, `DELETE` forgets a user."""
        handlers = {"POST": self._post, "GET": self._list, "DELETE": self._forget}
        await self._answer(http, handlers)

    async def one(self, http: Exchange, seen: Observation) -> None:
        """`/v1/memories/{id}`: `GET` and `DELETE`."""
        await self._answer(http, {"GET": self._get, "DELETE": self._delete})

    async def imports(self, http: Exchange, seen: Observation) -> None:
        """`POST /v1/memories/import`: JSON lines."""
        await self._answer(http, {"POST": self._import})

    async def aggregate(self, http: Exchange, seen: Observation) -> None:
        """`POST /v1/memories/aggregate`: merge what says the same."""
        await self._answer(http, {"POST": self._aggregate})

    async def _answer(self, http: Exchange, handlers: Mapping[str, Callable[[Exchange], Awaitable[Any]]]) -> None:
        check_method(http, *handlers)
        method = http.scope["method"]
        try:
            answer = await handlers["GET" if method == "HEAD" else method](http)
        except StoreError as error:
            raise NotKept(f"memories cannot be reached ({error.cause}); try again") from None
        await http.tell(answer)

    async def _post(self, http: Exchange) -> Any:
        raw = await http.read()
        entered, is_list = await _read(entries, raw, self._bounds)
        added = await self._added(http, entered)
        if not is_list:
            return {**_shown(added[0].memory), "status": added[0].status}
        return _summed(added) | {"data": [{**_shown(each.memory), "status": each.status} for each in added]}

    async def _import(self, http: Exchange) -> Any:
        raw = await http.read()
        return _summed(await self._added(http, await _read(lines, raw, self._bounds)))

    async def _added(self, http: Exchange, entered: list[Entry]) -> list[Added]:
        """Add entries and return them as they were added. All names are checked before anything is written."""
        known = {names: self._owner(http, names) for names in dict.fromkeys(names for names, _ in entered)}
        owners = [known[names] for names, _ in entered]
        added: dict[int, Added] = {}
        for owner in dict.fromkeys(owners):
            places = [place for place, each in enumerate(owners) if each == owner]
            results = await self._service.add(owner, [entered[place][1] for place in places])
            added |= dict(zip(places, results, strict=True))
        return [added[place] for place in range(len(entered))]

    async def _list(self, http: Exchange) -> Any:
        asked = parameters(http, *Names._fields, "scope", "kind", "query", "limit")
        owner, kind, query = self._asked(http, asked), asked.get("kind"), asked.get("query")
        if kind is not None and not KIND.fullmatch(kind):
            raise BadRequest("kind must be a lower-case word", param="kind", code="invalid_value")
        limit = _limit(asked.get("limit"))
        if query is not None and not query.strip():
            raise BadRequest("query must say something", param="query", code="invalid_value")
        if query is not None and owner.scope is None:
            raise BadRequest("a query searches one scope, not all", param="scope", code="invalid_value")
        if query is None:
            memories = [each for each in await self._service.all(owner) if kind in (None, each.kind)]
            data = [_shown(each) for each in memories[:limit]]
            return {"object": "list", "data": data, "has_more": len(memories) > limit}
        # of one kind there may be few among the nearest
        most = limit if kind is None else _MOST_LISTED
        hits, found_by, _ = await self._service.search([owner], query, limit=most, wait=_WAIT)
        fitting = [hit for hit in hits if kind in (None, hit.memory.kind)]
        return {"object": "list", "data": [_scored(hit) for hit in fitting[:limit]], "found_by": found_by}

    async def _get(self, http: Exchange) -> Any:
        owner, id = self._named(http)
        found = await self._service.get(owner, id)
        if found is None:
            raise _unknown()
        return _shown(found)

    async def _delete(self, http: Exchange) -> Any:
        owner, id = self._named(http)
        if not await self._service.delete(owner, id):
            raise _unknown()
        return {"id": id, "object": "memory.deleted", "deleted": True}

    async def _forget(self, http: Exchange) -> Any:
        asked = parameters(http, *Names._fields, "shared")
        names = _names(asked)
        owner = self._owner(http, names)
        if not any(names[1:]):
            owner = owner.whole
        if not owner.user and asked.get("shared") != "true":
            told = "name a user, or say shared=true to forget what belongs to no user"
            raise BadRequest(told, param="user", code="missing_user")
        return {"object": "memories.deleted", "deleted": await self._service.forget(owner)}

    async def _aggregate(self, http: Exchange) -> Any:
        raw = await http.read()
        asked = parsed(raw) if raw.strip() else {}
        names = _valid(NamedFields, asked, "").names
        least = asked.get("similarity")
        is_number = isinstance(least, int | float) and not isinstance(least, bool)
        if least is not None and not (is_number and 0.5 <= least <= 1):
            raise BadRequest("similarity must be from 0.5 to 1", param="similarity", code="invalid_value")
        merged = await self._service.aggregate(self._owner(http, names), least)
        return {"object": "memories.aggregated", "merged": merged}

    def _named(self, http: Exchange) -> tuple[Owner, str]:
        id = http.scope["path_params"].get("id", "")
        if not ID.fullmatch(id):
            raise _unknown()
        return self._asked(http, parameters(http, *Names._fields, "scope")), id

    def _asked(self, http: Exchange, asked: Mapping[str, str]) -> Owner:
        """Whose memories a query string is about: of one scope, or with `scope=all` of all."""
        names = _names(asked)
        owner, scope = self._owner(http, names), asked.get("scope")
        if scope is None:
            return owner
        if scope != "all" or any(names[1:]):
            told = "scope must be all, without session, agent or task; else name these"
            raise BadRequest(told, param="scope", code="invalid_value")
        if any(http.headers.get(f"x-penstock-{kind}") for kind in Names._fields[1:]):
            told = "who names a session, agent or task by a header may not see those of all others"
            raise BadRequest(told, param="scope", code="scope_mismatch", status=403)
        return owner.whole

    def _owner(self, http: Exchange, names: Names) -> Owner:
        """Whose memories a request is about. Raises `BadRequest` where headers name others than it does itself."""
        tenant = http.tenant
        for kind, name in zip(Names._fields, names, strict=True):
            header = http.headers.get(f"x-penstock-{kind}", "")
            if name and header and name != header:
                told = f"{kind} is another one than x-penstock-{kind} names"
                code = "user_mismatch" if kind == "user" else "scope_mismatch"
                raise BadRequest(told, param=kind, code=code, status=403)
        scope = scope_of(
            session_key(names.session) if names.session else "",
            key_of("agent", tenant, names.agent),
            key_of("task", tenant, names.task),
        )
        return Owner(tenant, key_of("user", tenant, names.user or http.headers.get("x-penstock-user", "")), scope)


async def _read(read: Callable[[bytes, MemoriesSettings], T], raw: bytes, bounds: MemoriesSettings) -> T:
    return read(raw, bounds) if len(raw) <= _INLINE else await asyncio.to_thread(read, raw, bounds)


def _names(asked: Mapping[str, str]) -> Names:
    """Return the names in a query string. An empty user is none; an empty scope is refused: it may delete too much."""
    fields = {name: value for name, value in asked.items() if value or name != "user"}
    return _valid(NamedFields, fields, "").names


def _limit(text: str | None) -> int:
    if text is None:
        return _LISTED
    if not (text.isascii() and text.isdigit() and 1 <= len(text) <= 6 and 1 <= int(text) <= _MOST_LISTED):
        raise BadRequest(f"limit must be from 1 to {_MOST_LISTED}", param="limit", code="invalid_value")
    return int(text)


def _unknown() -> NotFound:
    return NotFound("there is no memory with this id for this key, user and scope", code="unknown_memory")


def _shown(memory: Memory) -> dict[str, Any]:
    earlier = [asdict(each) for each in memory.earlier]
    return {"object": "memory", **asdict(memory), "earlier": earlier, "scope": kinds_of(memory.scope)}


def _scored(hit: Hit) -> dict[str, Any]:
    return {**_shown(hit.memory), "score": round(hit.score, 4)}


def _summed(added: list[Added]) -> dict[str, Any]:
    counts = {status: sum(each.status == status for each in added) for status in ("added", "repeated", "merged")}
    return {"object": "list", **counts}
