"""What happened to a thing once, where and by whom, and what it is a part of; the awards that it won. Pure."""

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise

from policies.check_facts.contrasts import CALLINGS
from policies.check_facts.countries import WIDE, apart, is_country
from policies.check_facts.subjects import JOIN, TOKEN
from proxy.text.fold import folded, stem, words
from proxy.text.vocabulary import EVENTS, KINDS, MONTHS, NATIONS, SMALL, word_set

Event = tuple[str, str, frozenset[str]]
"""What happened, in which role, and the names in it: `("founded", "by", {"ada", "lovelace"})`."""

_GENERIC = word_set(
    """
    university college school county city party award awards prize prizes records ag inc group company media club church
    press universidad colegio condado ciudad partido premio compania grupo
    """
)
"""Words that names of one kind share."""
_ROLES = {"in": "in", "at": "in", "on": "on", "by": "by", "en": "in", "por": "by"}
_REACH = 4
"""Words between an event, or what was last told of it, and the next that is told of it."""
_ASIDE_WORDS = 3
"""Words that may stand in front of a name: `by the Danish director`."""
_ENDS = frozenset(["who", "which", "that", "but", "when", "while", "where", "after", "before", "que", "donde", ","])
_COPULAS = frozenset(["is", "was", "are", "were", "es", "era", "fue", "son"])
_STATED = {("plays", "for"): "plays for", ("play", "for"): "plays for"}
_WORKS = frozenset(["film", "series", "music", "book", "game", "video"])
_LOCAL = frozenset(["city", "country", "river", "lake", "mountain", "building", "school", "island"])
_AROUND = word_set("valley region area district suburbs province metropolitan")
"""Behind a name, a place that it is only a part of: `in the Rhine valley`."""
_HELD = (
    "part|member|son|daughter|brother|sister|wife|husband|creator|leader|drummer|guitarist|vocalist|subsidiary|sequel"
    "|adaptation|remake|coast|governor|mayor|king|queen|emperor|seat|capital|minister|president|chancellor|miembro|hijo|hija|hermano|hermana"
    "|esposa|esposo|líder|secuela|costa|filial|gobernador|alcalde|rey|reina"
)
"""Nouns that are of one thing."""
_PART = re.compile(
    rf"\b(?:(?P<noun>[a-zà-ÿ]{{3,}})\s+(?:in|from|on|en)|(?P<role>{_HELD})\s+(?:of|de|del))\s+(?:(?:the|el|la|los|las)\s+)?(?:[a-zà-ÿ]+\s+){{0,2}}?"
    r"(?P<name>[A-ZÀ-Þ][\w'’-]*(?:\s+(?:of\s+|de\s+|the\s+)?[A-ZÀ-Þ][\w'’-]*)*)"
)
_ASIDE = re.compile(r"\([^()]*\)")
_WON = re.compile(r"\b(?:won|wins?|winning|received|awarded|ganó|ganado)\b", re.IGNORECASE)
_NOMINATED = re.compile(r"\b(?:nominat\w+|shortlisted|nominad[oa])\b", re.IGNORECASE)
_PRIZE = re.compile(r"[A-Z][\w'’-]*(?: (?:of |the |for )?[A-Z][\w'’-]*)*")


def events(text: str) -> tuple[Event, ...]:
    """The events of a sentence with the names that belong to them."""
    tokens = [each for each in TOKEN.findall(text) if each[0] != "("]
    plain = [folded(each) for each in tokens]
    return tuple(each for at in range(len(tokens)) for each in _of_event(tokens, plain, at))


def _of_event(tokens: Sequence[str], plain: Sequence[str], at: int) -> Iterator[Event]:
    event = EVENTS.get(plain[at]) or _unnamed(plain, at)
    if event is None:
        return
    reach = at + _REACH
    for n in range(at + 1, len(tokens)):
        is_joined = n == at + 2 and plain[at + 1] in ("and", "y")
        if n > reach or plain[n] in _ENDS or (plain[n] in EVENTS and not is_joined):
            return
        role = _ROLES.get(plain[n]) or ("from" if event == "from" else "for" if event == "plays for" else None)
        names = _following(tokens[n + 1 :], plain[n + 1 :]) if role else frozenset()
        if role and names:
            yield event, role, names
            if KINDS.get(plain[at]) == "book":
                yield "written", role, names
            reach = n + len(names) + _REACH


def _unnamed(plain: Sequence[str], at: int) -> str | None:
    """An event that no verb tells: `a song by`, `is in`, `a lake in`, `is from`, `plays for`."""
    word, then = plain[at], plain[at + 1] if at + 1 < len(plain) else ""
    kind = KINDS.get(word)
    if then == "by" and (kind in _WORKS or word in _COPULAS):
        return "made"
    if then in ("in", "en") and (kind in _LOCAL or word in _COPULAS):
        return "located"
    if then == "from" and (word in CALLINGS or word in _COPULAS):
        return "from"
    return _STATED.get((word, then))


def _following(tokens: Sequence[str], plain: Sequence[str]) -> frozenset[str]:
    """The names with which a list of words begins, but for what says whose they are: `the Danish director`."""
    at = 0
    while at < min(_ASIDE_WORDS, len(tokens)) and (tokens[at].islower() or plain[at] in NATIONS):
        if plain[at] in _ROLES or plain[at] in _ENDS or plain[at] in ("of", "de", "for", "with"):
            return frozenset()
        at += 1
    names: set[str] = set()
    for each in tokens[at:]:
        is_name = each[0].isupper()
        if not is_name and each != "," and (each not in JOIN or each in _ROLES or each == "for"):
            return frozenset() if each in _AROUND else frozenset(names)
        if is_name:
            names.update(word for word in words(each) if word not in SMALL and word not in MONTHS)
    return frozenset(names)


def differ(said: Event, known: Sequence[Event], elsewhere: frozenset[str]) -> bool:
    """Whether what happens once has other names in a sentence than in a fact, in the same role.

    `elsewhere` are all names of the fact: where one is told of as a place, it is one of several.
    """
    _, role, names = said
    others = [each for _, _, each in known]
    if not others or not all(are_others(names, each) for each in others):
        return False
    if role not in ("in", "from", "on"):
        return True
    far = [apart(names, each) for each in others]
    if any(far):
        return False not in far
    is_wide = any(is_country(each) or each <= WIDE for each in (names, *others))
    return not is_wide and not (names & elsewhere) - _GENERIC


def are_others(names: frozenset[str], known: frozenset[str]) -> bool:
    """Whether names have no word in common but for those that say of what kind they are."""
    some, others = names - _GENERIC, known - _GENERIC
    return bool(some) and bool(others) and not some & others


def parts(text: str) -> tuple[tuple[str, frozenset[str]], ...]:
    """Nouns with the names of what they are in or from: `("character", {"hamlet"})`."""
    plain = _ASIDE.sub(" ", text)
    found = [each for each in _PART.finditer(plain) if _AROUND.isdisjoint(words(plain[each.end() :])[:1])]
    return tuple((stem(folded(each["noun"] or each["role"])), frozenset(words(each["name"]))) for each in found)


def awards(text: str) -> tuple[frozenset[str], frozenset[str]]:
    """The words of the prizes that a sentence tells of as won, and as no more than nominated for."""
    told: dict[bool, set[str]] = {True: set(), False: set()}
    marks = [(found.end(), True) for found in _WON.finditer(text)]
    marks += [(found.end(), False) for found in _NOMINATED.finditer(text)]
    for (start, is_won), (end, _) in pairwise([*sorted(marks), (len(text), False)]):
        told[is_won].update(word for each in _PRIZE.findall(text[start:end]) for word in words(each))
    return frozenset(told[True] - _GENERIC), frozenset(told[False] - told[True] - _GENERIC)
