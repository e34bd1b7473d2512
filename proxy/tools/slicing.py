"""A part of archived content: by lines, by a pattern, by a path into JSON. Every answer is bounded in size and time."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from time import perf_counter
from typing import Any, Self

from proxy.tools.originals import READ, FoundPassage, lines_of, readable

LONGEST = 16_000
"""Characters of one answer: what was too long for the context must not come back at once."""

SECONDS = 2.0
"""For how long a pattern or a path may search."""

_LONGEST_PATTERN = 500
_RECURSIVE = re.compile(r"\(\?(?:R|[+-]?\d|&|P>)")
"""Patterns that call themselves can fill the memory before their time is up; they are taken as literal text."""


class Mistake(Exception):
    """A wish that cannot be met; the message tells the model what would be right."""


@dataclass(frozen=True, slots=True)
class Part:
    """Which part of a content is wanted: what is at the path, of that the lines, of those what fits the pattern."""

    path: str | None = None
    first_line: int | None = None
    last_line: int | None = None
    pattern: str | None = None

    @classmethod
    def of(cls, asked: Mapping[str, Any]) -> Self:
        """Return the part that arguments name; empty ones, zero and null name none. Raises `Mistake`."""
        first, last = whole_number(asked, "first_line"), whole_number(asked, "last_line")
        if first and last and last < first:
            raise Mistake(f"last_line must not be before first_line: {last} is before {first}.")
        return cls(text(asked, "path"), first, last, text(asked, "pattern"))


def text(asked: Mapping[str, Any], name: str) -> str | None:
    """Return a text among arguments; None for an empty one. Raises `Mistake`."""
    value = asked.get(name)
    if value is None or value == "":
        return None
    if not isinstance(value, str):
        raise Mistake(f"{name} must be text.")
    return value


def text_in(arguments: str, name: str) -> str:
    """Return a text in the JSON of a call's arguments, without space around it; empty where there is none."""
    try:
        asked = json.loads(arguments or "{}")
    except (ValueError, RecursionError):
        return ""
    value = asked.get(name) if isinstance(asked, dict) else None
    return value.strip().encode(errors="replace").decode() if isinstance(value, str) else ""


def whole_number(asked: Mapping[str, Any], name: str) -> int | None:
    """Return a number from 1 among arguments, also as digits; None for what is less. Raises `Mistake`."""
    value = asked.get(name)
    if isinstance(value, str) and re.fullmatch(r"-?[0-9]{1,12}", value):
        value = int(value)
    if value is None or value == "":
        return None
    if not isinstance(value, int) or isinstance(value, bool):
        raise Mistake(f"{name} must be a whole number, such as 120.")
    return value if value > 0 else None


def part_of(content: str, part: Part, longest: int = LONGEST) -> str:
    """Return the part of a content, numbered unless it is all. Raises `Mistake`. Call it in a thread."""
    shown = _at_path(content, part.path) if part.path else readable(content)
    if part == Part(path=part.path) and len(shown) <= longest:
        return shown
    lines = lines_of(shown)
    start, end = part.first_line or 1, min(part.last_line or len(lines), len(lines))
    found: Iterable[tuple[int, str]] = ((number, lines[number - 1]) for number in range(start, end + 1))
    if part.pattern:
        found = _fitting(found, part.pattern)
    answer = _numbered(found, len(lines), longest)
    if len(shown) > READ:
        answer += f"\n[only the first {READ} characters were read]"
    return answer


def as_answer(passages: Iterable[FoundPassage], longest: int = LONGEST) -> str:
    """Return passages for the model: where each comes from and stands, and its numbered lines."""
    answer = ""
    for each in passages:
        lines = "\n".join(f"{number}: {line}" for number, line in enumerate(each.lines, each.first))
        origin = f", from {each.origin}" if each.origin else ""
        entry = f'recall("{each.handle}"){origin}, of {each.of} lines:\n{lines}\n\n'
        if answer and len(answer) + len(entry) > longest:
            break
        answer += entry
    return answer.rstrip("\n")


def _at_path(content: str, path: str) -> str:
    from proxy.tools.json_path import PathError, at_path

    try:
        return at_path(content, path, SECONDS)
    except PathError as error:
        raise Mistake(str(error)) from None


def _numbered(lines: Iterable[tuple[int, str]], total: int, room: int) -> str:
    entries: list[str] = []
    try:
        for number, line in lines:
            entry = f"{number}: {line}"
            room -= len(entry) + 1
            if room < 0:
                entries.append(f"[there is more: go on with first_line={number}; there are {total} lines]")
                break
            entries.append(entry)
    except Mistake as mistake:  # what was found until then is worth having
        entries.append(f"[{mistake}]")
    return "\n".join(entries) or f"No line of the {total} fits."


def _fitting(lines: Iterable[tuple[int, str]], pattern: str) -> Iterator[tuple[int, str]]:
    """Return the lines with a pattern, whatever its case; one that is no regular expression is literal text."""
    import regex

    if len(pattern) > _LONGEST_PATTERN:
        raise Mistake(f"The pattern is longer than {_LONGEST_PATTERN} characters: use a part of it.")
    try:
        compiled = regex.compile(regex.escape(pattern) if _RECURSIVE.search(pattern) else pattern, regex.IGNORECASE)
    except (regex.error, ValueError, OverflowError, RecursionError):
        compiled = regex.compile(regex.escape(pattern), regex.IGNORECASE)
    deadline = perf_counter() + SECONDS
    for number, line in lines:
        try:
            # the library takes a negative limit for none
            fits = compiled.search(line, timeout=max(0.001, deadline - perf_counter()))
        except (TimeoutError, MemoryError):
            raise Mistake(f"The pattern takes too long, at line {number}: use a simpler one, or plain text.") from None
        if fits:
            yield number, line
        elif perf_counter() > deadline:
            raise Mistake(f"There are too many lines for this pattern: go on with first_line={number + 1}.")
