"""The types of OpenAI's own request fields, for upstreams that read them themselves.

Where bytes pass through, the server behind checks them. It may be laxer than OpenAI, and Penstock must not be stricter
than the server that it stands for.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from proxy.chat.errors import BadRequest
from proxy.upstreams.json_types import boolean, integer, mapping, number, sequence, string, wrong

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
