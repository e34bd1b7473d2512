"""Facts that are prose, and what in a sentence goes against them. Pure.

Rules, not understanding: a year, a month or a nationality that differs; a kind of thing that is another (`a film`, `a
series`); a denial of what the fact says in the same words, and the other way round. A rule speaks only where the
sentence is about what the fact is about.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, Literal, NamedTuple

from policies.check_facts import dates, events
from policies.check_facts.contrasts import KNOWLEDGE, OF_PARTS, OFFICE, STAGE
from policies.check_facts.countries import WIDE
from policies.check_facts.counts import Amount, amounts_differ
from policies.check_facts.dates import Life, When
from policies.check_facts.events import Event
from proxy.text.fold import stem
from proxy.text.vocabulary import word_set

Verdict = Literal["agrees", "contradicts", "unclear"]

_MANY = 3
_NO = ("un", "non")
"""Beginnings that turn a word into its opposite."""
_LIGHT = frozenset(
    map(
        stem,
        word_set(
            """
            appear appeared act acted play played star starred work worked do done make made take took win won write
            wrote written air aired have get go went become came part role ever
            """
        ),
    )
)
"""Stems of words that say little without others: `has yet to appear in a film`."""
_SHORTEST = 4
"""Letters of a stem that may be turned so."""


class Timed(NamedTuple):
    """A part of a sentence that tells of a time."""

    content: frozenset[str]
    """The stems of what it says happened."""
    time: When


class Prose(NamedTuple):
    """A sentence of prose, read once. All words are folded."""

    text: str
    names: frozenset[str]
    """The words of all proper names in it."""
    subject: frozenset[str]
    """The words of the name with which it begins; none if it begins with anything else."""
    aliases: tuple[frozenset[str], ...]
    """The words of further names that it says its subject has."""
    opening: frozenset[str]
    """The words of the names in its first part."""
    content: frozenset[str]
    """The stems of what it says besides its subject."""
    callings: frozenset[str]
    """The fields of what it says that its subject is by calling: `music`."""
    is_list: bool
    """Whether it names more than one calling: then these are probably all."""
    sorts: frozenset[tuple[str, str]]
    """Of which sort the subject is, and in which respect: `("sport", "tennis")`."""
    poles: frozenset[tuple[str, tuple[int, int]]]
    """Stems that have an opposite, with the number of the pair and the side of it."""
    life: Life
    time: When
    """All times in it."""
    told: tuple[Timed, ...]
    counted: tuple[tuple[str, str, int], ...]
    """Nouns with how many of them, or the how manieth: `("ordinal", "album", 2)`."""
    nations: frozenset[str]
    kinds: frozenset[str]
    """What it says that its subject is: `film`."""
    events: tuple[Event, ...]
    parts: tuple[tuple[str, frozenset[str]], ...]
    """Nouns with the names of what they are in or from: `("character", {"hamlet"})`."""
    won: frozenset[str]
    """The words of prizes."""
    nominated: frozenset[str]
    """The words of prizes that it does not say were won."""
    is_only: bool
    """Whether it says that nothing else is the case."""
    amounts: tuple[Amount, ...]
    denied: frozenset[str]
    """The stems that stand behind a denial."""
    denied_kinds: frozenset[str]
    """Kinds and fields that it says its subject is not of."""


def verdict(said: Prose, fact: Prose) -> Verdict:
    """How what a sentence says stands to a fact."""
    if not said.subject or not is_about(said.subject, fact):
        return "contradicts" if _denies_in_full(said, fact) else "unclear"
    if said.denied or (fact.denied and _denies(said, fact)):
        return "contradicts" if _denies(said, fact) else "unclear"
    if any(_differences(said, fact)):
        return "contradicts"
    return "agrees" if said.content <= fact.content and not fact.denied else "unclear"


def together(subject: frozenset[str], facts: Sequence[Prose]) -> list[Prose]:
    """Facts that each know what all of them say their subject is: of two that disagree, either may be right."""
    same = [fact for fact in facts if is_about(subject, fact)]
    kinds, nations, callings, sorts = (
        frozenset[Any]().union(*(getattr(fact, name) for fact in same))
        for name in ("kinds", "nations", "callings", "sorts")
    )
    return [
        fact._replace(kinds=kinds, nations=nations, callings=callings, sorts=sorts) if is_about(subject, fact) else fact
        for fact in facts
    ]


def _differences(said: Prose, fact: Prose) -> Iterator[bool]:
    yield _times_differ(said, fact)
    yield _lives_differ(said.life, fact.life)
    yield amounts_differ(said.amounts, fact.amounts)
    yield _events_differ(said, fact)
    yield _parts_differ(said, fact)
    yield _only_elsewhere(said, fact) or _only_elsewhere(fact, said)
    yield _counts_differ(said, fact)
    yield _callings_differ(said, fact)
    yield _sorts_differ(said, fact)
    yield _opposite(said, fact)
    yield bool(said.won & fact.nominated) and not said.won & fact.won
    yield _apart(said.nations, fact.nations)
    yield _apart(said.kinds, fact.kinds)


def is_about(subject: frozenset[str], fact: Prose) -> bool:
    """Whether a fact begins with the subject, or with its last name."""
    if not fact.subject:
        return len(subject) > 1 and subject <= fact.opening
    return subject <= fact.subject or fact.subject <= subject or subject in fact.aliases


def _apart(some: frozenset[Any], others: frozenset[Any]) -> bool:
    return bool(some) and bool(others) and not some & others


def _denies(said: Prose, fact: Prose) -> bool:
    """Whether one denies nearly all that the other says."""
    if said.denied & fact.denied:
        return False
    if _apart(said.nations, fact.nations) or dates.apart(said.time, fact.time):
        return False  # it denies something else
    if said.won and said.won <= fact.nominated:
        return False
    if said.denied and said.denied_kinds & (fact.kinds | fact.callings):
        return True
    if said.denied:
        return _nearly_all(said.denied, fact.content - fact.denied)
    return _nearly_all(said.content, fact.denied)


def _nearly_all(some: frozenset[str], others: frozenset[str]) -> bool:
    """Whether all of some stems are among others, or of many all but one. Stems that say little do not count."""
    told = some - _LIGHT or some
    return bool(told) and (told <= others or len(some & others) >= max(_MANY, len(some)) - 1)


def _denies_in_full(said: Prose, fact: Prose) -> bool:
    """Whether a sentence denies what a fact says that begins with something else, in the fact's own words."""
    is_known = len(said.denied) >= _MANY and said.denied <= fact.content
    return is_known and not fact.denied and said.names - said.subject <= fact.names


def _times_differ(said: Prose, fact: Prose) -> bool:
    """Whether what a fact tells of a time is said of another, and the fact knows nothing of that one."""
    if not dates.apart(said.time, fact.time):
        return False
    shared = [each for each in fact.told if not said.content or _tells_of(said.content, each.content)]
    return bool(shared) and all(dates.apart(said.time, each.time) for each in shared)


def _tells_of(said: frozenset[str], told: frozenset[str]) -> bool:
    """Whether both tell of the same; what was done for the first time may be done again."""
    return bool(said & told) and ("first" in said or "first" not in told)


def _lives_differ(said: Life, fact: Life) -> bool:
    if said.is_alive is not None and fact.is_alive is not None and said.is_alive != fact.is_alive:
        return True
    return dates.apart(said.born, fact.born) or dates.apart(said.died, fact.died)


def _events_differ(said: Prose, fact: Prose) -> bool:
    """Whether what happens once has other names in both, in the same role."""
    return any(
        events.differ(each, [known for known in fact.events if known[:2] == each[:2]], fact.names)
        for each in said.events
    )


def _parts_differ(said: Prose, fact: Prose) -> bool:
    """Whether the same noun is in another thing."""
    for noun, names in said.parts:
        known = [each for each_noun, each in fact.parts if each_noun == noun]
        if (
            known
            and not names <= fact.names
            and all(map(partial(events.are_others, names), known))
            and not names & WIDE
        ):
            return True
    return False


def _counts_differ(said: Prose, fact: Prose) -> bool:
    """Whether the same noun has another number, or another place in a row."""
    for kind, noun, number in said.counted:
        known = [each for sort, other, each in fact.counted if (sort, other) == (kind, noun)]
        if known and number not in known:
            return True
    return False


def _callings_differ(said: Prose, fact: Prose) -> bool:
    """Whether somebody is said to be of a field that is not near those of the fact, or of fewer than all."""
    if said.is_only and said.callings and fact.callings - said.callings and not fact.callings <= STAGE:
        return True
    if not _apart(said.callings, fact.callings):
        return False
    near = any(said.callings & fields and fact.callings & fields for fields in (STAGE, KNOWLEDGE, OFFICE))
    return fact.is_list or not near


def _sorts_differ(said: Prose, fact: Prose) -> bool:
    """Whether the subject is of another sort in one respect: another sport, another kind of film."""
    return any(
        _apart(
            frozenset(each for each in said.sorts if each[0] == respect),
            frozenset(each for each in fact.sorts if each[0] == respect),
        )
        for respect, _ in said.sorts
    )


def _only_elsewhere(said: Prose, fact: Prose) -> bool:
    """Whether a sentence says `only` of a name that the fact does not have, and the fact has another one."""
    extra = said.names - said.subject
    others = fact.names - said.subject - fact.subject
    return said.is_only and bool(others) and bool(extra) and not extra & fact.names


def _opposite(said: Prose, fact: Prose) -> bool:
    """Whether one says a word and the other its opposite, of the same thing and time, and neither both."""
    if dates.apart(said.time, fact.time):
        return False
    known = {pole for _, pole in fact.poles}
    for _, (number, side) in said.poles:
        is_turned = (number, 1 - side) in known and (number, side) not in known
        is_same_thing = number not in OF_PARTS or len(said.content) == 1 or bool(said.content & fact.content)
        if is_turned and is_same_thing and not _is_both(said, number):
            return True
    return _unmade(said.content, fact.content) or _unmade(fact.content, said.content)


def _unmade(some: frozenset[str], others: frozenset[str]) -> bool:
    return any(f"{no}{word}" in others for word in some if len(word) >= _SHORTEST for no in _NO)


def _is_both(said: Prose, number: int) -> bool:
    return len({side for _, (pair, side) in said.poles if pair == number}) > 1
