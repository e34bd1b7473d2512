import pytest

from policies.resolve_clashes.dialogue import overtaken
from tests.policies.resolve_clashes.conversation import clashing, turns, user
from tests.policies.resolve_clashes.pairs import ALIKE_EN, CLASHES_EN

UPDATES = [
    ("Book a table for two.", "A table for two tomorrow. Is that correct?", "No, for four people."),
    ("I need it on the 5th.", "To confirm: a visit on March 5th?", "Make it the 7th, please."),
    ("At half past six.", "Please confirm your booking at 6:30 pm.", "Can you change that to 19:15?"),
    ("I'd like to see it next Tuesday.", "Please confirm a visit on May 4th.", "No. I want to see it on the 6th."),
    ("Find me a bus to Boston.", "There is one at 8 am.", "What about a bus to Chicago instead?"),
    ("The savings one.", "You have 400 dollars in savings.", "Checking, please."),
    ("I want to go at 2 pm.", "Unfortunately, I was not able to book that.", "Please try for 4 pm."),
    ("Two rooms, please.", "Two rooms. When do you arrive?", "Actually, make that three rooms, from Friday."),
    ("Para dos personas.", "Mesa para dos personas, ¿correcto?", "No, para cinco personas."),
    ("El 5 de mayo.", "Una visita el 5 de mayo, ¿confirmo?", "Mejor el 8 de mayo."),
    ("A las siete de la tarde.", "Reserva a las siete, ¿es correcto?", "Perdón, a las ocho y media."),
    ("Quiero ver una película de terror.", "Hay dos.", "Mejor una película de aventuras."),
]
NO_UPDATES = [
    ("Book a table for two.", "At what time?", "At half past six."),
    ("I leave on the 5th.", "And when do you come back?", "I return on the 9th."),
    ("I'm leaving from Leeds.", "Where to?", "To Madrid."),
    ("I need two rooms.", "For how long?", "For five nights."),
    ("A table for two.", "A table for two. Is that correct?", "Yes, that is correct."),
    ("I arrive on the 5th.", "On March 5th, right?", "Yes, on March 5th."),
    ("A table for four people.", "Anything else?", "I also need a taxi for two people."),
    ("Find a horror movie.", "There is one. Anything else?", "Also play a pop song."),
    ("Llego el día 5.", "¿Y cuándo se marcha?", "Me voy, de vuelta, el día 9."),
    ("Mesa para dos.", "¿A qué hora?", "A las nueve de la noche."),
    ("Salgo desde Lugo.", "¿Adónde?", "A Madrid."),
    ("Dos habitaciones.", "¿Cuántas noches?", "Cinco noches."),
]


@pytest.mark.parametrize("said", UPDATES)
def test_a_value_that_is_given_anew_overtakes_the_one_before(said: tuple[str, str, str]) -> None:
    assert {(clash.older, clash.newer, clash.solvable) for clash in clashing(*said)} == {(0, 2, True)}


@pytest.mark.parametrize("said", NO_UPDATES)
def test_values_of_different_things_stand_beside_each_other(said: tuple[str, str, str]) -> None:
    assert clashing(*said) == []


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
    said = [text for pair in [*CLASHES_EN, *ALIKE_EN] for text in pair]
    every = turns([user(text) for text in said])
    together = overtaken(every, [None] * len(every))
    assert [overtaken(every[: at + 1], [*together[:at], None]) for at in range(len(every))] == [
        [one] for one in together
    ]


def test_turns_that_are_no_longer_known_overtake_what_they_did() -> None:
    said = [text for pair in [*CLASHES_EN, *ALIKE_EN] for text in pair]
    every = turns([user(text) for text in said])
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
