"""Whether two statements are about the same person, thing and time. Pure."""

from policies.resolve_clashes.statements import Statement

_MANY = 4
"""Terms that both have, for what they begin with to make no difference."""


def others(old: Statement, new: Statement) -> bool:
    """Whether they are about other people, or about another one of several things."""
    if (old.people or new.people) and old.people.isdisjoint(new.people):
        return True
    return old.former != new.former or (bool(old.ordinals and new.ordinals) and old.ordinals.isdisjoint(new.ordinals))


def told_apart(old: Statement, new: Statement) -> bool:
    """Whether both name somebody or something, and not the same."""
    if new.correcting:
        return False
    if others(old, new):
        return True
    return bool(old.names) and bool(new.names) and old.names.isdisjoint(new.terms) and new.names.isdisjoint(old.terms)


def about_others(old: Statement, new: Statement) -> bool:
    """The same, or what both speak of stands in the other one nowhere."""
    if told_apart(old, new):
        return True
    if old.first or new.first or len(old.telling & new.telling) >= _MANY:
        return False
    return bool(old.head and new.head) and old.head not in new.terms and new.head not in old.terms


def days(one: Statement) -> frozenset[str]:
    """The days that a statement names."""
    return frozenset(value.value for value in one.values if value.kind == "date")


def at_other_times(old: Statement, new: Statement) -> bool:
    """Whether both name years, and not the same, or days on which they did something."""
    mine, theirs = old.years, new.years
    if old.past_tense and new.past_tense:
        mine, theirs = mine | days(old), theirs | days(new)
    return bool(mine) and bool(theirs) and mine.isdisjoint(theirs)
