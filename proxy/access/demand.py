"""Estimate the tokens of a request, and refuse a request for longer or more answers than its key allows."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from proxy.chat.errors import BadRequest
from proxy.chat.parse import Body
from proxy.upstreams.base import Call

BYTES_PER_TOKEN = 4
FILE_TOKENS = 1000
"""Tokens assumed for an image, a sound or a file in a prompt that was not counted."""

_FILES = (b";base64,", b'"data":"')

_OUTPUT = ("max_completion_tokens", "max_tokens", "max_output_tokens")
_ANSWERS = ("n", "best_of")
_BOUNDS = frozenset({*_OUTPUT, *_ANSWERS, "options"})


@dataclass(frozen=True, slots=True)
class Demand:
    """The estimated tokens of a request."""

    prompt: int
    answer: int

    @property
    def total(self) -> int:
        return self.prompt + self.answer


def demand_of(call: Call) -> Demand:
    """Estimate a call's prompt, by four bytes a token if it was not counted, and the longest answers that it allows."""
    fields = _fields(call)
    if fields is None:
        return Demand(0, 0)  # a form with a file: its size says nothing about tokens
    prompt = call.counted.total if call.counted is not None else _weight(call.body) // BYTES_PER_TOKEN
    usual = call.profile.reserve if call.profile is not None else 0
    return Demand(prompt, _most(fields, _OUTPUT, usual) * _most(fields, _ANSWERS, 1))


def check_caps(call: Call, max_output_tokens: int | None, max_n: int | None) -> None:
    """Raise `BadRequest` if a call asks for longer answers, or for more answers, than allowed."""
    if max_output_tokens is None and max_n is None:
        return
    fields = _fields(call) or {}
    for name in _OUTPUT:
        _check(name, fields.get(name), max_output_tokens)
    for name in _ANSWERS:
        _check(name, fields.get(name), max_n)
    options = fields.get("options")  # Ollama's own
    if isinstance(options, Mapping):
        _check("options.num_predict", options.get("num_predict"), max_output_tokens, least=0)


def _check(name: str, value: Any, most: int | None, *, least: float = float("-inf")) -> None:
    if most is None or value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int | float):
        # a lenient upstream might accept it as a number
        raise BadRequest(f"{name} must be an integer", param=name, code="invalid_type")
    if value > most or value < least:
        message = f"{name} is {value}, but this key may ask for at most {most}"
        raise BadRequest(message, param=name, code="integer_above_max_value")


def _fields(call: Call) -> Mapping[str, Any] | None:
    """Return the fields of a JSON body that bound its answers, in lower case, because some servers ignore case."""
    if call.request is not None:
        fields: Mapping[str, Any] = call.request.rest
    elif call.body.lstrip()[:1] == b"{":
        fields = Body(call.body).rest()
    else:
        return None
    return {name.casefold(): fields[name] for name in fields if name.casefold() in _BOUNDS}


def _most(fields: Mapping[str, Any], names: Iterable[str], otherwise: int) -> int:
    values = [fields.get(name) for name in names]
    return max((v for v in values if isinstance(v, int) and not isinstance(v, bool) and v > 0), default=otherwise)


def _weight(body: bytes) -> int:
    """Return the size of a body in bytes, with each file in it reduced to the size of `FILE_TOKENS`."""
    size = len(body)
    for mark in _FILES:
        begin = body.find(mark)
        while begin >= 0:
            end = body.find(b'"', begin + len(mark))
            end = len(body) if end < 0 else end
            size -= max(0, end - begin - FILE_TOKENS * BYTES_PER_TOKEN)
            begin = body.find(mark, end)
    return max(0, size)
