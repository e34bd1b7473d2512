"""A call's arguments as text: the long strings in them, and the call that a tool result came from."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from proxy.chat import Message, called_name
from proxy.text.json_values import Pairs, parsed, quoted

_STRING = re.compile(r'("[^"\\]*(?:\\.[^"\\]*)*")([ \t\n\r]*:)?')


def payloads(arguments: str, over: int) -> Iterator[str]:
    """The strings of a JSON object that are longer than `over`; keys are none."""
    if len(arguments) > over and isinstance(parsed(arguments), Pairs):
        for found in _STRING.finditer(arguments):
            if found[2] is None and len(found[1]) > over:
                text = str(json.loads(found[1]))
                if len(text) > over:
                    yield text


def with_payloads(arguments: str, forms: Mapping[str, str]) -> str:
    """The same arguments with these strings replaced by what stands for them."""

    def replaced(found: re.Match[str]) -> str:
        if found[2] is not None or len(found[1]) < _shortest:
            return found[0]
        form = forms.get(str(json.loads(found[1])))
        return found[0] if form is None else quoted(form)

    _shortest = min(map(len, forms), default=0)
    return _STRING.sub(replaced, arguments)


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
