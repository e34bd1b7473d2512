"""What one statement denies and another one says. Pure."""

from policies.resolve_clashes.alignment import parallel
from policies.resolve_clashes.statements import Statement
from policies.resolve_clashes.subjects import about_others, days, told_apart
from policies.resolve_clashes.terms import stem

_SAME = 0.6
"""The part of the shorter statement's terms that both have, for what they say to be about the same."""
_ALIKE = 0.5
"""The same of what was never done, or of the world where all that is denied stands in the other."""
_FAR = 0.4
"""The same of oneself, where all that is denied stands in the other."""
_RARE = 0.25
"""The same where more than one word is shared besides."""
_MANY = 4
"""Terms that both have, of which half are enough."""
_PAIR = 2


def negation(old: Statement, new: Statement) -> bool:
    """The same with `not`, and what is denied stands in both."""
    if old.negative == new.negative or new.following or told_apart(old, new):
        return False
    denied, told = (old, new) if old.negative else (new, old)
    if (denied.never and told.learning and not told.done) or denied.once or days(denied) - days(told):
        return False
    mine, theirs = denied.telling - denied.denying, told.telling
    restricted = old.restricted or new.restricted
    if denied.universal and denied.telling and denied.telling <= theirs and not restricted:
        return True
    if parallel(old.order, new.order, denied.denying):
        return False
    if restricted or about_others(old, new) or not denied.scope & told.terms:
        return False
    shared = mine & theirs
    if len(shared) < _PAIR:
        return bool(shared) and denied.scope <= told.terms and max(len(mine), len(theirs)) <= _PAIR
    whole, part = len(denied.scope) >= _PAIR and denied.scope <= told.terms, len(shared) / min(len(mine), len(theirs))
    if old.first or new.first:
        return part >= (_FAR if whole else _SAME)
    whole = whole and (denied.head in told.terms or len(shared) > _PAIR)
    return mine <= theirs or (part >= _ALIKE and (whole or len(shared) >= _MANY))


def never(old: Statement, new: Statement) -> bool:
    """One says that it never was, the other that it is, of who says it."""
    if bool(old.never) == bool(new.never) or not (old.first and new.first):
        return False
    denied, told = (old, new) if old.never else (new, old)
    if _of_others(denied, told):
        return False
    if told.negative or (told is new and not (told.done or told.past or told.ongoing)):
        return False
    if told.hedged or (told.learning and not told.done):
        return False
    shared = denied.never & told.terms
    part = len(shared) / len(denied.never)
    if part >= _ALIKE or (len(shared) >= _PAIR and part >= _RARE):
        return True
    around = denied.never & (told.terms | told.around)
    return bool(shared) and len(around) >= _PAIR and len(around) / len(denied.never) >= _ALIKE


def _of_others(denied: Statement, told: Statement) -> bool:
    """Whether what was never done was done by others, or with others than those who are named."""
    if told.head in set(map(stem, told.people - denied.people)):
        return True
    if (denied.people and denied.people.isdisjoint(told.people)) or (told.people and not told.done and not told.past):
        return True
    return bool(denied.names) and bool(told.names) and denied.names.isdisjoint(told.terms)


def not_every(old: Statement, new: Statement) -> bool:
    """The one says it of all, the other not of all."""
    if old.not_every == new.not_every or told_apart(old, new) or parallel(old.order, new.order):
        return False
    part, all_of = (old, new) if old.not_every else (new, old)
    return all_of.every and not all_of.negative and len(part.telling) >= _PAIR and part.telling <= all_of.telling
