"""Which of a user's messages in a conversation are overtaken by later ones, turn by turn. Pure."""

from collections import defaultdict, deque
from collections.abc import Collection, Sequence
from typing import NamedTuple

from policies.resolve_clashes.comparison import (
    TYPED,
    at_other_times,
    clash,
    comparable,
    differ,
    narrower,
    parallel,
    told_apart,
)
from policies.resolve_clashes.statements import Said, Statement
from policies.resolve_clashes.terms import listed, terms
from policies.resolve_clashes.values import NUMBERS, SLOT_UNITS, Value, unit_terms

_FAR = 10
"""User messages that a value of a task is looked for in."""
_AT_ONCE = 3
"""Messages of which a new one is said to overtake something."""
_SHORT = 40
"""Characters of a clause that says hardly more than a value."""
_LONG = 200
"""Characters of a clause that is more than a request for something."""
_WEATHER = "weather"
_WEATHER_TERMS = terms(" ".join(listed("weather")))
_NEXT = 2
"""User messages within which one member of a group takes the place of another without further signs."""
_OF_GREETINGS = frozenset({"date", "time", "part of the day"})
"""Kinds of values that stand in greetings too: `Hello, I need help today`."""
_LATEST = 20
"""Statements with the same term that a new one is compared with."""
_NEAR = 4
"""User messages within which a value is corrected without a word of what it is a value of."""


class Clash(NamedTuple):
    """A statement that a later one overtakes, or that the same message contradicts."""

    older: int
    """The place of the message among those that were given."""
    older_start: int
    older_end: int
    newer: int
    newer_start: int
    newer_end: int
    reason: str
    solvable: bool
    """Whether it is known which of the two holds: not where both stand in one message, or both are uncertain."""
    was: str = ""
    """The older statement, as it is quoted."""
    now: str = ""
    """The newer one."""

    @property
    def of(self) -> tuple[int, int]:
        """Which statement is overtaken."""
        return self.older, self.older_start


class Turn(NamedTuple):
    """A user's message and what the assistant had said before it."""

    place: int
    said: Said
    heard: Said | None


class Overtaken(NamedTuple):
    """What one message overtakes in itself and in those before, given what each of those overtakes."""

    clashes: tuple[Clash, ...] = ()
    gone: frozenset[tuple[int, int]] = frozenset()
    """What does not hold any more since then: the places of messages, and where the statement begins."""


def overtaken(turns: Sequence[Turn], known: Sequence[Overtaken | None]) -> list[Overtaken]:
    """What each message overtakes of which `known` does not tell it.

    Each statement is overtaken once: what held no longer can be overtaken no more.
    """
    wanted = [at for at, each in enumerate(known) if each is None]
    looked_up = (one.keys for at in wanted for one in turns[at].said.statements)
    index, gone, done = _Index(frozenset().union(*looked_up)), set[tuple[int, int]](), list[Overtaken]()
    first = min(wanted, default=len(turns))
    index.add_before(turns[:first])
    for at, (turn, each) in enumerate(zip(turns, known, strict=True)):
        if each is None:
            each = _first_only(_of_turn(turns, at, index), gone)
            done.append(each)
        elif at > first:
            index.add_all(turn)
        gone |= each.gone
    return done


def _first_only(found: Sequence[Clash], gone: Collection[tuple[int, int]]) -> Overtaken:
    fresh = [each for each in found if each.of not in gone]
    # of what one message overtakes, the latest tells most
    taken = sorted({each.older for each in fresh})[-_AT_ONCE:]
    kept = tuple(each for each in fresh if each.older in taken)
    return Overtaken(kept, frozenset(each.of for each in fresh if each.solvable))


class _Index:
    """Statements by what they must share with one that clashes with them, of what is looked up: the latest for each."""

    def __init__(self, looked_up: frozenset[str]) -> None:
        self._looked_up = looked_up
        self._by_key: dict[str, deque[tuple[int, Turn, Statement]]] = defaultdict(lambda: deque(maxlen=_LATEST))
        self._count = 0

    def add_before(self, turns: Sequence[Turn]) -> None:
        """Add turns to an empty index, from the end: what is looked up is mostly there soon."""
        wanted, number = set(self._looked_up), 0
        for turn in reversed(turns):
            for statement in reversed(turn.said.statements):
                number -= 1
                if wanted.isdisjoint(statement.keys):
                    continue
                for key in wanted & statement.keys:
                    known = self._by_key[key]
                    known.appendleft((number, turn, statement))
                    if len(known) == _LATEST:
                        wanted.remove(key)

    def add_all(self, turn: Turn) -> None:
        for statement in turn.said.statements:
            self.add(turn, statement)

    def add(self, turn: Turn, statement: Statement) -> None:
        self._count += 1
        entry = (self._count, turn, statement)
        for key in statement.keys & self._looked_up:
            self._by_key[key].append(entry)

    def near(self, statement: Statement) -> list[tuple[Turn, Statement]]:
        """Those that may clash with a statement, in their order."""
        found = {entry[0]: entry for key in statement.keys for entry in self._by_key.get(key, ())}
        return [found[number][1:] for number in sorted(found)]


def _of_turn(turns: Sequence[Turn], last: int, index: _Index) -> list[Clash]:
    turn, found = turns[last], list[Clash]()
    for new in turn.said.statements:
        for where, old in index.near(new):
            reason = clash(old, new)
            if reason is not None:
                found.append(_clash(where, old, turn, new, reason))
        index.add(turn, new)
    done = {each.of for each in found}
    for each in _slots(turns, last):
        if each.of not in done:
            done.add(each.of)
            found.append(each)
    return found


def _clash(where: Turn, old: Statement, turn: Turn, new: Statement, reason: str) -> Clash:
    solvable = where.place != turn.place and not (old.hedged and new.hedged)
    return Clash(
        where.place, old.start, old.end, turn.place, new.start, new.end, reason, solvable, old.quote, new.quote
    )


def _slots(turns: Sequence[Turn], last: int) -> list[Clash]:
    """Values of a task that the user gives anew: the latest one of the same slot is overtaken."""
    turn, found = turns[last], list[Clash]()
    tone = _Tone.of(turn)
    for new in turn.said.statements:
        if new.another or not _may_give(new):
            continue
        short = new.end - new.start <= _SHORT
        for value in new.values:
            if (
                value.kind == "count"
                and value.unit not in SLOT_UNITS
                and not (short and (tone.correcting or new.correcting))
            ):
                continue
            held = _held(turns, last, value)
            if held is None or held.statement.terms == new.terms or not _taken_up(turns, last, held, new):
                continue
            if _overtakes(held, new, value, tone):
                found.append(_clash(held.turn, held.statement, turn, new, "slot"))
    return found


def _may_give(statement: Statement) -> bool:
    """Whether a statement may give a task's value."""
    return statement.kind != "question" and not statement.negative and statement.end - statement.start <= _LONG


class _LatestStatement(NamedTuple):
    """The latest earlier statement that gave a slot a value."""

    turn: Turn
    statement: Statement
    value: Value
    distance: int
    """How many user messages ago."""


class _Tone(NamedTuple):
    """How a message stands to what was said before it."""

    heard: Said
    correcting: bool
    following: bool

    @classmethod
    def of(cls, turn: Turn) -> "_Tone":
        said, heard = turn.said.statements, turn.heard or Said()
        first = said[:1]
        return cls(heard, any(each.correcting for each in first), any(each.following for each in first) or heard.failed)


def _held(turns: Sequence[Turn], last: int, value: Value) -> _LatestStatement | None:
    """What the user said last of the same kind: of a day of the month one of the month, where there is any."""
    latest: _LatestStatement | None = None
    for at in range(last - 1, max(-1, last - _FAR), -1):
        for old in reversed(turns[at].said.statements):
            if not _may_give(old):
                continue
            for held in reversed(old.values):
                if held.kind == value.kind and _same_part(held, value) and _same_unit(held, value):
                    found = _LatestStatement(turns[at], old, held, last - at)
                    if comparable(held, value):
                        return found
                    latest = latest or found
    return latest


def _taken_up(turns: Sequence[Turn], last: int, held: _LatestStatement, new: Statement) -> bool:
    """Whether an earlier value is one of a task: the assistant took it up, or both are about the same."""
    kind, at = held.value.kind, last - held.distance
    before = turns[at].heard
    return (
        kind not in _OF_GREETINGS
        or not held.statement.about.isdisjoint(new.about)
        or (before is not None and kind in before.asked)
        or _WEATHER in _topic(held.statement, held.value)
        or any(
            turn.heard.failed or any(each[0] in _OF_GREETINGS and each[2] != "today" for each in turn.heard.named)
            for turn in turns[at + 1 : last + 1]
            if turn.heard
        )
    )


def _same_part(held: Value, value: Value) -> bool:
    return held.part == value.part or "weak" in (held.part, value.part)


def _same_unit(held: Value, value: Value) -> bool:
    return held.unit == value.unit or {held.unit, value.unit} <= {"people", "ticket", ""}


def _overtakes(held: _LatestStatement, new: Statement, value: Value, tone: _Tone) -> bool:
    """Whether a value is meant in the place of the one that is held."""
    if not differ(held.value, value) or at_other_times(held.statement, new):
        return False
    near = held.distance <= _NEAR
    if value.part == "weak" and not (near and _wanted(new, tone)):
        return False
    shared = bool(held.statement.about & new.about)
    if new.correcting or tone.correcting:
        return near or shared
    if near and (new.following or tone.following):
        return shared or value.kind not in NUMBERS
    return _goes_on(held, new, value, tone)


def _wanted(new: Statement, tone: _Tone) -> bool:
    return new.wanting or new.correcting or new.following or tone.correcting or tone.following


def _goes_on(held: _LatestStatement, new: Statement, value: Value, tone: _Tone) -> bool:
    """Whether a value is meant so, though nothing says that it is changed."""
    if (value.kind != "place" and told_apart(held.statement, new)) or _of_another(held, new, value):
        return False
    if parallel(held.statement, new):
        return False
    if held.statement.kind == new.kind == "statement" and narrower(held.statement, new):
        return False
    if value.kind in TYPED:
        bare = not new.about or (held.distance == 1 and not held.statement.about and new.wanting)
        if _WEATHER in _topic(held.statement, value) & _topic(new, value):
            return held.distance <= _NEAR
        elliptic = bare and value.kind not in tone.heard.asked
        return held.distance <= _NEAR and (elliptic or (bool(value.unit) and value.unit == held.value.unit))
    lately = held.distance <= (_NEAR if _wanted(new, tone) else _NEXT)
    if not (new.first or new.end - new.start <= _SHORT or new.kind == "request" or _wanted(new, tone)):
        return False  # a statement about the world
    return lately and not (held.statement.likes or new.likes)


def _of_another(held: _LatestStatement, new: Statement, value: Value) -> bool:
    """Whether both say what they are about, and that is not the same."""
    if value.part == "weak" and new.wanting:
        return False
    unit = unit_terms(value) if value.unit else frozenset()
    mine, theirs = _topic(held.statement, value) - unit, _topic(new, value) - unit
    shared = mine & theirs
    return bool(mine) and bool(theirs) and len(shared) * 2 < min(len(mine), len(theirs)) + bool(mine - theirs)


def _topic(statement: Statement, value: Value) -> frozenset[str]:
    """What a statement is about, with what it says besides the value: of a place, what is there."""
    topic = frozenset(_WEATHER if each in _WEATHER_TERMS else each for each in statement.about)
    if value.kind != "place":
        return topic
    return topic | {each.value for each in statement.values if each.kind not in TYPED and not each.part}
