"""Whether a later statement of a user's takes the place of an earlier one. Pure; when in doubt it does not."""

from policies.resolve_clashes.agreement import may_both_hold
from policies.resolve_clashes.alignment import other_end, parallel, swapped, turned
from policies.resolve_clashes.cues import IMPLIED
from policies.resolve_clashes.denials import negation, never, not_every
from policies.resolve_clashes.differing import comparable, differ
from policies.resolve_clashes.opposites import opposed
from policies.resolve_clashes.statements import Statement
from policies.resolve_clashes.subjects import about_others, at_other_times, others, told_apart
from policies.resolve_clashes.terms import stem, telling
from policies.resolve_clashes.traits import TRAITS
from policies.resolve_clashes.values import NUMBERS, Value, unit_terms

_SAME = 0.6
"""The part of the shorter statement's terms that both have, for what they say to be about the same."""
_ALIKE = 0.5
"""The same where something else, such as a word of change, says that they belong together."""
_SURE = 0.75
"""The same for statements about the world: there is much to say of one thing."""
_MANY = 4
"""Terms that both have, of which half are enough."""
TYPED = NUMBERS | {"date", "time", "place", "email", "rate", "century"}
"""Kinds of values that are no members of a group."""
_EXCLUSIVE = frozenset({"place in a row", "cabin", "theme", "degrees"})
"""Groups of which one asks for a member only to have it, whatever else is said."""
_OF_THE_WORLD = frozenset({"negation", "opposite", "value"})
"""Reasons that are not enough for statements about the world: see `agreement`."""
_FEW = 3
LONG = 200
"""Characters of a clause that is more than a request for something."""
_PAIR = 2
COMMON = frozenset(
    {"people", "day", "week", "month", "year", "hour", "minute", "ms", "gb", "mb", "kb", "kg", "km", "x"}
)
"""Units in which all kinds of things are measured."""


def clash(old: Statement, new: Statement) -> str | None:
    """Why the later of two statements contradicts the earlier one; None where it does not, or not surely."""
    if old.terms == new.terms and _says(old) == _says(new):
        return "swapped" if _swapped(old, new) else None
    if old.kind == "question" or new.kind == "question":
        told_so = all(each.past for each in (old, new) if each.kind == "question")
        return "never" if told_so and never(old, new) else None
    asked = old.kind == "request" or new.kind == "request"
    for reason, rule in _TRIED[asked, old.denies or new.denies]:
        if rule(old, new):
            return None if reason in _OF_THE_WORLD and may_both_hold(old, new, reason) else reason
    return None


def _says(one: Statement) -> tuple[object, ...]:
    return (one.terms, one.negative, one.values, one.relations, one.has, one.lacks, one.words, one.not_every)


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
    if old.slots.isdisjoint(new.slots) or new.another or old.refused != new.refused or about_others(old, new):
        return False
    if not (old.first or new.first or new.updated or new.correcting) and (old.nearly or new.nearly):
        return False
    if "request" in (old.kind, new.kind) and max(old.end - old.start, new.end - new.start) > LONG:
        return False  # what is to be worked out with a value is no choice of it
    if not (new.correcting or new.updated) and at_other_times(old, new):
        return False
    return any(_same_subject(old, new, value) for value in new.values if _overtaken(old, new, value))


def _same_subject(old: Statement, new: Statement, value: Value) -> bool:
    """Whether both are about the same, the unit of the value aside."""
    if value.kind in _EXCLUSIVE and old.first and new.first and max(len(old.about), len(new.about)) <= _FEW:
        return True
    if value.kind not in TYPED and (old.likes or new.likes):
        return False  # one may like many things
    if _otherwise_apart(old, new, value):
        return False
    unit = unit_terms(value) if value.unit else frozenset()
    mine, theirs = old.about - unit, new.about - unit
    changed = new.correcting or new.updated
    if not mine and not theirs:
        return bool(value.unit) and not (old.about or new.about).isdisjoint(unit)
    if value.unit not in COMMON and not mine and not (old.has & new.has).isdisjoint(unit):
        return True  # of what one has there are so many, whatever else is said of them
    if mine.isdisjoint(theirs):
        return changed and bool(value.unit) and value.unit not in COMMON and not (mine and theirs)
    return _alike(old, new, value, mine, theirs)


def _otherwise_apart(old: Statement, new: Statement, value: Value) -> bool:
    """Whether one says so many of this, and the other so many of that: with a choice, the numbers differ too."""
    if new.correcting or new.updated or not (value.kind in NUMBERS or value.kind not in TYPED):
        return False
    mine, theirs = (
        {each.slot: each.value for each in one.values if (each.kind in NUMBERS) != (value.kind in NUMBERS)}
        for one in (old, new)
    )
    return any(
        theirs.get(slot, said) != said for slot, said in mine.items() if slot[0] not in ("date", "time", "place")
    )


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
    return _telling_enough(value, alike, len(shared), changed, old.first and new.first)


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


def _telling_enough(value: Value, alike: float, shared: int, changed: bool, said: bool) -> bool:
    if value.kind == "percent" and (shared < _PAIR or alike < _ALIKE):
        return False
    if value.kind in NUMBERS:
        if value.kind == "count" and not value.unit:
            return changed and alike >= _SAME and shared >= 2
        return (
            alike >= _SAME or (changed and (alike >= 0.2 or shared >= 2)) or (said and shared > _PAIR and alike >= 0.4)
        )
    if value.kind == "place":
        return changed and alike >= _ALIKE
    return alike >= (_ALIKE if changed else _SAME)


def _attitude(old: Statement, new: Statement) -> bool:
    """The one likes what the other does not."""
    if not (old.dislikes or new.dislikes):
        return False
    return _meets(old.likes, new.dislikes) or _meets(old.dislikes, new.likes)


def _possession(old: Statement, new: Statement) -> bool:
    """The one has what the other does not have."""
    if not (old.lacks or new.lacks):
        return False
    met = (old.lacks & new.has) | (old.has & new.lacks)
    if old.restricted or new.restricted:
        return any(each in TRAITS or " over " in each for each in met)
    return bool(met)


def _meets(one: frozenset[str], other: frozenset[str]) -> bool:
    if one.isdisjoint(other):
        return False
    shared = one & other
    return len(shared) * 3 >= max(len(one), len(other), 1) and (len(shared) >= _PAIR or shared in (one, other))


def _opposite(old: Statement, new: Statement) -> bool:
    """The same with an opposite word."""
    if old.counterparts.isdisjoint(new.poles) or told_apart(old, new):
        return False
    pair = opposed(old.words, new.words)
    # of `rejected`, being an opposite is what makes it a denial
    if pair is None or (old.negative != new.negative) != any(map(IMPLIED.search, pair)):
        return False
    besides = frozenset(map(stem, pair))
    if about_others(old, new) and not {old.head, new.head} <= besides:
        return False
    # `A lies before B` and `B lies after A` are the same
    if parallel(old.order, new.order, besides) or turned(old.order, new.order):
        return False
    mine, theirs = old.telling - {stem(pair[0])}, new.telling - {stem(pair[1])}
    shared = mine & theirs
    if mine == theirs:
        return bool(mine)
    if old.head == new.head and stem(pair[0]) in old.described and stem(pair[1]) in new.described:
        return True
    return len(shared) >= 2 and len(shared) / min(len(mine), len(theirs)) >= (
        _SAME if old.first or new.first else _SURE
    )


def _prefixed(old: Statement, new: Statement) -> bool:
    """The same, with a denying prefix in one: `necessary`, `unnecessary`."""
    if not (old.prefixed or new.prefixed) or old.negative != new.negative or about_others(old, new):
        return False
    return any(
        one.terms - {denied} == other.terms - {bare} and denied not in other.terms and bare in other.terms
        for one, other in ((old, new), (new, old))
        for denied, bare in one.prefixed
    )


def _swapped(old: Statement, new: Statement) -> bool:
    """The same, with those of whom it is said the other way round."""
    if old.terms != new.terms or old.negative != new.negative or old.passive != new.passive:
        return False
    return swapped(old.order, new.order)


def _another_one(old: Statement, new: Statement) -> bool:
    """Of what there is one only, something else is said to be it."""
    if not (old.unique and new.unique) or old.first or new.first or old.negative or new.negative:
        return False
    return not others(old, new) and other_end(old.order, new.order)


def _another_year(old: Statement, new: Statement) -> bool:
    """What happens once is said to have been in another year, all else being the same."""
    if not (old.happens_once and new.happens_once) or old.negative != new.negative or told_apart(old, new):
        return False
    mine, theirs = old.years, new.years
    rest = old.terms - mine
    return len(mine) == len(theirs) == 1 and mine != theirs and len(rest) > 1 and rest == new.terms - theirs


_RULES = (
    ("relation", _relation),
    ("replaced", _replaced),
    ("value", _value),
    ("never", never),
    ("attitude", _attitude),
    ("possession", _possession),
    ("negation", negation),
    ("opposite", _opposite),
    ("opposite", _prefixed),
    ("swapped", _swapped),
    ("one only", _another_one),
    ("one only", _another_year),
    ("not all", not_every),
)
_RULES_OF_REQUESTS = _RULES[:4]
"""Those that hold for what is asked for, too."""
_OF_DENIALS = frozenset({never, _attitude, _possession, negation, _prefixed, not_every})
"""Those of which one of the two denies something."""
_TRIED = {
    (asked, denies): tuple(each for each in rules if denies or each[1] not in _OF_DENIALS)
    for asked, rules in ((False, _RULES), (True, _RULES_OF_REQUESTS))
    for denies in (False, True)
}
"""Those that are tried, by whether something is asked for, and whether something is denied."""
