"""The shipped patterns are a file of the form that operators write."""

import re
from importlib.resources import files
from pathlib import Path

import msgspec
import pytest

from policies.inject_facts import InjectFacts
from policies.inject_facts.patterns import UserFact, facts_in, merged, ready, shipped, whole
from proxy.config.document import Document, Sources


class Form(msgspec.Struct, forbid_unknown_fields=True):
    """What may stand in the file."""

    several: list[str]
    parts: dict[str, str]
    patterns: dict[str, list[str]]


FILE = Document(Path("f"), (files("proxy") / "data" / "user_facts.yaml").read_text(encoding="utf-8"), Sources({})).data
PATTERNS = [(name, each) for name, every in shipped().items() for each in every]


def test_the_file_has_parts_and_patterns_and_each_is_needed() -> None:
    form = msgspec.convert(FILE, Form)
    used = re.findall(r"<([A-Z_]+)>", " ".join([*form.parts.values(), *(each for _, each in PATTERNS)]))
    assert set(used) == set(form.parts)
    assert all(every for every in form.patterns.values())
    assert set(form.several) <= set(form.patterns)


@pytest.mark.parametrize(("name", "pattern"), PATTERNS)
def test_each_pattern_is_one_that_an_operator_could_write(name: str, pattern: str) -> None:
    groups = re.compile(whole(pattern)).groupindex
    assert {"value", *re.findall(r"\{(\w+)\}", name)} == set(groups)
    assert not re.search(r"<[A-Z_]+>", whole(pattern)), "every part has a meaning"
    assert InjectFacts(shipped=False, patterns={name: (pattern,)}).patterns == {name: (pattern,)}


def test_an_operators_patterns_may_have_parts_too() -> None:
    pattern = r"\bmy dog is called <NAME>"
    assert facts_in("My dog is called Rex and I live in Rome.", ready({"Dog": [pattern]})) == (
        UserFact("Dog", "Rex", "Dog"),
    )
    assert whole("<UNKNOWN> stays") == "<UNKNOWN> stays"


@pytest.mark.parametrize(
    "pattern", [r"(?:<WORD> )+", r"\bmy dog is <NAME> or <NAME>", r"\bmy dog is <nobody>", r"(?P<value>a+)+"]
)
def test_patterns_that_could_take_forever_or_keep_nothing_are_refused(pattern: str) -> None:
    with pytest.raises(ValueError, match="pattern"):
        InjectFacts(patterns={"Dog": (pattern,)})


def test_by_default_the_shipped_ones_are_used() -> None:
    assert (
        facts_in("I live in Rome.")
        == facts_in("I live in Rome.", ready(shipped()))
        == (UserFact("Lives in", "Rome", "Lives in"),)
    )


@pytest.mark.parametrize(
    ("text", "facts"),
    [
        ("I'm allergic to nuts and shellfish.", {"Allergic to": "nuts and shellfish"}),
        ("I am allergic to nuts, soy and shellfish.", {"Allergic to": "nuts, soy and shellfish"}),
        ("I'm allergic to peanuts and I live in Rome.", {"Allergic to": "peanuts", "Lives in": "Rome"}),
        ("I'm also allergic to latex, so please note it.", {"Allergic to": "latex"}),
        ("I am celiac and allergic to sesame.", {"Diet": "celiac", "Allergic to": "sesame"}),
        ("I'm a vegan and severely allergic to soy sauce.", {"Diet": "vegan", "Allergic to": "soy sauce"}),
        ("I'm sorry, and he is allergic to nuts.", {}),
        ("Soy celíaca y alérgica al marisco.", {"Diet": "celíaca", "Allergic to": "marisco"}),
        ("Hello, this is Dr. Meier from Oslo.", {"Name": "Dr. Meier"}),
        ("My name is Ed. Please help.", {"Name": "Ed"}),
        ("I prefer the second option.", {}),
        ("Prefiero la primera.", {}),
        ("I prefer the train.", {"Prefers": "train"}),
        ("Soy alérgica a los frutos secos y al marisco.", {"Allergic to": "frutos secos y al marisco"}),
        ("Soy alérgico al polen y vivo en Lima.", {"Allergic to": "polen", "Lives in": "Lima"}),
        ("Tengo alergia al látex.", {"Allergic to": "látex"}),
        ("Soy vegetariano y celíaco.", {"Diet": "vegetariano y celíaco"}),
        ("I'm vegan and gluten-free.", {"Diet": "vegan and gluten-free"}),
        ("I'm vegetarian and my wife is vegan.", {"Diet": "vegetarian"}),
        ("Prefiero trenes y hoteles pequeños.", {"Prefers": "trenes y hoteles pequeños"}),
        ("Hola, soy Sebastián", {"Name": "Sebastián"}),
        ("¡Buenas! Soy Leo.", {"Name": "Leo"}),
        ("Hi there, this is Priya from Oslo. 👋", {"Name": "Priya"}),
        ("Hello, I am Spanish.", {}),
        ("Soy Vegano.", {"Diet": "Vegano"}),
        ("Soy nuevo aquí.", {}),
        ("my github is sebadp", {"GitHub username": "sebadp"}),
        ("mi github es ana_dev", {"GitHub username": "ana_dev"}),
        ("My GitHub is down.", {}),
        ("mi mail es seb@ejemplo.com", {"Email": "seb@ejemplo.com"}),
        ("You can reach me at tom@example.com.", {"Email": "tom@example.com"}),
    ],
)
def test_what_is_said_in_a_list_is_kept_whole_and_greetings_give_a_name(text: str, facts: dict[str, str]) -> None:
    assert merged(facts_in(text)) == facts


def test_of_several_values_all_are_kept_and_of_one_the_last() -> None:
    said = "I'm allergic to nuts. I live in Rome. I'm also allergic to latex. I'm allergic to nuts. I moved to Oslo."
    assert merged(facts_in(said)) == {"Allergic to": "nuts, latex", "Lives in": "Oslo"}
