"""Looking facts up by the names in them finds what comparing each of them finds."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.check_facts.prose import is_about
from policies.check_facts.prose_index import ProseIndex
from policies.check_facts.reading import denies, prose
from policies.check_facts.subjects import subject_of, turned
from policies.check_facts.trusted import Fact, Trusted
from proxy.text.sentences import in_full, sentences
from tests.policies.check_facts.known import FACTS, FALSE_EN, FALSE_ES, unstated

MORE = [
    "Maria da Silva Santos Pereira is a Portuguese painter.",
    "Santos is a Brazilian footballer known as Neto Bravo.",
    "There is a lake near Norwick Bridge that Tomas Rivel painted.",
    "Rivel (born 1950) is a sculptor.",
]
PLAYED = "In the 1970s, and against the advice of all, O'Neil-Vane (born 1950) played for Lund."
NOT_PLAYED = "O'Neil-Vane was born in 1961."
TEXTS = [*FACTS, *FALSE_EN, *FALSE_ES, *(text for _, text in unstated()), *MORE, "Neto Bravo was born in 1900."]
READ = [prose(form)._replace(text=text) for text in [*FACTS, *MORE] for form in dict.fromkeys((text, turned(text)))]


@pytest.mark.parametrize("text", TEXTS)
def test_the_same_facts_are_near(text: str) -> None:
    index = ProseIndex()
    for fact in READ:
        index.add(fact)
    front = turned(text)
    subject = subject_of(front)
    known = [fact for fact in READ if subject & fact.names]
    near = known if known and denies(text) else [fact for fact in known if is_about(subject, fact)]
    assert index.near(text, front) == near


def test_some_are_near_in_each_way() -> None:
    index = ProseIndex()
    for fact in READ:
        index.add(fact)
    for text in ("Maria Santos Pereira died.", "Neto Bravo died.", "Rivel Rivel Tomas died.", "Santos Neto won."):
        assert index.near(text, text), text


TRUSTED = Trusted([*map(Fact, [*FACTS, *MORE])])


class _All(frozenset[str]):
    """A set in which each word begins something."""

    def intersection(self, *others: object) -> frozenset[str]:
        return frozenset([""])


def unseen(facts: list[str]) -> Trusted:
    """The same facts, where every text counts as one with a word of theirs."""
    made = Trusted(map(Fact, facts))
    made._first = _All()
    return made


ALL_WORDS = unseen([*FACTS, *MORE])
JOINED = st.lists(
    st.tuples(
        st.sampled_from([*TEXTS, *(text.upper() for text in TEXTS[:60]), "We met.", "It's O'Neil's_x-1950."]),
        st.sampled_from([" ", "\n", " “", "” ", ' "', "'s ", "-", ".", "`", " '"]),
    ),
    max_size=5,
)


@settings(max_examples=300, deadline=None)
@given(JOINED.map(lambda parts: "".join(text + end for text, end in parts)))
def test_texts_without_a_word_of_a_fact_are_passed_over_rightly(text: str) -> None:
    assert TRUSTED.contradicted(text) == ALL_WORDS.contradicted(text)


@pytest.mark.parametrize("fact", [*FACTS, *MORE, PLAYED])
def test_a_fact_by_itself_is_found_by_its_words(fact: str) -> None:
    one, slow = Trusted([Fact(fact)]), unseen([fact])
    for text in [*FALSE_EN, *FALSE_ES, *MORE, NOT_PLAYED]:
        assert one.contradicted(text) == slow.contradicted(text), text


def test_a_fact_that_only_names_in_prose_lead_to_is_found() -> None:
    assert [found.fact for found in Trusted([Fact(PLAYED)]).contradicted(NOT_PLAYED)] == [PLAYED]


def test_that_comparison_finds_contradictions() -> None:
    assert sum(bool(ALL_WORDS.contradicted(text)) for text in TEXTS) > len(FALSE_EN) // 2
    assert [each.text for each in sentences("A b. C d.")] == list(in_full("A b. C d."))
