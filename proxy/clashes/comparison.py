"""Whether a later statement of a user's takes the place of an earlier one. Pure; when in doubt it does not."""

import re

from proxy.clashes.cues import IMPLIED
from proxy.clashes.opposites import opposed
from proxy.clashes.statements import Statement
from proxy.clashes.terms import stem, telling
from proxy.clashes.traits import TRAITS
from proxy.clashes.values import NUMBERS, Value, comparable, differ, unit_terms

_SAME = 0.6
"""The part of the shorter statement's terms that both have, for what they say to be about the same."""
_ALIKE = 0.5
"""The same where something else, such as a word of change, says that they belong together."""
_SURE = 0.75
"""The same for statements about the world: there is much to say of one thing."""
_MANY = 4
"""Terms that both have, of which half are enough."""
_FAR = 0.4
"""The same where all that is denied by the one stands in the other."""
TYPED = NUMBERS | {"date", "time", "place", "email"}
"""Kinds of values that are no members of a group."""
_EXCLUSIVE = frozenset({"place in a row", "cabin", "theme", "degrees"})
"""Groups of which one asks for a member only to have it, whatever else is said."""
_FEW = 3
LONG = 200
"""Characters of a clause that is more than a request for something."""
_YEAR = re.compile(r"(?:1\d|20)\d\d")
_PAIR = 2
COMMON = frozenset(
    {"people", "day", "week", "month", "year", "hour", "minute", "ms", "gb", "mb", "kb", "kg", "km", "x"}
)
"""Units in which all kinds of things are measured."""


def clash(old: Statement, new: Statement) -> str | None:
    """Why the later of two statements contradicts the earlier one; None where it does not, or not surely."""
    if _says(old) == _says(new):
        return None
    if "question" in (old.kind, new.kind):
        told_so = all(each.past for each in (old, new) if each.kind == "question")
        return "never" if told_so and _never(old, new) else None
    asked = "request" in (old.kind, new.kind)
    for reason, rule in _RULES[:_OF_REQUESTS] if asked else _RULES:
        if rule(old, new):
            return reason
    return None


def _says(one: Statement) -> tuple[object, ...]:
    return (one.terms, one.negative, one.values, one.relations, one.has, one.lacks)


def _relation(old: Statement, new: Statement) -> bool:
    """Both say what something is that is one thing at a time, and not the same."""
    if not new.relations or old.negative or new.negative or new.another:
        return False
    ours = {relation.key: relation.object for relation in old.relations}
    return any(relation.key in ours and relation.object.isdisjoint(ours[relation.key]) for relation in new.relations)


def _replaced(old: Statement, new: Statement) -> bool:
    """What the later one says is not to be any more, the earlier one says."""
    if not new.replaced or old.negative:
        return False
    shared = telling(new.replaced & old.terms)
    return bool(shared) and len(shared) * 2 >= len(new.replaced)


def _value(old: Statement, new: Statement) -> bool:
    """Both give a value of the same thing, and not the same value."""
    if not new.values or not old.values or new.another or old.refused != new.refused or told_apart(old, new):
        return False
    if not (old.first or new.first or new.updated or new.correcting) and (old.nearly or new.nearly):
        return False
    if "request" in (old.kind, new.kind) and max(old.end - old.start, new.end - new.start) > LONG:
        return False  # what is to be worked out with a value is no choice of it
    if not (new.correcting or new.updated) and _at_other_times(old, new):
        return False
    return any(_same_subject(old, new, value) for value in new.values if _overtaken(old, new, value))


def _at_other_times(old: Statement, new: Statement) -> bool:
    """Whether both name years, and not the same, or days on which they did something."""
    mine, theirs = (frozenset(filter(_YEAR.fullmatch, each.terms)) for each in (old, new))
    if old.past_tense and new.past_tense:
        mine, theirs = mine | _days(old), theirs | _days(new)
    return bool(mine) and bool(theirs) and mine.isdisjoint(theirs)


def _same_subject(old: Statement, new: Statement, value: Value) -> bool:
    """Whether both are about the same, the unit of the value aside."""
    if value.kind in _EXCLUSIVE and old.first and new.first and max(len(old.about), len(new.about)) <= _FEW:
        return True
    if value.kind not in TYPED and (old.likes or new.likes):
        return False  # one may like many things
    unit = unit_terms(value) if value.unit else frozenset()
    mine, theirs = old.about - unit, new.about - unit
    changed = new.correcting or new.updated
    if not mine and not theirs:
        return bool(value.unit) and not (old.about or new.about).isdisjoint(unit)
    if value.unit not in COMMON and not mine and not (old.has & new.has).isdisjoint(unit):
        return True  # of what one has there are so many, whatever else is said of them
    if mine.isdisjoint(theirs):
        return changed and bool(value.unit) and value.unit not in COMMON and not mine.difference(unit)
    return _alike(old, new, value, mine, theirs)


def _alike(old: Statement, new: Statement, value: Value, mine: frozenset[str], theirs: frozenset[str]) -> bool:
    """Whether what both are about, which overlaps, is near enough to each other."""
    shared, changed = mine & theirs, new.correcting or new.updated
    alike = len(shared) / min(len(mine), len(theirs))
    if value.kind not in NUMBERS and len(shared) * 3 < max(len(mine), len(theirs)):
        return False
    if not (changed or old.first or new.first) and alike < 1:
        return False
    if old.first != new.first and not new.correcting and alike < _ALIKE:
        return False
    if value.kind == "place" and mine == theirs:
        return changed or (old.first and new.first)
    return _telling_enough(value, alike, len(shared), changed)


def _overtaken(old: Statement, new: Statement, value: Value) -> bool:
    held = [each for each in old.values if each.slot == value.slot]
    mine = {each.value for each in new.values if each.slot == value.slot}
    return any(differ(each, value) and comparable(each, value) for each in held) and mine.isdisjoint(
        each.value for each in held
    )


def _telling_enough(value: Value, alike: float, shared: int, changed: bool) -> bool:
    if value.kind == "percent" and (shared < _PAIR or alike < _ALIKE):
        return False
    if value.kind in NUMBERS:
        if value.kind == "count" and not value.unit:
            return changed and alike >= _SAME and shared >= 2
        return alike >= _SAME or (changed and (alike >= 0.2 or shared >= 2))
    if value.kind == "place":
        return changed and alike >= _ALIKE
    return alike >= (_ALIKE if changed else _SAME)


def _attitude(old: Statement, new: Statement) -> bool:
    """The one likes what the other does not."""
    return _meets(old.likes, new.dislikes) or _meets(old.dislikes, new.likes)


def _possession(old: Statement, new: Statement) -> bool:
    """The one has what the other does not have."""
    met = (old.lacks & new.has) | (old.has & new.lacks)
    return bool(met & TRAITS if old.restricted or new.restricted else met)


def _meets(one: frozenset[str], other: frozenset[str]) -> bool:
    shared = one & other
    return (
        bool(shared) and len(shared) * 2 >= min(len(one), len(other)) and len(shared) * 3 >= max(len(one), len(other))
    )


def _negation(old: Statement, new: Statement) -> bool:
    """The same with `not`, and what is denied stands in both."""
    if old.negative == new.negative or new.following or old.restricted or new.restricted or told_apart(old, new):
        return False
    denied, told = (old, new) if old.negative else (new, old)
    if denied.never and told.learning and not told.done:
        return False
    if _days(denied) - _days(told):
        return False
    if denied.universal and telling(denied.terms) and telling(denied.terms) <= telling(told.terms):
        return True
    if not denied.scope or not (denied.scope & told.terms):
        return False
    mine, theirs = telling(denied.terms), telling(told.terms)
    shared = mine & theirs
    whole = len(denied.scope) >= 2 and denied.scope <= told.terms
    part = len(shared) / max(1, min(len(mine), len(theirs)))
    if len(shared) < 2:
        return bool(shared) and denied.scope <= told.terms and max(len(mine), len(theirs)) <= 2
    if not (old.first or new.first):
        return ((whole or len(shared) >= _MANY) and part >= _ALIKE) or mine == theirs
    return part >= (_FAR if whole else _SAME)


def _days(one: Statement) -> frozenset[str]:
    return frozenset(value.value for value in one.values if value.kind == "date")


def _opposite(old: Statement, new: Statement) -> bool:
    """The same with an opposite word."""
    if told_apart(old, new) or not old.words or not new.words:
        return False
    pair = opposed(old.words, new.words)
    # of `rejected`, being an opposite is what makes it a denial
    if pair is None or (old.negative != new.negative) != any(map(IMPLIED.search, pair)):
        return False
    mine, theirs = telling(old.terms - {stem(pair[0])}), telling(new.terms - {stem(pair[1])})
    shared = mine & theirs
    if mine == theirs:
        return bool(mine)
    return len(shared) >= 2 and len(shared) / min(len(mine), len(theirs)) >= _SAME


def _prefixed(old: Statement, new: Statement) -> bool:
    """The same, with a denying prefix in one: `necessary`, `unnecessary`."""
    if old.negative != new.negative or told_apart(old, new):
        return False
    return any(
        one.terms - {denied} == other.terms - {bare} and denied not in other.terms and bare in other.terms
        for one, other in ((old, new), (new, old))
        for denied, bare in one.prefixed
    )


def _never(old: Statement, new: Statement) -> bool:
    """One says that it never was, the other that it is, of who says it."""
    if bool(old.never) == bool(new.never) or not (old.first and new.first):
        return False
    denied, told = (old, new) if old.never else (new, old)
    if _of_others(denied, told):
        return False
    if told.negative or (told is new and not told.done) or (told.learning and not told.done):
        return False
    shared = denied.never & told.terms
    part = len(shared) / len(denied.never)
    return part >= _ALIKE or (len(shared) >= 2 and part >= 1 / 3)


def _of_others(denied: Statement, told: Statement) -> bool:
    """Whether what was never done was done by others, or with others than those who are named."""
    if (denied.people and denied.people.isdisjoint(told.people)) or (told.people and not told.done and not told.past):
        return True
    return bool(denied.names) and bool(told.names) and denied.names.isdisjoint(told.terms)


def told_apart(old: Statement, new: Statement) -> bool:
    """Whether both name somebody or something, and not the same."""
    if new.correcting:
        return False
    if (old.people or new.people) and old.people.isdisjoint(new.people):
        return True
    return bool(old.names) and bool(new.names) and old.names.isdisjoint(new.terms) and new.names.isdisjoint(old.terms)


_RULES = (
    ("relation", _relation),
    ("replaced", _replaced),
    ("value", _value),
    ("never", _never),
    ("attitude", _attitude),
    ("possession", _possession),
    ("negation", _negation),
    ("opposite", _opposite),
    ("opposite", _prefixed),
)
_OF_REQUESTS = 4
"""So many of them hold for what is asked for, too."""
