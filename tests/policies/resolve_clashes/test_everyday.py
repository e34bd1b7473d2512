import pytest

from tests.policies.resolve_clashes import everyday_en, everyday_es
from tests.policies.resolve_clashes.conversation import clashing

# what a user and an assistant say in turn, and which of the messages overtakes which
DIALOGUES: tuple[tuple[tuple[str, ...], set[tuple[int, int]]], ...] = (
    (
        ("What's the weather like in Fresno?", "It is 70 degrees and windy.", "And the temperature in Napa on Friday?"),
        {(0, 2)},
    ),
    (
        (
            "I want to see the weather in Berkeley today.",
            "It's 65 degrees.",
            "How windy will it be?",
            "7 mph",
            "Can you check Oakland for me?",
        ),
        {(0, 4)},
    ),
    (
        (
            "Find me a place to eat in San Jose.",
            "What kind of food?",
            "Something Mexican.",
            "How about Adelita's Taqueria?",
            "No, look for Thai places.",
        ),
        {(2, 4)},
    ),
    (
        (
            "I need a one way flight from Seattle to Chicago next Monday.",
            "For how many people?",
            "Just me.",
            "United at 9 am, 150 dollars.",
            "Is there anything on Tuesday?",
        ),
        {(0, 4)},
    ),
    (
        (
            "Book two tickets for the concert.",
            "Please confirm: 2 tickets on March 3rd for the concert.",
            "Make that 4 tickets.",
        ),
        {(0, 2)},
    ),
    (("I'd like to watch a comedy movie.", "How about The Hustle?", "Something scary would be better."), {(0, 2)}),
    (
        (
            "Reserve a table for 2 at 6 pm at Nopa.",
            "Please confirm: a table for 2 at 6 pm at Nopa today.",
            "Can you do 7:30 pm and 3 people?",
        ),
        {(0, 2)},
    ),
    (("I need a hair stylist in Campbell.", "There is Great Clips.", "Any in Cupertino?"), {(0, 2)}),
    (
        (
            "Get me a cab to 12 Main Street for 3 people.",
            "You want a regular ride for 3 to 12 Main Street?",
            "A pool ride for 2 actually.",
        ),
        {(0, 2)},
    ),
    (
        (
            "I want to rent a car in Los Angeles.",
            "When?",
            "From March 4th to March 8th.",
            "Which type?",
            "A hatchback.",
            "I have a Kia Rio from March 4th until March 8th.",
            "Can we start on the 5th instead?",
        ),
        {(2, 6)},
    ),
    (
        (
            "Find a bus from Sacramento to Fresno.",
            "When?",
            "On March 9th",
            "There's a bus at 8:40 am for 33 dollars.",
            "Let me leave on March 10th.",
        ),
        {(2, 4)},
    ),
    (
        (
            "Transfer 500 dollars to Maria from checking.",
            "You want to send 500 dollars to Maria from your checking account?",
            "No, 350 dollars please.",
        ),
        {(0, 2)},
    ),
    (
        ("Search for a hotel in Paris with 4 stars.", "There is the Hotel du Louvre.", "Do you have any 3 star hotel?"),
        {(0, 2)},
    ),
    (
        (
            "I am looking for a dentist in Novato.",
            "Dr. Lee is available.",
            "When could I go?",
            "Any day.",
            "Book it for the 12th at 10 am.",
            "Dr. Lee isn't available then. How about 11:30 am?",
            "Try the 13th at 10 am.",
        ),
        {(4, 6)},
    ),
    (("Play a song by Adele.", "Playing Hello.", "Play something by Coldplay."), set()),
    (
        (
            "I want an apartment with 2 bedrooms in Dublin.",
            "There's one at 1200 dollars.",
            "I could do with 3 bedrooms.",
        ),
        {(0, 2)},
    ),
    (
        (
            "Schedule a visit on March 6th.",
            "Confirm: visit on March 6th.",
            "Yes, thanks. I also need a bus for March 8th.",
        ),
        set(),
    ),
    (("I'd like to go to a museum in London.", "The British Museum.", "Great. Find me a hotel in Leeds."), set()),
    (("Book a flight to Phoenix for March 2nd.", "Done.", "I need a hotel there from March 2nd to March 7th."), set()),
    (
        ("I need a round trip flight to Sydney, economy.", "There's Qantas at 1100.", "Premium economy please."),
        {(0, 2)},
    ),
    (("Set a reminder for 8 am to call Joe.", "Done.", "Set a reminder for 5 pm to buy milk."), set()),
    (("Busca un hotel en Sevilla.", "Hay tres hoteles.", "¿Y en Cádiz?"), {(0, 2)}),
    (("Quiero una mesa para dos a las ocho.", "¿Confirmo mesa para dos a las 20:00?", "A las nueve, mejor."), {(0, 2)}),
    (
        ("Resérvame un vuelo a Roma el lunes.", "¿Confirmo el vuelo a Roma el lunes?", "No, que sea el martes."),
        {(0, 2)},
    ),
    (("¿Qué tiempo hace en Murcia?", "Soleado.", "¿Y en Alicante?"), {(0, 2)}),
    (("Quiero ver una comedia.", "Tengo Campeones.", "Mejor algo de terror."), {(0, 2)}),
    (
        (
            "I want to visit attractions in New Delhi.",
            "Akshardham.",
            "Is it good for kids?",
            "Yes",
            "What about attractions in Sydney?",
        ),
        {(0, 4)},
    ),
    (
        ("Find me events in Vancouver, something like baseball.", "Blue Jays vs Mariners.", "I prefer a concert."),
        {(0, 2)},
    ),
    (("I need a psychologist in Gilroy.", "Emily Chan.", "Show me a psychiatrist."), {(0, 2)}),
    (("I want a shared cab for two.", "Confirm: shared ride for two.", "No, I want it regular."), {(0, 2)}),
    (("Find moderately priced Indian restaurants.", "Amber India.", "Something cheaper please."), {(0, 2)}),
    (("Find an expensive restaurant.", "Gary Danko.", "Search for an inexpensive one."), {(0, 2)}),
    (
        (
            "I want to leave on the 3rd.",
            "From where?",
            "Boston. Returning on the 9th.",
            "Delta for 300.",
            "I'd rather return on the 8th.",
        ),
        {(2, 4)},
    ),
)
AT_ODDS = (
    ("I'm a vegetarian.", "I had a steak for dinner."),
    ("I'm an only child.", "My older brother lives in Leeds."),
    ("Soy hijo único.", "Mi hermana vive en Soria."),
    ("I can't drive.", "I drove to work this morning."),
    ("Estoy en paro.", "Mi jefe me ha subido el sueldo."),
    ("I don't play any instruments.", "I play the cello."),
    ("I live alone.", "My roommate cooks every night."),
    ("No sé cocinar.", "Me encanta cocinar para mis amigos."),
)
NOT_AT_ODDS = (
    ("I'm a vegetarian.", "I had a veggie burger for dinner."),
    ("I'm an only child.", "My brother-in-law lives in Leeds."),
    ("I can't drive.", "Loud music drives me crazy."),
    ("I'm unemployed.", "I lost my job in May."),
    ("I'm single.", "My ex wife lives in Leeds."),
    ("I'm a vegetarian.", "I used to eat steak every week."),
    ("Soy vegano.", "Mi hermano come queso."),
    ("My dog is brown.", "My dog is friendly."),
    ("My job is stressful.", "My job is teaching kids."),
)

BUDGETS_AND_PLACES = (
    ("presupuesto 800", "presupuesto 1.200"),
    ("El presupuesto es de 800 €.", "El presupuesto ahora es de 1.200 €."),
    ("Budget 800", "Budget 1,200"),
    ("The budget is $800.", "The budget is now $1,200."),
    ("Deploy to staging only.", "Deploy to production."),
    ("Despliega solo en staging.", "Despliega en producción."),
)
BOTH_HOLD = (
    ("Presupuesto de viaje: 800", "Presupuesto de comida: 1.200"),
    ("Deploy to staging first.", "Then deploy to production."),
    ("The staging server is slow.", "The production server is down."),
)


def found(pairs: tuple[tuple[str, str], ...]) -> int:
    return sum(any(clash.solvable for clash in clashing(older, "All right.", newer)) for older, newer in pairs)


@pytest.mark.parametrize(("clashes", "alike"), [(each.CLASHES, each.ALIKE) for each in (everyday_en, everyday_es)])
def test_most_of_what_people_take_back_is_found_and_little_else(
    clashes: tuple[tuple[str, str], ...], alike: tuple[tuple[str, str], ...]
) -> None:
    assert found(clashes) >= 0.8 * len(clashes)
    assert found(alike) <= 0.06 * len(alike)


@pytest.mark.parametrize(("said", "overtaken"), DIALOGUES)
def test_a_value_of_a_task_takes_the_place_of_the_one_before(
    said: tuple[str, ...], overtaken: set[tuple[int, int]]
) -> None:
    assert {(clash.older, clash.newer) for clash in clashing(*said) if clash.solvable} == overtaken


@pytest.mark.parametrize(("older", "newer"), AT_ODDS)
def test_what_people_are_rules_out_what_they_do(older: str, newer: str) -> None:
    assert found(((older, newer),)) == 1
    assert found(((newer, older),)) == 1


@pytest.mark.parametrize(("older", "newer"), NOT_AT_ODDS)
def test_what_people_are_does_not_rule_out(older: str, newer: str) -> None:
    assert found(((older, newer),)) == 0


@pytest.mark.parametrize(("older", "newer"), BUDGETS_AND_PLACES)
def test_a_budget_and_where_to_deploy_are_changed(older: str, newer: str) -> None:
    assert found(((older, newer),)) == 1


@pytest.mark.parametrize(("older", "newer"), BOTH_HOLD)
def test_budgets_of_different_things_and_one_step_after_another_both_hold(older: str, newer: str) -> None:
    assert found(((older, newer),)) == 0
