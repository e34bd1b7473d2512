"""Names of rows that are left out: hits of a search by file and number, other rows by the column that differs most."""

import re
from collections.abc import Callable, Iterable, Sequence
from functools import cache, partial

from proxy.compaction.cut_json import json_value
from proxy.compaction.envelopes import unwrapped
from proxy.compaction.pieces import depth_of, sampled
from proxy.compaction.rare_lines import MANY_ROWS

_HITS, _HITS_BELOW = 0.8, 0.5
"""The part of a form that the places of all hits of a search may take, and where they stand below other lines."""
_FEWEST_HITS = 1 / 6
"""The part of all lines that are hits where a search or a compiler has other lines around them."""
_LONGEST_NAME = 60
_DIFFERENT = 0.7
"""Of the rows of a table so many have a name that no other has."""
_FEW = 60
"""Rows that are looked at to find what names them."""
_NAME = re.compile(r"[\w./:@#$+-]{1,60}")
_CELL_OF_ROW = re.compile(r'"(?:[^"\\]|\\.){0,200}"|(?:(?!  )[^\t;|,<>])+')
_HIT = re.compile(
    r"(?!//)(?=[\w.@+-]*?(?:[/\\]|\.[A-Za-z]))([\w./\\@+-]{1,200}+)"
    r"(?::(\d+)(?=[:-]|$)|:(?![\d/])|\((\d+)[,)]|::([\w.-]+)|\", line (\d+)|[ \t]+\||$)"
)
_BEFORE_HIT = re.compile(r"[(\[]?[\w.-]{1,40}[)\]]?[ :]\"?|-->[ ]")
"""A revision, a drive, a word such as `FAILED` or `[FILE]`, or the arrow of a compiler."""
_SPACED_HIT = re.compile(r"((?:[A-Za-z]:)?[^\s:][^:]{0,200}?\.[A-Za-z]\w{0,7}):(\d+)(?=[:-])")
_PATH = re.compile(r"(?=[^A-Za-z]*[A-Za-z])[\w.@+~$-]*[/\\][\w ./\\@+~$-]{1,200}")

Namer = Callable[[Iterable[str]], str]
"""Names rows that are left out."""


def names_files(text: str) -> bool:
    """Return True for a result about several files: JSON, hits of a search, or a listing."""
    text = unwrapped(text, squeeze=False)
    return json_value(text) is not None or _are_hits([*map(_hit, sampled(text.split("\n"), _FEW))])


def _are_hits(hits: Sequence[tuple[str, str] | None]) -> bool:
    found = [*filter(None, hits)]
    return len(found) >= max(1, _FEWEST_HITS * len(hits)) and len(set(found)) >= _DIFFERENT * len(found)


def namers(texts: Sequence[str]) -> tuple[Namer | None, Namer | None, float]:
    """Return what names rows: their places in files, those without numbers, and the room for all; or else a cell."""
    sample = sampled(texts, _FEW) if len(texts) >= MANY_ROWS else ()
    hit = cache(_hit)
    hits = [*map(hit, sample)]
    if sample and _are_hits(hits):
        least = min(map(depth_of, sample))
        part = (
            _HITS
            if any(hit and depth_of(text) == least for text, hit in zip(sample, hits, strict=True))
            else _HITS_BELOW
        )
        return _namer(hit), _namer(partial(_alone, lambda row: (hit(row) or ("",))[0])), part
    columns: list[Callable[[str], str]] = [_last_path, *_CELLS]
    for name in columns if sample else ():
        names = [*filter(None, map(name, sample))]
        numbers = [int(one) for one in names if one.isdecimal()]
        if numbers and numbers == sorted(numbers) and numbers[-1] - numbers[0] < 2 * len(texts):
            break  # numbers of rows: those around a gap tell them
        if 2 * len(names) >= len(sample) and len({*names}) >= _DIFFERENT * len(names):
            return _namer(partial(_alone, name)), None, 0
    return None, None, 0


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
        if number and number not in numbers[-1:]:
            numbers.append(number)
    parents = {path: _folder(path[:-1]) for path in paths}  # a folder's own path ends with a slash
    if 2 * len({*parents.values()}) > len(paths):
        first, last = min(parents.values()), max(parents.values())
        same = next((at for at, pair in enumerate(zip(first, last, strict=False)) if pair[0] != pair[1]), len(first))
        parents = dict.fromkeys(paths, _folder(first[:same]))
    folders: dict[str, list[str]] = {}
    for path, numbers in paths.items():
        file = path[len(parents[path]) :]
        folders.setdefault(parents[path][:-1] or parents[path], []).append(
            f"{file}:{','.join(numbers)}" if numbers else file
        )
    return "; ".join(f"{folder}: {' '.join(files)}" if folder else " ".join(files) for folder, files in folders.items())


def _folder(path: str) -> str:
    return path[: max(path.rfind("/"), path.rfind("\\")) + 1]


def _cell(place: int, text: str) -> str:
    """Return a cell of a row that may be a name; a number is one in front alone."""
    cells = [cell.strip(' ":') for cell in _CELL_OF_ROW.findall(text[: 2 * _LONGEST_NAME].strip(" [|"))]
    cell = cells[place] if len(cells) > max(1, place) else ""
    return cell if _NAME.fullmatch(cell) and not (place and cell.isdigit()) else ""


_CELLS: list[Callable[[str], str]] = [partial(_cell, place) for place in range(3)]


def _last_path(text: str) -> str:
    """Return the path behind the last tab or blank, if there is one."""
    last = (text.rsplit("\t" if "\t" in text else None, 1) or [""])[-1]
    return last if _PATH.fullmatch(last) else ""
