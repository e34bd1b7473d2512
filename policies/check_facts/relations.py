"""Read sentences that give a subject an object of a relation: `the capital of Peru is Lima`. Pure.

The forms of such sentences stand in `data/facts/forms.txt`, in English and Spanish.
"""

import re
from functools import lru_cache
from typing import NamedTuple

from proxy.text.fold import INNER, NATIONS, NOT_ONE, PLACE_RELATIONS, RELATIONS, folded
from proxy.text.tables import pattern_lists

IN = "in"
"""The relation to a place."""
_LONGEST = 160
"""Characters of a sentence that may be a claim."""
_PATTERNS = [
    (language, re.compile(f"^(?:{form})$", re.IGNORECASE))
    for language, forms in pattern_lists("facts/forms").items()
    for form in forms
]
_KINDS = "city|town|country|state|continent|island|region|ciudad|pueblo|pais|estado|continente|isla|region"
_HEAD = re.compile(rf"^(?:(?:the |an? |el |la |los |las |un |una )?(?:(?:{_KINDS}) (?:of |de |del )?(?=\S))?)")


class Claim(NamedTuple):
    """A relation of a subject to an object: `armenia`, `capital`, `yerevan`. All folded."""

    subject: str
    relation: str
    object: str
    language: str
    """`en` or `es`: the names of one thing differ between them."""


@lru_cache(maxsize=4096)
def claim(sentence: str) -> Claim | None:
    """Return the claim that a sentence makes as a whole."""
    if len(sentence) > _LONGEST:
        return None
    text = " ".join(sentence.strip(" \t\n-*•").rstrip(".!… ").split())
    for language, pattern in _PATTERNS:
        match = pattern.match(text)
        read = _claim_of(match.groupdict(), language) if match else None
        if read is not None:
            return read
    return None


def _claim_of(part: dict[str, str | None], language: str) -> Claim | None:
    subject, place, relation = name(part["s"] or ""), part.get("p"), folded(part.get("r") or "")
    if place is not None:
        kind = folded(part.get("k") or "")
        return Claim(subject, f"{IN} {kind}".strip(), name(place), language)
    if {relation.split()[0], relation.split()[-1]} & NOT_ONE and relation_named(relation) not in RELATIONS.values():
        return None
    return Claim(subject, relation_named(relation), name(part.get("o") or ""), language)


def is_named(sentence: str, object: str) -> bool:
    """Return whether an object in a sentence is written like a name or a number, not like a description."""
    plain = folded(sentence)
    at = plain.find(object)
    if at < 0 or object in NATIONS or len(plain) != len(sentence):
        return False
    words = sentence[at : at + len(object)].split()
    return all(word[0].isupper() or word[0].isdigit() or word in INNER for word in words)


def relation_named(text: str) -> str:
    """Return one name for a relation, whatever a file or a sentence calls it."""
    plain = folded(text).strip()
    core = plain.removesuffix(" city").removeprefix("ciudad ")
    return RELATIONS.get(plain) or RELATIONS.get(core) or plain


def is_place(relation: str) -> bool:
    """Return whether a relation says where something lies: `in city`, `located_in`, `continent`."""
    return relation in PLACE_RELATIONS or relation.startswith(f"{IN} ")


def name(text: str) -> str:
    """Return a name as it is compared: folded, without articles and without its kind."""
    plain = " ".join(re.sub(r"[()]", " ", folded(text)).split()).strip(" .'\"")
    return _HEAD.sub("", plain, count=1)
