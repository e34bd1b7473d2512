"""Whether a later statement of a user's takes the place of an earlier one. Pure; when in doubt it does not."""

import re

from policies.resolve_clashes.statements import Statement
from policies.resolve_clashes.terms import telling
from policies.resolve_clashes.values import NUMBERS, Value, unit_terms
from proxy.text.fold import stem

_SAME = 0.6
"""The part of the shorter statement's terms that both have, for what they say to be about the same."""
_ALIKE = 0.5
"""The same where something else, such as a word of change, says that they belong together."""
_RARE = 0.25
"""The same of what was never done, where more than one term is shared."""
_PAIR = 2
_NAMING = 4
"""Words of a statement up to which it says what it is about."""
TYPED = NUMBERS | {"date", "time", "place", "email", "rate"}
"""Kinds of values that are no members of a group."""
_OF_ONESELF = frozenset({"diet"})
"""Groups of which one is a member: `I'm vegan`, `I eat meat`."""
_NUMBERED = re.compile(r"(?:m\d+)?d(\d+)")


def clash(old: Statement, new: Statement) -> str | None:
    """Return why the later of two statements contradicts the earlier one; None where it does not, or not surely."""
    if old.terms == new.terms and _says(old) == _says(new):
        return None
    if old.kind == "question" or new.kind == "question":
        told_so = all(each.past for each in (old, new) if each.kind == "question")
        return "never" if told_so and _never(old, new) else None
    asked = old.kind == "request" or new.kind == "request"
    return next((reason for reason, rule in (_RULES[:4] if asked else _RULES) if rule(old, new)), None)


def _says(one: Statement) -> tuple[object, ...]:
    return one.terms, one.negative, one.values, one.relations, one.likes, one.dislikes


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


# --- values ---


def _value(old: Statement, new: Statement) -> bool:
    """Both give a value of the same thing, and not the same value."""
    if old.slots.isdisjoint(new.slots) or new.another or old.refused != new.refused or _about_others(old, new):
        return False
    if not (new.correcting or new.updated) and at_other_times(old, new):
        return False
    if narrower(old, new) or parallel(old, new):
        return False
    return any(_same_subject(old, new, value) for value in new.values if _overtaken(old, new, value))


def _same_subject(old: Statement, new: Statement, value: Value) -> bool:
    """Whether both are about the same, the unit of the value aside."""
    if value.kind not in TYPED and (old.likes or new.likes):
        return False  # one may like many things
    unit = unit_terms(value) if value.unit else frozenset()
    mine, theirs = old.about - unit, new.about - unit
    shared, changed = mine & theirs, new.correcting or new.updated
    if not mine and not theirs:
        return bool(unit & (old.about or new.about)) or (value.kind in _OF_ONESELF and old.first and new.first)
    if not shared:
        return changed and bool(value.unit) and not (mine and theirs)
    alike = len(shared) / min(len(mine), len(theirs))
    if value.kind not in NUMBERS and len(shared) * 3 < max(len(mine), len(theirs)):
        return False
    if not (changed or old.first or new.first) and alike < 1:
        return False
    if len(shared) == 1 and old.head != new.head and not changed:
        return False  # `I weigh 82 kilos`, `my suitcase weighs 20 kilos`
    return _telling_enough(value, alike, len(shared), changed)


def _overtaken(old: Statement, new: Statement, value: Value) -> bool:
    held = [
        each
        for each in old.values
        if each.kind == value.kind and each.unit == value.unit and not each.part == value.part == "weak"
    ]
    if not any(differ(each, value) and comparable(each, value) for each in held):
        return False
    mine = {each.value for each in new.values if each.slot == value.slot}
    return mine.isdisjoint(each.value for each in held)


def _telling_enough(value: Value, alike: float, shared: int, changed: bool) -> bool:
    if value.kind == "count" and not value.unit:
        return changed and alike >= _SAME and shared >= _PAIR
    if value.kind in NUMBERS:
        return alike >= _SAME or (changed and (alike >= 0.2 or shared >= _PAIR))
    if value.kind == "place":
        return changed and alike >= _ALIKE
    return alike >= (_ALIKE if changed else _SAME)


def differ(old: Value, new: Value) -> bool:
    """Return whether two values of a slot are not the same; two dates may still be, see `comparable`."""
    return (
        old.value != new.value and (old.part == new.part or "weak" in (old.part, new.part)) and not _one_day(old, new)
    )


def comparable(old: Value, new: Value) -> bool:
    """Return whether two dates are said alike: a weekday may be the same day as a number."""
    if old.kind != "date":
        return True
    mine, theirs = _number_of(old.value), _number_of(new.value)
    return bool(mine) == bool(theirs) and (bool(mine) or (old.value[0] == "w") == (new.value[0] == "w"))


def _one_day(old: Value, new: Value) -> bool:
    """Whether one says the day, and the other the same with its month."""
    day = _number_of(old.value)
    return bool(day) and day == _number_of(new.value) and (old.value[0] == "m") != (new.value[0] == "m")


def _number_of(value: str) -> str:
    return found[1] if (found := _NUMBERED.fullmatch(value)) else ""


# --- denials ---


def _never(old: Statement, new: Statement) -> bool:
    """One says that it never was, the other that it is, of who says it."""
    if bool(old.never) == bool(new.never) or not (old.first and new.first):
        return False
    denied, told = (old, new) if old.never else (new, old)
    if _of_others(denied, told):
        return False
    if told.negative or (told is new and not (told.done or told.past)):
        return False
    if told.hedged or (told.learning and not told.done):
        return False
    shared = denied.never & told.terms
    part = len(shared) / len(denied.never)
    if len(shared) >= _PAIR:
        return part >= _RARE
    # a single word is enough where it is a name, or where the same is done with it
    return part == 1 and (denied.verb in told.terms or bool(shared & denied.names))


def _of_others(denied: Statement, told: Statement) -> bool:
    """Whether what was never done was done by others, or with others than those who are named."""
    if told.head in set(map(stem, told.people - denied.people)):
        return True
    if (denied.people and denied.people.isdisjoint(told.people)) or (told.people and not told.done and not told.past):
        return True
    return bool(denied.names) and bool(told.names) and denied.names.isdisjoint(told.terms)


def _negation(old: Statement, new: Statement) -> bool:
    """The same of who says it, denied. What is denied says no more: `not in August` leaves the rest of the year."""
    if old.negative == new.negative or not (old.first or new.first) or told_apart(old, new):
        return False
    denied, told = (old, new) if old.negative else (new, old)
    if denied.once or old.restricted or new.restricted:
        return False
    return _says_no_more(denied.telling, told.telling) and bool(denied.scope & told.terms)


def _attitude(old: Statement, new: Statement) -> bool:
    """The one likes what the other does not."""
    return _says_no_more(old.dislikes, new.likes) or _says_no_more(new.dislikes, old.likes)


def _says_no_more(denied: frozenset[str], told: frozenset[str]) -> bool:
    return denied <= told if len(denied) >= _PAIR else bool(denied) and denied == told


# --- whom and what they are about ---


def _others(old: Statement, new: Statement) -> bool:
    """Whether they are about other people, or about another one of several things."""
    if (old.people or new.people) and old.people.isdisjoint(new.people):
        return True
    return old.former != new.former or (bool(old.ordinals and new.ordinals) and old.ordinals.isdisjoint(new.ordinals))


def told_apart(old: Statement, new: Statement) -> bool:
    """Return whether both name somebody or something, and not the same."""
    if _others(old, new):
        return True
    return bool(old.names) and bool(new.names) and old.names.isdisjoint(new.terms) and new.names.isdisjoint(old.terms)


def _about_others(old: Statement, new: Statement) -> bool:
    """The same, or what both speak of stands in the other one nowhere."""
    if told_apart(old, new):
        return True
    if old.first or new.first:
        return False
    heads = {old.head, new.head} - {""}
    return len(heads) == 2 and not heads <= old.terms & new.terms


def narrower(old: Statement, new: Statement) -> bool:
    """Return whether both begin alike, and one then says which: `the union`, `the union of miners`."""
    short, long = sorted((old, new), key=lambda one: len(one.order))
    (head, *rest), which = short.order[:2] or ("",), long.order[1:2]
    if not rest or long.order[0] != head or which[0] in short.terms:
        return False
    return rest[0] in short.telling and rest[0] in long.order[2:_NAMING]


def parallel(old: Statement, new: Statement) -> bool:
    """Return whether both are the same sentence of something else: `on Linux it took 5 s`, `on Windows it took 9 s`."""
    if new.correcting or new.updated:
        return False
    slots = [slot for slot in old.slots & new.slots if _values_of(old, slot).isdisjoint(_values_of(new, slot))]
    if len(slots) >= _PAIR and any(kind not in TYPED for kind, _ in slots):
        return True
    mine, theirs = ([term for term in one.order if term in one.about] for one in (old, new))
    if not 1 < len(mine) == len(theirs):
        return False
    other = [(of_old, of_new) for of_old, of_new in zip(mine, theirs, strict=True) if of_old != of_new]
    return len(other) == 1 and other[0][0] not in theirs and other[0][1] not in mine


def _values_of(one: Statement, slot: tuple[str, str]) -> frozenset[str]:
    return frozenset(value.value for value in one.values if value.slot == slot)


def _days(one: Statement) -> frozenset[str]:
    return frozenset(value.value for value in one.values if value.kind == "date")


def at_other_times(old: Statement, new: Statement) -> bool:
    """Return whether both name years, and not the same, or days of the week on which there were so many."""
    mine, theirs = old.years, new.years
    if any(value.kind in NUMBERS for value in new.values):
        mine, theirs = (one.years | {day for day in _days(one) if day.startswith("w")} for one in (old, new))
    return bool(mine) and bool(theirs) and mine.isdisjoint(theirs)


_RULES = (
    ("relation", _relation),
    ("replaced", _replaced),
    ("value", _value),
    ("never", _never),
    # those of requests end here
    ("attitude", _attitude),
    ("negation", _negation),
)
"""What makes two statements clash, tried in this order."""
