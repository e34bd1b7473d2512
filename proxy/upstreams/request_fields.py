"""The types of OpenAI's own request fields, for upstreams that read them themselves. Errors name their places.

Where bytes pass through, the server behind checks them. It may be laxer than OpenAI, and Penstock must not be stricter
than the server that it stands for.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache, reduce
from operator import or_
from types import GenericAlias
from typing import Annotated, Any, Required, TypedDict

import msgspec

from proxy.chat import ROLES, ChatRequest, Message
from proxy.chat.errors import BadRequest, wrong
from proxy.text.tables import table
from proxy.wires.view import MALFORMED, parsed_arguments

FIELDS: Mapping[str, Any] = table("upstream_fields")
NEUTRAL: Mapping[str, Any] = FIELDS["neutral"]
"""Values that ask for what an answer is without the field."""
BOOKKEEPING = frozenset(FIELDS["bookkeeping"])
"""Fields that do not concern the answer."""


@cache
def _types() -> Mapping[str, Any]:
    """Return the types of the table by their names, JSON's own among them."""
    number, integer = msgspec.Meta(ge=-1e300, le=1e300), msgspec.Meta(ge=-(2**63), le=2**63 - 1)
    numbers = {"number": Annotated[float, number], "integer": Annotated[int, integer]}
    types: dict[str, Any] = {"string": str, "strings": list[str], "boolean": bool, "null": None, **numbers}
    types |= {"count": Annotated[int, msgspec.Meta(ge=1)], "object": dict[str, Any], "list": list[Any]}
    make: Any = TypedDict
    for name, fields in FIELDS["types"].items():
        typed = dict[str, Any]()
        for key, words in fields.items():
            kind = reduce(or_, [types[word] for word in words.split(" | ")])
            typed[key.rstrip("!")] = Required[kind] if key.endswith("!") else kind
        types[name] = make(name, typed, total=False)
        types[f"{name}s"] = GenericAlias(list, types[name])
    return types


_NAMED = frozenset({"text", "refusal", "image_url", "file", "input_audio"})
"""Types of parts whose content has the same name."""

_WORDS = {"str": "a string", "int": "an integer", "float": "a number", "bool": "true or false", "array": "a list"}
_WORDS |= {"object": "an object", "null": "null"}


def check_fields(request: ChatRequest, kind: str = "request") -> dict[str, Any]:
    """Return the fields beside the conversation that are not null. `kind` is one of the table's, such as `native`.

    Raise `BadRequest` for a value of the wrong type, in the conversation too.
    """
    rest = {name: value for name, value in request.rest.items() if value is not None}
    try:
        msgspec.convert({**rest, "messages": request.messages, "tools": request.tools}, _types()[kind])
    except msgspec.ValidationError as error:
        told, _, path = str(error).partition(" - at `$.")
        if missing := re.match(r"Object missing required field `(.+)`", told):
            wrong(f"{path.rstrip('`')}.{missing[1]}", "is missing")
        kinds, bound = re.findall(r"^Expected `([^`]+)`( [<>]= \S+)?", told)[0]
        words = " or ".join(_WORDS[name] for name in kinds.split(" | "))
        wrong(path.rstrip("`"), f"must be {words}{bound}")
    for index, message in enumerate(request.messages):
        for at, part in enumerate(message.parts):
            if part["type"] in _NAMED and part["type"] not in part:
                wrong(f"messages[{index}].content[{at}].{part['type']}", "is missing")
    return rest


def called_function(call: Mapping[str, Any], place: str, otherwise: str = MALFORMED) -> tuple[str, dict[str, Any]]:
    """Return the name and the arguments of a call, of a function or of a custom tool; see `parsed_arguments`."""
    if "function" not in call:
        if "custom" not in call:
            wrong(f"{place}.function", "is missing")
        return call["custom"]["name"], {"input": call["custom"].get("input", "")}
    return call["function"]["name"], parsed_arguments(call["function"].get("arguments"), otherwise)


def calls_of(message: Message, place: str) -> Iterator[tuple[Mapping[str, Any], str]]:
    """Yield the calls of a message, each with its place; one in the deprecated form has its name as its id."""
    listed = [*(message.get("tool_calls") or ())]
    if (function := message.get("function_call")) is not None:
        listed.append({"id": f"call_{function['name']}", "function": function})
    yield from ((call, f"{place}.tool_calls[{index}]") for index, call in enumerate(listed))


def left_out(message: Message, *names: str) -> set[str]:
    """Return the fields of a message that ask for something, of those that an upstream does not take."""
    return {f"messages[].{name}" for name in names if message.get(name)}


def base64_of(url: str, place: str) -> tuple[str, str]:
    """Return the media type and the base64 text of a `data:` URL. Raise `BadRequest` for one in another form."""
    head, _, data = url.partition(",")
    kind, mark, coding = head[len("data:") :].lower().rpartition(";")
    if not mark or coding != "base64" or not data:
        wrong(place, "must be a data: URL with base64")
    return kind.partition(";")[0], data


def effort_of(rest: Mapping[str, Any], known: Iterable[str]) -> tuple[str | None, str]:
    """Return the effort of reasoning that is asked for, and the field. Raise `BadRequest` for an unknown one."""
    effort, place = rest.get("reasoning_effort"), "reasoning_effort"
    if effort is None and "reasoning" in rest:
        effort, place = rest["reasoning"].get("effort"), "reasoning"
    if effort not in (None, "none", *known):
        wrong(place, f"must be none, {', '.join(known)}")
    return effort, place


def form_of(rest: Mapping[str, Any]) -> tuple[str, Mapping[str, Any] | None]:
    """Return the form of the answer that is asked for: `text`, `json_object` or `json_schema`, and its schema."""
    wanted = rest.get("response_format", {"type": "text"})
    match wanted.get("type"):
        case "text" | "json_object" as kind:
            return kind, None
        case "json_schema" as kind if "json_schema" in wanted:
            return kind, wanted["json_schema"].get("schema")
        case "json_schema":
            wrong("response_format.json_schema", "is missing")
    return wrong("response_format.type", "must be text, json_object or json_schema")


def role_of(message: Message, place: str) -> str:
    """Return the role of a message, which is one of OpenAI's."""
    if message.role not in ROLES:
        wrong(f"{place}.role", f"must be one of {', '.join(sorted(ROLES))}")
    return message.role


def stops_of(stop: str | list[str] | None) -> list[str]:
    """Return the texts that end an answer."""
    return [stop] if isinstance(stop, str) else stop or []


def unsupported(subject: str, place: str) -> BadRequest:
    """Return the error for what an upstream has no form for."""
    return BadRequest(f"{subject} ({place})", param=place, code="unsupported_parameter")


LONGEST_LIST = 200
"""Characters of the list of ignored fields."""


def ignored_fact(names: Iterable[str], *, strict: bool) -> dict[str, str | int | float | bool]:
    """Return the fact `ignored`: the unsupported fields, with commas. Raise `BadRequest` if `strict`."""
    listed = sorted(names)
    if listed and strict:
        told = f"the upstream does not support {', '.join(listed)}; leave it out, or unset strict_params"
        raise BadRequest(told[:1000], param=listed[0], code="unsupported_parameter")
    return {"ignored": ",".join(listed)[:LONGEST_LIST]} if listed else {}


def is_neutral(name: str, value: Any) -> bool:
    """Return whether leaving a field out changes nothing: it is null or has OpenAI's default."""
    return value is None or (name in NEUTRAL and value == NEUTRAL[name])


def asks(name: str, value: Any) -> bool:
    """Return whether a field asks for something. Without a known default, an empty value does not."""
    return not is_neutral(name, value) and (bool(value) or name in NEUTRAL or name == "seed")
