"""Plain sentences, such as `The rate limit is 100 requests per minute`, and which of them exclude each other. Pure.

Two of them are compared only if they say the same of the same thing, but for one value, name or denial: a sentence
that says more, of another time or of a part of the thing, is about something else.
"""

from collections.abc import Sequence
from typing import Literal, NamedTuple

from policies.check_facts import geography
from policies.check_facts.measures import MONEY, Measure, agree, are_comparable
from policies.check_facts.verbs import IN_PLACES, OF_ONE, ONE_WAY, SETTLEMENTS

PlainVerdict = Literal["agrees", "contradicts", "apart", "unclear"]

TIMES = frozenset(["date", "weekday", "clock", "year"])
"""Kinds of values that say when."""


class Plain(NamedTuple):
    """A plain sentence, read once. All words are folded, and all but names are stems."""

    subject: frozenset[str]
    is_definite: bool
    """Whether there is one of the subject: `the main database`."""
    verb: str
    is_past: bool
    is_denied: bool
    words: frozenset[str]
    """What stands behind the verb besides names and values."""
    names: tuple[str, ...]
    """The names behind the verb."""
    items: tuple[frozenset[str], ...]
    """The words and names behind the verb, apart where they are listed."""
    measures: tuple[Measure, ...]
    language: str
    """`en` or `es`: the names of one thing differ between them."""
    key: str
    """The longest word of the subject as it is written, folded."""


def compare(said: Plain, fact: Plain) -> PlainVerdict:
    """How what a sentence says stands to a fact; `apart` if it says something else of the same thing."""
    if _is_swapped(said, fact):
        return "contradicts"
    verb = _common_verb(said, fact)
    if said.subject != fact.subject or verb is None:
        return "unclear"
    if said.is_past != fact.is_past:
        is_over = said.is_past and verb in IN_PLACES and any(each.kind == "year" for each in said.measures)
        return "apart" if is_over else "unclear"
    is_turned = (said.is_denied != fact.is_denied) != (said.verb != fact.verb and verb in _OPENING)
    if verb in IN_PLACES:
        return _places(said, fact, is_turned)
    if is_turned:
        return _denial(said, fact)
    if said.is_denied:
        return "agrees" if _is_same(said, fact) else "unclear"
    return _values(said, fact, verb)


_LONG = frozenset(["time", "months"])
_OPENING = frozenset(["open", "close"])


def _common_verb(said: Plain, fact: Plain) -> str | None:
    """The verb of both. To be closed on a day is not to be open; what is so many euros costs them."""
    if said.verb == fact.verb:
        return fact.verb
    verbs = {said.verb, fact.verb}
    both = (*said.measures, *fact.measures)
    if verbs == _OPENING and both and all(each.kind == "weekday" for each in both):
        return fact.verb
    if verbs == {"be", "take"} and both and all(each.kind in _LONG for each in both):
        return "take"
    if verbs == {"be", "cost"} and both and all(each.kind in MONEY for each in both):
        return "cost"
    return None


def _is_swapped(said: Plain, fact: Plain) -> bool:
    """Whether both name the same two the other way round: who reports to whom."""
    if said.verb != fact.verb or said.verb not in ONE_WAY or said.is_denied or fact.is_denied:
        return False
    one, other = (said.subject, fact.subject)
    return one != other and (one,) == fact.items and (other,) == said.items


def _denial(said: Plain, fact: Plain) -> PlainVerdict:
    if _is_same(said, fact) or _is_listed(said, fact):
        return "contradicts"
    one, other = _all_words(said), _all_words(fact)
    is_elsewhere = fact.verb != "be" and bool(one) and bool(other) and not one & other
    return "apart" if other < one or is_elsewhere else "unclear"  # phone support is a part of the support


def _is_more(said: Plain, fact: Plain) -> bool:
    """Whether one says all words of the other and more."""
    one, other = _all_words(said), _all_words(fact)
    return one < other or other < one


def _all_words(of: Plain) -> frozenset[str]:
    return frozenset[str]().union(*of.items)


def _is_same(said: Plain, fact: Plain) -> bool:
    """Whether both say the same but for a denial."""
    if said.words != fact.words or frozenset(said.names) != frozenset(fact.names):
        return False
    return len(said.measures) == len(fact.measures) and not any(_others(said.measures, fact.measures))


def _is_listed(said: Plain, fact: Plain) -> bool:
    """Whether all that one says is among what the fact lists: `supports dark mode and widgets`."""
    return not said.measures and not fact.measures and bool(said.items) and set(said.items) <= set(fact.items)


def _others(said: Sequence[Measure], known: Sequence[Measure]) -> list[bool]:
    """Of each value said, whether it is none of the known ones, although there are some of its kind."""
    found: list[bool] = []
    for each in said:
        alike = [one for one in known if are_comparable(each, one)]
        found.append(not any(agree(each, one) for one in alike))
    return found


def _values(said: Plain, fact: Plain, verb: str) -> PlainVerdict:
    same_names = _same_names(said.names, fact.names)
    if said.measures and fact.measures:
        is_same = same_names is not False or (verb == "due" and not said.names)
        if said.words == fact.words and is_same:
            return _measures(said.measures, fact.measures)
        return "apart" if len(fact.subject) == 1 and _is_more(said, fact) else "unclear"
    if said.words != fact.words or said.measures or fact.measures:
        return "unclear"
    if same_names is False and _is_of_one(said, fact, verb):
        return "contradicts"
    return "agrees" if same_names else "unclear"


def _measures(said: Sequence[Measure], known: Sequence[Measure]) -> PlainVerdict:
    """Whether values differ: one of them, or times only. Of another year there may be another price."""
    if not all(any(are_comparable(each, one) for one in known) for each in said):
        return "unclear"
    others = [each for each, differs in zip(said, _others(said, known), strict=True) if differs]
    if not others:
        return "agrees"
    of_other_time = any(each.kind in TIMES for each in others) and any(each.kind not in TIMES for each in said)
    return "unclear" if of_other_time else "contradicts"


def _same_names(said: Sequence[str], known: Sequence[str]) -> bool | None:
    """Whether the names are of the same; None where neither has any."""
    if not said and not known:
        return None
    one, other = ({word for name in names for word in name.split()} for names in (said, known))
    return bool(one & other) if one and other else False


def _is_of_one(said: Plain, fact: Plain, verb: str) -> bool:
    if not said.names or not fact.names:
        return False
    if verb not in IN_PLACES and any(map(geography.is_known, said.names)):
        return False  # who reports to Berlin reports to an office
    is_named = verb == "be" and fact.is_definite and not fact.words and len(fact.names) == 1 == len(said.names)
    return said.language == fact.language and (verb in OF_ONE or is_named)


def _places(said: Plain, fact: Plain, is_turned: bool) -> PlainVerdict:
    if (said.words | fact.words) - SETTLEMENTS or said.measures or fact.measures or not said.names or not fact.names:
        return "unclear"
    if said.is_denied or fact.is_denied:
        one, other = (said, fact) if said.is_denied else (fact, said)
        return "contradicts" if is_turned and set(one.names) <= set(other.names) else "unclear"
    are_apart = geography.apart(said.names, fact.names)
    if are_apart is None:
        return "agrees" if set(said.names) & set(fact.names) else "unclear"
    return "contradicts" if are_apart else "agrees"
