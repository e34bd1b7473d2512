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

from policies.resolve_clashes.statements import LIGHT, Statement, statements
from policies.resolve_clashes.values import TYPED, listed
from proxy.chat import Message, digest
from proxy.context import Once
from proxy.text.values import UNITS, Value

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

_PAIR = 2


def _value(old: Statement, new: Statement) -> bool:
    """Return whether both give a value of the same subject, and not the same value."""
    if "another" in new.signs or old.negative != new.negative or old.slots.isdisjoint(new.slots):
        return False
    if _about_others(old, new) or _is_parallel(old, new):
        return False
    return any(each.differs(value) and _same_subject(old, new, value) for each, value in _in_one_slot(old, new))


def _in_one_slot(old: Statement, new: Statement) -> list[tuple[Value, Value]]:
    return [(each, value) for value in new.values for each in old.values if each.slot == value.slot]


def _is_changed(new: Statement) -> bool:
    return not new.signs.isdisjoint(("correcting", "updated"))


def _same_subject(old: Statement, new: Statement, value: Value) -> bool:
    """Return whether both are about the same, the value aside."""
    mine, theirs, shared = old.about, new.about, old.about & new.about
    if not mine and not theirs:
        return value.kind not in TYPED or (value.kind == "amount" and bool(value.unit))
    if _is_changed(new) or not shared:
        return bool(shared)
    # of `the exam is on Friday`, `the exam in physics is on Monday`, the later one says too much
    is_vague = value.kind == "place" or (value.kind == "amount" and not value.unit)
    return not is_vague and (len(shared) >= _PAIR or theirs <= mine)


# --- denials ---


def _never(old: Statement, new: Statement) -> bool:
    """Return whether the author denies an act in one of the statements and tells of it in the other."""
    if bool(old.never) == bool(new.never) or "first" not in old.signs & new.signs:
        return False
    denied, stated = (old, new) if old.never else (new, old)
    if stated.negative or "hedged" in stated.signs:
        return False
    shared = denied.never & stated.terms
    return len(shared) > _PAIR or shared == denied.never


def _negation(old: Statement, new: Statement) -> bool:
    """Return whether one of the statements denies the other in its words."""
    return old.negative != new.negative and old.terms == new.terms


# --- other subjects ---


def _about_others(old: Statement, new: Statement) -> bool:
    """Return whether they are stated apart, or neither is the author's and each has a subject that the other lacks."""
    if old.others != new.others:
        return True
    heads = {old.head, new.head} - {""}
    return "first" not in old.signs | new.signs and len(heads) == _PAIR and not heads <= old.terms & new.terms


def _is_parallel(old: Statement, new: Statement) -> bool:
    """Return whether both are one sentence of two subjects or times: `Linux took 5 s`, `Windows took 9 s`."""
    if _is_changed(new):
        return False
    pairs, kinds = _in_one_slot(old, new), [{kind for kind, _ in each.slots} for each in (old, new)]
    differing = {one.slot for one, _ in pairs} - {one.slot for one, other in pairs if not one.differs(other)}
    if len(differing) >= _PAIR:
        return True
    if "amount" in kinds[0] and not kinds[1] <= kinds[0]:
        return True
    if not 1 < len(old.frame) == len(new.frame):
        return False
    others = [{one, other} for one, other in zip(old.frame, new.frame, strict=True) if one != other]
    return len(others) == 1 and not others[0] <= LIGHT


# --- a value of a task ---

_BOOKED = frozenset(listed("booked"))
"""Units of what people order, book and stay."""
_NEAR = 4
"""User messages within which a value is given anew without a word of its subject."""


def _slots(turns: Sequence[Turn], last: int) -> Iterator[tuple[int, Statement, Statement]]:
    """Yield the statements that give a value of a task, by their turns, and those of a turn that give another."""
    every = turns[last]
    opening = every[0].signs if every else frozenset[str]()
    for new in filter(_may_give, every):
        signs = new.signs | (opening & {"correcting", "following"})
        for value in new.values:
            is_other = "another" in new.signs or (value.kind == "amount" and value.unit not in UNITS)
            latest = None if is_other else _latest_value(turns, last, value)
            if latest is not None and _is_given_anew(*latest[1:], new, value, signs):
                yield latest[0], latest[1], new


def _may_give(statement: Statement) -> bool:
    return statement.kind != "question" and not statement.negative


def _latest_value(turns: Sequence[Turn], last: int, value: Value) -> tuple[int, Statement, Value] | None:
    """Return the place of the turn, the statement and the user's last value of the same slot."""
    for at in range(last - 1, max(-1, last - 1 - _NEAR), -1):
        for old in filter(_may_give, reversed(turns[at])):
            for older in reversed(old.values):
                if older.slot == value.slot:
                    return at, old, older
    return None


def _is_given_anew(old: Statement, older: Value, new: Statement, value: Value, signs: frozenset[str]) -> bool:
    """Return whether a value is meant in the place of the older one."""
    if old.terms == new.terms or not older.differs(value):
        return False
    if not signs.isdisjoint(("correcting", "following")):
        return True
    if old.others != new.others or _differ_in_subject(old, new) or _is_parallel(old, new):
        return False
    return value.kind not in TYPED or not new.about or value.unit in _BOOKED


def _differ_in_subject(old: Statement, new: Statement) -> bool:
    """Return whether both name a subject, and not the same."""
    mine, theirs = old.about, new.about
    return bool(mine and theirs) and len(mine & theirs) * 2 <= min(len(mine), len(theirs))
