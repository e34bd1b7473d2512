"""The names and values of span attributes: OpenTelemetry's conventions as text, without OpenTelemetry.

The published constants of the GenAI conventions (`gen_ai.*`) are deprecated, so the names stand here. They belong on
the span of the call to the model alone: backends count a generation for each span that has them.
"""

import re
from collections.abc import Mapping
from functools import lru_cache
from urllib.parse import urlsplit

from proxy.context import Identity
from proxy.models.usage import Usage
from proxy.step import Step

Value = str | bool | int | float | list[str]

SCHEMA = "https://opentelemetry.io/schemas/1.41.0"
"""The version of the conventions that the released names are from."""

_INTEGERS = {
    "max_tokens": "gen_ai.request.max_tokens",
    "max_completion_tokens": "gen_ai.request.max_tokens",
    "seed": "gen_ai.request.seed",
    "n": "gen_ai.request.choice.count",
}
_DOUBLES = {
    "temperature": "gen_ai.request.temperature",
    "top_p": "gen_ai.request.top_p",
    "frequency_penalty": "gen_ai.request.frequency_penalty",
    "presence_penalty": "gen_ai.request.presence_penalty",
    "top_k": "gen_ai.request.top_k",
}

_TOO_LARGE = 2**63

_MOST_CHOICES = 128

OPERATIONS = {
    "/chat/completions": "chat",
    "/completions": "text_completion",
    "/embeddings": "embeddings",
    "/messages": "chat",
    "/responses": "chat",
}
"""The operations of paths below `/v1`, as far as the GenAI conventions have a name for them."""

_LEVEL = re.compile(r"[a-z]{1,12}")
_ID = re.compile(r"[\w-]{1,128}")

_LONGEST_NAME = 128
"""Characters of a model's name in a span's name; where the configuration has globs, it is the client's to choose."""


def clean(attributes: Mapping[str, object]) -> dict[str, Value]:
    """Return what can be exported: no None, no other types, nothing that OTLP cannot carry (a traceback each)."""
    return {name: carried for name, value in attributes.items() if (carried := _carried(value)) is not None}


def of_step(step: Step) -> dict[str, object]:
    """Return the attributes of a step's span."""
    return {
        "penstock.policy.name": step.policy,
        "penstock.policy.verdict": step.verdict,
        "penstock.policy.why": step.why,
        "penstock.policy.mode": "observe" if step.observed else "enforce",
        "penstock.policy.tokens_before": step.tokens_before,
        "penstock.policy.tokens_after": step.tokens_after,
        **{f"penstock.policy.fact.{name}": value for name, value in step.facts.items()},
    }


def of_generation(operation: str, provider: str, model: str, fields: Mapping[str, object]) -> dict[str, object]:
    """Return the attributes of a call at its start: no texts but a level of reasoning and an earlier response's id."""
    known: dict[str, object] = {
        "gen_ai.operation.name": operation,
        "gen_ai.provider.name": provider,
        "gen_ai.request.model": model,
    }
    for name, value in fields.items():
        if isinstance(value, int | float) and type(value) is not bool and abs(value) < _TOO_LARGE:
            if name in _DOUBLES:
                known[_DOUBLES[name]] = float(value)
            elif name in _INTEGERS and value == int(value):
                known[_INTEGERS[name]] = int(value)
    if type(fields.get("stream")) is bool:
        known["gen_ai.request.stream"] = fields["stream"]
    known["gen_ai.request.reasoning.level"] = _reasoning_level(fields)
    previous = fields.get("previous_response_id")
    if isinstance(previous, str) and _ID.fullmatch(previous):
        known["gen_ai.request.previous_response.id"] = previous
    return known


def _reasoning_level(fields: Mapping[str, object]) -> str | None:
    inner = (fields.get("reasoning"), fields.get("output_config"))
    asked = [fields.get("reasoning_effort"), *(each.get("effort") for each in inner if isinstance(each, Mapping))]
    return next((each for each in asked if isinstance(each, str) and _LEVEL.fullmatch(each)), None)


def of_conversation(who: Identity, id: str | None, turn: int | None) -> dict[str, object]:
    """Return the attributes of a request's conversation; all of them are hashes."""
    return {
        "penstock.conversation.id": id,
        "penstock.conversation.turn": turn,
        "penstock.session.id": who.session if who.is_named else None,
        "penstock.agent.id": who.agent or None,
        "penstock.task.id": who.task or None,
    }


def of_usage(usage: Usage) -> dict[str, object]:
    """Return the attributes of an upstream's answer."""
    return {
        "gen_ai.response.id": usage.response_id,
        "gen_ai.response.model": usage.model,
        "gen_ai.response.finish_reasons": list(usage.finish_reasons[:_MOST_CHOICES]) or None,
        "gen_ai.usage.input_tokens": usage.input,
        "gen_ai.usage.output_tokens": usage.output,
        "gen_ai.usage.cache_read.input_tokens": usage.cached,
        "gen_ai.usage.reasoning.output_tokens": usage.reasoning,
        "gen_ai.usage.cache_creation.input_tokens": usage.written,
        "gen_ai.usage.cache_write.input_tokens": usage.written,  # the same by its latest name
        **{f"gen_ai.usage.{name}": count for name, count in usage.modalities},
    }


def model_name(model: str) -> str:
    """Return a model's name for a span's name: a lone surrogate there would cost a whole batch its export."""
    return _text(model[:_LONGEST_NAME])


@lru_cache(maxsize=64)
def of_server(address: str | None) -> Mapping[str, object]:
    """Return host and port of an upstream's address; nothing else of it, since it may hold credentials."""
    if address is None:
        return {}
    url = urlsplit(address)
    return {"server.address": url.hostname, "server.port": url.port or (443 if url.scheme == "https" else 80)}


def _carried(value: object) -> Value | None:
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, bool | float):
        return value
    if isinstance(value, int):
        return value if -(2**63) <= value < 2**63 else None
    if isinstance(value, list):
        return [str(_carried(item)) for item in value]
    return None


def _text(value: str) -> str:
    return value if value.isascii() else value.encode("utf-8", "replace").decode()
