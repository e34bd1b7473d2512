"""A call's arguments: their long strings, the call that a tool result came from, and the files that it reads or edits.

An edit of a file needs its exact text.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from proxy.chat import Message, called_name
from proxy.text.json_values import Pairs, parsed, quoted
from proxy.text.tables import word_lists

_STRING = re.compile(r'("[^"\\]*(?:\\.[^"\\]*)*")([ \t\n\r]*:)?')


def payloads(arguments: str, over: int) -> Iterator[str]:
    """Yield the strings of a JSON object, keys excepted, that are longer than `over`."""
    if len(arguments) > over and isinstance(parsed(arguments), Pairs):
        for found in _STRING.finditer(arguments):
            if found[2] is None and len(found[1]) > over:
                text = str(json.loads(found[1]))
                if len(text) > over:
                    yield text


def with_payloads(arguments: str, forms: Mapping[str, str]) -> str:
    """Return the arguments with their long strings replaced by these short forms."""

    def replaced(match: re.Match[str]) -> str:
        if match[2] is not None or len(match[1]) < _shortest:
            return match[0]
        form = forms.get(str(json.loads(match[1])))
        return match[0] if form is None else quoted(form)

    _shortest = min(map(len, forms), default=0)
    return _STRING.sub(replaced, arguments)


def callers(messages: Sequence[Message], longest: int) -> dict[int, str]:
    """Return the call, `name(arguments)`, of each tool result, by the result's place in the conversation."""
    calls: dict[str, str] = {}
    calls_of_results: dict[int, str] = {}
    for place, message in enumerate(messages):
        for call in message.get("tool_calls") or ():
            text = f"{called_name(call)}({arguments_of(call)})"
            calls[str(call.get("id", ""))] = text if len(text) <= longest else f"{text[:longest]}…"
        if message.get("role") == "tool" and (call_id := str(message.get("tool_call_id", ""))) in calls:
            calls_of_results[place] = calls[call_id]
    return calls_of_results


def arguments_of(call: Mapping[str, Any]) -> Any:
    """Return the arguments of a call to a function or to a custom tool."""
    inner = call.get("function") or call.get("custom")
    return inner.get("arguments", inner.get("input")) if isinstance(inner, Mapping) else ""


_PATH = re.compile(
    r"(?!\w+://)[^\s\"'<>|]{0,300}(?:[\w)\]]\.[A-Za-z]\w{0,7}|[/\\]\.[A-Za-z]\w{0,20}|[a-z]file)|\.[A-Za-z]\w{1,20}"
)
"""A name with an extension, a hidden file, or a `Makefile`."""
_SPLIT = re.compile(r"[;&|\n]+")
_LONGEST = 400


@cache
def _commands() -> Mapping[str, frozenset[str]]:
    return word_lists("file_commands")


def reads_file(call: Mapping[str, Any]) -> bool:
    """Return True for a call that names a file, or a command that shows one: files are read again, and edited."""
    return names_file(call) or any(
        _shows(command.split()) for value in _values(call) for command in _SPLIT.split(value)
    )


def names_file(call: Mapping[str, Any]) -> bool:
    """Return True for a call that has a file's path among its arguments."""
    return any(map(_PATH.fullmatch, _values(call)))


def _shows(command: list[str]) -> bool:
    name = command[0].rpartition("/")[2] if command else ""
    return name in _commands()["pages"] or (name in _commands()["files"] and any(map(_PATH.fullmatch, command[1:])))


def _values(call: Mapping[str, Any]) -> Iterator[str]:
    return (value for value in _strings(parsed(str(arguments_of(call) or ""))) if len(value) <= _LONGEST)


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, (list, Pairs)):
        for item in value:
            yield from _strings(item[1] if isinstance(value, Pairs) else item)
    elif type(value) is str:
        yield value
