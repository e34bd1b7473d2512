import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.context import CacheRules, Prices
from proxy.economics import UNCACHED, cost_ahead, may_be_cached, pays, turns_to_pay
from tests.costs import Piece, request_cost

FIVE_MINUTES = CacheRules(read=0.1, write=1.25, minimum=1024, ttl=300)
ONE_HOUR = CacheRules(read=0.1, write=2.0, minimum=1024, ttl=3600)
FREE_WRITES = CacheRules(read=0.1, write=1.0, minimum=1024, ttl=300)


def pieces(*parts: str | int) -> list[Piece]:
    """`pieces("a", 1000, "b", 500)`: a piece "a" of 1000 tokens and a piece "b" of 500."""
    return [Piece(key, int(tokens)) for key, tokens in zip(parts[::2], parts[1::2], strict=True)]


@pytest.mark.parametrize(("rules", "before", "cost"), [
    pytest.param(FIVE_MINUTES, None, 1.25 * 3000, id="the first request writes all"),
    pytest.param(FIVE_MINUTES, pieces("a", 2000), 0.1 * 2000 + 1250, id="a prefix is read, the rest written"),
    pytest.param(FIVE_MINUTES, pieces("x", 2000), 1.25 * 3000, id="a changed prefix is written again"),
    pytest.param(FREE_WRITES, pieces("a", 2000), 0.1 * 2000 + 1000, id="writing may be free"),
    pytest.param(UNCACHED, pieces("a", 2000), 3000, id="without a cache all tokens are the same"),
])  # fmt: skip
def test_the_cost_of_a_request(rules: CacheRules, before: list[Piece] | None, cost: float) -> None:
    assert request_cost(rules, before, pieces("a", 2000, "b", 1000)) == pytest.approx(cost)


@pytest.mark.parametrize(("rules", "factor"), [
    pytest.param(FIVE_MINUTES, 11.5, id="five minutes: 11.5 P / S"),
    pytest.param(ONE_HOUR, 19.0, id="one hour: 19 P / S"),
    pytest.param(FREE_WRITES, 9.0, id="no write premium: 9 P / S"),
])  # fmt: skip
def test_when_an_edit_has_paid(rules: CacheRules, factor: float) -> None:
    assert turns_to_pay(rules, removed=1000, rewritten=3000) == pytest.approx(factor * 3)
    assert pays(rules, 1000, 3000, turns=factor * 3 + 0.01)
    assert not pays(rules, 1000, 3000, turns=factor * 3 - 0.01)


@pytest.mark.parametrize(("rules", "removed", "rewritten", "turns"), [
    pytest.param(FIVE_MINUTES, 0, 100, math.inf, id="removing nothing never pays"),
    pytest.param(FIVE_MINUTES, -5, 0, math.inf, id="adding never pays"),
    pytest.param(FIVE_MINUTES, 5, 0, 0, id="at the very end it pays at once"),
    pytest.param(UNCACHED, 5, 10**6, 0, id="without a cache it pays at once"),
    pytest.param(CacheRules(read=0, ttl=300), 5, 5, math.inf, id="where reading is free no rewrite is worth it"),
])  # fmt: skip
def test_the_edges(rules: CacheRules, removed: int, rewritten: int, turns: float) -> None:
    assert turns_to_pay(rules, removed, rewritten) == turns


def test_without_a_cache_every_removal_pays_and_short_prefixes_have_no_premium() -> None:
    assert pays(UNCACHED, 1, 10**6, turns=0)
    assert not pays(UNCACHED, 0, 10**6, turns=9)
    assert request_cost(FIVE_MINUTES, None, pieces("a", 100)) == 100
    assert FIVE_MINUTES.cached_tokens(1023) == 0
    assert FIVE_MINUTES.cached_tokens(1024) == 1024
    assert UNCACHED.cached_tokens(10**6) == 0


@pytest.mark.parametrize(("rules", "full", "short", "growth", "shorter_is_cheaper"), [
    pytest.param(FIVE_MINUTES, 40_000, 900, 0, True, id="3,600 a turn at a tenth against 900 in full"),
    pytest.param(FIVE_MINUTES, 2_000, 900, 0, False, id="200 a turn at a tenth against 900 in full"),
    pytest.param(FIVE_MINUTES, 1_000, 900, 0, True, id="neither is cached"),
    pytest.param(FIVE_MINUTES, 1_000, 600, 100, False, id="the long one is cached before the short one"),
    pytest.param(UNCACHED, 40_000, 39_000, 0, True, id="without a cache less is less"),
])  # fmt: skip
def test_two_forms(rules: CacheRules, full: int, short: int, growth: int, shorter_is_cheaper: bool) -> None:
    kept, cut = cost_ahead(rules, full, full, 8, growth), cost_ahead(rules, 100, short, 8, growth)
    assert (cut < kept) is shorter_is_cheaper


@given(st.integers(0, 5000), st.integers(1, 5000), st.integers(1, 40), st.integers(0, 900))
def test_requests_ahead_agree_with_the_turns_to_pay(removed: int, rewritten: int, turns: int, growth: int) -> None:
    head, full = 2000, 2000 + removed + rewritten
    kept = cost_ahead(FIVE_MINUTES, full, full, turns, growth)
    cut = cost_ahead(FIVE_MINUTES, head, head + rewritten, turns, growth)
    assert pays(FIVE_MINUTES, removed, rewritten, turns) == (cut < kept) or math.isclose(kept, cut)


def test_money() -> None:
    assert Prices(input=2.5, output=10).usd(1, cost=1_000_000, output=100_000) == pytest.approx(3.5)


sizes = st.integers(0, 5000)


@given(st.lists(sizes, min_size=1, max_size=8), sizes, st.integers(1, 40))
def test_the_formula_agrees_with_counting_every_request(behind: list[int], removed: int, turns: int) -> None:
    """Drop a piece from the middle of a warm conversation: the sum over the requests says the same as the formula."""
    head, rules = Piece("head", 4096), FIVE_MINUTES
    tail = [Piece(index, size) for index, size in enumerate(behind)]
    full, cut = [head, Piece("old", removed), *tail], [head, *tail]
    keep = turns * request_cost(rules, full, full)
    edit = request_cost(rules, full, cut) + (turns - 1) * request_cost(rules, cut, cut)
    # the request that makes the edit already saves the reading of what it removes
    assert (edit < keep) == (turns_to_pay(rules, removed, sum(behind)) < turns) or math.isclose(edit, keep)


@pytest.mark.parametrize(("cached", "written", "cost"), [
    pytest.param(0, 0, 1000, id="nothing is known of a cache"),
    pytest.param(800, 0, 0.1 * 800 + 200, id="what was read is cheap"),
    pytest.param(600, 300, 0.1 * 600 + 1.25 * 300 + 100, id="what was written is dear"),
    pytest.param(1200, 0, 0.1 * 1200, id="more was read than there was"),
])  # fmt: skip
def test_what_a_reported_prompt_cost(cached: int, written: int, cost: float) -> None:
    assert FIVE_MINUTES.reported_cost(1000, cached, written) == pytest.approx(cost)


@pytest.mark.parametrize(("rules", "tokens", "expected"), [
    (FIVE_MINUTES, 1024, True), (FIVE_MINUTES, 896, True), (FIVE_MINUTES, 895, False), (UNCACHED, 10**6, False),
])  # fmt: skip
def test_a_prompt_near_the_minimum_may_be_cached(rules: CacheRules, tokens: int, expected: bool) -> None:
    assert may_be_cached(rules, tokens) is expected
