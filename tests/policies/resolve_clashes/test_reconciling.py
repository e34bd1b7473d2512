from collections.abc import Mapping, Sequence

import pytest

from policies.resolve_clashes.clashes import Clash
from policies.resolve_clashes.reconciling import reconcile
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
) -> tuple[tuple[Clash, ...], Mapping[str, int]]:
    ctx = context(judge=judge, memo=memo)
    return await reconcile(clashes, talk, ctx, which="all" if which == "all" else "open", sure=0.9, wait=1.0)


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
async def test_reconcile_solves_or_drops_or_leaves_a_pair(which: str, sure: float | None, left: list[bool]) -> None:
    rest, counts = await decided(SureJudge(sure), which=which)
    assert [each.solvable for each in rest] == left
    asked = 2 if which == "all" else 1
    assert counts == {"compatible": 2 - len(left), "judged": asked, "unanswered": asked if sure is None else 0}


async def test_reconcile_shows_only_the_two_statements() -> None:
    judge = SureJudge()
    talk = [user("Hi. I am six. Bye."), user("I am ten, I said.")]
    await decided(judge, clashes=[Clash(0, 4, 13, 1, 0, 8, "value", False)], talk=talk)
    assert judge.asked == [("I am six.", "I am ten")]


@pytest.mark.parametrize(("first", "then"), [(1.0, 0.0), (0.0, 1.0), (None, 1.0), (0.5, 0.0)])
async def test_reconcile_keeps_a_decision(first: float | None, then: float) -> None:
    memo, later = Remembering(), SureJudge(then)
    before, counts = await decided(SureJudge(first), memo)
    after, again = await decided(later, memo)
    assert (after, again["compatible"]) == (before, counts["compatible"])
    assert later.asked == []


async def test_reconcile_takes_the_decision_of_the_faster_replica() -> None:
    rest, _ = await decided(SureJudge(), Remembering("both"))
    assert rest == (FOUND,)


async def test_reconcile_ignores_an_unknown_decision() -> None:
    assert (await decided(SureJudge(), Remembering("<nonsense>")))[0] == (OPEN, FOUND)


async def test_reconcile_asks_about_the_latest_of_many_pairs() -> None:
    every = [clash(n, n + 1, solvable=False) for n in range(50)]
    judge, memo = SureJudge(), Remembering()
    first, _ = await decided(judge, memo, every)
    assert [each.solvable for each in first] == [False] * 34 + [True] * 16
    assert (await decided(judge, memo, every))[0] == first
    assert len(judge.asked) == 16


async def test_reconcile_asks_once_about_the_same_words() -> None:
    judge = SureJudge()
    talk = [user("Number 1."), user("Number 2."), user("Number 1."), user("Number 2.")]
    rest, _ = await decided(judge, None, [clash(0, 1, solvable=False), clash(2, 3, solvable=False)], talk=talk)
    assert [each.solvable for each in rest] == [True, True]
    assert len(judge.asked) == 1
