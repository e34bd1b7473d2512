"""Find the statements of a conversation that a later one contradicts. Pure; a doubtful pair is none.

Three rules: `value`, another value of the same subject, or of a task within a few messages; `never`, an act that is
stated and denied; `negation`, a statement and its denial.
"""

from bisect import bisect_left
from collections.abc import Sequence
from functools import partial
from hashlib import blake2b
from itertools import chain, islice
from operator import itemgetter
from typing import NamedTuple

from policies.resolve_clashes.statements import CORRECTING, LIGHT, TYPED, Statement, statements
from proxy.chat import Message, digest
from proxy.context import Once
from proxy.text.values import UNITS, Value

_WINDOW = 2000
"""Earlier statements that are looked through."""
_LATEST = 40
"""Statements with a common term that a new one is compared with."""
VALUE = "another value"
_NEAR = 4
"""User messages within which a value is given anew without a word of its subject."""
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
    before = list[_Placed]()
    for at, (turn, clashes) in enumerate(zip(turns, known, strict=True)):
        if clashes is None:
            clashes = tuple(
                each for each in _of_turn(turns, at, before[-_WINDOW:]) if (each.older, each.was.start) not in gone
            )
        every.append(clashes)
        before.extend((at, statement) for statement in turn)
        gone.update((each.older, each.was.start) for each in clashes if each.solvable)
    return every


def _of_turn(turns: Sequence[Turn], last: int, before: Sequence[_Placed]) -> list[Clash]:
    clashes = dict[tuple[int, int], Clash]()
    first = bisect_left(before, last - _NEAR, key=itemgetter(0))
    far, near = before[:first], [*before[first:]]
    for new in turns[last]:
        beside = (each for each in reversed(near) if new.values and not each[1].slots.isdisjoint(new.slots))
        alike = (each for each in chain(reversed(near), reversed(far)) if not each[1].keys.isdisjoint(new.keys))
        for place, old in chain(beside, islice(alike, _LATEST)):
            if reason := clash(old, new, is_near=0 < last - place <= _NEAR):
                is_solvable = place != last and "hedged" not in old.signs & new.signs
                clashes[place, old.start] = Clash(place, old, last, new, reason, is_solvable)
        near.append((last, new))
    return [each for _, each in sorted(clashes.items(), key=itemgetter(0))]


def clash(old: Statement, new: Statement, *, is_near: bool = False) -> str | None:
    """Return why the later of two statements contradicts the earlier one, in words; None where it does not."""
    if (old.terms, old.negative, old.values) == (new.terms, new.negative, new.values):
        return None
    if _gives_another(old, new, is_near=is_near and not old.negative):
        return VALUE
    if _never(old, new):
        return "an act that never took place"
    is_same = old.kind == new.kind == "statement" and old.terms == new.terms
    return "one denies the other" if is_same and old.negative != new.negative else None


_PAIR = 2


def _gives_another(old: Statement, new: Statement, *, is_near: bool) -> bool:
    """Return whether both give a value of the same subject, and not the same value.

    Near the earlier one, a value of a task is given anew without a word of its subject, or as a correction.
    """
    if old.slots.isdisjoint(new.slots) or "question" in (old.kind, new.kind):
        return False
    if "another" in new.signs or old.negative != new.negative:
        return False
    pairs = [(each, value) for value in new.values for each in old.values if each.slot == value.slot]
    others = [value for each, value in pairs if each.differs(value)]
    if not others or (is_near and not CORRECTING.isdisjoint(new.signs)):
        return bool(others)
    if old.others != new.others or _is_parallel(old, new, pairs):
        return False
    return _same_subject(old, new, others) or (is_near and _is_of_task(old, new, others))


def _same_subject(old: Statement, new: Statement, values: Sequence[Value]) -> bool:
    """Return whether both are about the same, their values aside."""
    if not old.about and not new.about:
        return any(value.kind not in TYPED or value.unit for value in values)
    shared = old.about & new.about
    if _is_changed(new) or not shared:
        return bool(shared)
    # of `the exam is on Friday`, `the exam in physics is on Monday`, the later one says too much
    is_clear = any(value.kind != "place" and (value.kind != "amount" or value.unit) for value in values)
    return is_clear and (len(shared) >= _PAIR or new.about <= old.about)


def _is_of_task(old: Statement, new: Statement, values: Sequence[Value]) -> bool:
    """Return whether they give a value of a task, and name no different subjects."""
    fewest = min(len(old.about), len(new.about))
    if fewest and len(old.about & new.about) * 2 <= fewest:
        return False
    known = [value for value in values if value.kind != "amount" or value.unit in UNITS]
    return any(not new.about or value.kind not in TYPED for value in known)


def _is_changed(new: Statement) -> bool:
    return not new.signs.isdisjoint(("correcting", "updated"))


def _is_parallel(old: Statement, new: Statement, pairs: Sequence[tuple[Value, Value]]) -> bool:
    """Return whether both are one sentence of two subjects or times: `Linux took 5 s`, `Windows took 9 s`."""
    if _is_changed(new):
        return False
    kinds = [{kind for kind, _ in each.slots} for each in (old, new)]
    differing = {one.slot for one, _ in pairs} - {one.slot for one, other in pairs if not one.differs(other)}
    if len(differing) >= _PAIR or ("amount" in kinds[0] and not kinds[1] <= kinds[0]):
        return True
    if not 1 < len(old.frame) == len(new.frame):
        return False
    others = [{one, other} for one, other in zip(old.frame, new.frame, strict=True) if one != other]
    return len(others) == 1 and not others[0] <= LIGHT


def _never(old: Statement, new: Statement) -> bool:
    """Return whether the author denies an act in one of the statements and tells of it in the other."""
    if bool(old.never) == bool(new.never) or "first" not in old.signs & new.signs:
        return False
    denied, stated = (old, new) if old.never else (new, old)
    if stated.negative or "hedged" in stated.signs:
        return False
    shared = denied.never & stated.terms
    return len(shared) > _PAIR or shared == denied.never
