"""The JSON types of a client's values, for upstreams that translate: what is wrong is named by its place."""

import math
from collections.abc import Mapping, Sequence
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
