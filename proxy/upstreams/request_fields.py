"""The types of OpenAI's own request fields, for upstreams that read them themselves.

Where bytes pass through, the server behind checks them. It may be laxer than OpenAI, and Penstock must not be stricter
than the server that it stands for.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NoReturn

import orjson

from proxy.chat import ROLES
from proxy.chat.errors import BadRequest

_INT64 = range(-(2**63), 2**63)


def number(value: Any, place: str) -> float:
    """Return a finite number."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        wrong(place, "must be a number")
    if (isinstance(value, int) and value not in _INT64) or not math.isfinite(value):
        wrong(place, "must be a finite number")
    return value


def integer(value: Any, place: str) -> int:
    """Return an integer of at most 64 bits."""
    if isinstance(value, bool) or not isinstance(value, int) or value not in _INT64:
        wrong(place, "must be an integer")
    return value


def boolean(value: Any, place: str) -> bool:
    """Return True or false."""
    if not isinstance(value, bool):
        wrong(place, "must be true or false")
    return value


def string(value: Any, place: str) -> str:
    """Return a string."""
    if not isinstance(value, str):
        wrong(place, "must be a string")
    return value


def mapping(value: Any, place: str) -> Mapping[str, Any]:
    """Return an object."""
    if not isinstance(value, dict):
        wrong(place, "must be an object")
    return value


def sequence(value: Any, place: str) -> Sequence[Any]:
    """Return a list."""
    if not isinstance(value, list):
        wrong(place, "must be a list")
    return value


def parsed_arguments(written: Any, place: str, otherwise: str) -> dict[str, Any]:
    """Return the arguments of a call as an object, for upstreams that demand one.

    Text that is no JSON object becomes the one argument `otherwise`, word for word: the model sees its own mistake, and
    the tool's answer to it still makes sense.
    """
    if written is None or written == "":
        return {}
    if isinstance(written, dict):
        return written
    text = string(written, place)
    try:
        parsed = orjson.loads(text)
    except ValueError:
        parsed = None
    return parsed if isinstance(parsed, dict) else {otherwise: text}


def called_function(call: Mapping[str, Any], place: str, otherwise: str) -> tuple[str, dict[str, Any]]:
    """Return the name and the arguments of a call, of a function or of a custom tool; see `parsed_arguments`."""
    if "function" not in call and "custom" in call:
        called = mapping(call["custom"], f"{place}.custom")
        given: dict[str, Any] = {"input": string(called.get("input", ""), f"{place}.custom.input")}
    else:
        called = mapping(call.get("function"), f"{place}.function")
        given = parsed_arguments(called.get("arguments"), f"{place}.function.arguments", otherwise)
    return string(called.get("name"), f"{place}.name"), given


def role_of(message: Mapping[str, Any], place: str) -> str:
    """Return the role of a message, which is one of OpenAI's."""
    role = string(message.get("role"), f"{place}.role")
    if role not in ROLES:
        wrong(f"{place}.role", f"must be one of {', '.join(sorted(ROLES))}")
    return role


def wrong(place: str, must: str) -> NoReturn:
    """Refuse a value. Raise `BadRequest`."""
    raise BadRequest(f"{place} {must}", param=place, code="invalid_type")


def unsupported(subject: str, place: str) -> BadRequest:
    """Return the error for what an upstream has no form for."""
    return BadRequest(f"{subject} ({place})", param=place, code="unsupported_parameter")


Check = Callable[[Any, str], Any]


def _string_or_list(value: Any, place: str) -> Any:
    return value if isinstance(value, str) else sequence(value, place)


def _string_or_object(value: Any, place: str) -> Any:
    return value if isinstance(value, str) else mapping(value, place)


CHECKS: Mapping[str, Check] = {
    "frequency_penalty": number,
    "logit_bias": mapping,
    "logprobs": boolean,
    "max_completion_tokens": integer,
    "max_tokens": integer,
    "metadata": mapping,
    "modalities": sequence,
    "n": integer,
    "parallel_tool_calls": boolean,
    "presence_penalty": number,
    "reasoning_effort": string,
    "response_format": mapping,
    "seed": integer,
    "stop": _string_or_list,
    "stream": boolean,
    "stream_options": mapping,
    "temperature": number,
    "tool_choice": _string_or_object,
    "top_logprobs": integer,
    "top_p": number,
    "user": string,
}
"""The check of each field that is not null (OpenAI's API reference, `POST /chat/completions`)."""


def check_fields(rest: Mapping[str, Any]) -> None:
    """Raise `BadRequest` for a field of OpenAI's that has the wrong type; other fields are not checked."""
    for name, check in CHECKS.items():
        value = rest.get(name)
        if value is not None:
            check(value, name)
    if isinstance(rest.get("n"), int) and rest["n"] < 1:
        wrong("n", "must be at least 1")


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
