"""Plain sentences: where their verb is, and what is said behind it."""

import pytest

from policies.check_facts.plain import plain


@pytest.mark.parametrize(
    ("sentence", "subject", "verb"),
    [
        ("The Eiffel Tower is in Paris.", {"eiffel", "tow"}, "locate"),
        ("The location of the Eiffel Tower is Paris.", {"eiffel", "tow"}, "locate"),
        ("La Torre Eiffel se encuentra en París.", {"eiffel", "tor"}, "locate"),
        ("The support team is closed on Mondays.", {"support", "team"}, "close"),
        ("Support is included in Plan A.", {"plan", "a"}, "have"),
        ("The Orion team owns the mail service.", {"mail", "servic"}, "belong"),
        ("Lena's manager is Petra Lang.", {"len"}, "report to"),
        ("Shipping is free.", {"ship"}, "cost"),
    ],
)
def test_subject_and_verb(sentence: str, subject: set[str], verb: str) -> None:
    read = plain(sentence, "en")
    assert read is not None
    assert (set(read.subject), read.verb) == (subject, verb)


@pytest.mark.parametrize(
    "sentence",
    [
        "Plan B does not include support.",
        "Plan B doesn't include support.",
        "Plan B includes no support.",
        "Plan B excludes support.",
        "Plan B comes without support.",
        "El plan B no incluye soporte.",
        "Smoking is forbidden.",
    ],
)
def test_denials(sentence: str) -> None:
    read = plain(sentence, "en")
    assert read is not None
    assert read.is_denied


@pytest.mark.parametrize("sentence", ["Yes.", "What a day", "Ada (born 1950) is a painter.", "is in Paris", "x" * 200])
def test_what_is_no_plain_sentence(sentence: str) -> None:
    assert plain(sentence, "en") is None
