"""A look at its words never keeps a pattern from a text in which it finds something."""

import re
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.inject_facts.patterns import facts_in, found_in, ready, shipped, whole
from proxy.text import sentences
from proxy.text.prefilter import PrefilteredPattern, may_match, needs, small

PATTERNS = [whole(each) for every in shipped().values() for each in every]
OPERATORS = {
    "Editor": [r"\bi use (?P<value>vim|emacs)", r"\bUSO (?P<value>vim|emacs)\b"],
    "Team": [r"\bmy team is (?P<value>\w+)", r"\b(?:mi|nuestro) equipo(?: se llama| es)? (?P<value>\w+)"],
    "Pet": [r"(?P<value>rex|fido) is my (?:dog|cat)", r"(?:dog|cat)? ?called (?P<value>\w{3})"],
    "Anything": [r"(?P<value>\d{4})", r"[ck]afé (?P<value>\w+)"],
    "Straße": [r"\bSTRASSE (?P<value>\w+)", r"\bstraße (?P<value>\w+)", r"\bοδός (?P<value>\w+)"],
}
"""As operators may write them."""


@pytest.mark.parametrize(
    ("pattern", "needed"),
    [
        (r"\bmy (?:full |first )?name(?:'s| is) x", (("name",), ("'s", " is"), ("my ",))),
        (r"call me|i go by", (("call me", "i go by"),)),
        (r"GitHub|\d+", ()),
        (r"user ?name", (("user",), ("name",))),
        (r"(?:ab){2}c*d+", (("ab",), ("d",))),
        (r"(?:abc)?", ()),
        (r"(?!abc)(?<!abd)\w+", ()),
        (r"(?=abc)[xy]", ()),
        (r"(?x) a b c # comment", (("abc",),)),
        (r"(?>abc)d++", (("abc",), ("d",))),
        (r"límite Ñandú", (("límite ñandú",),)),
        (r"οδός abc", ((" abc",),)),
    ],
)
def test_what_a_pattern_needs(pattern: str, needed: tuple[tuple[str, ...], ...]) -> None:
    short = [words for words in needed if min(map(len, words)) < 3]
    kept = needed if len(short) == len(needed) else tuple(words for words in needed if words not in short)
    assert set(needs(pattern)) == set(kept)


def test_letters_that_match_where_case_does_not_count_are_the_same() -> None:
    every = "".join(map(chr, range(sys.maxunicode + 1)))
    for letter in [*map(chr, range(0x20, 0x7F)), *"áéíóúñüçàèìòùâêîôûäëïöåøæðþýÿ"]:
        for found in re.findall(re.escape(letter), every, re.IGNORECASE):
            assert may_match(needs(re.escape(letter)), small(found)), (letter, found)


@pytest.mark.parametrize("pattern", [*PATTERNS, *(each for every in OPERATORS.values() for each in every)])
def test_each_pattern_can_be_reached(pattern: str) -> None:
    needed = needs(pattern)

    @settings(max_examples=10, deadline=None, database=None)
    @given(st.from_regex(re.compile(pattern, re.IGNORECASE)))
    def reached(text: str) -> None:
        assert may_match(needed, small(text))

    reached()


@pytest.mark.parametrize("pattern", PATTERNS)
def test_each_shipped_pattern_is_passed_over_where_its_words_are_missing(pattern: str) -> None:
    assert not may_match(needs(pattern), small("We met on Tuesday."))


SAID = [
    "My name is Ana",
    "MI NOMBRE ES ANA",
    "my Kind of GİTHUB uſername ıs x",
    "i LİVE in Rome",
    "Prefıero té",
    "I'd prefer tea",
    "prefiero el café",
    "my email is a.b@c.org",
    "la FECHA LÍMITE es mañana",
    "la fecha limite es mañana",
    "Soy alérgica a las nueces",
    "I am on GitHub",
    "en github soy ana",
    "I use Vim",
    "MI EQUIPO ES Azul",
    "Rex is my cat",
    "my dog is called Bob, since 2031",
    "kafé negro",
    "my STRAẞE Eins",
    "mi ΟΔΌΣ Ένα",
    "Is it due by Monday",
    "It must be done by Monday",
    "If I live in Rome",
    "we met",
    "“I live in Paris”",
    "`my name is Eve`",
]
FILLERS = st.sampled_from([*SAID, *(each.upper() for each in SAID), *(each.swapcase() for each in SAID)])
TEXTS = st.lists(st.tuples(FILLERS, st.sampled_from([". ", "? ", ", and ", "\n", " "])), max_size=6)


@settings(max_examples=100, deadline=None)
@given(TEXTS.map(lambda parts: "".join(text + end for text, end in parts)))
def test_facts_are_the_same_as_without_a_look_at_the_words(text: str) -> None:
    patterns = {**shipped(), **OPERATORS}
    unseen = tuple(each._replace(needs=()) for each in ready(patterns))
    assert facts_in(text, patterns) == found_in(text, unseen)


def test_that_comparison_finds_facts_of_all_sorts() -> None:
    found = {fact.kind for text in SAID for fact in facts_in(f"{text}.", {**shipped(), **OPERATORS})}
    assert {"Name", "Email", "Prefers", "Deadline", *OPERATORS} <= found


@pytest.mark.parametrize("search", [sentences._ASKED, sentences._SUPPOSED, sentences._REPORTED])
def test_what_is_no_statement_is_found_as_by_the_pattern_alone(search: PrefilteredPattern) -> None:
    @settings(max_examples=60, deadline=None, database=None)
    @given(st.from_regex(search._pattern))
    def found(text: str) -> None:
        assert search.finds(text, small(text))

    found()
    assert not search.finds("Ana was born in Rome.", small("Ana was born in Rome."))


def test_words_alone_are_not_what_a_pattern_finds() -> None:
    text = "Somebody said that it is due on Monday."
    assert not PrefilteredPattern(r"due by \w+day").finds(text, small(text.replace("on", "by")))
