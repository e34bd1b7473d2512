"""The tokens of one tool definition.

OpenAI renders tools as type declarations; the cookbook ("How to count tokens with tiktoken", section 7) gives the rule
for flat parameters of simple types. It is carried on here to nested objects, arrays, unions and references, as an
estimate.
Every other family gets its tools as JSON, so that is what is counted.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from proxy.models.counting import Tally, compact

PROPERTIES_FRAME = 3
"""Tokens for an object that has properties."""
PROPERTY_FRAME = 3
"""Tokens for each property."""
ENUM_FRAME = -3
"""Tokens for an enumeration, its items apart."""
ITEM_FRAME = 3
"""Tokens for each item of an enumeration."""
JSON_FRAME = 8
"""Tokens around a tool that is rendered as JSON: an estimate."""

_DEEPEST = 16
"""Levels of nesting that are walked; what lies deeper is counted as JSON."""
_FLAT = frozenset({"type", "description", "enum"})
_ROOT = frozenset({"type", "properties", "required", "additionalProperties", "$schema"})


def count_tool(tally: Tally, tool: Mapping[str, Any]) -> None:
    """Count a tool: a function, a custom tool, or a bare function of the deprecated `functions`.

    One that the provider loads when its search finds it is no part of the prompt.
    """
    if tool.get("defer_loading") is True:
        return
    inner = next((tool[key] for key in ("function", "custom") if isinstance(tool.get(key), Mapping)), tool)
    if not tally.family.terse_tools or not isinstance(inner.get("name"), str):
        tally.text += JSON_FRAME
        tally.add_json(inner)
        return
    tally.text += tally.family.function_start
    tally.add(f"{inner['name']}:{_description(inner)}")
    parameters, grammar = inner.get("parameters"), inner.get("format")
    if isinstance(parameters, Mapping):
        tally.estimated = tally.estimated or not parameters.keys() <= _ROOT
        _shape(tally, parameters, 0)
    elif parameters is not None:
        tally.add_json(parameters)
    if isinstance(grammar, Mapping):
        tally.add_json(grammar)


def _property(tally: Tally, name: str, schema: Any, depth: int) -> None:
    tally.text += PROPERTY_FRAME
    if not isinstance(schema, Mapping):
        tally.add_json({name: schema})
        return
    if not schema.keys() <= _FLAT or not isinstance(schema.get("type"), str) or "description" not in schema:
        tally.estimated = True
    tally.add(f"{name}:{_type(schema)}:{_description(schema)}")
    _shape(tally, schema, depth)


def _shape(tally: Tally, schema: Mapping[str, Any], depth: int) -> None:
    if depth > _DEEPEST:
        tally.add_json(schema)
        return
    _enum(tally, schema.get("enum"))
    if _mapping(schema.get("properties")):
        tally.text += PROPERTIES_FRAME
    for name, inner in _members(schema):
        _property(tally, name, inner, depth + 1)
    for inner in _alternatives(schema):
        _nameless(tally, inner, depth)
    for key in ("default", "const", "pattern", "format", "examples"):
        if schema.get(key) is not None:
            tally.add_json(schema[key])


def _nameless(tally: Tally, schema: Any, depth: int) -> None:
    if isinstance(schema, Mapping):
        tally.estimated = True
        tally.add(f"{_type(schema)}:{_description(schema)}".rstrip(":"))
        _shape(tally, schema, depth + 1)


def _members(schema: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for key in ("properties", "$defs", "definitions"):
        for name, inner in _mapping(schema.get(key)).items():
            yield str(name), inner


def _alternatives(schema: Mapping[str, Any]) -> Iterator[Any]:
    for key in ("anyOf", "oneOf", "allOf", "prefixItems", "items", "additionalProperties", "not"):
        found = schema.get(key)
        yield from found if isinstance(found, list) else (found,)


def _mapping(value: Any) -> Mapping[Any, Any]:
    return value if isinstance(value, Mapping) else {}


def _enum(tally: Tally, items: Any) -> None:
    if not isinstance(items, list) or not items:
        return
    tally.text += ENUM_FRAME + ITEM_FRAME * len(items)
    for item in items:
        tally.add(item if isinstance(item, str) else compact(item))


def _type(schema: Mapping[str, Any]) -> str:
    kind = schema.get("type")
    if isinstance(kind, list):
        return "|".join(item for item in kind if isinstance(item, str))
    if isinstance(kind, str):
        return kind
    reference = schema.get("$ref")
    return reference.rsplit("/", 1)[-1] if isinstance(reference, str) else "any"


def _description(schema: Mapping[str, Any]) -> str:
    """Return the description as the cookbook counts it: without the full stop at its end."""
    text = schema.get("description")
    return text.removesuffix(".") if isinstance(text, str) else ""
