"""How often something is, and in which century, in English and Spanish. Pure."""

import re
from types import MappingProxyType

from policies.resolve_clashes.values import Value, number

_UNITS = MappingProxyType(
    {
        word: unit
        for unit, names in {
            "day": "day days dia dias daily diario diaria",
            "week": "week weeks semana semanas weekly semanal",
            "month": "month months mes meses monthly mensual",
            "year": "year years ano anos yearly annually annual anual",
        }.items()
        for word in names.split()
    }
)
_NAMES = "|".join(_UNITS)
_WORD = r"\d+|two|three|four|five|six|seven|ten|dos|tres|cuatro|cinco|seis|siete|diez|other|second"
_EVERY = re.compile(rf"\b(?:every|each|cada) (?:(?P<n>{_WORD}) )?(?P<u>{_NAMES})\b")
_TIMES = re.compile(
    rf"\b(?:(?P<o>once|una vez)|(?P<t>twice)|(?P<n>{_WORD}) (?:times|veces)) (?:an?|per|each|every|al|a la|por|cada) "
    rf"(?P<u>{_NAMES})\b"
)
_CENTURY = re.compile(r"\bsiglo (?P<r>[ivx]+)\b|\b(?P<n>\d{1,2})(?:st|nd|rd|th) century\b")
_ROMAN = MappingProxyType({"i": 1, "v": 5, "x": 10})
_ANY = re.compile(r"\b(?:every|each|cada|times|twice|once|vez|veces|siglo|century)\b")


def rates(clause: str) -> tuple[Value, ...]:
    """What a folded clause says of how often, as `1/week` or `1/2 year`, and of centuries."""
    if not _ANY.search(clause):
        return ()
    found = [
        Value("rate", "", "", f"1/{_count(each['n'])} {_UNITS[each['u']]}", each.start(), each.end())
        for each in _EVERY.finditer(clause)
    ]
    for each in _TIMES.finditer(clause):
        times = "1" if each["o"] else "2" if each["t"] else _count(each["n"])
        found.append(Value("rate", "", "", f"{times}/1 {_UNITS[each['u']]}", each.start(), each.end()))
    found += [
        Value("century", "", "", each["n"] or str(_roman(each["r"])), each.start(), each.end())
        for each in _CENTURY.finditer(clause)
    ]
    return tuple(found)


def _count(word: str | None) -> str:
    return "1" if word is None else "2" if word in ("other", "second") else number(word) or word


def _roman(numeral: str) -> int:
    digits = [_ROMAN[each] for each in numeral]
    return sum(-a if a < b else a for a, b in zip(digits, [*digits[1:], 0], strict=True))
