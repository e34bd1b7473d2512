"""The shipped patterns are a file of the form that operators write."""

import json
import re
from importlib.resources import files
from pathlib import Path

import msgspec
import pytest

from policies.inject_facts import InjectFacts
from policies.inject_facts.patterns import UserFact, facts_in, merged, ready, shipped, whole
from proxy.config.document import Document, Sources


class Form(msgspec.Struct, forbid_unknown_fields=True):
    several: list[str]
    parts: dict[str, str]
    patterns: dict[str, list[str]]


FILE = Document(Path("f"), (files("proxy") / "data" / "user_facts.yaml").read_text(encoding="utf-8"), Sources({})).data
PATTERNS = [(name, each) for name, every in shipped().items() for each in every]


def test_each_part_and_pattern_of_the_file_is_needed_and_operators_may_have_parts_too() -> None:
    form = msgspec.convert(FILE, Form)
    used = re.findall(r"<([A-Z_]+)>", " ".join([*form.parts.values(), *(each for _, each in PATTERNS)]))
    assert set(used) == set(form.parts)
    assert all(every for every in form.patterns.values())
    assert set(form.several) <= set(form.patterns)
    pattern = r"\bmy dog is called <NAME>"
    assert facts_in("My dog is called Rex and I live in Rome.", ready({"Dog": [pattern]})) == (
        UserFact("Dog", "Rex", "Dog"),
    )
    assert whole("<UNKNOWN> stays") == "<UNKNOWN> stays"


@pytest.mark.parametrize(("name", "pattern"), PATTERNS)
def test_each_pattern_is_one_that_an_operator_could_write(name: str, pattern: str) -> None:
    groups = re.compile(whole(pattern)).groupindex
    assert {"value", *re.findall(r"\{(\w+)\}", name)} == set(groups)
    assert not re.search(r"<[A-Z_]+>", whole(pattern)), "every part has a meaning"
    assert InjectFacts(shipped=False, patterns={name: (pattern,)}).patterns == {name: (pattern,)}


@pytest.mark.parametrize(
    "pattern", [r"(?:<WORD> )+", r"\bmy dog is <NAME> or <NAME>", r"\bmy dog is <nobody>", r"(?P<value>a+)+"]
)
def test_patterns_that_could_take_forever_or_keep_nothing_are_refused(pattern: str) -> None:
    with pytest.raises(ValueError, match="pattern"):
        InjectFacts(patterns={"Dog": (pattern,)})


SAID = [
    line.split(" => ") for line in (Path(__file__).parent / "said.txt").read_text(encoding="utf-8").splitlines()[1:]
]


@pytest.mark.parametrize(("said", "facts"), SAID)
def test_the_shipped_patterns_find_the_facts(said: str, facts: str) -> None:
    assert merged(facts_in(said.replace("\\n", "\n"))) == json.loads(facts)


def test_a_pasted_document_is_not_about_the_user_and_of_one_value_the_last_is_kept() -> None:
    assert facts_in("My name is Bob. " + "x " * 4000) == ()
    said = "I'm allergic to nuts. I live in Rome. I'm also allergic to latex. I'm allergic to nuts. I moved to Oslo."
    assert merged(facts_in(said)) == {"Allergic to": "nuts, latex", "Lives in": "Oslo"}
