"""Short forms made of whole lines that stand there word for word, with the sizes of gaps between them. Pure.

Those stay that tell most: ends, what is rare among its like, headings, first lines of paragraphs, and new values.
"""

import re
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, partial
from itertools import chain, islice

from proxy.compaction.cut_json import json_value
from proxy.compaction.identifiers import is_identifier
from proxy.compaction.layout import joined, lay_out
from proxy.compaction.pieces import WIDE, TextLine, gap
from proxy.text import counted
from proxy.text.tables import lines as table_lines

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
_HITS, _MORE = 0.8, 1.5
"""The part that the places of all hits of a search may take, in a form that is at most so many times as long for them.
Where they need more, many files are named alone, or else as many places as others are."""
_AGAIN = 1.1
"""Each gap names the folders of its hits again."""
_FEWEST_HITS = 1 / 6
"""The part of all lines that are hits where a search or a compiler has other lines around them."""
_LONGEST_NAME = 60
_DIFFERENT = 0.7
"""Of the rows of a table so many have a name that no other has."""
_ROWS = 20
_FEW = 100
"""Rows that are looked at to find what names them."""
_SAMPLE = 3000
_INDENT = 24
_PARENTS = 12
_WORD = re.compile(r"\w[\w./:@#$%-]+\w")
_HEADING = re.compile(r"\s{0,3}#{1,6}\s|=+\s\S|\[(?!… )[^\]]{1,60}\]\s*$|@@ |.{1,80}:\s*$")
_LOWEST = "######"
_SECTION = re.compile(r"(#{1,6})\s|\[{1,2}[^\W\d][^\[\]]{0,60}\]{1,2}\s*$")
_NAME = re.compile(r"[\w./:@#$+-]{1,60}")
_FIRST_CELL = re.compile(r'"(?:[^"\\]|\\.){0,200}"|(?:(?!  )[^\t;|,<>])+')
_HIT = re.compile(
    r"(?!//)(?=[\w.@+-]*?(?:[/\\]|\.[A-Za-z]))([\w./\\@+-]{1,200}+)"
    r"(?::(\d+)(?=[:-]|$)|:(?![\d/])|\((\d+)[,)]|::([\w.-]+)|\", line (\d+)|[ \t]+\||$)"
)
_BEFORE_HIT = re.compile(r"[(\[]?[\w.-]{1,40}[)\]]?[ :]\"?|-->[ ]")
"""A revision, a drive, a word such as `FAILED` or `[FILE]`, or the arrow of a compiler."""
_SPACED_HIT = re.compile(r"((?:[A-Za-z]:)?[^\s:][^:]{0,200}?\.[A-Za-z]\w{0,7}):(\d+)(?=[:-])")
_PATH = re.compile(r"(?=[^A-Za-z]*[A-Za-z])[\w.@+~$-]*[/\\][\w ./\\@+~$-]{1,200}")

Kind = tuple[int, str]
"""The indent and the first word of lines that are compared."""
Namer = Callable[[Iterable[str]], str]
"""Names rows that are left out."""


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
    texts = [line.text for line in lines if not line.is_blank]
    name, files = _namers(texts)
    names = int(_NAMES * room) if name is not None else 0
    of_all: Namer | None = None
    for each in (name, files) if name and files else ():
        every = int(_AGAIN * len(each(texts))) + _NOTE
        if (each is name or every > names) and every <= _HITS * max(room, most):
            name = of_all = each
            names, room = every, max(room, int(every / _HITS))
            break
    choice = _Choice(lines, room - names)
    levels = [*_levels(lines, choice.parents)]
    choice.fill(levels)
    if of_all is not None and choice.named(of_all) > names:  # fewer gaps name a folder less often
        choice = _Choice(lines, room - names)
        choice.fill(levels[:1])
    return joined(_with_gaps(lines, choice.selected, name, names))


class _Choice:
    def __init__(self, lines: Sequence[TextLine], room: int) -> None:
        self._lines = lines
        self._room = self._free = room - _NOTE
        self.parents = _parents(lines)
        self.selected = bytearray(len(lines))

    def fill(self, levels: Iterable[tuple[float, Iterable[int]]]) -> None:
        """Keep the lines of these groups, and then any."""
        for share, places in levels:
            self.take(places, share)
        for _ in range(_ROUNDS):  # gaps that close again leave room
            self.bridge()
            self.measure()
            self.take(range(len(self._lines)), 1)

    def named(self, name: Namer) -> int:
        """Return the characters that the names of all rows in gaps take."""
        return sum(len(name(self._lines[at].text for at in run)) + 2 for run in self._gaps())

    def take(self, places: Iterable[int], share: float) -> None:
        """Keep lines, each with its parents; all of them within a part of the room."""
        most = min(self._free, share * self._room)
        for place in places:
            if most < _NOTE:
                break
            if self.selected[place] or len(self._lines[place].text) >= most:
                continue
            fresh = [at for at in (*self._above(place), place) if not self.selected[at]]
            cost = sum(self._cost(at) for at in fresh)
            if fresh and cost <= most and not self._lines[place].is_blank:
                for at in fresh:
                    self.selected[at] = 1
                most -= cost
                self._free -= cost

    def bridge(self) -> None:
        """Keep what a gap would hide where its note is hardly shorter, the smallest first."""
        gaps = sorted((sum(len(self._lines[at].text) + 1 for at in run), run) for run in self._gaps())
        for size, run in gaps:
            if size <= _NOTE or (size <= _BRIDGE and size - _NOTE <= self._free):
                for at in run:
                    self.selected[at] = 1
                self._free -= max(0, size - _NOTE)

    def measure(self) -> None:
        """Count what the lines that stay and the notes between them take."""
        shown = _with_gaps(self._lines, self.selected, None, 0)
        self._free = self._room - sum(len(line.text) + 1 for line in shown)

    def _gaps(self) -> Iterator[list[int]]:
        run: list[int] = []
        for place, stays in enumerate((*self.selected, 1)):
            if not stays:
                run.append(place)
            elif run:
                yield run
                run = []

    def _cost(self, place: int) -> int:
        beside = (place and self.selected[place - 1]) or (place + 1 < len(self.selected) and self.selected[place + 1])
        line = self._lines[place]
        return len(line.text) + 1 + (0 if beside else _NOTE + min(line.depth, _INDENT))

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
    above: list[tuple[int, int]] = []
    is_first = True
    for place, line in enumerate(lines):
        if line.is_blank:
            parents.append(None)
            is_first = True
            continue
        level = _level(line, is_first=is_first)
        is_first = False
        while above and above[-1][0] >= level:
            above.pop()
        parents.append(above[-1][1] if above else None)
        above.append((level, place))
    return parents


def _level(line: TextLine, *, is_first: bool) -> int:
    """Return the depth of a line; a Markdown heading `is_first` in its paragraph and an INI section stand above all."""
    section = _SECTION.match(line.text) if line.depth == 0 and line.text[0] in "#[" else None
    if section is None or (section[1] and not is_first):
        return line.depth
    return len(section[1] or _LOWEST) - len(_LOWEST) - 1


def _levels(lines: Sequence[TextLine], parents: Sequence[int | None]) -> Iterator[tuple[float, Iterable[int]]]:
    """Yield groups of lines, the most important first, with the part of the room that each may take."""
    full = [place for place, line in enumerate(lines) if not line.is_blank]
    yield 0.5, [place for place in (*full[:_HEAD], *full[-_TAIL:]) if len(lines[place].text) <= WIDE]
    kinds = {place: _kind(lines[place]) for place in full}
    rare = [full[row] for row in rare_lines([lines[place] for place in full], [*kinds.values()])]
    yield 0.6, [*_with_names(lines, kinds, parents, rare)]
    above = {at for at in parents if at is not None}
    heads = [place for place in full if place in above or _HEADING.match(lines[place].text[:200])]
    if 2 * len(heads) < len(full):
        yield 0.6, sorted(heads, key=lambda at: lines[at].depth)
    yield 0.3, _spread([place for place in full if place and lines[place - 1].is_blank])
    yield 0.9, _dense(lines, full)
    yield 1, full


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
        if len(same) >= _MANY and not _is_named(lines, parents, row, same, alike):
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


def _kind(line: TextLine) -> Kind:
    word = _FIRST_WORD.search(line.text[:_START])
    return line.depth, word[0] if word else ""


def _spread(places: Sequence[int]) -> Iterator[int]:
    """Yield places in an order in which any beginning has places of all parts."""
    step = 1 << max(0, len(places) - 1).bit_length()
    if places:
        yield places[0]
    while step > 1:
        yield from places[step // 2 :: step]
        step //= 2


def _dense(lines: Sequence[TextLine], full: Sequence[int]) -> list[int]:
    """Rank lines by their values that later calls may need, such as numbers, names and paths."""
    # in their order: sums must be the same in every process
    values = {place: dict.fromkeys(_WORD.findall(lines[place].text)) for place in full[:: max(1, len(full) // _SAMPLE)]}
    counts = Counter(chain.from_iterable(values.values()))
    worth = {word: is_identifier(word) / count for word, count in counts.items()}
    share = {
        place: sum(map(worth.__getitem__, words)) / (len(lines[place].text) + _NOTE) for place, words in values.items()
    }
    return sorted(filter(share.__getitem__, share), key=share.__getitem__, reverse=True)


def _with_gaps(lines: Sequence[TextLine], selected: Sequence[int], name: Namer | None, room: int) -> list[TextLine]:
    """Return the selected lines; each gap counts the lines left out, and names the rows among them."""
    shown: list[TextLine] = []
    run: list[TextLine] = []
    for line, stays in zip(lines, selected, strict=True):
        if not stays:
            run.append(line)
            continue
        noted, room = _noted(run, name, room)
        shown += [*noted, line]
        run = []
    return [*shown, *_noted(run, name, room)[0]]


def _noted(run: Sequence[TextLine], name: Namer | None, room: int) -> tuple[Sequence[TextLine], int]:
    """Return the note on lines that are left out, and the room that remains for names."""
    full = [line for line in run if not line.is_blank]
    if not full and sum(len(line.text) + 1 for line in run) <= _NOTE:
        return run, room
    inside = all(line.glue != "\n" for line in run)
    known = ""
    if name is not None and room > 0 and not inside and full:
        known = name(line.text for line in full)
        if len(known) > room:
            end = max(known.rfind(sign, 0, room) for sign in " ,")
            known = f"{known[:end]} …" if end > 0 else ""
    depth = min((line.depth for line in full), default=0)
    note = gap(counted(len(run), "part" if inside else "line"), known)
    return [TextLine(("" if inside else " " * min(depth, _INDENT)) + note, depth, run[0].glue)], room - len(known) - 2


def names_files(text: str) -> bool:
    """Return True for a result about several files: JSON, hits of a search, or a listing."""
    return json_value(text) is not None or _are_hits([*map(_hit, _sample(text.split("\n")))])


def _sample(texts: Sequence[str]) -> Sequence[str]:
    """Return some of many texts, in steps that grow, which no period of the texts has."""
    if len(texts) <= _FEW:
        return texts
    return [texts[len(texts) * at * at // _FEW**2] for at in range(_FEW)]


def _are_hits(hits: Sequence[tuple[str, str] | None]) -> bool:
    found = [*filter(None, hits)]
    return len(found) >= max(1, _FEWEST_HITS * len(hits)) and len(set(found)) >= _DIFFERENT * len(found)


def _namers(texts: Sequence[str]) -> tuple[Namer | None, Namer | None]:
    """Return what names rows: their places in files, and those without numbers; or else a cell."""
    sample = _sample(texts) if len(texts) >= _ROWS else ()
    hit = cache(_hit)
    if sample and _are_hits([*map(hit, sample)]):
        return _namer(hit), _namer(partial(_alone, lambda row: (hit(row) or ("",))[0]))
    for name in (_last_path, _first_cell, _last_word) if sample else ():
        names = [name(text) for text in sample]
        numbers = [int(one) for one in names if one.isdecimal()]
        if numbers and numbers == sorted(numbers) and numbers[-1] - numbers[0] < 2 * len(texts):
            continue  # numbers of lines: those around a gap tell them
        if len({*filter(None, names)}) >= _DIFFERENT * len(sample):
            return _namer(partial(_alone, name)), None
    return None, None


def _alone(name: Callable[[str], str], row: str) -> tuple[str, str]:
    return name(row), ""


def _namer(place: Callable[[str], tuple[str, str] | None]) -> Namer:
    return lambda rows: _places(found for found in map(place, rows) if found and found[0])


def _hit(text: str) -> tuple[str, str] | None:
    """Return the file in front of a line, and the line's number or name in it, if any; None where there is no file."""
    bare = text.lstrip()
    found = _HIT.match(bare)
    if found is None and (before := _BEFORE_HIT.match(bare)):
        found = _HIT.match(bare, before.end())
    found = found or _SPACED_HIT.match(text)
    return found and (found[1], next(filter(None, found.groups()[1:]), ""))


def _places(places: Iterable[tuple[str, str]]) -> str:
    """Return places by folder and file: `src/app: main.py:3,14 run.py:7; docs: index.md`.

    Files that have hardly a folder in common stand below the one that all are in: `src: app/main.py:3 text/fold.py:9`.
    """
    paths: dict[str, list[str]] = {}
    for path, number in places:
        numbers = paths.setdefault(path, [])
        if number:
            numbers.append(number)
    parents = {path: _folder(path) for path in paths}
    if 2 * len({*parents.values()}) > len(paths):
        first, last = min(parents.values()), max(parents.values())
        same = next((at for at, pair in enumerate(zip(first, last, strict=False)) if pair[0] != pair[1]), len(first))
        parents = dict.fromkeys(paths, _folder(first[:same]))
    folders: dict[str, list[str]] = {}
    for path, numbers in paths.items():
        file = path[len(parents[path]) :]
        folders.setdefault(parents[path][:-1], []).append(f"{file}:{','.join(numbers)}" if numbers else file)
    return "; ".join(f"{folder}: {' '.join(files)}" if folder else " ".join(files) for folder, files in folders.items())


def _folder(path: str) -> str:
    return path[: max(path.rfind("/"), path.rfind("\\")) + 1]


def _first_cell(text: str) -> str:
    found = _FIRST_CELL.match(text[: 2 * _LONGEST_NAME].strip(" [|"))
    return _named(found[0].strip(' ":')) if found else ""


def _last_word(text: str) -> str:
    last = (text[-2 * _LONGEST_NAME :].split() or [""])[-1]
    return "" if last.isdigit() else _named(last)  # a last number is a count


def _last_path(text: str) -> str:
    """Return the path behind the last tab or blank, if there is one."""
    last = (text.rsplit("\t" if "\t" in text else None, 1) or [""])[-1]
    return last if _PATH.fullmatch(last) else ""


def _named(cell: str) -> str:
    return cell if _NAME.fullmatch(cell) and (is_identifier(cell) or cell.isdigit()) else ""


_MANY = 20
"""Of so many rows one is rare."""
_STATES = 12
"""A column with at most so many different values holds states rather than counts or names."""
_ALIKE = 3
"""So many rows with the same rare value stay; of reports of a fault so many of the first, and of the last."""
_START = 300
_SAMPLED_ROWS = 100
_COLUMNS = 8
CELL = re.compile(r'"(?:[^"\\]|\\.){0,200}"|[^\t;|,<>]+')
_PAIR = re.compile(r"\"?([^\d\W][\w .-]{0,40}?)\"?\s*[:=]\s*(\S.{0,60})$|<([\w.:-]{1,40})[^<>]{0,100}>([^<>]{1,60})</")
_FIRST_WORD = re.compile(r"[^\W\d_]\w*")
_DIGITS = re.compile(r"[0-9][0-9a-fA-F.:,-]*")


def rare_lines(lines: Sequence[TextLine], kinds: Sequence[Kind]) -> list[int]:
    """Return the places of the lines that stand out, the rarest first, and then in their order."""
    rarity: dict[int, int] = {}

    def note(rows: Sequence[int], count: int) -> None:
        for row in rows:
            rarity[row] = min(count, rarity.get(row, count))

    texts = [line.text[:_START] for line in lines]
    for column in _columns(lines, texts, kinds):
        for rows in _rare(column):
            note(rows[:_ALIKE], len(rows))
    shapes: dict[str, list[int]] = {}
    lower = "\n".join(texts).lower()
    words = [word for word in table_lines("faults") if word in lower]  # three times as fast as a pattern
    for row, text in enumerate(texts) if words else ():
        if any(map(text.lower().__contains__, words)):
            shapes.setdefault(_DIGITS.sub("0", " ".join(text.split()[:2]))[:40], []).append(row)
    for rows in shapes.values():
        note(rows if len(rows) <= 2 * _ALIKE else [*rows[:_ALIKE], *rows[-_ALIKE:]], len(rows))
    return sorted(rarity, key=lambda row: (rarity[row], row))


def _rare(column: Mapping[int, str]) -> Iterator[list[int]]:
    """Yield the rows of each value of a column that is rare among few different ones."""
    values = Counter(column.values())
    if 1 < len(values) <= min(_STATES, len(column) // 5):
        for rare in (value for value, count in values.items() if count * _MANY <= len(column)):
            yield [row for row, value in column.items() if value == rare]


def _columns(lines: Sequence[TextLine], texts: Sequence[str], kinds: Sequence[Kind]) -> Iterator[Mapping[int, str]]:
    """Yield columns whose values may be states: of cells, of words, also behind one first word, and of keys."""
    levels: dict[int, list[int]] = {}
    named: dict[Kind, list[int]] = {}
    keyed: dict[tuple[int, str], dict[int, str]] = {}
    for row, (line, text, kind) in enumerate(zip(lines, texts, kinds, strict=True)):
        levels.setdefault(line.depth, []).append(row)
        named.setdefault(kind, []).append(row)
        pair = _PAIR.match(text.lstrip()) if ":" in text or "=" in text or "<" in text else None
        if pair is not None:
            keyed.setdefault((line.depth, pair[1] or pair[3]), {})[row] = pair[2] or pair[4]
    for rows in levels.values():
        if len(rows) >= _MANY:
            yield from _states(rows, lambda row: lines[row].cells or CELL.findall(texts[row]), even=True)
            yield from _states(
                rows, lambda row: [_DIGITS.sub("0", cell) for cell in CELL.findall(texts[row])], even=True
            )
            yield from _states(rows, lambda row: texts[row].split(None, _COLUMNS))
            yield from _states(rows, lambda row: _DIGITS.sub("0", texts[row]).split(None, _COLUMNS))
    for (depth, _), rows in named.items():
        if _MANY <= len(rows) < len(levels[depth]):
            yield from _states(rows, lambda row: texts[row].split(None, _COLUMNS))
    yield from (column for column in keyed.values() if len(column) >= _MANY)


def _states(
    rows: Sequence[int], cells: Callable[[int], Sequence[str]], *, even: bool = False
) -> Iterator[Mapping[int, str]]:
    """Yield the columns with few different values in a sample of the rows; if `even`, of rows of the usual length."""
    # in steps that grow, which no period of the rows has
    few = [rows[len(rows) * at * at // _SAMPLED_ROWS**2] for at in range(_SAMPLED_ROWS)]
    is_few = len(rows) <= _SAMPLED_ROWS
    sample = [cells(row) for row in (rows if is_few else few)]
    usual, count = Counter(map(len, sample)).most_common(1)[0]
    if even and (usual < 2 or count < len(sample) // 2):
        return
    width = usual if even else _COLUMNS
    kinds = [len({row[place] for row in sample if len(row) > place}) for place in range(width)]
    columns: dict[int, dict[int, str]] = {place: {} for place, count in enumerate(kinds) if 0 < count <= _STATES}
    if not columns:
        return
    for row, row_cells in zip(rows, sample if is_few else map(cells, rows), strict=True):
        for place, column in columns.items() if not even or len(row_cells) == usual else ():
            if len(row_cells) > place:
                column[row] = row_cells[place].strip()
    yield from columns.values()
