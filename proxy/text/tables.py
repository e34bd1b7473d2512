"""Tables of words and patterns that ship with Penstock, as files in `proxy/data`."""

import re
from collections.abc import Iterable, Mapping
from importlib.resources import files
from typing import Any

import yaml

_PART = re.compile(r"<([A-Z_]+)>")


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


def pattern_lists(name: str, **parts: str) -> dict[str, list[str]]:
    """Return the patterns of each `[section]` of `data/NAME.txt`, one a line.

    `<PART>` stands for what `parts` has for it, or for the section of that name above it, which has to be in capitals.
    """
    known, found = dict(parts), dict[str, list[str]]()
    for section, told in sections(name).items():
        if section.isupper():
            known[section] = filled("".join(told), known)
        else:
            found[section] = [filled(line, known) for line in told]
    return found


def patterns(name: str, **parts: str) -> dict[str, str]:
    """Return the pattern of each `[section]` of `data/NAME.txt`: its lines, joined, with their parts."""
    return {section: "".join(lines) for section, lines in pattern_lists(name, **parts).items()}


def either(words: Iterable[str]) -> str:
    """Return the pattern of any of these words, a longer one before its beginning."""
    return "|".join(sorted(words, key=len, reverse=True))


def filled(pattern: str, parts: Mapping[str, str]) -> str:
    """Return a pattern with its parts in the place of `<PART>`; what is none stays as it is."""
    return _PART.sub(lambda found: parts.get(found[1], found[0]), pattern)


def _text(name: str) -> str:
    return (files("proxy") / "data" / name).read_text(encoding="utf-8")
