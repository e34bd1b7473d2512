"""Find the statements of a conversation that a later one contradicts. Pure; a doubtful pair is none.

Four rules: `value`, another value of the same subject; `slot`, a value of a task that is given anew within a few
messages; `never`, an act that is stated and denied; `negation`, a statement and its denial.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from hashlib import blake2b
from itertools import islice
from operator import itemgetter
from typing import NamedTuple

from policies.resolve_clashes.statements import LIGHT, Statement, statements, telling
from policies.resolve_clashes.values import AMOUNTS, BOOKED, TYPED, Value, unit_terms
from proxy.chat import Message, digest
from proxy.context import Once

_WINDOW = 2000
"""Earlier statements that are looked through."""
_LATEST = 40
"""Statements with a common term that a new one is compared with."""
_STATEMENT = 30
"""Characters of reading that take as long as to look up what may contradict a statement."""


class Clash(NamedTuple):
    """A statement that a later one contradicts."""

    older: int
    """The place of its message among the given ones."""
    was: Statement
    newer: int
    now: Statement
    reason: str
    solvable: bool
    """Known which of the two holds: not where both stand in one message, or both are uncertain."""


Turn = Sequence[Statement]
"""The statements of a user's message."""

_Placed = tuple[int, Statement]
"""A turn by its place, and a statement of it."""


async def find_clashes(messages: Sequence[Message], once: Once) -> tuple[Clash, ...]:
    """Return the clashes of a conversation, in the order of the newer statements, with indexes of `messages`.

    Only new messages are read, and only new turns are compared with those before; long work runs in a thread.
    """
    talk = [(place, one) for place, one in enumerate(messages) if one.get("role") == "user" and one.text]
    read = await once.of_each(_read, [message for _, message in talk])
    turns, keys = [statements_of for statements_of, _ in read], list[tuple[str, bytes]]()
    running = blake2b(digest_size=16)
    for _, each in read:
        running.update(each)
        keys.append(("clashes of", running.digest()))
    known: list[tuple[Clash, ...] | None] = once.known(keys)
    missing = [at for at, result in enumerate(known) if result is None]
    if missing:
        work = partial(compare, turns, tuple(known))
        known = [
            *await once.of_key(("clashes", keys[missing[-1]], len(missing)), _STATEMENT * sum(map(len, turns)), work)
        ]
        for at in missing:
            once.remember(keys[at], known[at])
    places = [place for place, _ in talk]
    every = (clash for of_turn in known if of_turn for clash in of_turn)
    return tuple([each._replace(older=places[each.older], newer=places[each.newer]) for each in every])


def _read(message: Message) -> tuple[tuple[Statement, ...], bytes]:
    return statements(message.text), digest(message)


def compare(turns: Sequence[Turn], known: Sequence[tuple[Clash, ...] | None]) -> list[tuple[Clash, ...]]:
    """Return the clashes that each turn makes, from `known` where it has them. A statement is superseded once."""
    every, gone = list[tuple[Clash, ...]](), set[tuple[int, int]]()
    before: deque[_Placed] = deque(maxlen=_WINDOW)
    for at, (turn, clashes) in enumerate(zip(turns, known, strict=True)):
        if clashes is None:
            clashes = tuple(each for each in _of_turn(turns, at, before) if (each.older, each.was.start) not in gone)
        every.append(clashes)
        before.extend((at, statement) for statement in turn)
        gone.update((each.older, each.was.start) for each in clashes if each.solvable)
    return every


def _of_turn(turns: Sequence[Turn], last: int, before: Iterable[_Placed]) -> list[Clash]:
    clashes, earlier = dict[tuple[int, int], Clash](), [*before]
    for new in turns[last]:
        near = (placed for placed in reversed(earlier) if not placed[1].keys.isdisjoint(new.keys))
        for place, old in islice(near, _LATEST):
            reason = clash(old, new)
            if reason is not None:
                clashes[place, old.start] = _clash(place, old, last, new, reason)
        earlier.append((last, new))
    for place, old, new in _slots(turns, last):
        clashes.setdefault((place, old.start), _clash(place, old, last, new, "slot"))
    return [each for _, each in sorted(clashes.items(), key=itemgetter(0))]


def _clash(older: int, old: Statement, newer: int, new: Statement, reason: str) -> Clash:
    return Clash(older, old, newer, new, reason, older != newer and "hedged" not in old.signs & new.signs)


def clash(old: Statement, new: Statement) -> str | None:
    """Return the rule by which the later of two statements contradicts the earlier one; None for none."""
    if (old.terms, old.negative, old.values) == (new.terms, new.negative, new.values):
        return None
    if "question" not in (old.kind, new.kind) and _value(old, new):
        return "value"
    if _never(old, new):
        return "never"
    return "negation" if old.kind == new.kind == "statement" and _negation(old, new) else None


# --- another value ---

_SAME = 0.6
"""The share of the shorter subject that both have, for them to be the same."""
_ALIKE = 0.5
"""The same where a word says that something changed."""
_PAIR = 2


def _value(old: Statement, new: Statement) -> bool:
    """Return whether both give a value of the same subject, and not the same value."""
    if "another" in new.signs or old.negative != new.negative or old.slots.isdisjoint(new.slots):
        return False
    if _about_others(old, new) or _is_narrower(old, new) or _is_parallel(old, new):
        return False
    return any(_same_subject(old, new, value) for value in new.values if _takes_place(old, value))


def _is_changed(new: Statement) -> bool:
    return not new.signs.isdisjoint(("correcting", "updated"))


def _takes_place(old: Statement, value: Value) -> bool:
    older = [each for each in old.values if each.slot == value.slot and not each.part == value.part == "weak"]
    return any(differ(each, value) and are_comparable(each, value) for each in older)


def _same_subject(old: Statement, new: Statement, value: Value) -> bool:
    """Return whether both are about the same, the unit of the value aside."""
    if value.kind not in TYPED and "likes" in old.signs | new.signs:
        return False  # one may like many things
    unit = unit_terms(value) if value.unit else frozenset()
    mine, theirs = old.about - unit, new.about - unit
    shared, is_changed = mine & theirs, _is_changed(new)
    if not mine and not theirs:
        is_own = value.kind not in TYPED and "first" in old.signs & new.signs  # `I'm vegan`, `I eat meat`
        return is_own or not unit.isdisjoint(old.about | new.about)
    if not shared or (value.kind == "place" and not is_changed):
        return False
    if len(shared) == 1 and old.head != new.head and not is_changed:
        return False  # `I weigh 82 kilos`, `my suitcase weighs 20 kilos`
    if value.kind == "count" and not value.unit and not (is_changed and len(shared) >= _PAIR):
        return False
    return len(shared) / min(len(mine), len(theirs)) >= (_ALIKE if is_changed else _SAME)


def differ(old: Value, new: Value) -> bool:
    """Return whether two values of a slot are not the same; two dates may still be, see `are_comparable`."""
    same_part = old.part == new.part or "weak" in (old.part, new.part)
    return same_part and old.value != new.value and not _is_one_day(old.value, new.value)


def are_comparable(old: Value, new: Value) -> bool:
    """Return whether two dates are of one form: a weekday may be the same day as a number."""
    return old.kind != "date" or _form(old.value) == _form(new.value)


def _form(date: str) -> str:
    return "d" if date[-1].isdigit() and date[0] in "md" else "w" if date[0] == "w" else "word"


def _is_one_day(old: str, new: str) -> bool:
    """Return whether one is the day, and the other the same with its month."""
    bare, full = sorted((old, new), key=len)
    return bare[:1] == "d" and full[:1] == "m" and full.endswith(bare)


# --- denials ---


def _never(old: Statement, new: Statement) -> bool:
    """Return whether the author denies an act in one of the statements and tells of it in the other."""
    if bool(old.never) == bool(new.never) or "first" not in old.signs & new.signs:
        return False
    denied, stated = (old, new) if old.never else (new, old)
    if stated.negative or "hedged" in stated.signs or (stated is new and "done" not in stated.signs):
        return False
    shared = denied.never & stated.terms
    return len(shared) >= _PAIR or (shared == denied.never and denied.verb in stated.terms)


def _negation(old: Statement, new: Statement) -> bool:
    """Return whether the author says a thing in one of the statements and denies it in the other, in the same words."""
    if old.negative == new.negative or "first" not in old.signs & new.signs:
        return False
    return bool(telling(old.terms)) and old.terms == new.terms


# --- other subjects ---

_NAMING = 4
"""Words of a statement up to which it says its subject."""


def _about_others(old: Statement, new: Statement) -> bool:
    """Return whether they are stated apart, or neither is the author's and each has a subject that the other lacks."""
    if old.others != new.others:
        return True
    heads = {old.head, new.head} - {""}
    return "first" not in old.signs | new.signs and len(heads) == _PAIR and not heads <= old.terms & new.terms


def _is_narrower(old: Statement, new: Statement) -> bool:
    """Return whether both begin alike, and one then says which: `the union`, `the union of miners`."""
    short, long = sorted((old, new), key=lambda one: len(one.order))
    if len(short.order) < _PAIR or short.order[0] != long.order[0]:
        return False
    return long.order[1] not in short.terms and short.order[1] in short.about & {*long.order[2:_NAMING]}


def _is_parallel(old: Statement, new: Statement) -> bool:
    """Return whether both are one sentence of two subjects: `on Linux it took 5 s`, `on Windows it took 9 s`."""
    if _is_changed(new):
        return False
    slots = [slot for slot in old.slots & new.slots if _values_of(old, slot).isdisjoint(_values_of(new, slot))]
    if len(slots) >= _PAIR and not {kind for kind, _ in slots} <= {"date", "time"}:
        return True
    if not 1 < len(old.frame) == len(new.frame):
        return False
    others = [{one, other} for one, other in zip(old.frame, new.frame, strict=True) if one != other]
    return len(others) == 1 and not others[0] <= LIGHT


def _values_of(one: Statement, slot: tuple[str, str]) -> frozenset[str]:
    return frozenset(value.value for value in one.values if value.slot == slot)


# --- a value of a task ---

_NEAR = 4
"""User messages within which a value is given anew without a word of its subject."""


def _slots(turns: Sequence[Turn], last: int) -> Iterator[tuple[int, Statement, Statement]]:
    """Yield the statements that give a value of a task, by their turns, and those of a turn that give another."""
    every = turns[last]
    opening = every[0].signs if every else frozenset[str]()
    for new in every:
        if "another" in new.signs or not _may_give(new):
            continue
        signs = new.signs | (opening & {"correcting", "following"})
        for value in new.values:
            is_counted = value.kind == "count" and value.unit not in BOOKED
            latest = None if is_counted else _latest_value(turns, last, value)
            if latest is not None and _is_given_anew(*latest[1:], new, value, signs):
                yield latest[0], latest[1], new


def _may_give(statement: Statement) -> bool:
    return statement.kind != "question" and not statement.negative


def _latest_value(turns: Sequence[Turn], last: int, value: Value) -> tuple[int, Statement, Value] | None:
    """Return the place of the turn, the statement and the user's last value of the same slot.

    Of a day of the month it is one of the month, where there is any.
    """
    latest = None
    for at in range(last - 1, max(-1, last - 1 - _NEAR), -1):
        for old in filter(_may_give, reversed(turns[at])):
            for older in reversed(old.values):
                if older.value != "today" and _same_slot(older, value):
                    if are_comparable(older, value):
                        return at, old, older
                    latest = latest or (at, old, older)
    return latest


def _same_slot(older: Value, value: Value) -> bool:
    same_part = older.part == value.part or "weak" in (older.part, value.part)
    same_unit = older.unit == value.unit or {older.unit, value.unit} <= {"people", "ticket", ""}
    return older.kind == value.kind and same_part and same_unit


def _is_given_anew(old: Statement, older: Value, new: Statement, value: Value, signs: frozenset[str]) -> bool:
    """Return whether a value is meant in the place of the older one."""
    if old.terms == new.terms or not differ(older, value):
        return False
    if "correcting" in signs:
        return True
    if not are_comparable(older, value):
        return False
    if "following" in signs:
        return not old.about.isdisjoint(new.about) or value.kind not in AMOUNTS
    is_apart = old.others != new.others or _differ_in_subject(old, new, value) or _is_parallel(old, new)
    is_apart = is_apart or (old.kind == new.kind == "statement" and _is_narrower(old, new))
    if is_apart or "likes" in old.signs | new.signs:
        return False
    is_bare = not new.about or (not old.about and "wanting" in new.signs)
    return value.kind not in TYPED or is_bare or (bool(value.unit) and value.unit == older.unit)


def _differ_in_subject(old: Statement, new: Statement, value: Value) -> bool:
    """Return whether both name a subject, and not the same."""
    if value.part == "weak" and "wanting" in new.signs:
        return False
    unit = unit_terms(value) if value.unit else frozenset()
    mine, theirs = old.about - unit, new.about - unit
    return bool(mine and theirs) and len(mine & theirs) * 2 < min(len(mine), len(theirs)) + bool(mine - theirs)
