"""The types of OpenAI's own request fields, for upstreams that read them themselves.

Where bytes pass through, the server behind checks them. It may be laxer than OpenAI, and Penstock must not be stricter
than the server that it stands for.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from typing import Annotated, Any, ParamSpec, TypedDict, TypeVar

import msgspec

from proxy.chat import ROLES, Message
from proxy.chat.errors import BadRequest, wrong
from proxy.wires.view import MALFORMED, parsed_arguments

_Number = Annotated[float, msgspec.Meta(ge=-1e300, le=1e300)]
_Integer = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
_Given = ParamSpec("_Given")
_Made = TypeVar("_Made")


class ChatFields(TypedDict, total=False):
    """The fields beside the conversation that are not null (OpenAI's API reference, `POST /chat/completions`)."""

    frequency_penalty: _Number
    logit_bias: dict[str, Any]
    logprobs: bool
    max_completion_tokens: _Integer
    max_tokens: _Integer
    metadata: dict[str, Any]
    modalities: list[Any]
    n: Annotated[int, msgspec.Meta(ge=1)]
    parallel_tool_calls: bool
    presence_penalty: _Number
    reasoning_effort: str
    response_format: dict[str, Any]
    seed: _Integer
    stop: str | list[str]
    stream: bool
    stream_options: dict[str, Any]
    temperature: _Number
    tool_choice: str | dict[str, Any]
    top_logprobs: _Integer
    top_p: _Number
    user: str


_WORDS = {"str": "a string", "int": "an integer", "float": "a number", "bool": "true or false", "array": "a list"}
_WORDS |= {"object": "an object"}


def check_fields(rest: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields that are not null. Raise `BadRequest` for one of OpenAI's that has the wrong type."""
    fields = {name: value for name, value in rest.items() if value is not None}
    try:
        msgspec.convert(fields, ChatFields)
    except msgspec.ValidationError as error:
        told, _, path = str(error).partition(" - at `$.")
        kinds, bound = re.findall(r"^Expected `([^`]+)`( [<>]= \S+)?", told)[0]
        words = " or ".join(_WORDS[name] for name in kinds.split(" | "))
        wrong(path.rstrip("`"), f"must be {words}{bound}")
    return fields


def checked(translate: Callable[_Given, _Made]) -> Callable[_Given, _Made]:
    """Return a translation that raises `BadRequest` where it meets a value of a wrong type in a list or an object.

    It need not look for such values: a server refuses those that can be translated.
    """

    @wraps(translate)
    def checked_translation(*given: _Given.args, **named: _Given.kwargs) -> _Made:
        try:
            return translate(*given, **named)
        except RecursionError:
            raise BadRequest("the body is nested too deeply", code="invalid_json") from None
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise BadRequest("the request has a value of a wrong type", code="invalid_type") from error

    return checked_translation


def called_function(call: Mapping[str, Any], otherwise: str = MALFORMED) -> tuple[str, dict[str, Any]]:
    """Return the name and the arguments of a call, of a function or of a custom tool; see `parsed_arguments`."""
    if "function" not in call:
        return call["custom"]["name"], {"input": call["custom"].get("input", "")}
    return call["function"]["name"], parsed_arguments(call["function"].get("arguments"), otherwise)


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
        case "json_schema" as kind:
            return kind, wanted["json_schema"].get("schema")
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


NEUTRAL: Mapping[str, Any] = {
    "frequency_penalty": 0,
    "logit_bias": {},
    "logprobs": False,
    "modalities": ["text"],
    "n": 1,
    "parallel_tool_calls": True,
    "presence_penalty": 0,
    "tool_choice": "auto",
    "top_logprobs": 0,
    "verbosity": "medium",
}
"""Values that ask for what an answer is without the field (OpenAI's defaults)."""


BOOKKEEPING = frozenset({
    "metadata", "prompt_cache_key", "prompt_cache_options", "prompt_cache_retention", "safety_identifier", "store",
})  # fmt: skip
"""Fields that do not concern the answer, so that nothing is lost without them."""


def is_neutral(name: str, value: Any) -> bool:
    """Return whether leaving a field out changes nothing: it is null or has OpenAI's default."""
    return value is None or (name in NEUTRAL and value == NEUTRAL[name])


def asks(name: str, value: Any) -> bool:
    """Return whether a field asks for something. Without a known default, an empty value does not."""
    return not is_neutral(name, value) and (bool(value) or name in NEUTRAL or name == "seed")
