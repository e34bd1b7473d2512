import pytest

from policies.resolve_clashes.dialogue import overtaken
from tests.policies.resolve_clashes.conversation import clashing, pairs, turns
from tests.talk import user

SAID = [text for each in pairs("pairs") for pair in each[::2] for text in pair]


def test_only_the_latest_value_is_overtaken() -> None:
    found = clashing(
        "My budget is 500 euros.", "Noted.", "My budget is 600 euros.", "Noted.", "My budget is 700 euros."
    )
    assert (0, 2) in {(clash.older, clash.newer) for clash in found}
    assert (2, 4) in {(clash.older, clash.newer) for clash in found}


def test_a_message_that_contradicts_itself_is_not_resolved() -> None:
    found = clashing("My budget is 500 euros. My budget is 900 euros.")
    assert [clash.solvable for clash in found] == [False]


def test_two_uncertain_statements_are_not_resolved() -> None:
    found = clashing("Maybe my budget is 500 euros.", "Noted.", "Perhaps my budget is 900 euros.")
    assert [clash.solvable for clash in found] == [False]


def test_what_is_said_long_before_is_still_found() -> None:
    between = [
        text for turn in range(60) for text in (f"Tell me a fact about the number {turn + 1000}.", "Here it is.")
    ]
    found = clashing("I live in Leeds.", "Noted.", *between, "We moved to Cardiff.")
    assert [(clash.older, clash.newer) for clash in found] == [(0, 122)]


def test_a_turn_alone_overtakes_what_it_does_among_all() -> None:
    every = turns([user(text) for text in SAID])
    together = overtaken(every, [None] * len(every))
    assert [overtaken(every[: at + 1], [*together[:at], None]) for at in range(len(every))] == [
        [one] for one in together
    ]


def test_turns_that_are_no_longer_known_overtake_what_they_did() -> None:
    every = turns([user(text) for text in SAID])
    together = overtaken(every, [None] * len(every))
    forgotten = [each if at % 3 else None for at, each in enumerate(together)]
    assert overtaken(every, forgotten) == together[::3]


GREETINGS = (
    "Hola, necesito ayuda hoy.",
    "Hey, I need help today.",
    "Hola, ¿qué tal el lunes?",
    "Happy Friday!",
    "Buenos días, hoy trabajo desde casa ☕",
    "Thanks, see you at 6!",
)
ANSWERS = ("De acuerdo.", "How can I help you today?", "¿En qué puedo ayudarte hoy?", "😊")
CHANGES = ("Mejor llámame por la tarde.", "Actually, make it Thursday.", "Mejor mañana.", "Cambia la cita a las 17:30.")


@pytest.mark.parametrize("greeting", GREETINGS)
def test_no_greeting_is_overtaken(greeting: str) -> None:
    assert [clashing(greeting, answer, later) for answer in ANSWERS for later in CHANGES] == [[]] * 16
