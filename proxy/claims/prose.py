"""Facts that are prose, and what in a sentence goes against them. Pure.

Rules, not understanding: a year, a month or a nationality that differs; a kind of thing that is another (`a film`, `a
series`); a denial of what the fact says in the same words, and the other way round. A rule speaks only where the
sentence is about what the fact is about.
"""

from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

from proxy.claims.contrasts import OPPOSITES, STAGE, WIDE

Verdict = Literal["agrees", "contradicts", "unclear"]

_NEARLY = 0.1
"""Amounts that differ by less than this part are the same, roughly put."""


_MANY = 3
_NO = ("un", "in", "im", "non", "dis")
"""Beginnings that turn a word into its opposite."""


class Prose(NamedTuple):
    """A sentence of prose, read once. All words are folded."""

    text: str
    names: frozenset[str]
    """The words of all proper names in it."""
    subject: tuple[str, ...]
    """The words of the name with which it begins; none if it begins with anything else."""
    opening: frozenset[str]
    """The words of the names in its first part."""
    content: frozenset[str]
    """The stems of what it says besides its subject."""
    callings: frozenset[str]
    """The fields of what it says that its subject is by calling: `music`."""
    is_list: bool
    """Whether it names more than one calling: then these are probably all."""
    life: tuple[str, str]
    """The years of birth and death; empty where they are not told."""
    days: frozenset[tuple[str, int]]
    """Months with their days."""
    counted: tuple[tuple[str, str, int], ...]
    """Nouns with how many of them, or the how manieth: `("ordinal", "album", 2)`."""
    years: frozenset[str]
    """`1986`, and `198x` for the decade."""
    months: frozenset[str]
    nations: frozenset[str]
    kinds: frozenset[str]
    """What it says that its subject is: `film`."""
    events: tuple[tuple[str, str, frozenset[str]], ...]
    """What happened, `in` or `by` what, and the names that follow: `("founded", "by", {"ada", "lovelace"})`."""
    parts: tuple[tuple[str, frozenset[str]], ...]
    """Nouns with the names of what they are in or from: `("character", {"hamlet"})`."""
    is_only: bool
    """Whether it says that nothing else is the case."""
    amounts: tuple[tuple[str, float], ...]
    """Units and how many of them: `("year", 30)`."""
    denied: frozenset[str]
    """The stems that stand behind a denial."""


def verdict(said: Prose, fact: Prose) -> Verdict:
    """How what a sentence says stands to a fact."""
    if not said.subject or not is_about(said.subject, fact):
        return "contradicts" if _denies_in_full(said, fact) else "unclear"
    if said.denied or fact.denied:
        return "contradicts" if _denies(said, fact) else "unclear"
    if any(_differences(said, fact)):
        return "contradicts"
    return "agrees" if said.content <= fact.content else "unclear"


def _differences(said: Prose, fact: Prose) -> Iterator[bool]:
    shared = not said.content or bool(said.content & fact.content)
    yield shared and (_years_differ(said, fact) or _apart(said.months, fact.months))
    yield _amounts_differ(said, fact)
    yield _events_differ(said, fact)
    yield _parts_differ(said, fact)
    yield _only_elsewhere(said, fact) or (shared and _only_elsewhere(fact, said))
    yield any(one and other and one != other for one, other in zip(said.life, fact.life, strict=True))
    yield shared and _apart(said.days, fact.days)
    yield _counts_differ(said, fact)
    yield _callings_differ(said, fact)
    yield _opposite(said, fact)
    yield _apart(said.nations, fact.nations)
    yield _apart(said.kinds, fact.kinds)


def is_about(subject: tuple[str, ...], fact: Prose) -> bool:
    """Whether a fact begins with the subject, or with its last name."""
    if not fact.subject:
        return len(subject) > 1 and set(subject) <= fact.opening
    return set(subject) <= set(fact.subject) or set(fact.subject) <= set(subject)


def _apart(some: frozenset[Any], others: frozenset[Any]) -> bool:
    return bool(some) and bool(others) and not some & others


def _denies(said: Prose, fact: Prose) -> bool:
    """Whether one denies nearly all that the other says."""
    if said.denied and fact.denied:
        return False
    if _apart(said.nations, fact.nations) or _apart(said.months, fact.months) or _years_differ(said, fact):
        return False  # it denies something else
    if said.denied:
        return len(said.denied & fact.content) >= max(1, len(said.denied) - 1)
    return bool(said.content) and len(said.content & fact.denied) >= max(1, len(said.content) - 1)


def _denies_in_full(said: Prose, fact: Prose) -> bool:
    """Whether a sentence denies what a fact says that begins with something else, in the fact's own words."""
    is_known = len(said.denied) >= _MANY and said.denied <= fact.content
    return is_known and not fact.denied and said.names - set(said.subject) <= fact.names


def _years_differ(said: Prose, fact: Prose) -> bool:
    if not said.years or not fact.years:
        return False
    return not any(_same_year(year, known) for year in said.years for known in fact.years)


def _same_year(one: str, other: str) -> bool:
    return one[:3] == other[:3] if "x" in one + other else one == other


def _amounts_differ(said: Prose, fact: Prose) -> bool:
    for unit, amount in said.amounts:
        known = [each for kind, each in fact.amounts if kind == unit]
        if known and all(abs(each - amount) > _NEARLY * max(each, amount) for each in known):
            return True
    return False


def _events_differ(said: Prose, fact: Prose) -> bool:
    """Whether what happens once has other names in both, in the same role."""
    for event, role, names in said.events:
        known = [each for kind, part, each in fact.events if (kind, part) == (event, role)]
        apart = known and names and all(_apart(names, each) for each in known) and not names & fact.names
        if apart and not (names <= WIDE and not any(each & WIDE for each in known)):
            return True
    return False


def _parts_differ(said: Prose, fact: Prose) -> bool:
    """Whether the same noun is in another thing."""
    for noun, names in said.parts:
        known = [each for each_noun, each in fact.parts if each_noun == noun]
        if known and not names <= fact.names and all(_apart(names, each) for each in known) and not names & WIDE:
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
    """Whether somebody is said to be of a field that is not near those of the fact."""
    if not _apart(said.callings, fact.callings):
        return False
    return fact.is_list or not (said.callings & STAGE and fact.callings & STAGE)


def _only_elsewhere(said: Prose, fact: Prose) -> bool:
    """Whether a sentence says `only` of a name that the fact does not have, and the fact has another one."""
    extra = said.names - set(said.subject)
    others = fact.names - set(said.subject) - set(fact.subject)
    return said.is_only and bool(others) and bool(extra) and not extra & fact.names


def _opposite(said: Prose, fact: Prose) -> bool:
    """Whether one says a word and the other its opposite, and neither both."""
    for left, right in OPPOSITES:
        one = _has(said.content, left), _has(said.content, right)
        other = _has(fact.content, left), _has(fact.content, right)
        if one == other[::-1] and sum(one) == 1:
            return True
    return any(f"{no}{word}" in fact.content for word in said.content for no in _NO) or any(
        f"{no}{word}" in said.content for word in fact.content for no in _NO
    )


def _has(content: frozenset[str], stems: str) -> bool:
    return any(word.startswith(each) for each in stems.split() for word in content)
