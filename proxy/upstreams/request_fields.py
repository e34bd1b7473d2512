"""The types of OpenAI's own request fields, for upstreams that read them themselves. Errors name their places.

Where bytes pass through, the server behind checks them. It may be laxer than OpenAI, and Penstock must not be stricter
than the server that it stands for.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass
from functools import cache, reduce
from operator import or_
from types import GenericAlias
from typing import Annotated, Any, Required, TypedDict

import msgspec

from proxy.chat import ROLES, ChatRequest, Message
from proxy.chat.errors import BadRequest, wrong
from proxy.text.tables import table
from proxy.wires.native import MALFORMED, parsed_arguments

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


def calls_of(
    message: Message, place: str, otherwise: str = MALFORMED
) -> Iterator[tuple[Mapping[str, Any], str, str, dict[str, Any]]]:
    """Yield each call of a message with its place, its name and its arguments; see `parsed_arguments`.

    One in the deprecated form has its name as its id.
    """
    listed = [*(message.get("tool_calls") or ())]
    if (function := message.get("function_call")) is not None:
        listed.append({"id": f"call_{function['name']}", "function": function})
    for index, call in enumerate(listed):
        at = f"{place}.tool_calls[{index}]"
        if "function" in call:
            yield call, at, call["function"]["name"], parsed_arguments(call["function"].get("arguments"), otherwise)
        elif "custom" in call:
            yield call, at, call["custom"]["name"], {"input": call["custom"].get("input", "")}
        else:
            wrong(f"{at}.function", "is missing")


def base64_of(url: str, place: str) -> tuple[str, str]:
    """Return the media type and the base64 text of a `data:` URL. Raise `BadRequest` for one in another form."""
    head, _, data = url.partition(",")
    kind, mark, coding = head[len("data:") :].lower().rpartition(";")
    if not mark or coding != "base64" or not data:
        wrong(place, "must be a data: URL with base64")
    return kind.partition(";")[0], data


def unsupported(subject: str, place: str) -> BadRequest:
    """Return the error for what an upstream has no form for."""
    return BadRequest(f"{subject} ({place})", param=place, code="unsupported_parameter")


def is_neutral(name: str, value: Any) -> bool:
    """Return whether leaving a field out changes nothing: it is null or has OpenAI's default."""
    return value is None or (name in NEUTRAL and value == NEUTRAL[name])


def asks(name: str, value: Any) -> bool:
    """Return whether a field asks for something. Without a known default, an empty value does not."""
    return not is_neutral(name, value) and (bool(value) or name in NEUTRAL or name == "seed")


LONGEST_LIST = 200
"""Characters of the list of ignored fields."""


@dataclass(frozen=True, slots=True)
class Translation:
    """A request in the form of a server's own API."""

    body: dict[str, Any]
    ignored: tuple[str, ...]
    """The client's fields that the server, or this model, does not support, sorted."""
    countable: bool = True
    """Our count of the prompt compares with the server's."""

    def fact(self, *, strict: bool) -> dict[str, Any]:
        """Return the fact `ignored`: the unsupported fields, with commas. Raise `BadRequest` if `strict`."""
        if self.ignored and strict:
            told = f"the upstream does not support {', '.join(self.ignored)}; leave it out, or unset strict_params"
            raise BadRequest(told[:1000], param=self.ignored[0], code="unsupported_parameter")
        return {"ignored": ",".join(self.ignored)[:LONGEST_LIST]} if self.ignored else {}


class CheckedRequest:
    """A chat request of OpenAI's types, and the fields of it that a translation leaves out.

    Whatever reads it raises `BadRequest` for a value that has no meaning.
    """

    def __init__(self, request: ChatRequest) -> None:
        self.rest = check_fields(request, "native")
        self.model, self.tools = request.model, request.tools
        self.ignored: set[str] = set()
        """Fields that are left out, such as `messages[].name`."""
        self._messages = request.messages

    @property
    def messages(self) -> Iterator[tuple[str, Message]]:
        """The messages with their places."""
        for index, message in enumerate(self._messages):
            if message.role not in ROLES:
                wrong(f"messages[{index}].role", f"must be one of {', '.join(sorted(ROLES))}")
            yield f"messages[{index}]", message

    def leave_out(self, message: Message, *names: str) -> None:
        """Note those fields of a message that ask for something."""
        self.ignored |= {f"messages[].{name}" for name in names if message.get(name)}

    def effort(self, known: Iterable[str]) -> tuple[str | None, str]:
        """Return the effort of reasoning that is asked for, and the field."""
        effort, place = self.rest.get("reasoning_effort"), "reasoning_effort"
        if effort is None and "reasoning" in self.rest:
            effort, place = self.rest["reasoning"].get("effort"), "reasoning"
        if effort not in (None, "none", *known):
            wrong(place, f"must be none, {', '.join(known)}")
        return effort, place

    @property
    def form(self) -> tuple[str, Mapping[str, Any] | None]:
        """The form of the answer that is asked for: `text`, `json_object` or `json_schema`, and its schema."""
        wanted = self.rest.get("response_format", {"type": "text"})
        match wanted.get("type"):
            case "text" | "json_object" as kind:
                return kind, None
            case "json_schema" as kind if "json_schema" in wanted:
                return kind, wanted["json_schema"].get("schema")
            case "json_schema":
                wrong("response_format.json_schema", "is missing")
        return wrong("response_format.type", "must be text, json_object or json_schema")

    @property
    def stops(self) -> list[str]:
        """The texts that end an answer."""
        stop = self.rest.get("stop")
        return [stop] if isinstance(stop, str) else stop or []

    def translation(self, body: Mapping[str, Any], read: Set[str], *, countable: bool = True) -> Translation:
        """Return the fields of a body that have a value. The client's fields that are not `read` are left out."""
        self.ignored |= {name for name, value in self.rest.items() if name not in read and asks(name, value)}
        kept = {name: value for name, value in body.items() if value is not None}
        return Translation(kept, tuple(sorted(self.ignored)), countable)
