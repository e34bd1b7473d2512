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


_FILE = r"(?!\w+://)[^\s\"'<>|]{0,300}(?:[\w)\]]\.[A-Za-z]\w{0,7}|[/\\]\.[A-Za-z]\w{0,20}|[a-z]file)|\.[A-Za-z]\w{1,20}"
_PATH = re.compile(_FILE)
"""A name with an extension, a hidden file, or a `Makefile`."""
_SURE = re.compile(r".*[/\\]|[^@]*\.[a-z]\w{0,3}$|\.|.*file$")
"""The beginning of such a name that is a file's whatever its argument is called: not `public.users`, nor an address."""
_KEY = re.compile(r"(?:^|[_-])(?:path|file|filename|filepath)s?$|(?:Path|File|FileName|Filename)s?$")
"""An argument that names a file, by the usage of agents."""
_ARGUMENT = re.compile(rf"(?!-)(?!\w+://)(?:\S*/\S*|[A-Z]{{4,}}|{_FILE})")
"""A file in a command: also a path or a `LICENSE`."""
_OBJECT = re.compile(r"[^\s:]+:[^\s:]+")
"""A file as a revision has it: `HEAD:src/app.py`."""
_SPLIT = re.compile(r"[;&|\n]+")
_LONGEST = 400


@cache
def _commands() -> Mapping[str, frozenset[str]]:
    return word_lists("file_commands")


def reads_file(call: Mapping[str, Any]) -> bool:
    """Return True for a call that names a file, or a command that shows one: files are read again, and edited."""
    return any(_is_file(key, value) or _is_shown(value) for key, value in _values(call))


def names_path(call: Mapping[str, Any]) -> bool:
    """Return True for a call that reads a file, or whose argument for a path may be that of one, or of a folder."""
    return any(_KEY.search(key) or _is_file(key, value) or _is_shown(value) for key, value in _values(call))


def _is_file(key: str, value: str) -> bool:
    return _PATH.fullmatch(value) is not None and (_SURE.match(value) or _KEY.search(key)) is not None


def _is_shown(commands: str) -> bool:
    return any(_shows(command.split()) for command in _SPLIT.split(commands))


def _shows(command: list[str]) -> bool:
    """Return True for the words of a command that shows a file or turns its page; `svn` or `sudo` may precede it."""
    for place, word in enumerate(command[:2]):
        name, named = word.rpartition("/")[2], command[place + 1 :]
        if name in _commands()["pages"] or (name in _commands()["files"] and any(map(_ARGUMENT.fullmatch, named))):
            return True
        if place and name in _commands()["objects"] and any(map(_OBJECT.fullmatch, named)):
            return True
    return False


def _values(call: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the strings of a call, and lists of strings as one; of a script behind `<<` its first line."""
    for key, value in _strings("", parsed(str(arguments_of(call) or ""))):
        if len(value) <= _LONGEST:
            yield key, value
        elif "<<" in (first := value[:_LONGEST].partition("\n")[0]):
            yield key, first


def _strings(key: str, value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, (list, Pairs)):
        if isinstance(value, list) and len(value) > 1 and all(type(item) is str for item in value):
            yield key, " ".join(value)
        for item in value:
            yield from _strings(*(item if isinstance(value, Pairs) else (key, item)))
    elif type(value) is str:
        yield key, value
