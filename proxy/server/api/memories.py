"""The endpoints for memories: what an application stores about its users, finds, and forgets."""

import asyncio
from collections.abc import Iterable, Sequence
from typing import Annotated, Any, Literal, TypeVar

from msgspec.structs import asdict
from pydantic import BeforeValidator, Field, StringConstraints

from proxy.access.exchange import Exchange
from proxy.chat.errors import BadRequest, NotFound
from proxy.config.settings import MemoriesSettings, Settings
from proxy.identity import identify
from proxy.memories import ID, KIND, SOURCES, Draft, Memory, Owner, kinds_of, scope_of
from proxy.memories.change import Added
from proxy.memories.service import MemoryService
from proxy.server.api.endpoint import JsonFields, parameters, parsed, sent_json, valid

_MOST_LISTED = 1000

Name = Annotated[str, StringConstraints(min_length=1, max_length=512)] | None
Source = Annotated[str, StringConstraints(min_length=1, max_length=200)]
Number = Annotated[float, Field(ge=-1e12, le=1e12, allow_inf_nan=False)]
Kind = Annotated[str, StringConstraints(pattern=f"^{KIND.pattern}$")]

_NAMES = ("user", "session", "agent", "task")


class NamedFields(JsonFields):
    """The fields that name an owner and a scope."""

    user: Name = None
    session: Name = None
    agent: Name = None
    task: Name = None

    @property
    def has_scope(self) -> bool:
        return bool(self.session or self.agent or self.task)


_as_list = BeforeValidator(lambda value: [] if value is None else value if isinstance(value, list) else [value])
Sources = Annotated[list[Source], _as_list, Field(max_length=SOURCES)]


class _ListBody(NamedFields):
    memories: list[Any]


class MemoryBody(NamedFields):
    """A memory to be added, with its owner."""

    text: Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]
    kind: Kind = "fact"
    source: Sources = Field(default=[])
    sources: Sources = Field(default=[])
    confidence: Annotated[Number, Field(ge=0, le=1)] | None = None
    created: Number | None = None
    expires: Number | None = None

    @property
    def draft(self) -> Draft:
        sources = tuple(dict.fromkeys(self.sources or self.source))
        sure = 1.0 if self.confidence is None else self.confidence
        return Draft(self.text, self.kind, sources, sure, self.created, self.expires)


class _Merging(NamedFields):
    similarity: Annotated[float, Field(ge=0.5, le=1)] | None = None


class _Place(NamedFields):
    """A query string that names one scope, or all of an owner."""

    scope: Literal["all"] | None = None


class _Search(_Place):
    kind: Kind | None = None
    query: Annotated[str, StringConstraints(pattern=r"\S")] | None = None
    limit: Annotated[int, Field(strict=False, ge=1, le=_MOST_LISTED)] = 100


class _Forgotten(NamedFields):
    shared: str | None = None


def entries(raw: bytes, bounds: MemoriesSettings) -> tuple[list[MemoryBody], bool]:
    """Return the memories of a body, and whether it has a list of them. Raise `BadRequest`."""
    body = parsed(raw)
    if not isinstance(body, dict) or "memories" not in body:
        return _valid([(body, "")], bounds), False
    shared = valid(_ListBody, body)
    listed = _valid([(each, f"memories[{number}]") for number, each in enumerate(shared.memories)], bounds, "memories")
    for each in listed:
        for name in _NAMES:
            setattr(each, name, getattr(each, name) or getattr(shared, name))
    return listed, True


def lines(raw: bytes, bounds: MemoriesSettings) -> list[MemoryBody]:
    """Return the memories of JSON lines; empty lines are passed over. Raise `BadRequest`, which names the line."""
    filled = ((f"line {number}", line) for number, line in enumerate(raw.splitlines(), 1) if line.strip())
    return _valid(((parsed(line, place), place) for place, line in filled), bounds)


def _valid(values: Iterable[tuple[Any, str]], bounds: MemoriesSettings, param: str | None = None) -> list[MemoryBody]:
    """Return the memories that JSON values are, each with its place. Raise `BadRequest`."""
    memories: list[MemoryBody] = []
    for value, place in values:
        if len(memories) == bounds.max_import:
            message = f"at most {bounds.max_import} memories in one request"
            raise BadRequest(message, param=param, code="too_many_memories")
        memories.append(valid(MemoryBody, value, place))
        if len(memories[-1].text) > bounds.max_characters:
            param = f"{place}.text" if place else "text"
            message = f"{param}: must have at most {bounds.max_characters} characters"
            raise BadRequest(message, param=param, code="string_above_max_length")
    return memories


_WAIT = 5.0

Asked = TypeVar("Asked", bound=NamedFields)


class MemoriesApi:
    """`/v1/memories` and what is below. Nothing of it reaches an upstream."""

    def __init__(self, settings: Settings, service: MemoryService) -> None:
        self._bounds = settings.memories
        self._service = service

    async def add(self, http: Exchange) -> Any:
        entered, is_list = await asyncio.to_thread(entries, await http.read(), self._bounds)
        added = await self._added(http, entered)
        if not is_list:
            return {**_shown(added[0].memory), "status": added[0].status}
        return _summed(added) | {"data": [{**_shown(each.memory), "status": each.status} for each in added]}

    async def load(self, http: Exchange) -> Any:
        return _summed(await self._added(http, await asyncio.to_thread(lines, await http.read(), self._bounds)))

    async def _added(self, http: Exchange, entered: Sequence[MemoryBody]) -> list[Added]:
        owned: dict[Owner, list[int]] = {}
        for place, each in enumerate(entered):  # all names are checked before anything is written
            owned.setdefault(self._owner(http, each), []).append(place)
        added: dict[int, Added] = {}
        for owner, places in owned.items():
            results = await self._service.add(owner, [entered[place].draft for place in places])
            added |= dict(zip(places, results, strict=True))
        return [added[place] for place in range(len(entered))]

    async def find(self, http: Exchange) -> Any:
        asked = _query(_Search, http)
        owner, limit = self._asked(http, asked), asked.limit
        if asked.query is None:
            memories = [each for each in await self._service.all(owner) if asked.kind in (None, each.kind)]
            data = [_shown(each) for each in memories[:limit]]
            return {"object": "list", "data": data, "has_more": len(memories) > limit}
        if owner.scope is None:
            raise BadRequest("a query searches one scope, not all", param="scope", code="invalid_value")
        # of one kind there may be few among the nearest
        most = limit if asked.kind is None else _MOST_LISTED
        hits, found_by = await self._service.search([owner], asked.query, limit=most, wait=_WAIT)
        fitting = [hit for hit in hits if asked.kind in (None, hit.memory.kind)]
        data = [{**_shown(hit.memory), "score": round(hit.score, 4)} for hit in fitting[:limit]]
        return {"object": "list", "data": data, "found_by": found_by}

    async def get(self, http: Exchange) -> Any:
        owner, id = self._named(http)
        found = await self._service.get(owner, id)
        if found is None:
            raise _unknown()
        return _shown(found)

    async def delete(self, http: Exchange) -> Any:
        owner, id = self._named(http)
        if not await self._service.delete(owner, id):
            raise _unknown()
        return {"id": id, "object": "memory.deleted", "deleted": True}

    async def forget(self, http: Exchange) -> Any:
        """`DELETE /v1/memories`: all of a user, or of a scope."""
        asked = _query(_Forgotten, http)
        owner = self._owner(http, asked)
        if not asked.has_scope:
            owner = owner.whole
        if not owner.user and asked.shared != "true":
            told = "name a user, or say shared=true to forget what belongs to no user"
            raise BadRequest(told, param="user", code="missing_user")
        return {"object": "memories.deleted", "deleted": await self._service.forget(owner)}

    async def aggregate(self, http: Exchange) -> Any:
        asked = valid(_Merging, await sent_json(http, b"{}"))
        merged = await self._service.aggregate(self._owner(http, asked), asked.similarity)
        return {"object": "memories.aggregated", "merged": merged}

    def _named(self, http: Exchange) -> tuple[Owner, str]:
        id = http.scope["path_params"].get("id", "")
        if not ID.fullmatch(id):
            raise _unknown()
        return self._asked(http, _query(_Place, http)), id

    def _asked(self, http: Exchange, asked: _Place) -> Owner:
        """Whose memories a query string is about: of one scope, or with `scope=all` of all."""
        owner = self._owner(http, asked)
        if asked.scope is None:
            return owner
        if asked.has_scope:
            told = "scope must be all, without session, agent or task; else name these"
            raise BadRequest(told, param="scope", code="invalid_value")
        if any(http.headers.get(f"x-penstock-{kind}") for kind in _NAMES[1:]):
            told = "who names a session, agent or task by a header may not see those of all others"
            raise BadRequest(told, param="scope", code="scope_mismatch", status=403)
        return owner.whole

    def _owner(self, http: Exchange, names: NamedFields) -> Owner:
        """Whose memories a request is about. Raises `BadRequest` where headers name others than it does itself."""
        named: dict[str, str] = {}
        for kind in _NAMES:
            name, header = getattr(names, kind) or "", http.headers.get(f"x-penstock-{kind}", "")
            if name and header and name != header:
                told = f"{kind} is another one than x-penstock-{kind} names"
                code = "user_mismatch" if kind == "user" else "scope_mismatch"
                raise BadRequest(told, param=kind, code=code, status=403)
            named[f"x-penstock-{kind}"] = name or (header if kind == "user" else "")
        who = identify(named, None, http.caller.tenant)
        return Owner(who.tenant, who.user, scope_of(who.session, who.agent, who.task))


def _query(kind: type[Asked], http: Exchange) -> Asked:
    """Return the fields of a query string. An empty user is none; an empty scope is refused: it may delete too much."""
    sent = parameters(http, *kind.model_fields)
    return valid(kind, {name: value for name, value in sent.items() if value or name != "user"})


def _unknown() -> NotFound:
    return NotFound("there is no memory with this id for this key, user and scope", code="unknown_memory")


def _shown(memory: Memory) -> dict[str, Any]:
    earlier = [asdict(each) for each in memory.earlier]
    return {"object": "memory", **asdict(memory), "earlier": earlier, "scope": kinds_of(memory.scope)}


def _summed(added: list[Added]) -> dict[str, Any]:
    counts = {status: sum(each.status == status for each in added) for status in ("added", "repeated", "merged")}
    return {"object": "list", **counts}
