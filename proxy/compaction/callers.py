"""Which call a tool result came from, as text."""

from collections.abc import Mapping, Sequence
from typing import Any

from proxy.chat import Message, called_name


def callers(messages: Sequence[Message], longest: int) -> dict[int, str]:
    """The calls of the tool results in a conversation, `name(arguments)`, by the results' places."""
    calls: dict[str, str] = {}
    found: dict[int, str] = {}
    for place, message in enumerate(messages):
        for call in message.get("tool_calls") or ():
            said = f"{called_name(call)}({arguments_of(call)})"
            calls[str(call.get("id", ""))] = said if len(said) <= longest else f"{said[:longest]}…"
        if message.get("role") == "tool" and (call_id := str(message.get("tool_call_id", ""))) in calls:
            found[place] = calls[call_id]
    return found


def arguments_of(call: Mapping[str, Any]) -> Any:
    """The arguments of a call, of a function's or a custom tool's."""
    inner = call.get("function") or call.get("custom")
    return inner.get("arguments", inner.get("input")) if isinstance(inner, Mapping) else ""
