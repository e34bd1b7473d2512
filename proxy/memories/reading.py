"""Read memories from a client's JSON: strictly, with an error that names the place. Large bodies need a thread."""

from collections.abc import Mapping
from typing import Annotated, Any, NamedTuple, TypeVar

import orjson
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints, ValidationError

from proxy.chat.errors import BadRequest
from proxy.config.settings import MemoriesSettings
from proxy.memories import KIND, SOURCES, Draft

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


def names_of(fields: Mapping[str, Any]) -> Names:
    """Return the names in an object. Raise `BadRequest`."""
    return _read(NamedFields, fields, "").names


def entries(raw: bytes, bounds: MemoriesSettings) -> tuple[list[Entry], bool]:
    """Return the memories of a body, and whether it has a list of them. Raise `BadRequest`."""
    body = parsed(raw)
    if not isinstance(body, dict) or "memories" not in body:
        return [_entry(body, "", bounds)], False
    body_fields = _read(_ListBody, body, "")
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
    body_fields = _read(_MemoryBody, value, place)
    if len(body_fields.text) > bounds.max_characters:
        param = f"{place}.text" if place else "text"
        message = f"{param}: must have at most {bounds.max_characters} characters"
        raise BadRequest(message, param=param, code="string_above_max_length")
    return body_fields.names, body_fields.draft


def _read(kind: type[Fields], value: Any, place: str) -> Fields:
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
