"""Reads a YAML file, fills in its variables, and remembers the line of each value."""

import hashlib
import re
import textwrap
from collections.abc import Mapping
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

_MISSPELT = re.compile(r"\$\{")

Place = tuple[str | int, ...]


def hash_of(content: bytes) -> str:
    """Return the hash of a file's content. Show it to nobody if the file may hold a secret."""
    return hashlib.sha256(content).hexdigest()


def with_item(text: str, name: str, item: str) -> str:
    """Return the text of a file with one more item in its list of this name. Everything else stays, comments
    included.

    The item is the lines of a mapping in a block list: `- name: ann`. Parse the result before you write it: in a
    file of an unusual form it may be invalid.
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


class Document:
    """The data of a YAML file, and the line of each value."""

    def __init__(
        self, path: Path, text: str, environment: Mapping[str, str], files: dict[Path, str] | None = None
    ) -> None:
        """`files` gets each further file that is read, with its hash, also if this raises."""
        self.path = path
        self.lines: dict[Place, int] = {}
        self._files = {} if files is None else files
        self._environment = environment
        self._nodes = 0
        if len(text) > _MAX_BYTES:
            raise ConfigError(f"{path}: larger than {_MAX_BYTES >> 10} KiB")
        try:
            node = yaml.compose(text, Loader=yaml.SafeLoader)
            self.data = {} if node is None else self._read(node, ())
        except yaml.YAMLError as error:
            mark = getattr(error, "problem_mark", None)
            line = f":{mark.line + 1}" if mark else ""
            problem = getattr(error, "problem", None) or str(error).partition("\n")[0]
            raise ConfigError(f"{path}{line}: not valid YAML: {problem}") from None
        except RecursionError:
            raise ConfigError(f"{path}: nested too deeply; does an alias stand inside itself?") from None

    def text_of(self, path: Path) -> str:
        """Return the text of a file that this one refers to, and record it. Raise `OSError` or `UnicodeDecodeError`."""
        self._files[path] = ""
        content = path.read_bytes()
        self._files[path] = hash_of(content)
        return content.decode()

    def error(self, place: Place, message: str) -> ConfigError:
        """Return an error with the nearest line of the file."""
        found = next((place[:n] for n in range(len(place), -1, -1) if place[:n] in self.lines), None)
        line = f":{self.lines[found]}" if found is not None else ""
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
                raise self.error(place, "a key must be a plain name")
            self.lines[(*place, key)] = key_node.start_mark.line + 1
            if key in data:
                raise self.error((*place, key), "this key is given twice")
            data[key] = self._read(value_node, (*place, key))
        return data

    def _scalar(self, node: yaml.Node, place: Place) -> Any:
        if isinstance(node.value, str) and "$" in node.value:
            text = _VARIABLE.sub(lambda found: self._substitute(found, place), node.value)
            if _MISSPELT.search(_VARIABLE.sub("", node.value)):
                raise self.error(
                    place, "a variable is written ${NAME}, ${NAME:-default} or ${file:/path}; $$ is a dollar"
                )
            return text
        try:
            return yaml.SafeLoader("").construct_object(node)
        except (yaml.YAMLError, ValueError, LookupError, AttributeError) as error:
            raise self.error(place, f"not a plain value: {getattr(error, 'problem', error)}") from None

    def _substitute(self, found: re.Match[str], place: Place) -> str:
        if found[0] == "$$":
            return "$"
        if found["file"]:
            try:
                return self.text_of(Path(found["path"])).strip()
            except (OSError, UnicodeDecodeError):
                raise self.error(place, f"the file of {found[0]} cannot be read") from None
        value = self._environment.get(found["name"]) or found["default"]
        if value is None:
            raise self.error(place, f"{found[0]} is not set; set it, or write ${{{found['name']}:-default}}")
        return value
