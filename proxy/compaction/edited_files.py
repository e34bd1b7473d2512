"""Files that an agent reads and edits: an edit needs their exact text."""

import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from proxy.chat import Tool, called_name
from proxy.compaction.calls import arguments_of
from proxy.text.json_values import Pairs, parsed
from proxy.text.tables import word_lists

_NAME = re.compile(r"[A-Z]?[a-z]+|[A-Z]+")
_PATH = re.compile(r"(?!\w+://)[^\s\"'<>|]{0,300}[\w)\]]\.[A-Za-z]\w{0,7}")
_SPLIT = re.compile(r"[;&|\n]+")
_LONGEST = 400


@cache
def _words() -> Mapping[str, frozenset[str]]:
    return word_lists("file_tools")


def edits_files(tool: Tool) -> bool:
    """Return True for a tool that may change a file, by the words of its name and its parameters."""
    function = tool.get("function")
    schema = function.get("parameters") if isinstance(function, Mapping) else None
    properties = schema.get("properties") if isinstance(schema, Mapping) else None
    names = {str(name).lower() for name in properties} if isinstance(properties, Mapping) else set[str]()
    return bool(_named(tool.name) & _words()["editing"] or names & _words()["texts"])


def reads_file(call: Mapping[str, Any]) -> bool:
    """Return True for a call that names a file and reads it."""
    values = [*_values(call)]
    # a tool that runs others names them in its arguments
    names = _named(called_name(call)).union(*(_named(value) for _, value in values if value.isidentifier()))
    if names & _words()["reading"] and any(map(_is_path, values)):
        return True
    return any(_reads(command.split()) for _, value in values for command in _SPLIT.split(value))


def names_file(call: Mapping[str, Any]) -> bool:
    """Return True for a call that has a file's path among its arguments."""
    return any(map(_is_path, _values(call)))


def _is_path(value: tuple[str, str]) -> bool:
    return _PATH.fullmatch(value[1]) is not None or bool(_named(value[0]) & _words()["paths"])


def _reads(command: list[str]) -> bool:
    name = command[0].rpartition("/")[2] if command else ""
    return name in _words()["pages"] or (name in _words()["commands"] and any(map(_PATH.fullmatch, command[1:])))


def _named(name: str) -> frozenset[str]:
    return frozenset(word.lower() for word in _NAME.findall(name[:_LONGEST]))


def _values(call: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    pairs = _strings("", parsed(str(arguments_of(call) or "")))
    return ((key, value) for key, value in pairs if len(value) <= _LONGEST)


def _strings(key: str, value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, (list, Pairs)):
        for item in value:
            yield from _strings(*(item if isinstance(value, Pairs) else (key, item)))
    elif type(value) is str:
        yield key, value
