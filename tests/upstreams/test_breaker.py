"""When an upstream is left alone: a state machine under a clock of the test's own."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.config.settings import BreakerSettings
from proxy.upstreams.guard import Breaker, State


class Bench:
    """A breaker, its clock, and the states that it told."""

    def __init__(self, failures: int = 3) -> None:
        self.now = 100.0
        self.states: list[State] = []
        self.breaker = Breaker(
            BreakerSettings(failures=failures, within=30, open_for=10), lambda: self.now, self.states.append
        )

    def asks(self) -> int:
        assert self.breaker.refusal() is None
        return self.breaker.admit()

    def play(self, script: str) -> None:
        """One character a request: `+` succeeds, `-` fails, `~` leaves; a digit is so many seconds."""
        for each in script:
            if each.isdigit():
                self.now += int(each)
            elif self.breaker.refusal() is None:
                ticket = self.breaker.admit()
                if each == "~":
                    self.breaker.abandoned(ticket)
                else:
                    self.breaker.answered(ticket, is_sound=each == "+")


@pytest.mark.parametrize(("script", "state"), [
    pytest.param("", "closed", id="nothing happened"),
    pytest.param("--", "closed", id="fewer failures than it takes"),
    pytest.param("---", "open", id="as many as it takes"),
    pytest.param("--~~~", "closed", id="clients that leave are no failures"),
    pytest.param("++---", "open", id="more than half of all"),
    pytest.param("++++---", "closed", id="fewer than half of all"),
    pytest.param("++++----", "open", id="half of all"),
    pytest.param("--99995-", "closed", id="too long ago"),
    pytest.param("---9", "open", id="not long enough"),
    pytest.param("---91+", "closed", id="a probe that succeeds"),
    pytest.param("---91-", "open", id="a probe that fails"),
    pytest.param("---91+--", "closed", id="then it counts from nothing"),
    pytest.param("---91~+", "closed", id="a probe that nobody waited for is made anew"),
])  # fmt: skip
def test_what_happens_and_where_it_stands(script: str, state: str) -> None:
    bench = Bench()
    bench.play(script)
    assert bench.breaker.state == state


def test_an_open_one_says_when_to_come_back() -> None:
    bench = Bench()
    bench.play("---4")
    assert bench.breaker.refusal() == 6
    bench.now += 6
    assert bench.breaker.refusal() is None


def test_half_open_it_lets_one_through_and_one_more_if_that_takes_long() -> None:
    bench = Bench()
    bench.play("---91")
    slow = bench.asks()
    assert bench.breaker.refusal() == 10
    bench.now += 10
    second = bench.asks()
    assert bench.breaker.refusal() == 10
    bench.breaker.answered(second, is_sound=True)
    assert bench.breaker.state == "closed"
    bench.breaker.answered(slow, is_sound=False)
    bench.play("--")
    assert bench.breaker.state == "closed", "what was admitted in another state says nothing about this one"


def test_what_was_under_way_when_it_opened_does_not_close_it() -> None:
    bench = Bench()
    early = bench.asks()
    bench.play("---")
    bench.breaker.answered(early, is_sound=True)
    assert bench.breaker.state == "open"


def test_streams_that_break_off_are_failures() -> None:
    bench = Bench()
    for _ in range(3):
        ticket = bench.asks()
        bench.breaker.answered(ticket, is_sound=True)
        bench.breaker.broke_off(ticket)
    assert bench.breaker.state == "open"
    bench.breaker.broke_off(ticket)
    assert bench.states == ["open"]


def test_states_are_told_in_order_and_none_where_it_is_off() -> None:
    bench = Bench()
    bench.play("---91-91+")
    assert bench.states == ["open", "half_open", "open", "half_open", "closed"]
    bench = Bench(failures=0)
    bench.play("-" * 1000)
    assert bench.breaker.state == "closed"


@given(st.text(alphabet="+-~5", max_size=60))
def test_whatever_happens_an_upstream_that_recovers_is_asked_again(script: str) -> None:
    bench = Bench()
    bench.play(script)
    bench.now += 10
    assert bench.breaker.refusal() is None
    bench.breaker.answered(bench.breaker.admit(), is_sound=True)
    assert bench.breaker.state == "closed"
