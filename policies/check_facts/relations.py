"""Relations: how facts state them, and how sentences of any form speak of them. English and Spanish. Pure."""

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from policies.check_facts.quantities import value
from proxy.text.fold import folded
from proxy.text.tables import pattern_lists
from proxy.text.vocabulary import (
    AT,
    FINDS,
    INNER,
    LAID,
    LIES,
    NATIONS,
    NEAR,
    NOT_ONE,
    PLACE_RELATIONS,
    PLACES,
    RELATIONS,
)

_LONGEST_GAP = 8
_ARTICLES = frozenset(["the", "el", "la", "los", "las"])
_ONE = frozenset(["a", "an", "una", "un"])
_OF = frozenset(["of", "de", "del"])
_CONTINENT = frozenset(["continent", "continente"])


def lies(tokens: Sequence[str], inner: tuple[int, int], outer: tuple[int, int]) -> bool:
    """Whether the folded tokens of a sentence say that the name at `inner` lies in that at `outer`.

    Both are where a name begins and what is behind it.
    """
    gap = tokens[inner[1] : outer[0]]
    if len(gap) > _LONGEST_GAP or set(gap) & NEAR:
        return False
    rest = _without_kind(gap)
    if len(rest) == 1:
        return rest[0] in LAID and bool(set(tokens[: inner[0]]) & FINDS)
    return bool(rest) and gap[0] in LIES | _ONE | {"se"} and _ends_in_place(rest, gap[0] in _ONE)


def _ends_in_place(rest: Sequence[str], is_aside: bool) -> bool:
    """`is a city of`, `is located in`; of an aside, `a city in`."""
    if rest[-1] not in AT:
        return False
    return rest[-2] in PLACES if is_aside or rest[-1] in _OF else True


def _without_kind(gap: Sequence[str]) -> list[str]:
    """A gap without articles and without `continent of` at its end."""
    rest = [token for token in gap if token not in _ARTICLES]
    while len(rest) > 1 and rest[-1] in _OF and rest[-2] in _CONTINENT:
        del rest[-2:]
    if len(rest) > 1 and rest[-1] in _CONTINENT | PLACES and rest[-2] in AT:
        rest.pop()  # `in the country Chad`
    return rest


IN = "in"
"""The relation of what lies in a place."""

_NAME = r"[^,;:]{2,60}?"
_LONGEST = 160
"""Characters of a sentence that may be a claim as a whole."""
_BY_VERB = ("price", "port", "population", "date", "deadline", "author", "director", "founder")
"""Relations that a verb or a unit tells: `costs`."""
_COMMA = re.compile(r"(?<=\d),(?=\d{3}(?!\d))|(?<=\d),(?=\s\d{4}\b)")
"""A comma within a number or a date."""
_PATTERNS = [
    (language, re.compile(f"^(?:{form})$", re.IGNORECASE))
    for language, forms in pattern_lists("facts/forms").items()
    for form in forms
]

_NAMES = frozenset(RELATIONS.values())
_HEAD = re.compile(
    r"^(?:(?:the |an? |el |la |los |las |un |una )?(?:(?:city|town|country|state|continent|island|region|ciudad|pueblo"
    r"|pais|estado|continente|isla|region) (?:of |de |del )?(?=\S))?)"
)


class Claim(NamedTuple):
    """That the relation of a subject is this object: `armenia`, `capital`, `yerevan`. All folded."""

    subject: str
    relation: str
    object: str
    language: str
    """`en` or `es`: the names of one thing differ between them."""
    kind: str = ""
    """What the subject is said to be: `city`, in `Khulna is a city in Bangladesh`."""


@lru_cache(maxsize=4096)
def claim(sentence: str) -> Claim | None:
    """The claim of a sentence, where all of it is one."""
    if len(sentence) > _LONGEST:
        return None
    text = " ".join(_COMMA.sub("", sentence.strip(" \t\n-*•").rstrip(".!… ")).split())
    for language, pattern in _PATTERNS:
        found = pattern.match(text)
        made = _made(found.groupdict(), language) if found else None
        if made is not None:
            return made
    return None


def _made(part: dict[str, str | None], language: str) -> Claim | None:
    subject, place = name(part["s"] or ""), part.get("p")
    if place is not None:
        if value(place) is not None:
            return None
        kind = folded(part.get("k") or "")
        return Claim(subject, f"{IN} {kind}".strip(), name(place), language, kind)
    said = part.get("v")
    if said is not None and value(said) is None:
        return None
    found = part.get("r")
    if found is None:
        relation = next(each for each in _BY_VERB if part.get(each))
        return Claim(subject, relation, name(said or part.get("o") or ""), language)
    relation = folded(found)
    if {relation.split()[0], relation.split()[-1]} & NOT_ONE and relation_named(relation) not in _NAMES:
        return None
    return Claim(subject, relation_named(relation), name(said or part.get("o") or ""), language)


def given(sentence: str, subject: str, relation: str, language: str) -> str | None:
    """The object, a proper name or a number that no fact knows, which a plain sentence gives a subject.

    The sentence is a claim as a whole, or ends with `its capital, Name`.
    """
    text = sentence.rstrip(".!… ")
    made = claim(text)
    if made is not None:
        is_it = (made.subject, made.relation, made.language) == (subject, relation, language)
        found = made.object if is_it and not is_place(relation) else ""
        return found if found and (value(found) is not None or _is_named(text, found)) else None
    for cue in cues(relation):
        ends = re.search(rf"\b(?:its|their|his|her|su)\s+{cue},?\s+(?:is\s+|es\s+)?(?P<o>{_NAME})$", folded(text))
        if ends and _is_named(text, name(ends["o"])):
            return name(ends["o"])
    return None


def _is_named(sentence: str, found: str) -> bool:
    """Whether a found object is written like a name or a number, not like a description."""
    plain = folded(sentence)
    at = plain.find(found)
    if at < 0 or found in NATIONS or len(plain) != len(sentence) or len(found.split()) > 4:
        return False
    return all(
        each[0].isupper() or each[0].isdigit() or each in INNER for each in sentence[at : at + len(found)].split()
    )


def relation_named(text: str) -> str:
    """One name for a relation, whatever a file or a sentence calls it."""
    plain = folded(text).strip()
    core = plain.removesuffix(" city").removeprefix("ciudad ")
    return RELATIONS.get(plain) or RELATIONS.get(core) or plain


def is_place(relation: str) -> bool:
    """Whether a relation says where something lies: `in city`, `located_in`, `continent`."""
    return relation in PLACE_RELATIONS or relation.startswith(f"{IN} ")


def cues(relation: str) -> tuple[str, ...]:
    """The words with which sentences speak of a relation."""
    return tuple(word for word, name in RELATIONS.items() if name == relation) or (relation.replace("_", " "),)


def name(text: str) -> str:
    """A name as it is compared: folded, without articles and without saying what it is the name of."""
    plain = re.sub(r"[()]", " ", folded(text))
    plain = " ".join(plain.split()).strip(" .'\"")
    return _HEAD.sub("", plain, count=1)
