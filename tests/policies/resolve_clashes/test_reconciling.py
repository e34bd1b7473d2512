from collections.abc import Sequence

import pytest

from policies.resolve_clashes import reconcile
from policies.resolve_clashes.clashes import Clash
from policies.resolve_clashes.statements import statements
from proxy.chat import Message
from proxy.context import Memo
from proxy.testing import MemoryMemo
from tests.services import SureJudge
from tests.talk import user


class Faster(MemoryMemo):
    def __init__(self, verdict: str) -> None:
        super().__init__()
        self._verdict = verdict

    async def settle(self, key: str, value: str) -> str:
        return await super().settle(key, self._verdict)


TALK = [user(f"Number {n}.") for n in range(60)]


def clash(older: int, newer: int, *, solvable: bool = False, talk: Sequence[Message] = TALK) -> Clash:
    was, now = (statements(talk[place].text)[-1] for place in (older, newer))
    return Clash(older, was, newer, now, "value", solvable)


OPEN, FOUND = clash(0, 1), clash(2, 3, solvable=True)


async def left(
    judge: SureJudge,
    memo: Memo | None = None,
    clashes: Sequence[Clash] = (OPEN, FOUND),
    which: str = "open",
    talk: Sequence[Message] = TALK,
) -> tuple[list[bool], dict[str, int]]:
    """Return which of the pairs that are left are solvable, and the counts."""
    chosen = "all" if which == "all" else "open"
    rest, counts = await reconcile(clashes, talk, judge, memo, which=chosen, sure=0.9, wait=1.0)  # type: ignore[arg-type]
    return [each.solvable for each in rest], dict(counts)


@pytest.mark.parametrize(
    ("which", "sure", "solvable"),
    [
        pytest.param("open", 0.95, [True, True], id="the later one holds"),
        pytest.param("open", 0.0, [True], id="both hold"),
        pytest.param("open", 0.89, [False, True], id="not sure enough that it does"),
        pytest.param("open", 0.11, [False, True], id="not sure enough that it does not"),
        pytest.param("open", None, [False, True], id="no verdict"),
        pytest.param("all", 1.0, [True, True], id="all: the later one holds"),
        pytest.param("all", 0.0, [], id="all: both hold"),
        pytest.param("all", 0.5, [False, True], id="all: unclear leaves what the rules say"),
    ],
)
async def test_reconcile_solves_or_drops_or_leaves_a_pair(which: str, sure: float | None, solvable: list[bool]) -> None:
    rest, counts = await left(SureJudge(sure), which=which)
    asked = 2 if which == "all" else 1
    assert rest == solvable
    assert counts == {"compatible": 2 - len(rest), "judged": asked, "unanswered": asked if sure is None else 0}


async def test_reconcile_shows_only_the_two_statements_and_asks_once_about_the_same_words() -> None:
    judge, talk = SureJudge(), [user("Hi. I am six."), user("I am ten.")] * 2
    every = [clash(0, 1, talk=talk), clash(2, 3, talk=talk)]
    assert (await left(judge, None, every, talk=talk))[0] == [True, True]
    assert judge.asked == [("I am six.", "I am ten.")]


@pytest.mark.parametrize(("first", "then"), [(1.0, 0.0), (0.0, 1.0), (None, 1.0), (0.5, 0.0)])
async def test_reconcile_keeps_a_verdict(first: float | None, then: float) -> None:
    memo, later = MemoryMemo(), SureJudge(then)
    before, _ = await left(SureJudge(first), memo)
    assert (await left(later, memo))[0] == before
    assert later.asked == []


@pytest.mark.parametrize(("verdict", "solvable"), [("no", [True]), ("<nonsense>", [False, True])])
async def test_reconcile_takes_the_verdict_of_a_faster_replica(verdict: str, solvable: list[bool]) -> None:
    assert (await left(SureJudge(), Faster(verdict)))[0] == solvable


async def test_reconcile_asks_about_the_latest_of_many_pairs() -> None:
    every, judge, memo = [clash(n, n + 1) for n in range(50)], SureJudge(), MemoryMemo()
    for _ in range(2):
        assert (await left(judge, memo, every))[0] == [False] * 34 + [True] * 16
    assert len(judge.asked) == 16
