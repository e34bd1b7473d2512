"""Texts that say the same are told from those that only look alike, in several languages."""

import pytest

from proxy.text.same import KnownStatements, first_person, is_repetition, own_statements, statements, subject, telling

STATED = [
    ("I'm vegetarian.", "The user is a vegetarian."),
    ("We are four, I'm vegetarian.", "The user is vegetarian"),
    ("Plan a dinner for us. I am a vegetarian and eat no meat.", "The user is vegetarian."),
    ("I am allergic to peanuts and shellfish", "The user is allergic to peanuts"),
    ("I live in Hamburg", "Lives in Hamburg"),
    ("Soy vegetariana.", "La usuaria es vegetariana"),
    ("1: I'm vegetarian.", "The user is a vegetarian."),
    ("I'm vegetarian. I live in Hamburg.", "The user lives in Hamburg. The user is a vegetarian."),
]
UNSTATED = [
    ("My son is allergic to nuts", "The user is allergic to nuts"),
    ("I'm vegetarian", "Tom is vegetarian"),
    ("Is Tom vegetarian?", "Tom is vegetarian"),
    ("I am allergic to peanuts", "The user is allergic to shellfish"),
    ("My budget is 900 euros", "The user's budget is 1200 euros"),
    ("I'm vegetarian", "The user is vegetarian. The restaurant opens at 7."),
    ("Ich bin Vegetarier", "Der Bruder ist Vegetarier"),
    ("我吃素。", "用户不吃素"),
]


@pytest.mark.parametrize(("own", "text"), STATED)
def test_a_text_is_stated_by_the_users_own_words(own: str, text: str) -> None:
    known = KnownStatements()
    known.add(own_statements(own), own=True)
    assert known.says(text)


@pytest.mark.parametrize(("own", "text"), UNSTATED)
def test_a_text_is_not_stated_by_words_about_something_else(own: str, text: str) -> None:
    known = KnownStatements()
    known.add(own_statements(own), own=True)
    assert not known.says(text)


@pytest.mark.parametrize(("memories", "own"), [
    (["Der Nutzer ist Vegetarier", "Der Nutzer wohnt in Köln", "Der Nutzer hat zwei Kinder"], "Ich bin Vegetarier."),
    (["L'utilisateur est végétarien", "L'utilisateur habite à Lyon", "L'utilisateur lit"], "Je suis végétarien."),
    (["Пользователь — вегетарианец", "Пользователь живёт в Казани", "Пользователь любит чай"], "Я вегетарианец."),
    (["Ann is vegetarian", "Ann lives in Bonn", "Ann has two cats", "Tom is her son"], "I'm vegetarian."),
])  # fmt: skip
def test_the_word_that_most_memories_begin_with_names_the_user(memories: list[str], own: str) -> None:
    known, user = KnownStatements(), subject(memories)
    known.add(own_statements(own), own=True)
    assert [known.says(text, user) for text in memories] == [True, *[False] * (len(memories) - 1)]


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("The user is a vegetarian.", "User is vegetarian", True),
        ("Der Nutzer ist Vegetarier.", "der nutzer ist Vegetarier", True),
        ("المستخدم نباتي.", "المستخدم نباتي", True),
        ("The user is vegetarian", "The user is not vegetarian", False),
        ("Der Nutzer ist Vegetarier", "Der Nutzer ist kein Vegetarier", False),
        ("The guest is vegetarian", "The user is vegetarian", False),
        ("The room is on floor 3", "The room is on floor 4", False),
    ],
)
def test_what_others_say_is_the_same_only_in_the_same_words(one: str, other: str, same: bool) -> None:
    known = KnownStatements()
    known.add(statements(one), own=False)
    assert known.says(other) is same


def test_nothing_says_a_text_without_statements_and_few_memories_do_not_tell_the_user() -> None:
    known = KnownStatements()
    known.add(statements("I like tea."), own=False)
    assert not known.says("Do I like tea?")
    assert not known.says("")
    assert first_person("The user's sister sings") == "my sister sings"
    assert first_person("La usuaria es vegetariana") == "soy vegetariana"
    assert subject(["Tom is vegetarian", "Tom sings"]) == ""
    assert subject(["Tom is vegetarian", "Ann sings", "Bob paints"]) == ""


@pytest.mark.parametrize(
    ("one", "other", "least", "same"),
    [
        ("likes green tea", "likes nice green tea", 0.6, True),
        ("likes green tea", "likes nice green tea", 0.92, False),
        ("likes green tea", "green tea likes", 0.5, False),
        ("allergic to peanuts", "allergic to penicillin", 0.5, False),
        ("has green cats", "has 3 green cats", 0.5, False),
        ("", "tea", 0.5, False),
    ],
)
def test_a_repetition_has_the_words_in_their_order(one: str, other: str, least: float, same: bool) -> None:
    assert is_repetition(telling(one), telling(other), least) is same
