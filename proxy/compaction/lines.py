"""Texts that are made of lines: which of them stay, with a note where others stood."""

import re
from collections.abc import Sequence

from proxy.compaction.identifiers import gathered
from proxy.compaction.limits import Limits, gap
from proxy.compaction.prose import cut

WIDEST = 1000
"""Characters of a line; a longer one becomes several, so that any place of minified JSON has a line number."""

_NOTE = 20
_SAMPLE = 200
_WIDTH = 300


def sieved(lines: Sequence[str], kept: Sequence[bool], limits: Limits, *, named: bool = True) -> str:
    """The lines that are kept, long ones cut.

    What is dropped leaves a note with its count, and where `named` its identifiers.
    """
    shown: list[str] = []
    dropped: list[str] = []
    run: list[str] = []
    for line, stays in zip([*lines, ""], [*kept, True], strict=True):
        if not stays:
            run.append(line)
            continue
        if sum(map(len, run)) <= _NOTE:
            shown += run
        else:
            shown.append(gap(len(run), "lines"))
            dropped += run
        run = []
        shown.append(
            line if len(line) <= 2 * limits.text else cut(line, limits.text, None if limits.identifiers else 0)
        )
    text = "\n".join(shown[:-1])
    if not named:
        return text
    known = gathered("\n".join(dropped), limits.identifiers // 2, known=text)
    return f"{text}\n{known}" if known else text


def ends(count: int, most: int) -> list[bool]:
    """The first and last of so many lines, three quarters of the room for the first."""
    if count <= most:
        return [True] * count
    return [place < most * 3 // 4 or place >= count - most // 4 for place in range(count)]


def share(lines: Sequence[str], pattern: re.Pattern[str]) -> float:
    """The part of the first lines that have something in them which a pattern matches."""
    some = [line for line in lines[:_SAMPLE] if line.strip()]
    return sum(pattern.match(line[:_WIDTH]) is not None for line in some) / len(some) if some else 0.0
