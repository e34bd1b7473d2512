"""Short forms made of whole lines that stand there word for word, with the sizes of gaps between them. Pure.

Those stay that tell most: ends, what is rare among its like, headings, first lines of paragraphs, and new values.
"""

import re
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice, pairwise

from proxy.compaction.identifiers import is_encoded, is_identifier
from proxy.compaction.layout import joined, lay_out
from proxy.compaction.pieces import WIDE, TextLine, depth_of, gap
from proxy.compaction.rare_lines import MANY_ROWS, Kind, kind_of, rare_lines
from proxy.compaction.row_names import Namer, namers
from proxy.text import counted

_LEAST, _MOST, _SHARE, _PART = 1000, 2500, 0.3, 20
"""A form may have this part of a text, within bounds; of a very long one a twentieth more than the upper one."""
_WORTH = 0.9
"""A form longer than this share of the text is none."""
_HEAD, _TAIL = 4, 6
_NOTE = 18
_BRIDGE = 80
"""A gap of fewer characters is closed, where there is room."""
_ROUNDS = 2
_NAMES = 0.15
"""The part of the room that the names of rows which are left out may take."""
_MORE, _AGAIN = 1.5, 1.1
"""A form is at most so many times as long for the places of all hits. Where they need more, many files are named alone,
or else what fits. Each gap names the folders of its hits again."""
_SAMPLE = 3000
_INDENT = 24
_AGAIN_NOTE = "[… the same "
_RECORDS = 3
_PARENTS = 12
_WORD = re.compile(r"\w[\w./:@#$%-]+\w")
_HEADING = re.compile(r"\s{0,3}#{1,6}\s|=+\s\S|\[(?!… )[^\]]{1,60}\]\s*$|@@ |.{1,80}:\s*$")
_SECTION = re.compile(r"(#{1,6})\s|(@@ -|\[{1,2}[^\W\d][^\[\]]{0,60}\]{1,2}\s*$)|(diff )|(commit [0-9a-f]{40})")
_HEADINGS = 6


def short_form(text: str) -> str | None:
    """Return the lines of a text that tell most, or None if that would hardly be shorter."""
    room = max(_LEAST, min(int(_SHARE * len(text)), _MOST + len(text) // _PART))
    form = _selected(lay_out(text), room, int(_MORE * room))
    return form if len(form) < _WORTH * len(text) else None


def condensed(text: str, room: int) -> str:
    """Return the lines of a text that tell most, in at most about so many characters."""
    lines = lay_out(text)
    whole = joined(lines)
    return min(text, whole, key=len) if min(len(whole), len(text)) <= room else _selected(lines, room)


def _selected(lines: Sequence[TextLine], room: int, most: int = 0) -> str:
    """Return the lines that tell most. The form may be longer than the room, up to `most`, where it names all hits."""
    texts = [line.text for line in lines if not line.is_blank and not is_encoded(line.text)]
    name, files, part = namers(texts)
    names = int(_NAMES * room) if name is not None else 0
    is_all = False
    for each in (name, files) if name and files else ():
        every = int(_AGAIN * len(each(texts))) + _NOTE
        if (each is name or every > names) and every <= part * max(room, most):
            name, names, room, is_all = each, every, max(room, int(every / part)), True
            break
    choice = _Choice(lines, room - names)
    choice.fill(_levels(lines, choice.parents))
    left = max(names, most - choice.used) if is_all else names
    return joined(_with_gaps(lines, choice.selected, name, left, at_once=is_all))


class _Choice:
    def __init__(self, lines: Sequence[TextLine], room: int) -> None:
        self._lines = lines
        self._room = self._free = room - _NOTE
        self.parents = _parents(lines)
        self.selected = bytearray(len(lines))
        self._says_nothing = [line.is_blank or is_encoded(line.text) for line in lines]

    def fill(self, levels: Iterable[tuple[float, Iterable[int]]]) -> None:
        """Keep the lines of these groups, and then any."""
        for share, places in levels:
            self.take(places, share)
        for _ in range(_ROUNDS):  # gaps that close again leave room
            self.bridge()
            self.measure()
            self.take(range(len(self._lines)), 1)

    @property
    def used(self) -> int:
        """The characters of the lines that stay, and of the notes between them."""
        return self._room - self._free

    def take(self, places: Iterable[int], share: float) -> None:
        """Keep lines, each with its parents; all of them within a part of the room."""
        most = min(self._free, share * self._room)
        for place in places:
            if most < _NOTE:
                break
            if self.selected[place] or self._says_nothing[place] or len(self._lines[place].text) >= most:
                continue
            fresh = [at for at in (*self._above(place), place) if not self.selected[at]]
            cost = sum(self._cost(at) for at in fresh)
            if cost <= most:
                for at in fresh:
                    self.selected[at] = 1
                most -= cost
                self._free -= cost

    def bridge(self) -> None:
        """Keep what a gap would hide where its note is hardly shorter, the smallest first."""
        sizes = [(sum(len(line.text) + 1 for line in self._lines[a:b]), a, b) for a, b in _gaps(self.selected)]
        for size, start, end in sorted(sizes):
            if size <= _NOTE or (size <= _BRIDGE and size - _NOTE <= self._free):
                self.selected[start:end] = b"\1" * (end - start)
                self._free -= max(0, size - _NOTE)

    def measure(self) -> None:
        """Count what the lines that stay and the notes between them take."""
        shown = _with_gaps(self._lines, self.selected, None, 0)
        self._free = self._room - sum(len(line.text) + 1 for line in shown)

    def _cost(self, place: int) -> int:
        beside = (place and self.selected[place - 1]) or (place + 1 < len(self.selected) and self.selected[place + 1])
        line = self._lines[place]
        notes = 1 if line.glue == "\n" else 3  # also for the parts of its line around it
        return len(line.text) + 1 + (0 if beside else notes * _NOTE + min(line.depth, _INDENT))

    def _above(self, place: int) -> list[int]:
        chain: list[int] = []
        at = self.parents[place]
        while at is not None and len(chain) < _PARENTS:
            chain.append(at)
            at = self.parents[at]
        return chain


def _parents(lines: Sequence[TextLine]) -> list[int | None]:
    """Return for each line the one that it stands under: the last heading or less indented line before it."""
    parents: list[int | None] = []
    above: list[tuple[float, int]] = []
    begins = _record_starts(lines)
    is_first = True
    for place, line in enumerate(lines):
        if line.is_blank:
            parents.append(None)
            is_first = True
            continue
        if line.text.startswith(_AGAIN_NOTE) and place:
            parents.append(place - 1)
            continue
        level = _level(line, is_first=is_first) - (0.5 if is_first and kind_of(line) in begins else 0)
        is_first = False
        while above and above[-1][0] >= level:
            above.pop()
        parents.append(above[-1][1] if above else None)
        above.append((level, place))
    return parents


def _record_starts(lines: Sequence[TextLine]) -> set[Kind]:
    """Return the kinds of line with which records begin: most paragraphs of their depth do, and no heading is there."""
    firsts = [line for before, line in pairwise((TextLine("", 0), *lines)) if before.is_blank and not line.is_blank]
    if any(_level(line, is_first=True) < line.depth for line in firsts):
        return set()
    depths = Counter(line.depth for line in firsts)
    kinds = Counter(map(kind_of, firsts))
    return {kind for kind, count in kinds.items() if kind[1] and count >= _RECORDS and 2 * count > depths[kind[0]]}


def _level(line: TextLine, *, is_first: bool = True) -> int:
    """Return the depth of a line; a heading, `is_first` in its paragraph in Markdown, stands above all others."""
    section = _SECTION.match(line.text) if line.depth == 0 and line.text[0] in "#[@dc" else None
    if section is None or (section[1] and not is_first):
        return line.depth
    return len(section[1]) - _HEADINGS - 1 if section[1] else 1 - (section.lastindex or 0)


def _levels(lines: Sequence[TextLine], parents: Sequence[int | None]) -> Iterator[tuple[float, Iterable[int]]]:
    """Yield groups of lines, the most important first, with the part of the room that each may take."""
    full = [place for place, line in enumerate(lines) if not line.is_blank]
    yield 0.5, [place for place in (*full[:_HEAD], *full[-_TAIL:]) if len(lines[place].text) <= WIDE]
    kinds = {place: kind_of(lines[place]) for place in full}
    rare = [full[row] for row in rare_lines([lines[place] for place in full], [*kinds.values()])]
    yield 0.6, [*_with_names(lines, kinds, parents, rare)]
    above = {at for line, at in zip(lines, parents, strict=True) if not line.text.startswith(_AGAIN_NOTE)} - {None}
    alike = Counter(line.text for line in lines)
    heads = [place for place in full if place in above or _HEADING.match(lines[place].text[:200])]
    if 2 * len(heads) < len(full):
        yield 0.6, sorted((at for at in heads if alike[lines[at].text] == 1), key=lambda at: _level(lines[at]))
    yield 0.3, _openings(lines, alike)
    yield 0.9, _dense(lines, full)
    yield 1, full


def _openings(lines: Sequence[TextLine], alike: Mapping[str, int]) -> Iterator[int]:
    """Yield of each paragraph but the first the first line with words that stands nowhere else."""
    is_open = True
    for place, line in enumerate(lines):
        if line.is_blank:
            is_open = False
        elif not is_open and alike[line.text] == 1 and _WORD.search(line.text):
            is_open = True
            yield place


def _with_names(
    lines: Sequence[TextLine], kinds: Mapping[int, Kind], parents: Sequence[int | None], rows: Sequence[int]
) -> Iterator[int]:
    """Yield rows of records, each behind the lines that name its record where no line that it stands under does.

    A record begins with the first kind of line that there are as many of as of the row's kind. The first two lines in
    it that stand nowhere else name it: `-[ RECORD 7 ]`, `name: web-7`.
    """
    alikes: dict[Kind, list[int]] = {}
    for place, kind in kinds.items() if rows else ():
        alikes.setdefault(kind, []).append(place)
    alike = Counter(line.text for line in lines) if rows else {}
    for row in rows:
        same = alikes[kinds[row]]
        if len(same) >= MANY_ROWS and not _is_named(lines, parents, row, same, alike):
            starts = next(each for each in alikes.values() if 0.8 * len(same) <= len(each) <= 1.25 * len(same))
            at = bisect_right(starts, row)
            begin, end = starts[max(0, at - 1)], starts[at] if at < len(starts) else len(lines)
            inside = (*range(begin, row), *range(row + 1, end)) if begin < row else ()
            yield from islice((place for place in inside if lines[place].text and alike[lines[place].text] == 1), 2)
        yield row


def _is_named(
    lines: Sequence[TextLine], parents: Sequence[int | None], row: int, same: Sequence[int], alike: Mapping[str, int]
) -> bool:
    """Return whether a row stands under a line that stands nowhere else, and not under one that all of its kind do."""
    before, above = same[bisect_left(same, row) - 1], parents[row]
    while above is not None and (above > before or before >= row):
        if alike[lines[above].text] == 1:
            return True
        above = parents[above]
    return False


def _dense(lines: Sequence[TextLine], full: Sequence[int]) -> list[int]:
    """Rank lines by their values that later calls may need, such as numbers, names and paths."""
    # in their order: sums must be the same in every process
    sample = [place for place in full[:: max(1, len(full) // _SAMPLE)] if not is_encoded(lines[place].text)]
    values = {place: dict.fromkeys(_WORD.findall(lines[place].text)) for place in sample}
    counts = Counter(chain.from_iterable(values.values()))
    worth = {word: is_identifier(word) / count for word, count in counts.items()}
    share = {
        place: sum(map(worth.__getitem__, words)) / (len(lines[place].text) + _NOTE) for place, words in values.items()
    }
    return sorted(filter(share.__getitem__, share), key=share.__getitem__, reverse=True)


def _gaps(selected: bytearray) -> Iterator[tuple[int, int]]:
    """Yield start and end of each run of lines that are left out."""
    start = selected.find(0)
    while start >= 0:
        end = selected.find(1, start)
        yield start, end if end >= 0 else len(selected)
        start = selected.find(0, end) if end >= 0 else -1


def _with_gaps(
    lines: Sequence[TextLine], selected: bytearray, name: Namer | None, room: int, *, at_once: bool = False
) -> list[TextLine]:
    """Return the selected lines; each gap counts the lines left out, and names the rows among them.

    Names of a gap take its share of the room, or all that is left of it if `at_once`.
    """
    shown: list[TextLine] = []
    at, rest = 0, selected.count(0)
    for start, end in _gaps(selected):
        shown += lines[at:start]
        for first, last, is_whole in _parted(lines, start, end):
            share = room if at_once else room * (last - first) // rest
            noted, used = _noted(lines[first:last], name, share, is_whole=is_whole)
            room, rest = room - used, rest - (last - first)
            shown += noted
        at = end
    return [*shown, *lines[at:]]


def _parted(lines: Sequence[TextLine], start: int, end: int) -> Iterator[tuple[int, int, bool]]:
    """Divide what is left out into the end of a long line, whole lines, and the beginning of the one that goes on."""
    first, last = start, end
    while first < end and lines[first].glue != "\n":
        first += 1
    if end < len(lines) and lines[end].glue != "\n":
        last = next((at for at in range(end - 1, first - 1, -1) if lines[at].glue == "\n"), end)
    yield from (part for part in ((start, first, False), (first, last, True), (last, end, False)) if part[0] < part[1])


def _noted(run: Sequence[TextLine], name: Namer | None, room: int, *, is_whole: bool) -> tuple[Sequence[TextLine], int]:
    """Return the note on lines or parts of one that are left out, and the room that its names take."""
    full = [line for line in run if not line.is_blank]
    if not full and sum(len(line.text) + 1 for line in run) <= _NOTE:
        return run, 0
    known = ""
    if name is not None and room > 0 and full and is_whole:
        rows = [line.text for line in full[: room // 4 + 1]]
        known = name(rows)
        if len(known) > room or len(rows) < len(full):
            fitting = bisect_right(range(1, len(rows)), room - 2, key=lambda count: len(name(rows[:count])))
            known = f"{name(rows[:fitting])} …" if fitting else ""
    top = min(full, key=lambda line: line.depth, default=TextLine("", 0))
    count = counted(sum(line.glue == "\n" for line in run), "line") if is_whole else counted(len(run), "part")
    indent = " " * min(_INDENT, depth_of(top.text), top.depth) if run[0].glue == "\n" else ""
    return [TextLine(indent + gap(count, known), top.depth, run[0].glue)], len(known) + 2 if known else 0
