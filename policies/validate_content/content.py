"""What is judged: a text from outside, and what is known about why it is there."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import orjson

from proxy.chat import Tool
from proxy.text.json_values import Pairs

_SCHEMAS = ("outputSchema", "output_schema", "returns", "response")
"""Where tool definitions say what the tool answers: MCP has the first, others are used by agents' frameworks."""
_MOST_ARGUMENTS = 50


class Content(NamedTuple):
    """A text, and what asked for it."""

    text: str
    asked: str
    """The user's last request."""
    arguments: str = ""
    """The call's arguments, as JSON; empty for what no tool brought."""
    required: tuple[str, ...] = ()
    """The members that the tool's definition promises."""
    tool: str = ""
    """The tool's name; empty for what no tool brought."""

    @property
    def query(self) -> str:
        """The words that asked for it: the user's, the tool's name, the values of the call's arguments."""
        return f"{self.asked} {self.tool} {words_of(self.arguments)}"


class Finding(NamedTuple):
    """A score of one measure, from 0 to 1, and in words what is wrong."""

    score: float
    what: str = ""


GOOD = Finding(1.0)


def required_of(tool: Tool | None) -> tuple[str, ...]:
    """The members that a tool's definition says its answer always has."""
    function = tool.get("function") if tool is not None else None
    for key in _SCHEMAS:
        schema = function.get(key) if isinstance(function, Mapping) else None
        names = schema.get("required") if isinstance(schema, Mapping) else None
        if isinstance(names, list):
            return tuple(name for name in names if isinstance(name, str))
    return ()


def arguments_of(text: str) -> dict[str, Any]:
    """The arguments of a call; none where they are no JSON object."""
    try:
        found = orjson.loads(text) if text else {}
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def words_of(arguments: str) -> str:
    """What the values of a call's arguments say."""
    values = list(arguments_of(arguments).values())[:_MOST_ARGUMENTS]
    return " ".join(re.sub(r"\s+", " ", str(value))[:500] for value in values)


def members(value: Pairs | list[Any], most: int = 5000) -> Iterator[Pairs | list[Any]]:
    """The objects and lists of a JSON value, itself first; at most so many."""
    waiting: list[Any] = [value]
    for _ in range(most):
        if not waiting:
            return
        item = waiting.pop()
        yield item
        inner: Sequence[Any] = [each for _, each in item] if isinstance(item, Pairs) else item
        waiting += [each for each in inner if isinstance(each, (Pairs, list))]


def scalar(value: Any) -> str | None:
    """A string or number of JSON as text; None for anything else."""
    if isinstance(value, bool) or value is None:
        return None
    return str(value) if isinstance(value, (str, int, float)) else None
