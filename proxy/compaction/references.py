"""Runs of lines that an earlier text still shows: a note in their place says where they stand.

A file that is read again after an edit becomes what changed in it, and notes on the rest. The note can be followed
without a tool: it has the first and the last of the lines, and their numbers where they have such.
"""

import re
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from proxy.chat import Message
from proxy.chat.markers import is_reference
from proxy.chat.texts import Text, texts_of, with_text
from proxy.compaction.form import as_file, plain, rows
from proxy.compaction.pieces import gap

FEWEST = 3
"""A run of fewer lines is shown again."""
_WORTH = 2
"""A run that has less than so many times the characters of its note is shown again, too."""
BESIDE = 3
"""Lines that are shown beside what changed in a file."""
_NEAREST = 4
"""So many places of a line are looked at, the newest ones."""
_QUOTED = 32
_NUMBERED = re.compile(r"\s{0,8}(\d{1,7})(?:[:|→\t]|\s\|) ?")
_SHARE = 0.7
"""Of the numbers at the beginning of lines so many are one more than that above: then they are lines' numbers."""
_NONE = -1
_SAME = "lines as above"
_REFERENCE = re.compile(rf"\[… (\d{{1,7}}) {_SAME}; ")
_BRACKETS = re.compile(r"[\[\]]+")


@dataclass(frozen=True, slots=True)
class Shown:
    """The lines of a text that stands in the conversation."""

    keys: "array[int]"
    """Of each line a hash, without its number; 0 of a note of ours."""
    numbers: "array[int] | None"
    """The numbers of the lines, -1 where one has none; None for a text without."""


@dataclass(frozen=True, slots=True)
class _Repeat:
    start: int
    end: int
    text: int
    """The place of the earlier text."""
    at: int
    """Its first line there."""


def shown(text: str) -> Shown | None:
    """Return what a later text is compared with; None for a text of few lines."""
    lines = text.split("\n")
    return _shown(lines) if len(lines) >= FEWEST else None


def _shown(lines: Sequence[str]) -> Shown:
    found = [_NUMBERED.match(line[:24]) for line in lines]
    numbers = array("q", [_NONE if one is None else int(one[1]) for one in found])
    steps = [after - before for before, after in pairwise(numbers) if before >= 0 and after >= 0]
    is_numbered = len(steps) >= FEWEST - 1 and steps.count(1) >= _SHARE * len(steps)
    keys = array("q", [0]) * len(lines)
    for place, (line, match) in enumerate(zip(lines, found, strict=True)):
        if not line.lstrip().startswith("[… "):
            keys[place] = hash(line[match.end() :] if is_numbered and match is not None else line)
    return Shown(keys, numbers if is_numbered else None)


def with_references(text: str, earlier: Sequence[Shown], beside: int = 0) -> tuple[str, frozenset[int]]:
    """Return a text in which notes stand for runs of lines that earlier ones show, and the places of those ones.

    So many lines are shown `beside` what is new, so that an edit of it finds its surroundings.
    """
    lines = text.split("\n")
    if len(lines) < FEWEST or not earlier:
        return text, frozenset()
    own = _shown(lines)
    pieces: list[str] = []
    used: set[int] = set()
    end = 0
    for run in _runs(own, earlier, beside):
        note = _note(lines, own, run, earlier[run.text])
        if sum(map(len, lines[run.start : run.end])) < _WORTH * len(note):
            continue
        pieces += [*lines[end : run.start], note]
        used.add(run.text)
        end = run.end
    return ("\n".join([*pieces, *lines[end:]]), frozenset(used)) if used else (text, frozenset())


def _runs(own: Shown, earlier: Sequence[Shown], beside: int) -> Iterator[_Repeat]:
    """The longest runs of lines that an earlier text has, too, without those beside what changed."""
    places = _places(own, earlier)
    start = 0
    while start < len(own.keys):
        best = max(
            (
                _Repeat(start, start + _length(own, start, earlier[text], at), text, at)
                for text, at in places.get(own.keys[start], ())
            ),
            key=lambda run: run.end,
            default=None,
        )
        if best is None or best.end - start < FEWEST:
            start += 1
            continue
        begin = best.start + (beside if best.start else 0)
        end = best.end - (beside if best.end < len(own.keys) else 0)
        if end - begin >= FEWEST:
            yield _Repeat(begin, end, best.text, best.at + begin - best.start)
        start = best.end


def _places(own: Shown, earlier: Sequence[Shown]) -> dict[int, list[tuple[int, int]]]:
    """Where the lines of a text stand in earlier ones, the newest places of each."""
    wanted = set(own.keys) - {0}
    places: dict[int, list[tuple[int, int]]] = {}
    for text in range(len(earlier) - 1, -1, -1):
        for at, key in enumerate(earlier[text].keys):
            if key in wanted:
                known = places.setdefault(key, [])
                if len(known) < _NEAREST:
                    known.append((text, at))
    return places


def _length(own: Shown, start: int, other: Shown, at: int) -> int:
    """How many lines two texts have in common from two places on, with numbers that differ by the same."""
    length = 0
    most = min(len(own.keys) - start, len(other.keys) - at)
    while length < most and own.keys[start + length] == other.keys[at + length] != 0:
        length += 1
    if own.numbers is None and other.numbers is None:
        return length
    shift = _shift(own, start, other, at)
    for place in range(length):
        if _shift(own, start + place, other, at + place) != shift:
            return place
    return length


def _shift(own: Shown, place: int, other: Shown, at: int) -> int | None:
    """By how much two numbers differ; None where neither line has one."""
    mine = _NONE if own.numbers is None else own.numbers[place]
    theirs = _NONE if other.numbers is None else other.numbers[at]
    return None if mine == theirs == _NONE else mine - theirs if _NONE not in (mine, theirs) else 1 << 40


def _note(lines: Sequence[str], own: Shown, run: _Repeat, other: Shown) -> str:
    count = run.end - run.start
    numbers = ""
    if own.numbers is not None and other.numbers is not None and own.numbers[run.start] >= 0:
        first, there = own.numbers[run.start], other.numbers[run.at]
        numbers = f"{first}-{first + count - 1}" + (f", there {there}-{there + count - 1}" if first != there else "")
    full = [line for line in lines[run.start : run.end] if line.strip()] or [""]
    ends = f"from {_quoted(full[0])} to {_quoted(full[-1])}"
    return gap(f"{count} {_SAME}", f"{numbers}, {ends}" if numbers else ends)


def _quoted(line: str) -> str:
    """The beginning of a line, without brackets, which would end the note."""
    plain = " ".join(_BRACKETS.sub(" ", line.strip()[: 2 * _QUOTED]).split())
    return plain if len(plain) <= _QUOTED else f"{plain[:_QUOTED]}…"


def is_referring(text: str) -> bool:
    """Return True for a text that refers to earlier ones, whole or with some of its lines."""
    return is_reference(text) or any(map(_REFERENCE.match, text.split("\n") if _SAME in text else ()))


def with_standing(messages: Sequence[Message]) -> Sequence[Message]:
    """Return messages in which no note refers to lines that stand in none of them: what it stood for is back."""
    if not any(message.role == "tool" and _SAME in message.text for message in messages):
        return messages
    earlier, found = list[Shown](), list[Message]()
    for place, message in enumerate(messages):
        changed: list[Text] = []
        for text in texts_of(place, message):
            if _SAME in text.given and (whole := _whole(text, message)) is not None:
                text.sent, _ = with_references(whole, earlier)
                changed.append(text)
            lines = shown(text.sent)
            earlier += [lines] if lines is not None else []
        message = with_text(message, *changed)
        if changed and message == (origin := _origin(message)):
            message = origin  # byte for byte
        found.append(message)
    return found


def _whole(text: Text, message: Message) -> str | None:
    """A text with the lines that its notes stand for; None where it was not made of what the client sent."""
    origin = _origin(message)
    given = next((each.given for each in texts_of(text.message, origin) if each.part == text.part), "")
    wholes = (layout(given).text for layout in (as_file, rows, plain))
    return next((whole for whole in wholes if _is_made_of(text.given, whole)), None)


def _origin(message: Message) -> Message:
    """The message as the client sent it."""
    while (before := message.made_of) is not None:
        message = before
    return message


def _is_made_of(text: str, whole: str) -> bool:
    lines, at = whole.split("\n"), 0
    for line in text.split("\n"):
        found = _REFERENCE.match(line)
        if found is None and lines[at : at + 1] != [line]:
            return False
        at += 1 if found is None else int(found[1])
    return at == len(lines)
