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


_WORDS = sections("vocabulary")


def _set(name: str) -> frozenset[str]:
    return word_set(" ".join(_WORDS[name]))


def _numbers(name: str) -> Mapping[str, int]:
    return {form: int(number) for form, number in forms(_WORDS[name]).items()}


NATIONS = forms(_WORDS["nations"])
MONTHS, WEEKDAYS, NUMBERS = _numbers("months"), _numbers("weekdays"), _numbers("numbers")
NEGATIONS, DENIALS = _set("negations"), _set("denials")
IS, INNER, NOT_ONE, PLACE_RELATIONS = _set("is"), _set("inner"), _set("not one"), _set("place relations")
RELATIONS = {
    form: name for name, _, all_ in (line.partition(": ") for line in _WORDS["relations"]) for form in all_.split(", ")
}
