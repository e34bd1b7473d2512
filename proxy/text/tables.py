"""Tables of words and patterns that ship with Penstock, as files in `proxy/data`."""

from importlib.resources import files
from typing import Any

import yaml


def table(name: str) -> Any:
    """Return what `data/NAME.yaml` says."""
    return yaml.safe_load(_text(f"{name}.yaml"))


def sections(name: str) -> dict[str, list[str]]:
    """Return the lines of `data/NAME.txt` by the `[section]` that they stand in. Lines with `#` are comments."""
    found: dict[str, list[str]] = {}
    for line in _text(f"{name}.txt").splitlines():
        if line.startswith("[") and line.endswith("]"):
            lines = found[line[1:-1]] = []
        elif not line.startswith("#"):
            lines.append(line)
    return found


def _text(name: str) -> str:
    return (files("proxy") / "data" / name).read_text(encoding="utf-8")
