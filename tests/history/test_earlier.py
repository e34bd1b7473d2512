from dataclasses import replace

import pytest

from proxy.context import CacheRules, Context, Identity
from proxy.history.earlier import PreviousRequest, earlier
from proxy.state.decisions import BoundMemo, Memos
from proxy.state.store import MemoryStore
from proxy.testing import chat, context, profile

CACHE = CacheRules(read=0.1, write=1.25, minimum=1024, ttl=300)
NOON = 43_200.0


@pytest.fixture
def memo() -> BoundMemo:
    return Memos(MemoryStore(10**6), ttl=10**6).bind(Identity("tenant", "session"))


def asking(words: str, memo: BoundMemo, now: float, cache: CacheRules = CACHE) -> Context:
    return context(chat(words), memo=memo, now=now, model=profile(cache=cache))


async def test_a_first_request_knows_of_none(memo: BoundMemo) -> None:
    assert await earlier(asking("s u1", memo, NOON)) == PreviousRequest(0, 0, is_cold=False)


async def test_the_next_one_begins_with_what_the_last_one_had(memo: BoundMemo) -> None:
    await earlier(asking("s u1", memo, NOON))
    assert await earlier(asking("s u1 a1 u2", memo, NOON + 60)) == PreviousRequest(2, 0, is_cold=False)


@pytest.mark.parametrize(("idle", "cold"), [(300, False), (360, False), (420, True), (86_400, True)])
async def test_after_a_pause_longer_than_the_cache_lasts_it_is_cold(memo: BoundMemo, idle: int, cold: bool) -> None:
    await earlier(asking("u1", memo, NOON))
    then = int(NOON) + idle
    assert await earlier(asking("u1 a1 u2", memo, then)) == PreviousRequest(1, then if cold else 0, is_cold=cold)


async def test_later_requests_remember_the_cold_one(memo: BoundMemo) -> None:
    await earlier(asking("u1", memo, NOON))
    cold = await earlier(asking("u1 a1 u2", memo, NOON + 3600))
    after = await earlier(asking("u1 a1 u2 a2 u3", memo, NOON + 3600))  # in the same minute
    assert cold.is_cold
    assert after == PreviousRequest(3, cold.cold_start, is_cold=False)


async def test_the_same_request_later_says_the_same(memo: BoundMemo) -> None:
    await earlier(asking("u1", memo, NOON))
    first = await earlier(asking("u1 a1 u2", memo, NOON + 60))
    assert await earlier(asking("u1 a1 u2", memo, NOON + 7200)) == first


async def test_rounds_that_the_client_never_saw_may_stand_in_between(memo: BoundMemo) -> None:
    await earlier(asking("u1", memo, NOON))
    assert (await earlier(asking("u1 aA! tA aB! tB a1 u2", memo, NOON))).seen == 1


async def test_another_branch_of_a_conversation_is_another_one(memo: BoundMemo) -> None:
    await earlier(asking("u1 a1 u2", memo, NOON))
    assert (await earlier(asking("u1 a1 u3 a3 u4", memo, NOON + 3600))) == PreviousRequest()


async def test_without_a_memo_or_a_time_nothing_is_known(memo: BoundMemo) -> None:
    for ctx in (asking("u1", memo, NOON), asking("u1 a1 u2", memo, NOON + 3600)):
        assert await earlier(replace(ctx, memo=None)) == PreviousRequest()
        assert await earlier(replace(ctx, now=None)) == PreviousRequest()
