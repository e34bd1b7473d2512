"""Messages and tools as policies see them, in chat form, and the client's own objects that they stand for."""

from collections.abc import Sequence
from typing import Any

import orjson

from proxy.chat import JsonObject, Message, Tool


class Unwritable(Exception):
    """A wire has no form for what a policy made of a request."""


def read_function(item: JsonObject, parameters: str) -> Tool:
    """Return a function in chat form; `parameters` is the field in which its wire has the schema."""
    function = {"name": item.get("name") or "", "description": item.get("description") or ""}
    function["parameters"] = item.get(parameters) or {}
    others = {key: value for key, value in item.items() if key not in ("type", "name", "description", parameters)}
    return Tool({"type": "function", "function": function, **others}).standing_for(item)


def root_of(message: Message) -> Message | None:
    """Return the client's message that one was made of; None for one that a policy made."""
    each: Message | None = message
    while each is not None and each.source is None:
        each = each.made_of
    return each


def source_of(message: Message) -> JsonObject | None:
    """Return the client's own object that a message stands for."""
    root = root_of(message)
    return None if root is None else root.source


def plain(parts: list[Any]) -> str | list[Any]:
    """Return content as chat has it: the text alone where it is one text and nothing else."""
    if len(parts) == 1 and parts[0].keys() == {"type", "text"} and parts[0]["type"] == "text":
        return str(parts[0]["text"])
    return parts


def answer_of(parts: list[Any], calls: Sequence[Any], thoughts: Sequence[Any], name: str) -> dict[str, Any]:
    """Return an answer in chat form; its reasoning stands in the field of this name."""
    content = plain(parts) if parts else None
    more = {name: thoughts, "tool_calls": calls}
    return {"role": "assistant", "content": content, **{key: each for key, each in more.items() if each}}


MALFORMED = "malformed_arguments"
"""The one argument of a call whose arguments are no JSON object, where a wire demands one."""


def parsed_arguments(arguments: Any, otherwise: str = MALFORMED) -> dict[str, Any]:
    """Return the arguments of a call as an object.

    Text that is no JSON object becomes the one argument `otherwise`, word for word: the model sees its own mistake, and
    the tool's answer to it still makes sense.
    """
    if not arguments:
        return {}
    if isinstance(arguments, dict):
        return arguments
    try:
        parsed = orjson.loads(arguments)
    except ValueError:
        parsed = None
    return parsed if isinstance(parsed, dict) else {otherwise: arguments}
