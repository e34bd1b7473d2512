from collections.abc import Sequence
from typing import NamedTuple

from policies.recall_history.relevance import Candidates
from policies.recall_history.relevance import ranked as ranked_with_shares
from proxy.text import arrays


class Candidate(NamedTuple):
    message: int
    is_user: bool
    tokens: int
    asks: bool = False


def candidates(*tokens: int, users: tuple[int, ...] = ()) -> list[Candidate]:
    # two messages lie between any two of them, so that no one is another's neighbour
    return [Candidate(3 * place, place in users, size) for place, size in enumerate(tokens)]


def ranked(given_: list[Candidate], words: list[float], meaning: Sequence[float | None], least: float) -> list[int]:
    array = arrays.numpy().array
    columns = (
        Candidates(*(array(column) for column in zip(*given_, strict=True))) if given_ else Candidates(*[array([])] * 4)
    )
    found = ranked_with_shares(columns, array(words, float), array(meaning, float), least)
    shares = [each.share for each in found if each.bears == each.place]
    assert shares == sorted(shares, reverse=True)
    assert shares[:1] in ([], [1.0])
    return [each.place for each in found]


def test_words_decide_where_no_meaning_is_known() -> None:
    assert ranked(candidates(100, 100, 100), [1.0, 3.0, 2.0], [None] * 3, 0.0) == [1, 2, 0]


def test_words_and_meaning_count_alike() -> None:
    assert ranked(candidates(100, 100, 100), [2.0, 2.0, 0.0], [0.1, 0.8, 0.8], 0.0) == [1, 0, 2]


def test_words_decide_where_all_passages_are_about_as_near() -> None:
    """As in a language that the embedding model does not know."""
    there = candidates(400, 50, 50, users=(1, 2))
    assert ranked(there, [4.0, 1.0, 0.0], [0.96, 0.97, 0.96], 0.0)[0] == 0
    assert ranked(there, [4.0, 1.0, 0.0], [0.16, 0.67, 0.16], 0.0)[0] == 1


def test_what_has_no_vector_yet_is_judged_by_its_words() -> None:
    assert ranked(candidates(100, 100), [2.0, 0.0], [None, 0.8], 0.0) == [0, 1]


def test_nothing_is_chosen_where_nothing_fits() -> None:
    assert ranked(candidates(100, 100), [0.0, 0.0], [0.0, -0.2], 0.0) == []
    assert ranked([], [], [], 0.2) == []


def test_what_stands_beside_the_best_gains() -> None:
    for beside in (4, 6):
        best, near, far = (Candidate(message, False, 100) for message in (5, beside, 9))
        assert ranked([best, near, far], [3.0, 1.0, 1.2], [None] * 3, 0.0) == [0, 1, 2]


def test_the_users_words_come_before_another_ones() -> None:
    assert ranked(candidates(100, 100, users=(1,)), [1.0, 1.0], [None] * 2, 0.0) == [1, 0]


def test_the_shorter_of_two_comes_first() -> None:
    assert ranked(candidates(900, 100), [1.0, 1.0], [None] * 2, 0.0) == [1, 0]


def test_what_is_far_below_the_best_stays_out() -> None:
    assert ranked(candidates(100, 100, 100), [10.0, 3.0, 1.0], [None] * 3, 0.2) == [0, 1]


def test_a_question_brings_the_passage_that_answers_it_best_behind_all_others() -> None:
    asked = Candidate(5, True, 60, asks=True)
    answer = [Candidate(6, False, 400) for part in range(3)]
    other = Candidate(9, True, 60)
    given_ = [asked, *answer, other]
    assert ranked(given_, [4.0, 0.0, 0.4, 0.2, 2.5], [None] * 5, 0.5) == [0, 4, 2]
    assert ranked([asked._replace(asks=False), *given_[1:]], [4.0, 0.0, 0.4, 0.2, 2.5], [None] * 5, 0.5) == [0, 4]
    assert ranked([asked, Candidate(6, True, 400)], [4.0, 0.0], [None] * 2, 0.5) == [0]  # the user went on
