import importlib
import pkgutil
import re
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import policies.resolve_clashes
from policies.resolve_clashes import cues
from policies.resolve_clashes.clauses import clauses
from policies.resolve_clashes.hints import Hinted, Hints, beginnings, hinted
from tests.policies.resolve_clashes import everyday_en, everyday_es, unseen, varied_en, varied_es

SAID = [
    clause.folded
    for kind in (everyday_en, everyday_es, varied_en, varied_es, unseen)
    for pair in (*kind.CLASHES, *kind.ALIKE)
    for text in pair
    for clause in clauses(text)
]


def patterns(value: object) -> Iterator[re.Pattern[str]]:
    """The patterns in a module's value."""
    if isinstance(value, re.Pattern):
        yield value
    elif isinstance(value, Hints):
        yield from (pattern for _, pattern in value.near(frozenset(value.beginnings)))
    elif isinstance(value, tuple):
        for each in value:
            yield from patterns(each)


ALL = {
    pattern.pattern: pattern
    for module in pkgutil.iter_modules(policies.resolve_clashes.__path__)
    for value in vars(importlib.import_module(f"policies.resolve_clashes.{module.name}")).values()
    for pattern in patterns(value)
}


def test_no_pattern_is_found_where_its_hint_says_that_it_is_not() -> None:
    begins = {text: beginnings(text) for text in SAID}
    found = tried = 0
    for cue in map(hinted, ALL.values()):
        for text in SAID:
            may_be = cue.may_be_in(begins[text])
            tried += may_be
            if cue.pattern.search(text):
                found += 1
                assert may_be, (cue, text)
    assert len(ALL) > 150
    assert found > 5000
    assert tried < 0.28 * len(ALL) * len(SAID), "most need not be tried"


@pytest.mark.parametrize(
    ("pattern", "hint"),
    [
        (r"\bnever\b", {"neve"}),
        (r"\b(?:no|never)\b", {"no", "neve"}),
        (r"\bre(?:ad|ply)\b", {"read", "repl"}),
        (r"\bre[a-z]+", None),  # what begins with two letters may be anything
        (r"\b(?:nobody|not even)\b", {"even", "nobo"}),
        (r"\bcats? (?:eat|drink|like|see)\b", {"cat", "cats"}),  # these are fewer than what follows
        (r"\b(?:by|por)(?: (?:the|el))? [a-z]+", {"by", "por"}),
        (r"\bread(?:y|ing)?\b", {"read"}),
        (r"never", None),  # a part of `whenever`
        (r" never", {"neve"}),
        (r"\bnever(?:more)?|\b(?:more|less) than", {"neve", "than"}),
        (r"\b(?:more|less)(?: than)? five\b", {"five"}),
        (r"\bi (?:really )?(?:cook|bake)\b", {"cook", "bake"}),
        (r"^\W*(?:and |y )?not\b", {"not"}),
        (r"\b(?:and)?not\b", {"andn", "not"}),
        (r"\bcats? (?!are)[a-z]+", {"cat", "cats"}),
        (r"\b(?=not)[a-z]+", None),
        (r"\b(?!nobody)no(?! one)\b", {"no"}),
        (r"(?<![\w#])(?:red|blue)(?![\w#])", {"red", "blue"}),
        (r"\b\d{1,2} (?:of|de) (?:May|June)", {"#"}),
        (r"\b(?:\d+|two) times\b", {"time"}),
        (r"\bhm+ ok\b", {"ok"}),
        (r"\w+ly\b", None),
        (r"\bcaf[eé] con\b", {"caf", "cafe"}),
        (r"\bno{1,3}pe\b", None),
        (r"\b[a-z]+? is \$\d", {"is"}),
    ],
)
def test_a_hint_is_what_must_be_there(pattern: str, hint: set[str] | None) -> None:
    assert hinted(pattern).hint == hint


CHARACTERS = st.sampled_from("nob1 ,é_")
PIECES = st.one_of(
    CHARACTERS,
    st.sampled_from(
        ["no", "bon", ".", "^", "$", r"\b", r"\B", r"\W", r"\d", r"\w", r"\s", "[nb]", "[.,]", "[^o]", "[a-o]"]
    ),
    st.sampled_from([r"(?<![\w#])", r"(?![\w#])", r"(?<!\w)", "(?!n)", "(?=o)", "(?<=b)"]),
)
MADE = st.recursive(
    PIECES,
    lambda inner: st.one_of(
        st.lists(inner, min_size=2, max_size=4).map("".join),
        st.lists(inner, min_size=2, max_size=3).map(lambda ways: f"(?:{'|'.join(ways)})"),
        st.builds("(?:{}){}".format, inner, st.sampled_from(["?", "*", "+", "+?", "{2}", "{0,2}", "{1,3}"])),
    ),
    max_leaves=8,
)


@settings(max_examples=500, deadline=None)
@given(MADE, st.lists(st.text(CHARACTERS, max_size=9), min_size=10, max_size=30))
def test_so_it_is_with_patterns_of_all_sorts(pattern: str, texts: list[str]) -> None:
    cue = hinted(pattern)
    for text in texts:
        assert cue.may_be_in(beginnings(text)) or cue.pattern.search(text) is None


def test_what_cannot_be_there_is_not_tried() -> None:
    cue = hinted(cues.NEGATION)
    assert cue.search("i do not eat meat", beginnings("i do not eat meat"))
    assert [match[0] for match in cue.finditer("no, never", beginnings("no, never"))] == ["no", "never"]
    cheated = Hinted(re.compile("meat"), frozenset({"fish"}))
    assert cheated.search("meat", beginnings("meat")) is None
    assert list(cheated.finditer("meat", beginnings("meat"))) == []


def test_of_many_those_are_tried_that_may_be_there() -> None:
    many = Hints([("a", r"\bcats\b"), ("b", r"\w+s\b"), ("c", r"\b(?:dogs|cats)\b"), ("d", r"\bdogs\b")])
    assert [name for name, _ in many.near(beginnings("the cats"))] == ["a", "b", "c"]
    assert [name for name, _ in many.near(beginnings("hello"))] == ["b"]
