"""The texts that rank a tool definition: for its meaning, and for its words. Pure."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from proxy.chat import Tool

_PARTS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|[\W_]+")
_DESCRIPTION = 1200
"""Characters of a description that are read for its meaning: what a tool is for stands at the beginning."""
_NAMES = 24
"""Parameters whose names are read for the meaning."""
_DEPTH = 4
"""Levels of nested parameters that are read. A `$ref` is not followed: it may lead back to itself."""
_WORDS = 8_000
"""Characters of a tool that are read for its words."""


class ToolText(NamedTuple):
    """The texts of a tool definition."""

    meaning: str
    """Its name as words, its description, the names of its parameters: short enough for a sentence model."""
    words: str
    """All of its words: parameters' descriptions and the values they may have, too."""


def text_of(tool: Tool) -> ToolText:
    """Return the texts of a function, or of a custom tool, which has no parameters; either may lack its description."""
    inner = next((tool[kind] for kind in ("function", "custom") if isinstance(tool.get(kind), Mapping)), tool)
    about = inner.get("description")
    about = about if isinstance(about, str) else ""
    parameters = list(_parameters(inner.get("parameters"), _DEPTH))
    name = spaced(tool.name)
    names = ", ".join(spaced(each) for each, _ in parameters[:_NAMES])
    meaning = f"{name}: {about[:_DESCRIPTION]}" + (f" ({names})" if names else "")
    words = "\n".join([name, name, about, *(f"{spaced(each)} {says}" for each, says in parameters)])
    return ToolText(meaning, words[:_WORDS])


def spaced(name: str) -> str:
    """Return a name as words: `listOpen_issues` as `list Open issues`."""
    return " ".join(part for part in _PARTS.split(name) if part)


def _parameters(schema: Any, depth: int) -> Iterator[tuple[str, str]]:
    """Return the parameters of a JSON schema, those of nested objects too, with what is said about each."""
    if depth == 0 or not isinstance(schema, Mapping):
        return
    for name, each in _properties(schema):
        yield name, _said(each)
        yield from _parameters(each, depth - 1)
    yield from _parameters(schema.get("items"), depth - 1)


def _properties(schema: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any]]]:
    properties = schema.get("properties")
    return (
        [(str(k), v) for k, v in properties.items() if isinstance(v, Mapping)]
        if isinstance(properties, Mapping)
        else []
    )


def _said(parameter: Mapping[str, Any]) -> str:
    about, values = parameter.get("description"), parameter.get("enum")
    texts = [about] if isinstance(about, str) else []
    texts += [value for value in values if isinstance(value, str)] if isinstance(values, list) else []
    return " ".join(texts)
