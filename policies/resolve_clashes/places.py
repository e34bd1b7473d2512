"""Names of places behind a preposition, in English and Spanish. Pure."""

import re

from policies.resolve_clashes.categories import members
from policies.resolve_clashes.terms import WORDS, fold, words
from policies.resolve_clashes.values import Value

_PLACE = re.compile(
    r"\b(?P<p>from|to|in|around|near|for|of|about|desde|hacia|en|a)\s+(?P<x>(?:[A-ZÁÉÍÓÚÑ][\w'’-]*\.?)"
    r"(?:\s+(?:[A-ZÁÉÍÓÚÑ][\w'’-]*|de|del|la)(?=\s|[,.;!?]|$))*)"
)
_NO_PLACE = re.compile("".join(WORDS["no places"]))
_ALIASES = dict(line.split(": ") for line in WORDS["aliases"])
_PARTS = {"from": "from", "desde": "from", "to": "to", "hacia": "to", "a": "to"}

_KNOWN = " ".join(WORDS["cities"]).split(", ")
_BEGINS = frozenset(name.split()[0] for name in _KNOWN)
_CITY = re.compile(rf"(?:\b(?P<p>from|to|desde|hacia|a)\s+)?\b(?P<x>{'|'.join(_KNOWN)})\b")


def places(text: str) -> list[Value]:
    """The places that a text names; offsets are those of the text."""
    found: list[Value] = []
    for match in _PLACE.finditer(text):
        name = fold(match["x"]).strip(" .,'-")
        if name and not _NO_PLACE.search(name) and not _is_member(name):
            part = _PARTS.get(match["p"], "in")
            found.append(Value("place", part, "", _ALIASES.get(name, name), match.start("x"), match.end("x")))
    folded = fold(text)
    if _BEGINS.isdisjoint(words(folded)):
        return found
    taken = {place for value in found for place in range(value.start, value.end)}
    for match in _CITY.finditer(folded):
        if match.start("x") not in taken:
            name, part = match["x"], _PARTS.get(match["p"] or "", "in")
            found.append(Value("place", part, "", _ALIASES.get(name, name), match.start("x"), match.end("x")))
    return found


def _is_member(name: str) -> bool:
    return any(value.end - value.start == len(name) for value in members(name, alone=True))
