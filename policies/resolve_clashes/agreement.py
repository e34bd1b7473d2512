"""Whether two statements about the world may both hold, though most of their words say otherwise. Pure.

There is much to say of one thing: what it was at one time it is not at another, and what holds of a part holds not of
the whole. People say of themselves mostly what holds now and throughout, so none of this is asked of it.
"""

from policies.resolve_clashes.opposites import opposed
from policies.resolve_clashes.statements import Statement
from policies.resolve_clashes.terms import stem

_NAMING = 4
"""Words of a statement up to which it says what it is about."""


def may_both_hold(old: Statement, new: Statement, reason: str) -> bool:
    """Whether neither is about who says it, and they may be true of different times, parts or things.

    `reason` is why they clash: a negation, opposites, or a value.
    """
    if old.own or new.own:
        return False
    if reason == "opposite":
        return _opposites_of_others(old, new)
    return narrower(old, new) or (reason == "negation" and _denied_elsewhere(old, new))


def narrower(old: Statement, new: Statement) -> bool:
    """Whether both begin alike, and one then says which: `the union`, `the union of miners`."""
    short, long = sorted((old, new), key=lambda one: len(one.order))
    (head, *rest), which = short.order[:2] or ("",), long.order[1:2]
    if not rest or long.order[0] != head or which[0] in short.terms or which[0] in long.denying:
        return False
    return rest[0] in short.telling and rest[0] in long.order[2:_NAMING]


def _denied_elsewhere(old: Statement, new: Statement) -> bool:
    """Whether one denies for a time of which the other does not speak, or mostly what the other does not say."""
    denied, told = (old, new) if old.negative else (new, old)
    return bool(denied.times - told.times) or len(denied.scope & told.terms) * 2 < len(denied.scope)


def _opposites_of_others(old: Statement, new: Statement) -> bool:
    """Whether each says something besides the opposites, or another time, that the other does not."""
    pair = opposed(old.words, new.words)
    if pair is None:
        return False
    mine, theirs = (one.telling - {stem(word)} for one, word in zip((old, new), pair, strict=True))
    return old.times - {pair[0]} != new.times - {pair[1]} or not (mine <= theirs or theirs <= mine)
