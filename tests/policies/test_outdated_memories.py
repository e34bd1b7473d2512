"""What is remembered of a user is overtaken by what is newer, in the third person as in the first."""

import pytest

from policies.select_memories import outdated

OVERTAKEN = (
    ("User prefers budget hotels", "User prefers luxury 5-star hotels"),
    ("The user is vegan", "The user eats meat"),
    ("The user lives in Madrid", "The user moved to Sevilla"),
    ("Works at Acme", "Works for Globex now"),
    ("The user likes coffee", "The user does not like coffee any more"),
    ("The user's budget is 800 euros", "The user's budget is 1200 euros"),
    ("User is allergic to nuts", "User is not allergic to nuts"),
    ("El usuario vive en Madrid", "El usuario se ha mudado a Sevilla"),
    ("El usuario prefiere hoteles baratos", "El usuario prefiere hoteles de lujo de 5 estrellas"),
    ("Tiene dos hijos", "Tiene tres hijos"),
    ("The user lives in Madrid", "I live in Oslo now 🏔"),
    ("El usuario trabaja en Acme", "El usuario trabaja en Globex"),
    ("Le gusta el café", "Ya no le gusta el café"),
)
BOTH_HOLD = (
    ("User prefers budget hotels", "User prefers quiet rooms"),
    ("The user likes jazz", "The user likes rock"),
    ("User is allergic to nuts", "User is allergic to shellfish"),
    ("The user speaks Spanish", "The user speaks English"),
    ("The user drinks tea", "The user drinks coffee"),
    ("The user visited Rome", "The user visited Paris"),
    ("El usuario vive en Madrid", "La hermana del usuario vive en Sevilla"),
    ("Viajó a Roma en mayo", "Viajó a Oslo en junio"),
    ("Hotel Meridian is full", "Hotel Lisboa has rooms"),
    ("Su jefa se llama Marta", "Su hija se llama Lucía"),
)


@pytest.mark.parametrize(("older", "newer"), OVERTAKEN)
def test_the_older_one_is_outdated(older: str, newer: str) -> None:
    assert outdated(["The user has a bike", older, newer]) == {1: 2}


@pytest.mark.parametrize(("older", "newer"), BOTH_HOLD)
def test_neither_is_outdated(older: str, newer: str) -> None:
    assert outdated([older, newer]) == {}
