"""Word lists for comparing statements in English and Spanish, folded (`data/vocabulary.txt`)."""

from collections.abc import Iterable, Mapping

from proxy.text.tables import sections


def word_set(text: str) -> frozenset[str]:
    """Return the words of a text as a set."""
    return frozenset(text.split())


def forms(lines: Iterable[str]) -> dict[str, str]:
    """Return the name for each form, from lines such as `name: form form`."""
    rows = (line.partition(": ") for line in lines)
    return {form: name for name, _, names in rows for form in names.split()}


def units(lines: Iterable[str]) -> dict[str, tuple[str, float]]:
    """Return unit and multiple for each form, from lines such as `unit multiple: form form`."""
    return {form: (unit, float(times)) for form, (unit, times) in ((k, v.split()) for k, v in forms(lines).items())}


_WORDS = sections("vocabulary")


def _set(name: str) -> frozenset[str]:
    return word_set(" ".join(_WORDS[name]))


def _numbers(name: str) -> Mapping[str, int]:
    return {form: int(number) for form, number in forms(_WORDS[name]).items()}


NATIONS = forms(_WORDS["nations"])
MONTHS, SHORT_MONTHS, WEEKDAYS = _numbers("months"), _numbers("short months"), _numbers("weekdays")
NUMBERS = _numbers("numbers")
UNITS = units(_WORDS["units"])
NEGATIONS, DENIALS, ONE_OF_SOME = _set("negations"), _set("denials"), _set("one of some")
IS, LIES, AT = _set("is"), _set("lies"), _set("at")
PLACES, NEAR = _set("places"), _set("near")
SPANISH, ENGLISH = _set("spanish"), _set("english")
INNER, NOT_ONE, PLACE_RELATIONS = _set("inner"), _set("not one"), _set("place relations")
RELATIONS = {
    form: name for name, _, all_ in (line.partition(": ") for line in _WORDS["relations"]) for form in all_.split(", ")
}
