"""Readers of the tables of words and patterns in `proxy/data`."""

import re
from collections.abc import Iterable, Mapping
from importlib.resources import files
from typing import Any

import yaml

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""A safe loader: that of libyaml takes a tenth of the time."""

_PART = re.compile(r"<([A-Z_]+)>")


def table(name: str) -> Any:
    """Return the content of `data/NAME.yaml`."""
    return yaml.load(_text(f"{name}.yaml"), _LOADER)  # noqa: S506


def lines(name: str) -> list[str]:
    """Return the lines of `data/NAME.txt`, without comments."""
    return [line for line in _text(f"{name}.txt").splitlines() if not line.startswith("#")]


def word_lists(name: str) -> dict[str, frozenset[str]]:
    """Return the words of each line of `data/NAME.txt`, by the first word of the line."""
    return {list_name: frozenset(words) for list_name, *words in map(str.split, lines(name))}


def sections(name: str) -> dict[str, list[str]]:
    """Return the lines of `data/NAME.txt` by `[section]`."""
    by_name: dict[str, list[str]] = {}
    for line in lines(name):
        if line.startswith("[") and line.endswith("]"):
            section = by_name[line[1:-1]] = []
        else:
            section.append(line)
    return by_name


def statements(name: str) -> dict[str, str]:
    """Return the statements of `data/NAME.sql`, each behind a line `-- name: NAME`."""
    _, *parts = re.split(r"^-- name: (\w+)\n", _text(f"{name}.sql"), flags=re.MULTILINE)
    return dict(zip(parts[::2], parts[1::2], strict=True))


def pattern_lists(name: str, **parts: str) -> dict[str, list[str]]:
    """Return the patterns by `[section]`, one a line; `<PART>` is one of `parts`, or an earlier section in capitals."""
    known, by_name = dict(parts), dict[str, list[str]]()
    for section, text in sections(name).items():
        if section.isupper():
            known[section] = filled("".join(text), known)
        else:
            by_name[section] = [filled(line, known) for line in text]
    return by_name


def patterns(name: str, **parts: str) -> dict[str, str]:
    """Return one pattern for each `[section]` of `data/NAME.txt`: its lines, joined, with their parts filled in."""
    return {section: "".join(lines) for section, lines in pattern_lists(name, **parts).items()}


def either(words: Iterable[str]) -> str:
    """Return a pattern that matches any of these words, the longest first."""
    return "|".join(sorted(words, key=len, reverse=True))


def filled(pattern: str, parts: Mapping[str, str]) -> str:
    """Return a pattern with each `<PART>` replaced by its part. An unknown part stays."""
    return _PART.sub(lambda match: parts.get(match[1], match[0]), pattern)


def _text(name: str) -> str:
    return (files("proxy") / "data" / name).read_text(encoding="utf-8")
