from collections.abc import Sequence

import pytest

from policies.resolve_clashes.dialogue import Clash
from policies.resolve_clashes.reconciling import Reconciled, reconciled
from proxy.chat import Message
from proxy.testing import MemoryMemo, context
from tests.services import SureJudge
from tests.talk import user


class Remembering(MemoryMemo):
    """A memo; with `first`, another replica was faster."""

    def __init__(self, first: str | None = None) -> None:
        super().__init__()
        self._first = first

    async def settle(self, key: str, value: str) -> str:
        return await super().settle(key, self._first or value)


def clash(older: int, newer: int, *, solvable: bool) -> Clash:
    return Clash(older, 0, 9, newer, 0, 9, "value", solvable)


TALK = [user(f"Number {n}.") for n in range(60)]
OPEN, FOUND = clash(0, 1, solvable=False), clash(2, 3, solvable=True)


async def decided(
    judge: SureJudge,
    memo: Remembering | None = None,
    clashes: Sequence[Clash] = (OPEN, FOUND),
    which: str = "open",
    talk: Sequence[Message] = TALK,
) -> Reconciled:
    ctx = context(judge=judge, memo=memo)
    return await reconciled(clashes, talk, ctx, which="all" if which == "all" else "open", sure=0.9, wait=1.0)


@pytest.mark.parametrize(
    ("which", "sure", "left"),
    [
        pytest.param("open", 1.0, [True, True], id="the later one holds"),
        pytest.param("open", 0.95, [True, True], id="the later one most surely holds"),
        pytest.param("open", 0.0, [True], id="both hold"),
        pytest.param("open", 0.5, [False, True], id="unclear"),
        pytest.param("open", 0.89, [False, True], id="not sure enough that it does"),
        pytest.param("open", 0.11, [False, True], id="not sure enough that it does not"),
        pytest.param("open", None, [False, True], id="no verdict"),
        pytest.param("all", 1.0, [True, True], id="all: the later one holds"),
        pytest.param("all", 0.0, [], id="all: both hold"),
        pytest.param("all", 0.5, [False, True], id="all: unclear leaves what the rules say"),
        pytest.param("all", None, [False, True], id="all: no verdict leaves it too"),
    ],
)
async def test_a_verdict_solves_a_pair_or_takes_it_out_or_leaves_it(
    which: str, sure: float | None, left: list[bool]
) -> None:
    made = await decided(SureJudge(sure), which=which)
    assert [each.solvable for each in made.clashes] == left
    asked = 2 if which == "all" else 1
    assert made[1:] == (2 - len(left), asked, asked if sure is None else 0)


async def test_only_the_two_statements_are_shown() -> None:
    judge = SureJudge()
    talk = [user("Hi. I am six. Bye."), user("I am ten, I said.")]
    await decided(judge, clashes=[Clash(0, 4, 13, 1, 0, 8, "value", False)], talk=talk)
    assert judge.asked == [("I am six.", "I am ten")]


@pytest.mark.parametrize(("first", "then"), [(1.0, 0.0), (0.0, 1.0), (None, 1.0), (0.5, 0.0)])
async def test_what_was_decided_once_stays(first: float | None, then: float) -> None:
    memo, later = Remembering(), SureJudge(then)
    before = await decided(SureJudge(first), memo)
    after = await decided(later, memo)
    assert (after.clashes, after.compatible) == (before.clashes, before.compatible)
    assert later.asked == []


async def test_of_two_replicas_the_faster_one_decides() -> None:
    made = await decided(SureJudge(), Remembering("both"))
    assert made.clashes == (FOUND,)


async def test_a_decision_that_is_none_leaves_the_rules_alone() -> None:
    assert (await decided(SureJudge(), Remembering("<nonsense>"))).clashes == (OPEN, FOUND)


async def test_of_very_many_pairs_the_latest_are_asked_about_and_the_others_never() -> None:
    every = [clash(n, n + 1, solvable=False) for n in range(50)]
    judge, memo = SureJudge(), Remembering()
    first = await decided(judge, memo, every)
    assert [each.solvable for each in first.clashes] == [False] * 34 + [True] * 16
    assert (await decided(judge, memo, every)).clashes == first.clashes
    assert len(judge.asked) == 16


async def test_the_same_words_are_asked_about_once() -> None:
    judge = SureJudge()
    talk = [user("Number 1."), user("Number 2."), user("Number 1."), user("Number 2.")]
    made = await decided(judge, None, [clash(0, 1, solvable=False), clash(2, 3, solvable=False)], talk=talk)
    assert [each.solvable for each in made.clashes] == [True, True]
    assert len(judge.asked) == 1
