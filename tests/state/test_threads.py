"""Threads that say for how long they have been busy."""

import threading
from collections.abc import Iterator
from functools import partial

import pytest

from proxy.state.threads import LARGE, FairThreads, Lanes, Threads


class Held:
    """Jobs that begin, and end when they may."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self._begun = threading.Semaphore(0)

    def __call__(self) -> str:
        self._begun.release()
        assert self.go.wait(60)
        return "done"

    def began(self) -> None:
        assert self._begun.acquire(timeout=60)


@pytest.fixture
def fair() -> Iterator[FairThreads]:
    made = FairThreads("test")
    yield made
    made.shutdown()


def test_the_oldest_job_under_way_counts() -> None:
    now = 10.0
    threads, first, second = Threads("test", 2, clock=lambda: now), Held(), Held()
    assert threads.busy() == 0
    older = threads.submit(first)
    first.began()
    now = 15.0
    newer = threads.submit(second)
    second.began()
    now = 17.0
    assert threads.busy() == 7
    first.go.set()
    assert older.result(60) == "done"
    assert threads.busy() == 2
    second.go.set()
    newer.result(60)
    assert (threads.busy(), threads.places()) == (0, [])
    threads.shutdown()


def test_a_job_that_waits_is_not_busy() -> None:
    now = 0.0
    threads, first, second = Threads("test", clock=lambda: now), Held(), Held()
    jobs = [threads.submit(first), threads.submit(second)]
    first.began()
    now = 100.0
    first.go.set()
    jobs[0].result(60)
    second.began()
    assert threads.busy() == 0
    second.go.set()
    threads.shutdown()


def test_a_job_that_fails_is_over() -> None:
    threads = Threads("test")
    with pytest.raises(ZeroDivisionError):
        threads.submit(lambda: 1 // 0).result(60)
    assert threads.busy() == 0
    threads.shutdown()


def test_it_says_where_a_job_is_and_nothing_of_what_it_has() -> None:
    threads, held = Threads("test"), Held()
    job = threads.submit(held)
    held.began()
    places = threads.places()
    held.go.set()
    job.result(60)
    assert any(place.startswith("test_threads.py:") and place.endswith(" __call__") for place in places)
    threads.shutdown()


def test_tenants_take_turns(fair: FairThreads) -> None:
    held, done = Held(), list[str]()
    fair.submit_for("busy", held)
    held.began()
    jobs = [fair.submit_for(name[0], partial(done.append, name)) for name in ("a1", "a2", "a3", "b1", "b2", "c1")]
    held.go.set()
    for job in jobs:
        job.result(60)
    assert done == ["a1", "b1", "c1", "a2", "b2", "a3"]


def test_a_failure_is_told_to_whoever_waits_and_what_nobody_waits_for_is_not_begun(fair: FairThreads) -> None:
    with pytest.raises(ZeroDivisionError):
        fair.submit_for("a", lambda: 1 // 0).result(60)
    assert fair.submit_for("a", lambda: 1).result(60) == 1
    held, done = Held(), list[str]()
    fair.submit_for("a", held)
    held.began()
    dropped, kept = (fair.submit_for("a", partial(done.append, name)) for name in ("dropped", "kept"))
    assert dropped.cancel()
    held.go.set()
    kept.result(60)
    assert done == ["kept"]


def test_a_small_job_does_not_wait_behind_a_large_one() -> None:
    lanes, held = Lanes("test"), Held()
    large = lanes.submit("a", LARGE + 1, held)
    held.began()
    assert lanes.submit("b", LARGE, lambda: "small").result(60) == "small"
    waiting = lanes.submit("b", LARGE + 1, held)
    lanes.close()
    assert waiting.cancelled(), "nobody waits for it for ever"
    held.go.set()
    assert large.result(60) == "done"
