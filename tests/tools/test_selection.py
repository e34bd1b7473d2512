"""Where a set of tools may change, and what decides it."""

from dataclasses import replace

import pytest

from proxy.chat import ChatRequest
from proxy.context import CacheRules
from proxy.testing import chat
from proxy.tools.selection import OfferLimits, moments
from tests.talk import assistant, user

CACHE = CacheRules(read=0.1, write=1.0, minimum=0, ttl=300)


@pytest.mark.parametrize(
    ("conversation", "ends"),
    [
        ("s u1", [2]),
        ("s u1 a1 u2", [2, 4]),
        ("u1 u2 a1", [2]),
        ("u1 a1! t1 a2! t2 u2 a3", [1, 6]),
        ("s a1", []),
    ],
)
def test_moments_are_requests_behind_user_messages(conversation: str, ends: list[int]) -> None:
    assert [moment.end for moment in moments(chat(conversation))] == ends


def test_short_words_are_read_with_the_question_before_them_and_an_answer_is_no_small_talk() -> None:
    asking = assistant("Shall I book it?")
    assert moments(ChatRequest("m", (asking, user("yes"))))[0].queries == ("yes", "Shall I book it?\nyes")
    assert len(moments(ChatRequest("m", (asking, user("yes " * 100))))[0].queries) == 1
    fine = user("Perfect, thanks!")
    assert not moments(ChatRequest("m", (assistant("Shall I book it?"), fine)))[0].is_idle
    assert moments(ChatRequest("m", (assistant("Booked."), fine)))[0].is_idle


LIMITS = OfferLimits(2, 2, 10**6, (100,) * 6, CACHE)


@pytest.mark.parametrize(
    ("scores", "places"),
    [((0.9, 0.1, 0.2, 0.1), [0]), ((0.9, 0.1, 0.8, 0.1), [0, 2]), ((0.3, 0.28, 0.29, 0.3), [0, 3, 2, 1]), ((), [])],
)
def test_likely_are_few_where_some_stand_clear_of_the_noise(scores: tuple[float, ...], places: list[int]) -> None:
    assert replace(LIMITS, noise=0.06).likely(scores) == places


def test_likely_returns_all_places_where_the_noise_is_unknown() -> None:
    assert LIMITS.likely((0.9, 0.1)) == [0, 1]
