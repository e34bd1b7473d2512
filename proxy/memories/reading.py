"""From a client's JSON to memories: strictly, with an error that names the place. Large bodies need a thread."""

from collections.abc import Iterator, Mapping, Sequence
from math import isfinite
from typing import Any, NamedTuple

import orjson

from proxy.chat.errors import BadRequest
from proxy.memories import KIND, SOURCES, Draft

_NAMES = ("user", "session", "agent", "task")
_FIELDS = frozenset({"text", "kind", "source", "sources", "confidence", "created", "expires", *_NAMES})
_LONGEST_SOURCE = 200
_LONGEST_NAME = 512


class RequestBounds(NamedTuple):
    """How much one request may bring."""

    memories: int
    characters: int
    """Of one text."""


class Names(NamedTuple):
    """Whose memories a request names, and of which scope; empty for what it does not name."""

    user: str = ""
    session: str = ""
    agent: str = ""
    task: str = ""


class Entry(NamedTuple):
    """A memory to be added, and whose it is."""

    names: Names
    draft: Draft


def names_of(given: Mapping[str, Any], where: str = "") -> Names:
    """What an object with fields names. Raises `BadRequest`."""
    return Names(*(_name(given, field, where) for field in _NAMES))


def entries(raw: bytes, bounds: RequestBounds) -> tuple[list[Entry], bool]:
    """The memories of a body, and whether it has a list of them. Raises `BadRequest`."""
    body = _object(_parsed(raw, "the body"), "")
    if "memories" not in body:
        return [_entry(body, "", bounds)], False
    some = body["memories"]
    if not isinstance(some, list):
        raise _wrong("memories", "must be an array")
    for name in body:
        if name not in ("memories", *_NAMES):
            raise _wrong(name, f"is unknown beside memories; known: {', '.join(_NAMES)}")
    names = names_of(body)
    _check_count(len(some), bounds, "memories")
    named = [(f"memories[{place}]", each) for place, each in enumerate(some)]
    found = [_entry(_object(each, where), f"{where}.", bounds) for where, each in named]
    return [Entry(_or(each.names, names), each.draft) for each in found], True


def lines(raw: bytes, bounds: RequestBounds) -> list[Entry]:
    """The memories of JSON lines; empty lines are passed over. Raises `BadRequest`, which names the line."""
    found = list(_lines(raw, bounds))
    _check_count(len(found), bounds, None)
    return found


def _lines(raw: bytes, bounds: RequestBounds) -> Iterator[Entry]:
    taken = 0
    for number, line in enumerate(raw.splitlines(), 1):
        if line.strip():
            taken += 1
            _check_count(min(taken, bounds.memories + 1), bounds, None)
            where = f"line {number}"
            yield _entry(_object(_parsed(line, where), where), f"{where}: ", bounds)


def _check_count(count: int, bounds: RequestBounds, param: str | None) -> None:
    if count > bounds.memories:
        raise BadRequest(f"at most {bounds.memories} memories in one request", param=param, code="too_many_memories")


def _parsed(raw: bytes, where: str) -> Any:
    try:
        return orjson.loads(raw)
    except orjson.JSONDecodeError:
        raise BadRequest(f"{where} is not valid JSON", code="invalid_json") from None


def _object(value: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise BadRequest(f"{where or 'the body'} must be a JSON object", param=where or None, code="invalid_type")
    return value


def _entry(given: Mapping[str, Any], where: str, bounds: RequestBounds) -> Entry:
    for name in given:
        if name not in _FIELDS:
            raise _wrong(where + name[:50], f"is unknown; known: {', '.join(sorted(_FIELDS))}")
    text = given.get("text")
    if not isinstance(text, str) or not text.strip():
        raise _wrong(f"{where}text", "must be a string that says something")
    if len(text) > bounds.characters:
        raise _wrong(f"{where}text", f"must have at most {bounds.characters} characters", "string_above_max_length")
    kind = given.get("kind", "fact")
    if not isinstance(kind, str) or not KIND.fullmatch(kind):
        raise _wrong(f"{where}kind", "must be a lower-case word, such as fact, preference, note or episode")
    confidence = _number(given, "confidence", where)
    if confidence is not None and not 0 <= confidence <= 1:
        raise _wrong(f"{where}confidence", "must be from 0 to 1")
    return Entry(
        names_of(given, where),
        Draft(
            text.strip(),
            kind,
            _sources(given, where),
            1.0 if confidence is None else confidence,
            _number(given, "created", where),
            _number(given, "expires", where),
        ),
    )


def _or(names: Names, others: Names) -> Names:
    return Names(*(name or other for name, other in zip(names, others, strict=True)))


def _name(given: Mapping[str, Any], field: str, where: str) -> str:
    name = given.get(field)
    if name is None:
        return ""
    if not isinstance(name, str) or not name or len(name) > _LONGEST_NAME:
        raise _wrong(f"{where}{field}", f"must be a string of 1 to {_LONGEST_NAME} characters")
    return name


def _sources(given: Mapping[str, Any], where: str) -> tuple[str, ...]:
    name = "sources" if "sources" in given else "source"
    value = given.get(name)
    some: Sequence[Any] = [] if value is None else value if isinstance(value, list) else [value]
    if len(some) > SOURCES or not all(isinstance(each, str) and 0 < len(each) <= _LONGEST_SOURCE for each in some):
        raise _wrong(where + name, f"must be at most {SOURCES} strings of up to {_LONGEST_SOURCE} characters")
    return tuple(dict.fromkeys(some))


def _number(given: Mapping[str, Any], name: str, where: str) -> float | None:
    value = given.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value) or abs(value) > 1e12:
        raise _wrong(where + name, "must be a number" + (" of seconds since 1970" if name != "confidence" else ""))
    return float(value)


def _wrong(param: str, told: str, code: str = "invalid_value") -> BadRequest:
    return BadRequest(f"{param} {told}", param=param, code=code)
