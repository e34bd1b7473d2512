"""Cities, countries and continents, and whether two places exclude each other. All words are folded. Pure."""

from collections.abc import Iterable, Mapping, Sequence

from proxy.text.tables import sections

_PLACES = sections("facts/places")


def _read_cities() -> Mapping[str, tuple[str, str]]:
    rows = (line.partition(": ") for line in _PLACES["cities"])
    listed = ((code, city.split("=")) for code, _, cities in rows for city in cities.split(", "))
    return {name: (names[0], code) for code, names in listed for name in names}


def _read_countries() -> tuple[Mapping[str, list[tuple[frozenset[str], str]]], Mapping[str, str]]:
    names: dict[str, list[tuple[frozenset[str], str]]] = {}
    continents: dict[str, str] = {}
    for line in _PLACES["countries"]:
        continent, _, rest = line.partition(": ")
        code, _, listed = rest.partition(" ")
        for name in listed.split(", "):
            part = f"{code}{name}" if code.endswith(".") else code
            continents[part] = continent
            names.setdefault(name.split()[-1], []).append((frozenset(name.split()), part))
    return names, continents


_CITIES = _read_cities()
"""The first name of a city and the code of its country, by each of its names."""
_BY_LAST_WORD, _CONTINENT = _read_countries()
_CONTINENTS = {"europa": "europe", **{each: each for each in {*_CONTINENT.values()}}}


def is_known(place: str) -> bool:
    """Return whether a name is one of a city, a country, a part of one or a continent."""
    return place in _CITIES or bool(_countries([place])) or bool(_continents([place]))


def apart(some: Sequence[str], others: Sequence[str]) -> bool | None:
    """Return whether what lies at some places cannot lie at others; None where it is not known.

    `["lyon", "france"]` is apart from `["paris"]`, and not from `["europe"]`.
    """
    one, other = _named_cities(some), _named_cities(others)
    if one and other:
        return not one & other
    first, second = _countries(some), _countries(others)
    if first and second:
        return not any(a.startswith(b) or b.startswith(a) for a in first for b in second)
    first, second = _continents(some, first), _continents(others, second)
    return not first & second if first and second else None


def _named_cities(places: Sequence[str]) -> frozenset[str]:
    return frozenset(_CITIES[place][0] for place in places if place in _CITIES)


def _countries(places: Sequence[str]) -> frozenset[str]:
    """The codes of the countries, or parts of one, that are named; if there are none, those of the cities."""
    named = {
        code
        for place in places
        for names, code in _BY_LAST_WORD.get(place.rpartition(" ")[2], ())
        if names == frozenset(place.split())
    }
    return frozenset(named or {_CITIES[place][1] for place in places if place in _CITIES})


def _continents(names: Iterable[str], codes: Iterable[str] = ()) -> frozenset[str]:
    """The continents of countries; without those, the ones that are named."""
    found = frozenset(_CONTINENT[code] for code in codes if code in _CONTINENT)
    return found or frozenset(_CONTINENTS[name] for name in names if name in _CONTINENTS)
