"""Runs of lines that an earlier text still shows: a note in their place says where they stand.

The note can be followed without a tool: it has the first and the last of the lines, and their numbers, if any.
"""

import re
from array import array
from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import NamedTuple

from proxy.chat import Message
from proxy.chat.provenance import origin
from proxy.chat.texts import Text, texts_of, with_text
from proxy.compaction.form import as_file, plain, rows, weight
from proxy.compaction.pieces import gap
from proxy.context import Context
from proxy.history.cuts import ResultLines
from proxy.text import counted

_FEWEST = 2
_LONG = 300
"""A run of fewer lines and fewer characters is shown again."""
_WORTH = 1.6
"""A run that has less than so many times the tokens of its note, about, is shown again, too: no request may grow."""
BESIDE = 3
"""Lines that are shown beside what changed in a file."""
_BLOCK = 64
"""Texts whose keys are looked at together."""
_NEAREST = 4
"""So many places of a line are looked at, the newest ones."""
_QUOTED = 24
_NUMBERED = re.compile(r"\s{0,8}(\d{1,7})(?:[:|→\t]|\s\|) ?")
_STEPS, _SHARE = 2, 0.7
"""Of the numbers at the beginning of lines so many are one more than that above: then they are lines' numbers."""
_NONE = -1
_EMPTY = 1
"""The hash of an empty line, which is 0 by itself."""
_FORMS = 3
"""The layouts of which a result with notes may be made."""
_SAME = " as above; "
_REFERENCE = re.compile(rf"\[… (\d{{1,7}}) lines?{_SAME}")
_BRACKETS = re.compile(r"[\[\]]+")
_REPEATED = re.compile(r"(\W)\1+")
"""A sign that is repeated, such as a rule or white space: a few tokens, however long."""


@dataclass(frozen=True, slots=True)
class Shown:
    """The lines of a text that stands in the conversation, those that its notes stand for among them."""

    keys: "array[int]"
    """Of each line a hash, without its number; 0 of a line that later texts cannot refer to."""
    numbers: "array[int] | None"
    """The numbers of the lines, -1 where one has none; None for a text without."""
    distinct: frozenset[int]
    """The keys without those of lines that cannot be referred to: most texts have none in common with a later one."""
    noted: bytearray
    """1 for a line that a note stands for: rather than to these, later texts refer to lines that stand there."""


@dataclass(frozen=True, slots=True)
class _Block:
    """Texts that follow each other."""

    texts: tuple[Shown, ...]
    keys: frozenset[int]
    """The distinct keys of all of them."""
    has_notes: bool


@dataclass(frozen=True, slots=True)
class ShownTexts:
    """The texts of a conversation in order. With most blocks of them a later text has no line in common."""

    blocks: tuple[_Block, ...] = ()
    rest: tuple[Shown, ...] = ()

    def __len__(self) -> int:
        return _BLOCK * len(self.blocks) + len(self.rest)

    def __getitem__(self, place: int) -> Shown:
        block, at = divmod(place, _BLOCK)
        return self.blocks[block].texts[at] if block < len(self.blocks) else self.rest[at]

    def then(self, texts: Iterable[Shown]) -> "ShownTexts":
        """Return these texts and further ones, to which no note is added any more."""
        blocks, rest = self.blocks, (*self.rest, *texts)
        while len(rest) >= _BLOCK:
            block, rest = rest[:_BLOCK], rest[_BLOCK:]
            keys = frozenset[int]().union(*(text.distinct for text in block))
            blocks = (*blocks, _Block(block, keys, any(1 in text.noted for text in block)))
        return ShownTexts(blocks, rest)

    def newest(self, wanted: Set[int], missing: Set[int]) -> Iterator[tuple[int, Shown]]:
        """Yield texts with their places, the newest first, without blocks that have no line that is missing.

        Blocks with notes have none that is wanted either. `missing` may become less meanwhile.
        """
        start = _BLOCK * len(self.blocks)
        yield from reversed([*enumerate(self.rest, start)])
        for block in reversed(self.blocks):
            start -= _BLOCK
            if not missing.isdisjoint(block.keys) or (block.has_notes and not wanted.isdisjoint(block.keys)):
                yield from reversed([*enumerate(block.texts, start)])


class Referred(NamedTuple):
    """A text with notes in the place of lines that earlier ones show."""

    text: str
    used: frozenset[int]
    shown: Shown | None
    """Its lines for later texts; None where it is short."""


@dataclass(frozen=True, slots=True)
class _Repeat:
    start: int
    end: int
    text: int
    """The place of the earlier text."""
    at: int
    noted: int
    """The lines that only a note stands for there."""


_Places = dict[int, list[tuple[int, int]]]
"""The places of lines in earlier texts, by their keys: the text, and the line in it."""


def shown(text: str) -> Shown | None:
    """Return what a later text is compared with; None for a short text."""
    lines = text.split("\n")
    return _shown(lines) if len(lines) >= _FEWEST or len(text) >= _LONG else None


def _shown(lines: Sequence[str]) -> Shown:
    matches = [_NUMBERED.match(line[:24]) for line in lines]
    numbers = array("q", [_NONE if one is None else int(one[1]) for one in matches])
    steps = [after - before for before, after in pairwise(numbers) if before >= 0 and after >= 0]
    is_numbered = len(steps) >= _STEPS and steps.count(1) >= _SHARE * len(steps)
    keys = array("q", [0]) * len(lines)
    for place, (line, match) in enumerate(zip(lines, matches, strict=True)):
        if not line.lstrip().startswith("[… "):
            keys[place] = hash(line[match.end() :] if is_numbered and match is not None else line) or _EMPTY
    return Shown(keys, numbers if is_numbered else None, frozenset(keys) - {0}, bytearray(len(lines)))


def with_references(text: str, earlier: ShownTexts | Iterable[Shown], beside: int = 0) -> Referred:
    """Return a text in which notes stand for runs of lines that earlier ones show, but for those `beside` news."""
    own, earlier = shown(text), earlier if isinstance(earlier, ShownTexts) else ShownTexts().then(earlier)
    if own is None or not earlier:
        return Referred(text, frozenset(), own)
    lines = text.split("\n")
    pieces: list[str] = []
    used: set[int] = set()
    end = 0
    for run in _runs(own, earlier, lines, beside):
        note = _note(lines, own, run, earlier[run.text])
        if weight(_REPEATED.sub(r"\1", "\n".join(lines[run.start : run.end]))) < _WORTH * weight(note):
            continue
        pieces += [*lines[end : run.start], note]
        used.add(run.text)
        end = run.end
        own.noted[run.start : run.end] = b"\1" * (run.end - run.start)
    return Referred("\n".join([*pieces, *lines[end:]]) if used else text, frozenset(used), own)


def _size(lines: Sequence[str], start: int, end: int) -> int:
    return sum(len(line) + 1 for line in lines[start:end])


def _runs(own: Shown, earlier: ShownTexts, lines: Sequence[str], beside: int) -> Iterator[_Repeat]:
    """Yield the longest runs of lines that an earlier text has too, without those beside a change."""
    places = _places(own, earlier)
    start = 0
    while start < len(lines):
        runs = (_repeat(own, start, earlier[text], text, at) for text, at in places.get(own.keys[start], ()))
        best = max(runs, key=lambda run: (run.end, -run.noted), default=None)
        if best is None or not _is_long(lines, start, best.end):
            start += 1
            continue
        begin = best.start + (beside if best.start else 0)
        end = best.end - (beside if best.end < len(lines) else 0)
        run = _Repeat(begin, end, best.text, best.at + begin - best.start, best.noted)
        if begin < end and _is_long(lines, begin, end) and _is_clear(own, run, earlier, places):
            yield run
        start = best.end


def _is_clear(own: Shown, run: _Repeat, earlier: ShownTexts, places: _Places) -> bool:
    """Return False where lines that stand nearer could be taken for those of the run."""
    count = run.end - run.start
    number = _number(earlier[run.text], run.at)
    for text, at in places.get(own.keys[run.start], ()):
        other, last = earlier[text], at + count - 1
        if (text, at) <= (run.text, run.at) or last >= len(other.keys) or _number(other, at) != number:
            continue
        if other.keys[last] == own.keys[run.end - 1] and _length(own, run.start, other, at) < count:
            return False
    return True


def _number(text: Shown, place: int) -> int:
    return _NONE if text.numbers is None else text.numbers[place]


def _is_long(lines: Sequence[str], start: int, end: int) -> bool:
    return end - start >= _FEWEST or _size(lines, start, end) >= _LONG


def _repeat(own: Shown, start: int, other: Shown, text: int, at: int) -> _Repeat:
    length = _length(own, start, other, at)
    return _Repeat(start, start + length, text, at, other.noted.count(1, at, at + length))


def _places(own: Shown, earlier: ShownTexts) -> _Places:
    """Return the newest places of a text's lines in earlier ones, with and without a note on them."""
    wanted, missing = own.distinct, {*own.distinct}  # of a line such as a bracket enough places are soon known
    places: _Places = {}
    count: dict[tuple[int, int], int] = {}
    for text, there in earlier.newest(wanted, missing):
        if missing.isdisjoint(there.distinct) and (1 not in there.noted or wanted.isdisjoint(there.distinct)):
            continue
        for at, (key, noted) in enumerate(zip(there.keys, there.noted, strict=True)):
            if key in wanted and (known := count.get((key, noted), 0)) < _NEAREST:
                count[key, noted] = known + 1
                places.setdefault(key, []).append((text, at))
                if known + 1 == _NEAREST and not noted:
                    missing.remove(key)
    return places


def _length(own: Shown, start: int, other: Shown, at: int) -> int:
    """Count the lines that two texts have in common from two places on, with a constant shift of their numbers."""
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
    mine, theirs = _number(own, place), _number(other, at)
    return None if mine == theirs == _NONE else mine - theirs if _NONE not in (mine, theirs) else 1 << 40


def _note(lines: Sequence[str], own: Shown, run: _Repeat, other: Shown) -> str:
    count = run.end - run.start
    numbers = ""
    if (first := _number(own, run.start)) >= 0 and (there := _number(other, run.at)) >= 0:
        shifted = f", there {there}-{there + count - 1}" if first != there else ""
        numbers = f"{first}-{first + count - 1}{shifted}, "
    full = [line for line in lines[run.start : run.end] if line.strip()] or [""]
    first_line, last_line = (
        _quoted(_NUMBERED.sub("", line, count=1) if numbers else line) for line in (full[0], full[-1])
    )
    ends = f"from {first_line} to {last_line}" if len(full) > 1 else f"from {first_line}"
    return gap(f"{counted(count, 'line')} as above", numbers + ends)


def _quoted(line: str) -> str:
    """Return the beginning of a line, without brackets, which would end the note."""
    plain = " ".join(_BRACKETS.sub(" ", line.strip()[: 2 * _QUOTED]).split())
    return plain if len(plain) <= _QUOTED else f"{plain[:_QUOTED]}…"


def is_referring(text: str) -> bool:
    """Return True for a text with a note on lines of earlier ones."""
    return _SAME in text and any(map(_REFERENCE.match, text.split("\n")))


def lines_of_results(messages: Sequence[Message]) -> dict[int, ResultLines]:
    """Return the lines of tool results by their places; none where no result refers to another."""
    if not size_of_notes(messages):
        return {}
    lines = ((place, message.derive("lines", partial(_lines, message))) for place, message in enumerate(messages))
    return {place: own for place, own in lines if own.all}


def _lines(message: Message) -> ResultLines:
    every, noted = set[int](), set[int]()
    for text in texts_of(0, message):
        whole = _whole(text, message) if _SAME in text.original else None
        standing, own = (None if one is None else shown(one) for one in (text.original, whole))
        every |= {*(standing.distinct if standing else ()), *(own.distinct if own else ())}
        noted |= own.distinct - (standing.distinct if standing else frozenset()) if own else frozenset()
    return ResultLines(frozenset(every), frozenset(noted))


def size_of_notes(messages: Sequence[Message]) -> int:
    """Return the characters that are read where a result refers to others: all results, in each of their forms."""
    results = [message.text for message in messages if message.role == "tool"]
    return _FORMS * sum(map(len, results)) if any(_SAME in text for text in results) else 0


async def make_standing(messages: Sequence[Message], ctx: Context) -> Sequence[Message]:
    """Return `with_standing` of messages, made in a thread where they are large."""
    size = size_of_notes(messages)
    return await ctx.once.run(size, partial(with_standing, messages)) if size else messages


def with_standing(messages: Sequence[Message]) -> Sequence[Message]:
    """Return messages in which no note refers to lines that stand in none of them: what it stood for is back."""
    if not size_of_notes(messages):
        return messages
    earlier, standing = ShownTexts(), list[Message]()
    for place, message in enumerate(messages):
        changed: list[Text] = []
        for text in texts_of(place, message):
            lines = shown(text.original)
            if _SAME in text.original and (whole := _whole(text, message)) is not None:
                forms = [with_references(whole, earlier, beside) for beside in (BESIDE, 0)]
                best = next((each for each in forms if each.text == text.original), forms[0])
                text.sent, lines = best.text, best.shown
                changed.append(text)
            earlier = earlier.then([lines] if lines is not None else [])
        message = with_text(message, *changed)
        if changed and message == (sent := origin(message)):
            message = sent  # byte for byte
        standing.append(message)
    return standing


def _whole(text: Text, message: Message) -> str | None:
    """Return a text with the lines that its notes stand for; None where it was not made of what the client sent."""
    given = next((each.original for each in texts_of(text.message, origin(message)) if each.part == text.part), "")
    wholes = (layout(given).text for layout in (as_file, rows, plain))
    return next((whole for whole in wholes if _is_made_of(text.original, whole)), None)


def _is_made_of(text: str, whole: str) -> bool:
    lines, at = whole.split("\n"), 0
    for line in text.split("\n"):
        reference = _REFERENCE.match(line)
        if reference is None and lines[at : at + 1] != [line]:
            return False
        at += 1 if reference is None else int(reference[1])
    return at == len(lines)
