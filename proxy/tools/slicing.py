"""Archived content as lines that can be read, numbered and searched, and parts of it: by lines, pattern or JMESPath.

Every answer is bounded in size and time.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any, Self

import orjson

from proxy.chat import ROLES, Message, called_name
from proxy.chat.attachments import described
from proxy.chat.blocks import escaped
from proxy.compaction.calls import arguments_of, callers
from proxy.compaction.pieces import LONGEST_LINE, packed
from proxy.text.bm25 import Fits, index, scores_of

READ = 8 * 2**20
"""Characters of one content that are read; what is behind them is only to be had as a whole."""
_ORIGIN = 200
"""Characters of a call that say where a content came from."""
_MOST = 8
_TALLEST = 12
_LARGEST = 800
"""Lines and characters of a passage, about."""


@dataclass(frozen=True, slots=True)
class FoundPassage:
    """A few lines of a content that fit a query."""

    handle: str
    first: int
    lines: tuple[str, ...]
    of: int
    origin: str = ""
    """The source of the content: the call of a tool."""


def readable(content: str) -> str:
    """Content as text: messages that left as JSON lines say who said what; anything else is as it is."""
    if not content.startswith("{") or len(content) > READ:
        return content
    try:
        found = [orjson.loads(line) for line in content.split("\n") if line]
    except ValueError:
        return content
    return "\n".join(map(_as_text, found)) if all(map(_is_message, found)) else content


def lines_of(text: str) -> list[str]:
    """Return the lines of a text, none longer than `LONGEST_LINE`."""
    lines: list[str] = []
    for line in text[:READ].splitlines():
        if len(line) <= LONGEST_LINE:
            lines.append(line)
        else:
            lines += [line[start : start + LONGEST_LINE] for start in range(0, len(line), LONGEST_LINE)]
    return lines


def origins(messages: Sequence[Message], handle: Callable[[str], str]) -> dict[str, str]:
    """Return the calls that results came from, by the handle of the result's text."""
    found: dict[str, str] = {}
    for place, call in callers(messages, _ORIGIN).items():
        texts = (part["text"] for part in messages[place].parts if isinstance(part.get("text"), str))
        found |= dict.fromkeys(map(handle, (messages[place].text, *texts)), call)
    return found


def best_passages(contents: Sequence[tuple[str, str]], query: str, origins: Mapping[str, str]) -> list[FoundPassage]:
    """Return the passages that fit a query best; the words of a content's origin count, as in `needle in big0`."""
    known = [origins.get(handle, "") for handle, _ in contents]
    shares: list[float] = Fits(query, [index(known)]).shares.tolist()
    passages: list[FoundPassage] = []
    weights: list[float] = []
    firsts: set[int] = set()
    for (handle, content), origin, share in zip(contents, known, shares, strict=True):
        firsts.add(len(passages))
        lines = lines_of(readable(content))
        fresh = [
            FoundPassage(handle, start + 1, tuple(lines[start:end]), len(lines), origin)
            for start, end in packed([*map(len, lines)], _LARGEST, _TALLEST)
        ]
        passages += fresh
        weights += [share] * len(fresh)
    scores = scores_of(query, index("\n".join(each.lines) for each in passages))
    top = max(scores, default=0.0) or 1.0
    # of a content that only its origin speaks for, the beginning is enough
    fitting = [at for at, score in enumerate(scores) if score > 0 or (weights[at] and at in firsts)]
    ranked = sorted(fitting, key=lambda at: -scores[at] - top * weights[at])
    best: list[FoundPassage] = []
    shown: set[str] = set()
    for place in ranked:
        passage = passages[place]
        if not shown.issuperset(passage.lines):
            shown.update(passage.lines)
            best.append(passage)
        if len(best) == _MOST:
            break
    return best


def _is_message(value: Any) -> bool:
    return isinstance(value, dict) and value.get("role") in ROLES and ("content" in value or "tool_calls" in value)


def _as_text(fields: Mapping[str, Any]) -> str:
    message = Message(fields)
    calls = [f"[calls {called_name(call)}({arguments_of(call)})]" for call in fields.get("tool_calls") or ()]
    text = "\n".join(filter(None, (described(message), *calls)))
    return f"{message.role}: {escaped(text)}"


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
