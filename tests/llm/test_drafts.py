import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest

from proxy.chat import Message
from proxy.context import Identity, Material
from proxy.llm.writer import BLOCK, LONG, BoundDrafts, DraftService
from proxy.testing import chat
from tests.scripted import Away


class Pen:
    def __init__(self, text: Callable[[Material], str | None] = lambda material: f"of {material.name}") -> None:
        self.asked: list[Material] = []
        self.go = asyncio.Event()
        self.go.set()
        self._text = text

    async def __call__(self, material: Material, headers: Mapping[str, str]) -> str | None:
        self.asked.append(material)
        await self.go.wait()
        return self._text(material)


def service(pen: Pen, store: Away | None = None, clock: Callable[[], float] = lambda: 0.0) -> DraftService:
    return DraftService(store or Away(None, 2**20), pen, lambda *_: {}, ttl=1000, deadline=30, clock=clock)


def drafts(made: DraftService, tenant: str = "t") -> BoundDrafts:
    return made.bind(Identity(tenant), {})


MATERIAL = Material("d1", "", chat("u1 a1").messages, 500)


async def test_a_late_draft_changes_nothing() -> None:
    pen, store = Pen(), Away(None, 2**20)
    made, replica = service(pen, store), service(pen, store)
    pen.go.clear()
    drafts(made).prepare(MATERIAL)
    assert await drafts(made).settled("c1", "d1") == ""
    pen.go.set()
    await made.drain()
    assert await drafts(made).settled("c1", "d1") == ""
    assert await drafts(replica).settled("c1", "d1") == ""
    assert await drafts(replica).settled("c2", "d1") == "of d1"


async def test_a_draft_is_written_once_by_concurrent_replicas() -> None:
    pen, store = Pen(), Away(None, 2**20)
    both = service(pen, store), service(pen, store)
    pen.go.clear()
    for each in both:
        drafts(each).prepare(MATERIAL)
    for _ in range(10):
        await asyncio.sleep(0)
    pen.go.set()
    for each in both:
        await each.drain()
    assert len(pen.asked) == 1


async def test_a_failed_draft_is_retried_after_a_pause() -> None:
    now, pen = [0.0], Pen(lambda material: None)
    store = Away(None, 2**20, clock=lambda: now[0])
    made = service(pen, store, lambda: now[0])
    for moment, tries in ((0.0, 1), (20.0, 1), (100.0, 2)):
        now[0] = moment
        drafts(made).prepare(MATERIAL)
        await made.drain()
        assert len(pen.asked) == tries
    assert await drafts(made).settled("c1", "d1") == ""


async def test_drafts_that_wait_are_bounded() -> None:
    pen = Pen()
    pen.go.clear()
    made = service(pen)
    for n in range(100):
        drafts(made).prepare(replace(MATERIAL, name=f"d{n}"))
    await asyncio.sleep(0)
    assert len(made._work) == 32
    await made.aclose()
    assert not made._work
    assert len(pen.asked) <= 2


async def test_an_outage_of_the_store_changes_no_settled_summary() -> None:
    now, store = [0.0], Away(None, 2**20)
    made = service(Pen(), store, lambda: now[0])
    drafts(made).prepare(MATERIAL)
    await made.drain()
    assert await drafts(made).settled("c1", "d1") == "of d1"
    assert await drafts(made, "other").settled("c1", "d1") == "", "another tenant's is not there"
    store.is_away, now[0] = True, 1000.0
    assert await drafts(made).settled("c1", "d1") == "of d1"
    assert await drafts(made).settled("c2", "d1") == ""
    store.is_away, now[0] = False, 2000.0
    for each in (made, service(Pen(), store)):
        assert await drafts(each).settled("c2", "d1") == "of d1", "a failed read settles nothing"


async def test_a_summary_lost_by_the_store_is_settled_again() -> None:
    now, store = [0.0], Away(None, 2**20)
    made, replica = service(Pen(), store, lambda: now[0]), service(Pen(), store, lambda: now[0])
    drafts(made).prepare(MATERIAL)
    await made.drain()
    assert await drafts(made).settled("c1", "d1") == "of d1"
    assert await drafts(made).settled("c2", "none") == ""
    await store.delete(await store.keys(""))
    now[0] = 100.0
    for each in (made, replica):
        assert await drafts(each).settled("c1", "d1") == "of d1"
        assert await drafts(each).settled("c2", "none") == ""


@pytest.mark.parametrize(("turns", "calls"), [(LONG, 1), (LONG + 1, 7), (2000, 26)])
async def test_long_conversations_are_written_in_blocks(turns: int, calls: int) -> None:
    def text(material: Material) -> str | None:
        first = material.messages[0].text
        return None if first == "u0" and len(material.messages) < turns else f"block of {first}"

    pen = Pen(text)
    made = service(pen)
    messages = chat(" ".join(f"u{n}" for n in range(turns))).messages
    drafts(made).prepare(Material("long", "before", messages, 500))
    await made.drain()
    assert len(pen.asked) == calls
    last = pen.asked[-1]
    assert (last.before, last.size) == ("before", 500)
    if calls > 1:
        assert all(len(each.messages) >= BLOCK for each in pen.asked[:-2])
        assert last.messages[0].text == "u0", "a block without a summary speaks for itself"
        assert Message({"role": "user", "content": f"block of {pen.asked[1].messages[0].text}"}) in last.messages
