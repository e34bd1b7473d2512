"""Notes about answers: one of a kind within the cooldown, gone in the end, for nobody else."""

from collections.abc import AsyncGenerator

import pytest

from proxy.context import Identity
from proxy.gateway.answer_notes import LARGEST, BoundCorrections, CorrectionService
from proxy.models.usage import Usage
from proxy.policy import AnswerObserver
from proxy.state.sqlite import SqliteStore
from proxy.state.store import StoreError
from proxy.testing import chat
from proxy.upstreams.base import Reply
from tests.clock import Clock

EMPTY = b'{"choices":[{"index":0,"message":{"content":""},"finish_reason":"stop"}]}'
KINDS = ("empty", "json")
OBSERVER = AnswerObserver(
    lambda sent, answer: {"empty": "It was empty."} if answer.is_empty else {}, cooldown=7200, expiry=86400
)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def service(clock: Clock) -> AsyncGenerator[CorrectionService, None]:
    made = CorrectionService(SqliteStore(None, 2**20, clock=clock), clock=clock)
    yield made
    await made.aclose()


def notes(service: CorrectionService, tenant: str = "t", session: str = "s") -> BoundCorrections:
    return service.bind(Identity(tenant, session), [OBSERVER])


async def names(bound: BoundCorrections) -> list[str]:
    return [each.name for each in await bound.pending(KINDS)]


async def test_a_kind_has_one_note_within_the_cooldown(service: CorrectionService, clock: Clock) -> None:
    await notes(service).leave("empty", "first", OBSERVER)
    clock.now += 7000
    await notes(service).leave("empty", "second", OBSERVER)
    await notes(service).leave("json", "other", OBSERVER)
    assert [each.text for each in await notes(service).pending(KINDS)] == ["first", "other"]
    clock.now += 300
    await notes(service).leave("empty", "third", OBSERVER)
    assert [each.text for each in await notes(service).pending(KINDS)] == ["third", "other"]


async def test_a_note_expires_and_reading_does_not_keep_it(service: CorrectionService, clock: Clock) -> None:
    await notes(service).leave("empty", "first", OBSERVER)
    for _ in range(9):
        clock.now += 9000
        assert len(await names(notes(service))) == 1
    clock.now += 6000
    assert await names(notes(service)) == []


async def test_notes_are_of_one_tenant_and_session(service: CorrectionService) -> None:
    await notes(service).leave("empty", "first", OBSERVER)
    assert await names(notes(service, tenant="t2")) == []
    assert await names(notes(service, session="s2")) == []
    assert await names(notes(service, tenant="t/s", session="")) == []


async def test_an_answer_is_looked_at_when_it_has_ended(service: CorrectionService) -> None:
    always = AnswerObserver(lambda sent, answer: {"always": sent.messages[0].text}, cooldown=9, expiry=9)
    bound = service.bind(Identity("t", "s"), [OBSERVER, always])
    watch = bound.watch(chat("u1"))
    watch.feed(EMPTY[:30])
    watch.feed(EMPTY[30:])
    await service.settled()
    assert await names(bound) == []
    watch.ended(Reply(200), Usage())
    await service.settled()
    told = [each.text for each in await bound.pending(["empty", "always"])]
    assert told == ["u1", "It was empty."], "each observer leaves notes of its own"


@pytest.mark.parametrize(
    ("chunks", "status"),
    [
        ([EMPTY], 500),
        ([], 200),
        ([EMPTY, b" " * LARGEST], 200),
        ([b" " * LARGEST, b" ", EMPTY], 200),
        ([b"\xff{"], 200),
    ],
)
async def test_errors_and_large_answers_are_not(service: CorrectionService, chunks: list[bytes], status: int) -> None:
    watch = notes(service).watch(chat("u1"))
    for chunk in chunks:
        watch.feed(chunk)
    watch.ended(Reply(status), Usage())
    await service.settled()
    assert await names(notes(service)) == []


async def test_a_failing_store_is_done_without(service: CorrectionService, caplog: pytest.LogCaptureFixture) -> None:
    bound = notes(service)
    await service.store.aclose()
    assert await bound.pending(KINDS) == ()
    watch = bound.watch(chat("u1"))
    watch.feed(EMPTY)
    watch.ended(Reply(200), Usage())
    await service.settled()
    assert "correction not kept" in caplog.text
    with pytest.raises(StoreError):
        await bound.leave("empty", "x", OBSERVER)
