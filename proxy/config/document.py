"""Reads a YAML file, fills in its variables, and remembers the line of each value."""

import errno
import hashlib
import os
import re
import textwrap
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from proxy.chat.errors import ConfigError

_MAX_BYTES = 2**20
_MAX_NODES = 50_000
"""The most nodes of a file, aliases expanded: stops a file whose nested aliases would fill the memory."""

_VARIABLE = re.compile(
    r"\$\$|\$\{(?:(?P<file>file:)(?P<path>[^}]+)|(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<default>[^}]*))?)\}"
)

_SECRET = 6

_MISSPELT = re.compile(r"\$\{")

Place = tuple[str | int, ...]


def hash_of(content: bytes) -> str:
    """Return the hash of a file's content. Show it to nobody if the file may hold a secret."""
    return hashlib.sha256(content).hexdigest()


def literal_parts(value: str) -> list[str]:
    """Return the literal parts of a value: before, between and behind its variables."""
    parts, at = [], 0
    for found in _VARIABLE.finditer(value):
        if found[0] != "$$":
            parts.append(value[at : found.start()].replace("$$", "$"))
            at = found.end()
    return [*parts, value[at:].replace("$$", "$")]


def with_item(text: str, name: str, item: str) -> str:
    """Return the text of a file with one more item, `- name: ann`, in its list of this name, comments included.

    Parse the result before you write it: in a file of an unusual form it may be invalid.
    """
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    listed = None if root is None else next((value for key, value in root.value if key.value == name), None)
    ended = text if text.endswith("\n") or not text else text + "\n"
    if listed is None:
        return f"{ended}{name}:\n{item}\n"
    if listed.flow_style:
        begun = listed.start_mark.index + 1
        flow = "{" + ", ".join(line.strip() for line in item.removeprefix("- ").splitlines()) + "}"
        return text[:begun] + flow + (", " if listed.value else "") + text[begun:]
    return ended + textwrap.indent(item, " " * listed.start_mark.column) + "\n"


def without_item(text: str, name: str, place: int) -> str:
    """Return the text without one item of its list of this name. Parse the result, as that of `with_item`."""
    root: Any = yaml.compose(text, Loader=yaml.SafeLoader)
    listed = next(value for key, value in root.value if key.value == name)
    items = listed.value
    if listed.flow_style:
        start, end = items[place].start_mark.index, items[place].end_mark.index
        if place + 1 < len(items):
            end = items[place + 1].start_mark.index
        elif place:
            start = items[place - 1].end_mark.index
        return text[:start] + text[end:]
    start = text.rfind("\n", 0, text.rfind("-", 0, items[place].start_mark.index)) + 1
    end = text.find("\n", _end_of(items[place])) + 1 or len(text)
    return text[:start] + ("  []\n" if len(items) == 1 else "") + text[end:]


def _end_of(node: yaml.Node) -> int:
    """Return the place behind the last character of a node; a block's own mark is behind the comments that follow."""
    if not isinstance(node, yaml.CollectionNode) or node.flow_style:
        return int(node.end_mark.index)
    last = node.value[-1]
    return _end_of(last[1] if isinstance(node, yaml.MappingNode) else last)


def with_masks(text: str, is_secret: Callable[[str], bool]) -> str:
    """Return the text of a file with a mask in place of each plain value that is a secret."""
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    spans = sorted(_spans(root, is_secret)) if root is not None else []
    parts, at = [], 0
    for start, end in spans:
        parts += [text[at:start], "'***'"]
        at = end
    return "".join([*parts, text[at:]])


def _spans(node: yaml.Node, is_secret: Callable[[str], bool]) -> Iterator[tuple[int, int]]:
    if isinstance(node, yaml.ScalarNode):
        if is_secret(node.value):
            yield node.start_mark.index, node.end_mark.index
        return
    for each in node.value:
        yield from _spans(each[1] if isinstance(node, yaml.MappingNode) else each, is_secret)


def items_of(text: str, name: str) -> dict[str, str]:
    """Return the values of a mapping of the file, each as YAML."""
    found = (yaml.safe_load(text) or {}).get(name) or {}
    return {key: yaml.safe_dump(value, sort_keys=False, allow_unicode=True) for key, value in found.items()}


def edited(text: str, edit: Callable[[dict[str, Any]], None]) -> str:
    """Return the text of a configuration after an edit of its data, without comments."""
    data = yaml.safe_load(text)
    edit(data)
    return yaml.safe_dump(data, sort_keys=False, allow_unicode=True)


@dataclass
class Sources:
    """The variables and files that a text may use; one that is not in force may come from any viewer, and gets none."""

    environment: Mapping[str, str]
    only_files: Collection[Path] | None = None
    only_policies: Collection[str] | None = None
    """The names with a dot, which are modules outside Penstock, that may be imported."""
    files: dict[Path, str] = field(default_factory=dict)
    """The files that were read, with the hash of each; empty for one that could not be read."""
    values: dict[str, str] = field(default_factory=dict)
    """Values of variables and files that may be secrets, with how each is written."""
    version: Any = field(default_factory=hashlib.sha256)

    def read(self, path: Path, *, is_secret: bool = False) -> str:
        """Return the text of a file; the version depends on it, unless it is a secret. Raise `ConfigError`."""
        self.files.setdefault(path, "")
        try:
            if self.only_files is not None and path not in self.only_files:
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
            content = path.read_bytes()
            self.files[path] = hash_of(content)
            if not is_secret:
                self.version.update(content + b"\0")
            return content.decode()
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
            raise ConfigError(f"{path}: cannot be read: {reason}") from None


class Document:
    """The data of a YAML file, and the line of each value."""

    def __init__(self, path: Path, text: str, sources: Sources, *, settled: bool = True) -> None:
        """Without `settled` what is wrong with single values is kept for `settle`, with what is added later."""
        self.path, self.sources = path, sources
        self._errors: dict[Place, ConfigError] = {}
        self.lines: dict[Place, int] = {}
        self._nodes = 0
        if len(text) > _MAX_BYTES:
            raise ConfigError(f"{path}: larger than {_MAX_BYTES >> 10} KiB")
        try:
            node = yaml.compose(text, Loader=yaml.SafeLoader)
            self.data = {} if node is None else self._read(node, ())
        except yaml.YAMLError as error:
            mark = getattr(error, "problem_mark", None)
            line = f":{mark.line + 1}" if mark else ""
            raise ConfigError(f"{path}{line}: not valid YAML: {_in_words(error, text)}") from None
        except RecursionError:
            raise ConfigError(f"{path}: nested too deeply; does an alias stand inside itself?") from None
        if settled:
            self.settle()

    def add_all(self, mistakes: Iterable[tuple[Place, str]]) -> None:
        for place, message in mistakes:
            self.add(place, message)

    def add(self, place: Place, message: str) -> None:
        """Keep an error for `settle`, unless there is one for this place, or for one that it is part of."""
        if not any(place[:n] in self._errors for n in range(len(place) + 1)):
            self._errors[place] = self.error(place, message)

    def settle(self) -> None:
        """Raise `ConfigError` with all errors that were kept, one a line, in the file's order, if there are any."""
        if self._errors:
            found = sorted(self._errors, key=lambda place: self.lines.get(self.known(place), 0))
            raise ConfigError("\n".join(str(self._errors[place]) for place in found))

    def known(self, place: Place) -> Place:
        """Return the place, or the nearest one around it that the file has."""
        return next((place[:n] for n in range(len(place), -1, -1) if place[:n] in self.lines), place)

    def error(self, place: Place, message: str) -> ConfigError:
        number = self.lines.get(self.known(place))
        line = "" if number is None else f":{number}"
        name = ".".join(str(part) for part in place)
        return ConfigError(f"{self.path}{line}: {name + ': ' if name else ''}{message}")

    def _read(self, node: yaml.Node, place: Place) -> Any:
        self.lines.setdefault(place, node.start_mark.line + 1)
        self._nodes += 1
        if self._nodes > _MAX_NODES:
            raise ConfigError(f"{self.path}: too many nodes; are aliases nested?")
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, place)
        if isinstance(node, yaml.SequenceNode):
            return [self._read(item, (*place, index)) for index, item in enumerate(node.value)]
        return self._scalar(node, place)

    def _mapping(self, node: yaml.MappingNode, place: Place) -> dict[str, Any]:
        data: dict[str, Any] = {}
        for key_node, value_node in node.value:
            key = key_node.value if isinstance(key_node, yaml.ScalarNode) else None
            if key is None:
                self.add(place, "a key must be a plain name")
                continue
            self.lines[(*place, key)] = key_node.start_mark.line + 1
            if key in data:
                self.add((*place, key), "this key is given twice")
            data[key] = self._read(value_node, (*place, key))
        return data

    def _scalar(self, node: yaml.Node, place: Place) -> Any:
        if isinstance(node.value, str) and "$" in node.value:
            text = _VARIABLE.sub(lambda found: self._substitute(found, place), node.value)
            if _MISSPELT.search(_VARIABLE.sub("", node.value)):
                self.add(place, "a variable is written ${NAME}, ${NAME:-default} or ${file:/path}; $$ is a dollar")
            return text
        try:
            return yaml.SafeLoader("").construct_object(node)
        except (yaml.YAMLError, ValueError, LookupError, AttributeError) as error:
            self.add(place, f"not a plain value: {getattr(error, 'problem', error)}")
            return None

    def _substitute(self, variable: re.Match[str], place: Place) -> str:
        if variable[0] == "$$":
            return "$"
        if variable["file"]:
            try:
                return self._noted(variable[0], self.sources.read(Path(variable["path"]), is_secret=True).strip())
            except ConfigError:
                self.add(place, f"the file of {variable[0]} cannot be read")
                return ""
        value = self.sources.environment.get(variable["name"]) or variable["default"]
        if value is None:
            self.add(place, f"{variable[0]} is not set; set it, or write ${{{variable['name']}:-default}}")
        return self._noted(variable[0], value or "")

    def _noted(self, written: str, value: str) -> str:
        if len(value) >= _SECRET:
            self.sources.values[value] = written
        return value


def _in_words(error: yaml.YAMLError, text: str) -> str:
    problem = str(getattr(error, "problem", None) or str(error).partition("\n")[0])
    context, mark = getattr(error, "context_mark", None), getattr(error, "problem_mark", None)
    lines = text.splitlines()
    line = lines[mark.line] if mark is not None and mark.line < len(lines) else ""
    begun = f" in line {context.line + 1}" if context is not None else ""
    if "\t" in line[: len(line) - len(line.lstrip())] or "'\\t'" in problem:
        return "there is a tab in this line; indent with spaces"
    if "quoted scalar" in (getattr(error, "context", None) or ""):
        return f"the quote that opens{begun} is never closed"
    if problem.startswith("expected <block end>"):
        return f"this line is indented unlike the block that begins{begun}: indent all lines of a block alike"
    if problem.startswith("mapping values are not allowed"):
        if (
            mark is not None
            and mark.line
            and not {":", "#"} & set(lines[mark.line - 1])
            and lines[mark.line - 1].strip()
        ):
            return f"line {mark.line} has no colon behind its key, as in `key: value`"
        return "a colon stands where none can: check the indentation of this line, or put the value in quotes"
    if problem.startswith("could not find expected ':'"):
        return f"a key{begun} has no colon and space behind it, as in `key: value`"
    if problem.startswith("expected ',' or"):
        return f"the bracket that opens{begun} is not closed: {problem}"
    return problem
