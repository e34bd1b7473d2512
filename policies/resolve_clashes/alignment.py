"""How the words of two statements stand to each other, place by place. Pure."""

from collections.abc import Collection, Sequence

from policies.resolve_clashes.terms import stem

_MUTUAL_WORDS = """
met meet meets married marry marries equal equals resembles resemble borders border differ differs similar compete
competes together partner partners friend friends caso casaron limita limitan equivale parece parecen junto juntos
coincide coinciden distinto diferente igual conocio conocieron
"""
_MUTUAL = frozenset(map(stem, _MUTUAL_WORDS.split()))
"""What holds the other way round, too."""
_LEAD = 2
"""Words that both begin with, for their ends to be about the same."""
_BLOCK = 3
"""Words that change places at once, at most."""

_ROOT = 4
"""Letters by which two forms of a word are known."""


def swapped(old: Sequence[str], new: Sequence[str]) -> bool:
    """Whether two parts have changed places around what is said of them: `A beat B`, `B beat A`."""
    if len(old) != len(new) or len(old) < _BLOCK or old == new:
        return False
    start, end = _common(old, new), len(old) - _common(old[::-1], new[::-1])
    mine, theirs = old[start:end], new[start:end]
    for a in range(1, min(_BLOCK, len(mine)) + 1):
        for b in range(1, min(_BLOCK, len(mine) - a - 1) + 1):
            middle = mine[a : len(mine) - b]
            if theirs == (*mine[len(mine) - b :], *middle, *mine[:a]):
                return _MUTUAL.isdisjoint(middle)
    return False


def other_end(old: Sequence[str], new: Sequence[str]) -> bool:
    """Whether both say the same up to their last words, of which there are as many, and none is the same."""
    if len(old) != len(new):
        return False
    start = _common(old, new)
    left = len(old) - start
    return start >= max(_LEAD, left + 1) and 0 < left < _BLOCK and set(old[start:]).isdisjoint(new[start:])


def turned(old: Sequence[str], new: Sequence[str]) -> bool:
    """Whether the words that both have stand in the one as they stand in the other from the end."""
    shared = [word for word in old if word in new]
    return len(shared) > 1 and shared[::-1] == [word for word in new if word in old]


def parallel(old: Sequence[str], new: Sequence[str], besides: Collection[str] = ()) -> bool:
    """Whether both say the same in the same places, each of something else; what is `besides` may differ."""
    mine, theirs = ([word for word in each if word not in besides] for each in (old, new))
    if len(mine) != len(theirs):
        return False
    others = [(one, other) for one, other in zip(mine, theirs, strict=True) if one[:_ROOT] != other[:_ROOT]]
    return 0 < len(others) * 2 <= len(mine) and all(one not in theirs and other not in mine for one, other in others)


def _common(one: Sequence[str], other: Sequence[str]) -> int:
    return next((at for at, (a, b) in enumerate(zip(one, other, strict=True)) if a != b), len(one))
