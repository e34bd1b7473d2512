"""Which language a text is in, told only where it is beyond doubt."""

import pytest

from proxy.text.language import language, named


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("Where is the station and how do I get there from the hotel?", "en"),
        ("¿Dónde está la estación y cómo llego desde el hotel que reservé?", "es"),
        ("Où est la gare et comment puis-je y aller depuis l'hôtel que j'ai réservé pour nous ?", "fr"),
        ("Wo ist der Bahnhof und wie komme ich von dem Hotel zu dem Zug?", "de"),
        ("hotel madrid 3 nights", None),
        ("", None),
        ("```\nthe the the the the the the\n```", None),
        ("駅はどこですか", None),
        ("The the la la el the la the el la", None),
    ],
)
def test_language(text: str, code: str | None) -> None:
    assert language(text) == code


@pytest.mark.parametrize(
    ("text", "codes"),
    [
        ("Responde siempre en español.", {"es"}),
        ("RESPONDE EN INGLÉS o en inglesa", {"en"}),
        ("Auf Deutsch oder Französisch, bitte", {"de", "fr"}),
        ("Translate it into Portuguese", {"-", "pt"}),
        ("The englishman lives in Spain 🙂", set()),
    ],
)
def test_the_languages_that_a_text_names(text: str, codes: set[str]) -> None:
    assert named(text) == codes
