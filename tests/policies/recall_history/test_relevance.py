from collections.abc import Sequence
from typing import NamedTuple

import pytest

from policies.recall_history.relevance import Candidates
from policies.recall_history.relevance import ranked as ranked_with_shares
from proxy.text import arrays


class Candidate(NamedTuple):
    message: int
    is_user: bool
    tokens: int
    asks: bool = False
    only_asks: bool = False


def candidates(*tokens: int, users: tuple[int, ...] = ()) -> list[Candidate]:
    # two messages lie between any two of them, so that no one is another's neighbour
    return [Candidate(3 * place, place in users, size) for place, size in enumerate(tokens)]


def ranked(given_: list[Candidate], words: list[float], meaning: Sequence[float | None], least: float) -> list[int]:
    array = arrays.numpy().array
    columns = (
        Candidates(*(array(column) for column in zip(*given_, strict=True))) if given_ else Candidates(*[array([])] * 5)
    )
    found = ranked_with_shares(columns, array(words, float), array(meaning, float), least)
    shares = [each.share for each in found if each.bears == each.place and not given_[each.place].only_asks]
    assert shares == sorted(shares, reverse=True)
    assert max((each.share for each in found), default=1.0) == 1.0
    return [each.place for each in found]


TWO, THREE = candidates(100, 100), candidates(100, 100, 100)
BESIDE = [[Candidate(message, False, 100) for message in (5, beside, 9)] for beside in (4, 6)]
UNKNOWN = candidates(400, 50, 50, users=(1, 2))


@pytest.mark.parametrize(("given", "words", "meaning", "least", "order"), [
    pytest.param(THREE, [1, 3, 2], [None] * 3, 0, [1, 2, 0], id="words, where no meaning is known"),
    pytest.param(THREE, [2, 2, 0], [0.1, 0.8, 0.8], 0, [1, 0, 2], id="words and meaning count alike"),
    pytest.param(UNKNOWN, [4, 1, 0], [0.96, 0.97, 0.96], 0, [0, 1, 2], id="words, where all are as near"),
    pytest.param(UNKNOWN, [4, 1, 0], [0.16, 0.67, 0.16], 0, [1, 0, 2], id="else meaning as well"),
    pytest.param(TWO, [2, 0], [None, 0.8], 0, [0, 1], id="words of what has no vector yet"),
    pytest.param(TWO, [0, 0], [0.0, -0.2], 0, [], id="nothing fits"),
    pytest.param([], [], [], 0.2, [], id="nothing there"),
    *(pytest.param(each, [3, 1, 1.2], [None] * 3, 0, [0, 1, 2], id=f"beside the best {n}") for n, each in enumerate(BESIDE)),
    pytest.param(candidates(100, 100, users=(1,)), [1, 1], [None] * 2, 0, [1, 0], id="the user's words first"),
    pytest.param(candidates(900, 100), [1, 1], [None] * 2, 0, [1, 0], id="the shorter first"),
    pytest.param(THREE, [1, 3, 2], [None] * 3, 0.5, [1, 2], id="far below the best"),
])  # fmt: skip
def test_candidates_are_ranked(
    given: list[Candidate], words: list[float], meaning: list[float | None], least: float, order: list[int]
) -> None:
    assert ranked(given, words, meaning, least) == order


def test_a_question_brings_its_best_answer_first_and_a_mere_question_stands_behind() -> None:
    asked = Candidate(5, True, 60, asks=True)
    answer = [Candidate(6, False, 400) for part in range(3)]
    other = Candidate(9, True, 60)
    given_ = [asked, *answer, other]
    assert ranked(given_, [4.0, 0.0, 0.4, 0.2, 2.5], [None] * 5, 0.5) == [0, 4, 2]
    assert ranked([asked._replace(asks=False), *given_[1:]], [4.0, 0.0, 0.4, 0.2, 2.5], [None] * 5, 0.5) == [0, 4]
    assert ranked([asked, Candidate(6, True, 400)], [4.0, 0.0], [None] * 2, 0.5) == [0]  # the user went on
    best, other = Candidate(0, True, 60, asks=True, only_asks=True), Candidate(6, True, 60, asks=True, only_asks=True)
    given_ = [best, Candidate(1, False, 60), Candidate(3, True, 60), other, Candidate(7, False, 60)]
    assert ranked(given_, [4.0, 0.0, 2.0, 3.0, 0.0], [None] * 5, 0.45) == [1, 0, 2, 4, 3]
