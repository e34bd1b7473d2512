"""What a sentence of prose says, as far as words show it: names, years, amounts, kinds, events, denials. Pure."""

import re
from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise, takewhile

from proxy.claims.contrasts import CALLINGS, ORDINALS, RANKED
from proxy.claims.prose import Prose
from proxy.claims.vocabulary import EVENTS, KINDS, MONTHS, NATIONS, NUMBERS, SMALL, UNITS
from proxy.claims.words import folded, stem, words

_NAME = re.compile(r"\(?[A-ZÁÉÍÓÚÑÜ0-9][\w'’.*-]*\)?")
_TOKEN = re.compile(r"\([^()]*\)|[^\W_]+(?:['’.*&-][^\W_]+)*|,")
_YEAR = re.compile(r"\b(1[0-9]{3}|20[0-9]{2})(?:['’]?(s))?\b")
_ASIDE = re.compile(r"\([^()]*\)")
_PRONOUNCED = re.compile(r"\[[^\]]*\]")
_TITLE_YEAR = re.compile(r"\((?:19|20)\d\d\s+\w+\)")
"""`(2005 film)` behind a title tells which one is meant, not when."""
_OPENING = 120
"""Characters of a sentence in which it says what it is about."""
_JOIN = frozenset(["of", "the", "de", "del", "la", "el", "los", "las", "and", "y", "&", "vs", "for", "in"])
"""What may stand inside a name."""
_DENIED = re.compile(
    r"\b(?:not|never|no|cannot|neither|nor|without|incapable of|unable to|fail(?:s|ed)? to|declin(?:es|ed) to"
    r"|refus(?:es|ed) to|ha[sd] yet to|have yet to|avoids?|lacks?|lack of|zero|nunca|jamás|tampoco|sin|ningún"
    r"|ninguna)\b|n['’]t\b",
    re.IGNORECASE,
)
_CLAUSE = re.compile(r"[,;:]|\bbut\b|\bpero\b")
_ROLES = {"in": "in", "at": "in", "on": "in", "by": "by", "en": "in", "por": "by"}
_ONLY = re.compile(r"\b(?:only|exclusively|solely|solo|sólo|solamente|únicamente|exclusivamente)\b", re.IGNORECASE)
_ACTIVE = re.compile(
    r"(?P<who>[A-ZÀ-Þ][^,;:]{1,60}?) (?P<verb>wrote|directed|founded|discovered|invented|painted|composed|designed"
    r"|created) (?P<what>[A-ZÀ-Þ][^,;:]{1,80}?)\.?$"
)
_PASSIVE = {"wrote": "written"}
_HELD = (
    "part|member|son|daughter|brother|sister|wife|husband|creator|leader|drummer|guitarist|vocalist|subsidiary|sequel"
    "|adaptation|remake|coast|miembro|hijo|hija|hermano|hermana|esposa|esposo|líder|secuela|costa|filial"
)
"""Nouns that are of one thing."""
_PART = re.compile(
    rf"\b(?:(?P<noun>[a-zà-ÿ]{{3,}})\s+(?:in|from|on|en)|(?P<role>{_HELD})\s+(?:of|de|del))\s+(?:(?:the|el|la|los|las)\s+)?(?:[a-zà-ÿ]+\s+){{0,2}}?"
    r"(?P<name>[A-ZÀ-Þ][\w'’-]*(?:\s+(?:of\s+|de\s+|the\s+)?[A-ZÀ-Þ][\w'’-]*)*)"
)
_COPULAS = frozenset(["is", "was", "are", "were", "es", "era", "son", "fue"])
_ARTICLES = frozenset(["a", "an", "the", "un", "una", "el", "la"])
_BEHIND = frozenset(
    ["who", "which", "that", "by", "in", "on", "from", "of", "about", "recorded", "directed", "que", "de", "en", "por"]
)
"""Where what a thing is ends and more about it begins."""
_SPAN = re.compile(r"\([^()\d]*(?:\d{1,2}[^()\d]+)?(\d{4})\s?[-–—]\s?[^()\d]*(?:\d{1,2}[^()\d]+)?(\d{4})\)")
_BORN = re.compile(r"\b(?:born|nació|nacid[oa])\b[^();]{0,60}?\b(1\d{3}|20\d\d)\b", re.IGNORECASE)
_DIED = re.compile(r"\b(?:died|murió|falleció)\b[^();]{0,60}?\b(1\d{3}|20\d\d)\b", re.IGNORECASE)
_BOUNDS = frozenset(
    ["over", "than", "least", "most", "nearly", "almost", "about", "around", "de", "menos", "casi", "unos"]
)
_OWNED = frozenset(["the", "a", "his", "her", "its", "their", "el", "la", "su", "un", "una"])
_DESCRIBED = 12
"""Words of a description in which its noun is looked for."""


@lru_cache(maxsize=4096)
def prose(sentence: str) -> Prose:
    """Read a sentence."""
    plain = _PRONOUNCED.sub(" ", sentence)
    subject = _subject(plain)
    about = set(subject)
    said = words(_DENIED.sub(" ", plain))
    called = [word for word in _described(plain) if word in CALLINGS and word not in about]
    others = [word for word in said if word not in SMALL and word not in about and not word.isdigit()]
    return Prose(
        text=sentence,
        names=_names(plain),
        subject=subject,
        opening=_names(plain[:_OPENING]),
        content=frozenset(map(stem, others)),
        years=frozenset(f"{y[:3]}x" if decade else y for y, decade in _YEAR.findall(_TITLE_YEAR.sub(" ", plain))),
        months=frozenset(MONTHS[word] for word in said if word in MONTHS and _is_month(plain, word)),
        nations=frozenset(NATIONS[word] for word in said if word in NATIONS and word not in about),
        kinds=_kinds(plain, about),
        events=_events(plain),
        parts=_parts(plain),
        callings=frozenset(field for word in called for field in CALLINGS[word]),
        is_list=len(called) > 1,
        life=_life(sentence),
        days=_days(said),
        counted=_counted(said),
        is_only=_ONLY.search(plain) is not None,
        amounts=_amounts(said),
        denied=_denied(plain, about),
    )


def subject_of(sentence: str) -> tuple[str, ...]:
    """The words of the proper name that a sentence begins with."""
    return _subject(_PRONOUNCED.sub(" ", sentence)) if sentence[:1].isupper() or not sentence[:1].isalpha() else ()


def turned(sentence: str) -> str:
    """What says the same the other way round: `Dune was written by Frank Herbert`; else the sentence itself."""
    found = _ACTIVE.match(sentence)
    return f"{found['what']} was {_PASSIVE.get(found['verb'], found['verb'])} by {found['who']}." if found else sentence


def _names(text: str) -> frozenset[str]:
    return frozenset(word for each in _NAME.findall(text) for word in words(each) if word not in SMALL)


def _subject(text: str) -> tuple[str, ...]:
    """The words of the proper name that a sentence begins with."""
    found: list[str] = []
    for each in _TOKEN.finditer(text):
        token = each[0]
        if token.startswith("("):
            continue
        begins = token[0].isupper() or (found and token[0].isdigit())
        if not begins and not (found and token.lower() in _JOIN):
            break
        found.append(token)
    while found and found[-1].lower() in _JOIN:
        found.pop()
    return tuple(word for word in words(" ".join(found)) if word not in SMALL)


def _is_month(text: str, word: str) -> bool:
    """`may` and `march` are other words too, but for their capitals."""
    return word not in ("may", "march") or re.search(rf"\b{word.capitalize()}\b", text) is not None


def _kinds(text: str, about: set[str]) -> frozenset[str]:
    """The kinds of thing in a description."""
    found = (KINDS.get(word) or KINDS.get(word.removesuffix("s")) for word in _described(text) if word not in about)
    return frozenset(kind for kind in found if kind)


def _described(text: str) -> list[str]:
    """The words behind the first `is a`, up to where more about it begins."""
    said = words(_ASIDE.sub(" ", text))
    begins = (n for n, (verb, word) in enumerate(pairwise(said)) if verb in _COPULAS and word in _ARTICLES)
    at = next(begins, None)
    rest = [] if at is None else said[at + 2 : at + 2 + _DESCRIBED]
    return list(takewhile(lambda word: word not in _BEHIND, rest))


def _life(text: str) -> tuple[str, str]:
    """The years in which somebody was born and died."""
    span = _SPAN.search(text)
    if span:
        return span[1], span[2]
    born, died = _BORN.search(text), _DIED.search(text)
    return (born[1] if born else "", died[1] if died else "")


def _days(said: Sequence[str]) -> frozenset[tuple[str, int]]:
    """`May 3`, `3 de mayo`: months with the day next to them."""
    plain = [re.sub(r"^(\d{1,2})(?:st|nd|rd|th)$", r"\1", word) for word in said if word not in ("de", "of", "the")]
    near = [pair for one, other in pairwise(plain) for pair in ((one, other), (other, one))]
    return frozenset((MONTHS[month], int(day)) for month, day in near if month in MONTHS and _is_day(day))


def _is_day(word: str) -> bool:
    return word.isdecimal() and 0 < int(word[:3]) <= 31


def _counted(said: Sequence[str]) -> tuple[tuple[str, str, int], ...]:
    """Nouns with a number or an ordinal, with one word between at most."""
    found: list[tuple[str, str, int]] = []
    for at, word in enumerate(said):
        before = said[at - 1] if at else ""
        noun = next((each for each in said[at + 1 : at + 3] if each.endswith("s") and len(each) > 3), None)
        if word in NUMBERS and noun and NUMBERS[word] > 1 and noun not in UNITS and before not in _BOUNDS:
            found.append(("number", stem(noun), NUMBERS[word]))
        if word in ORDINALS and before in _OWNED:
            found += [("ordinal", stem(each), ORDINALS[word]) for each in said[at + 1 : at + 3] if each in RANKED]
    return tuple(found)


def _events(text: str) -> tuple[tuple[str, str, frozenset[str]], ...]:
    """The events of a sentence with the names that follow them, up to three words behind `in` or `by`."""
    tokens = [each for each in _TOKEN.findall(text) if not each.startswith("(")]
    found: list[tuple[str, str, frozenset[str]]] = []
    for at, token in enumerate(tokens):
        event = EVENTS.get(folded(token))
        behind = next((n for n in range(at + 1, min(at + 4, len(tokens))) if tokens[n].lower() in _ROLES), None)
        if event is not None and behind is not None:
            found.append((event, _ROLES[tokens[behind].lower()], _following(tokens[behind + 1 :])))
    return tuple(found)


def _following(tokens: Sequence[str]) -> frozenset[str]:
    names: set[str] = set()
    for each in tokens:
        if not each[0].isupper() and each != "," and each not in _JOIN:
            break
        if each[0].isupper():
            names.update(word for word in words(each) if word not in SMALL and word not in MONTHS)
    return frozenset(names)


def _parts(text: str) -> tuple[tuple[str, frozenset[str]], ...]:
    found = _PART.finditer(_ASIDE.sub(" ", text))
    return tuple((stem(folded(each["noun"] or each["role"])), frozenset(words(each["name"]))) for each in found)


def _amounts(said: Sequence[str]) -> tuple[tuple[str, float], ...]:
    found: list[tuple[str, float]] = []
    for before, word in pairwise(said):
        number = NUMBERS.get(before, float(before) if before.isdecimal() and len(before) < 12 else None)
        if word in UNITS and number is not None:
            unit, times = UNITS[word]
            found.append((unit, number * times))
    return tuple(found)


def _denied(text: str, about: set[str]) -> frozenset[str]:
    """The stems behind a denial, up to the end of its clause."""
    found = _DENIED.search(text)
    if found is None:
        return frozenset()
    rest = _CLAUSE.split(text[found.end() :])[0]
    return frozenset(stem(word) for word in words(rest) if word not in SMALL and word not in about and len(word) > 2)
