"""The words by which prose is compared, in English and Spanish, folded: `data/vocabulary.txt`."""

from collections.abc import Iterable, Mapping

from proxy.text.tables import sections


def word_set(text: str) -> frozenset[str]:
    """The words of a text."""
    return frozenset(text.split())


def forms(lines: Iterable[str]) -> dict[str, str]:
    """Return the names of lines `name: form form`, by the forms."""
    rows = (line.partition(": ") for line in lines)
    return {form: name for name, _, names in rows for form in names.split()}


def units(lines: Iterable[str]) -> dict[str, tuple[str, float]]:
    """Return for each form in lines `unit times: form form` the unit, and how many of it the form is."""
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
    form: name for name, _, said in (line.partition(": ") for line in _WORDS["relations"]) for form in said.split(", ")
}
