"""How much and how many a sentence of prose tells of, and the how manieth. Pure."""

import re
from collections.abc import Sequence
from itertools import pairwise
from math import inf

from policies.check_facts.contrasts import ORDINALS, RANKED
from proxy.text.fold import folded, stem
from proxy.text.vocabulary import NUMBERS, UNITS

Amount = tuple[str, float, float]
"""A unit, and between which bounds how many of it are: `("year", 30, 30)`."""

_NEARLY = 0.1
"""Amounts that differ by less than this part are the same, roughly put."""
_TIMES = {"hundred": 1e2, "thousand": 1e3, "million": 1e6, "billion": 1e9, "mil": 1e3, "millones": 1e6}
_OVER = ("over", "more than", "at least", "above", "exceeding", "mas de", "al menos")
_UNDER = ("under", "less than", "fewer than", "at most", "up to", "below", "menos de", "hasta")
_AMOUNT = re.compile(
    rf"\b(?:(?:(?P<over>{'|'.join(_OVER)})|(?P<under>{'|'.join(_UNDER)}))\s)?"
    rf"(?P<sign>[$€£]\s?)?(?<![\d.,])(?P<n>\d+(?:\.\d+)?|{'|'.join(NUMBERS)})(?:\s(?P<times>{'|'.join(_TIMES)}))?\b"
    r"(?:\s?(?P<unit>%|[a-z]+))?"
)
_GROUPED = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")
_AGE = re.compile(r"\b(?:aged?|age of|edad de) $")
_POPULATION = re.compile(r"\b(?:population|poblacion)\b[a-z ]{0,20}$")
_BOUNDS = frozenset(
    ["over", "than", "least", "most", "nearly", "almost", "about", "around", "de", "menos", "casi", "unos"]
)
_OWNED = frozenset(["the", "a", "his", "her", "its", "their", "el", "la", "su", "un", "una"])
_NUMBER = frozenset(["number", "numero"])
_ORDINAL = re.compile(r"(\d{1,4})(?:st|nd|rd|th)")
_ALONE = frozenset(["only", "just", "solo"])


def amounts(text: str) -> tuple[Amount, ...]:
    """The amounts of which a unit is told."""
    plain = _GROUPED.sub("", folded(text))
    found: list[Amount] = []
    for each in _AMOUNT.finditer(plain):
        unit, per = _unit(each, plain)
        if unit:
            number = per * _TIMES.get(each["times"] or "", 1.0)
            number *= NUMBERS[each["n"]] if each["n"] in NUMBERS else float(each["n"])
            found.append((unit, 0.0 if each["under"] else number, inf if each["over"] else number))
    return tuple(found)


def _unit(found: re.Match[str], text: str) -> tuple[str, float]:
    if found["sign"]:
        return found["sign"].strip(), 1.0
    if found["unit"] == "%":
        return "percent", 1.0
    if found["unit"] in UNITS:
        return UNITS[found["unit"]]
    before = text[: found.start()]
    if _AGE.search(before):
        return "age", 1.0
    return ("person", 1.0) if _POPULATION.search(before) else ("", 1.0)


def amounts_differ(said: Sequence[Amount], known: Sequence[Amount]) -> bool:
    """Whether one of the amounts said is none of those that a fact tells of in the same unit."""
    for unit, low, high in said:
        others = [(a, b) for kind, a, b in known if kind == unit]
        if others and all(low - b > _NEARLY * low or a - high > _NEARLY * a for a, b in others):
            return True
    return False


def counted(said: Sequence[str]) -> tuple[tuple[str, str, int], ...]:
    """Nouns with how many of them, or the how manieth: `("ordinal", "album", 2)`."""
    found: list[tuple[str, str, int]] = []
    for at, word in enumerate(said):
        before = said[at - 1] if at else ""
        then = said[at + 1 : at + 3]
        numbered = _ORDINAL.fullmatch(word)
        place = int(numbered[1]) if numbered else ORDINALS.get(word)
        if before in _NUMBER and (word in NUMBERS or word.isdecimal()):
            found.append(("ordinal", "number", NUMBERS.get(word) or int(word[:9])))
        if word in NUMBERS and before not in _BOUNDS:
            found += _of_noun(said, at, before)
        if place and before in _OWNED:
            is_listed = bool(numbered and then[:1] != ["century"]) or then[1:] == ["to"]
            found += [
                ("ordinal", stem(each), place) for n, each in enumerate(then) if each in RANKED or (is_listed and not n)
            ]
    return tuple(found)


def _of_noun(said: Sequence[str], at: int, before: str) -> list[tuple[str, str, int]]:
    number = NUMBERS[said[at]]
    if number == 1:
        return [
            ("number", stem(each), 1)
            for each in said[at + 1 : at + 2]
            if before in _ALONE or before in ("has", "have", "had")
        ]
    noun = next((each for each in said[at + 1 : at + 3] if each.endswith("s") and len(each) > 3), None)
    return [("number", stem(noun), number)] if noun and noun not in UNITS and number else []


def ranks(text: str) -> tuple[tuple[str, str, int], ...]:
    """Superlatives with what they are of, and the place in that row: `("largest", "lake in norway", 2)`."""
    words = folded(text).rstrip(".").split()
    found: list[tuple[str, str, int]] = []
    for at, (before, word) in enumerate(pairwise(words), 1):
        is_superlative = (word.endswith("est") and len(word) > 5) or word == "most"
        place = ORDINALS.get(before) or ORDINALS.get(word.partition("-")[0]) or 1
        if is_superlative and (before == "the" or before in ORDINALS) and "of" not in words[at - 3 : at - 1]:
            found.append((word.rpartition("-")[2], " ".join(words[at + 1 : at + 4]).rstrip(","), place))
    return tuple(found)
