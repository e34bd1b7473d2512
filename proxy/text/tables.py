"""Tables of words and patterns that ship with Penstock, as files in `proxy/data`."""

from importlib.resources import files
from typing import Any

import yaml


def table(name: str) -> Any:
    """Return what `data/NAME.yaml` says."""
    return yaml.safe_load(_text(f"{name}.yaml"))


def lines(name: str) -> list[str]:
    """Return the lines of `data/NAME.txt`, without comments."""
    return [line for line in _text(f"{name}.txt").splitlines() if not line.startswith("#")]


def word_lists(name: str) -> dict[str, frozenset[str]]:
    """Return the words of each line of `data/NAME.txt`, by the name in front of them."""
    return {list_name: frozenset(words) for list_name, *words in map(str.split, lines(name))}


def sections(name: str) -> dict[str, list[str]]:
    """Return the lines of `data/NAME.txt` by the `[section]` that they stand in. Lines with `#` are comments."""
    found: dict[str, list[str]] = {}
    for line in lines(name):
        if line.startswith("[") and line.endswith("]"):
            section = found[line[1:-1]] = []
        else:
            section.append(line)
    return found


def _text(name: str) -> str:
    return (files("proxy") / "data" / name).read_text(encoding="utf-8")
