import re

import pytest

from policies.resolve_clashes.clauses import clauses
from policies.resolve_clashes.hints import beginnings
from policies.resolve_clashes.traits import _TRAITS, TRAITS, traits
from tests.policies.resolve_clashes import everyday_en, everyday_es, unseen, varied_en, varied_es

SAID = [
    text
    for kind in (everyday_en, everyday_es, varied_en, varied_es, unseen)
    for pair in (*kind.CLASHES, *kind.ALIKE)
    for text in pair
]


def test_no_trait_is_missed_because_of_the_letters_that_are_looked_at_first() -> None:
    read = [clause for text in SAID for clause in clauses(text)]
    for clause in read:
        ruled_out = {name for name, _, lacks in _TRAITS if re.search(lacks, clause.folded)}
        assert ruled_out == traits(clause.folded, clause.begins)[1]
    assert len({name for clause in read for name in traits(clause.folded, clause.begins)[0]}) > 0.7 * len(TRAITS)


@pytest.mark.parametrize(
    ("clause", "has"),
    [
        ("i love beef", "eats meat"),
        ("we had yogurt this morning", "eats what animals give"),
        ("i had a hotdog", "eats meat"),
        ("i go to mass every sunday", "belief"),
        ("i wake up at 5 am", "early hours"),
        ("bebo vino en la cena", "drinks"),
    ],
)
def test_a_trait_is_known_by_one_word(clause: str, has: str) -> None:
    assert has in traits(clause, beginnings(clause))[0]
