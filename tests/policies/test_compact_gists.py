"""Gists of shortened tool results: settled once, in front of the marker, and never instead of anything."""

from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.compact_tool_results import CompactToolResults
from proxy.chat import ChatRequest, Message
from proxy.chat.markers import is_shortened
from proxy.chat.wire import damage
from proxy.context import CacheRules, Identity
from proxy.policy import Rewrite
from proxy.state.cache import OnceService
from proxy.testing import MemoryArchive, chat, context, profile
from proxy.tools.recall import DEFINITION
from tests.compaction.test_gist import PROSE, Drafts
from tests.talk import calls, result, user

GIST = "It was a quiet year."
LINE = f"\n[gist by a model, may be wrong: {GIST}]\n[shortened: "
ROWS = "id,name,size,state\n" + "".join(f"{n},row {n},{n * 7},ok\n" for n in range(900))
ANSWER, ASKED = chat("a1 u2").messages


def asked(text: str = PROSE, *after: Message, tool: str = "f") -> ChatRequest:
    """A conversation in which a tool gave a text."""
    return chat("u1").with_messages([*chat("s u1").messages, calls("c1", name=tool), result(text), *after])


class Worker:
    """A policy with a memory of its own, and what it shares with others."""

    def __init__(self, drafts: Drafts, once: OnceService, *, gist: bool = True) -> None:
        self.policy, self.drafts, self.once = CompactToolResults(gist=gist), drafts, once.bind(Identity("t"))
        self.archive, self.rules = MemoryArchive(), CacheRules()

    async def sent(self, request: ChatRequest) -> str:
        """The tool's result as it is forwarded."""
        content: str = (await self.messages(request))[3]["content"]
        return content

    async def messages(self, request: ChatRequest) -> Sequence[Message]:
        """The messages as they are forwarded."""
        ctx = context(
            request, archive=self.archive, once=self.once, drafts=self.drafts, model=profile(cache=self.rules)
        )
        decision = await self.policy.apply(request, ctx)
        after = decision.request if isinstance(decision, Rewrite) else request
        assert not damage(request, after)
        return after.messages


@pytest.fixture
def once() -> Iterator[OnceService]:
    made = OnceService()
    yield made
    made.close()


def ready(drafts: Drafts) -> None:
    """What was asked for is written."""
    drafts.ready |= {material.name: GIST for material in drafts.asked}


async def plainly(request: ChatRequest) -> str:
    """The result's form where no gists are wanted."""
    made = OnceService()
    text = await Worker(Drafts(), made, gist=False).sent(request)
    made.close()
    return text


async def test_one_that_is_ready_stands_in_front_of_the_marker_and_replaces_nothing(once: OnceService) -> None:
    worker = Worker(Drafts(), once)
    assert await worker.sent(asked()) == PROSE, "what is new is sent whole"
    (material,) = worker.drafts.asked
    assert material.messages[0].text == PROSE
    ready(worker.drafts)
    form = await worker.sent(asked(PROSE, ANSWER))
    plain = await plainly(asked(PROSE, ANSWER))
    assert is_shortened(form)
    assert LINE in form
    assert form.partition(LINE)[0] == plain.rpartition("\n[shortened: ")[0]
    assert form.partition("; recall")[2] == plain.partition("; recall")[2]


async def test_one_that_is_late_never_comes(once: OnceService) -> None:
    worker = Worker(Drafts(), once)
    await worker.sent(asked())
    form = await worker.sent(asked(PROSE, ANSWER))
    ready(worker.drafts)
    other = OnceService()
    for each in (worker, Worker(worker.drafts, other)):
        assert await each.sent(asked(PROSE, ANSWER, ASKED)) == form == await plainly(asked(PROSE, ANSWER))
    other.close()


async def test_later_requests_keep_the_bytes_on_every_replica(once: OnceService) -> None:
    worker = Worker(Drafts(), once)
    await worker.sent(asked())
    ready(worker.drafts)
    form = await worker.sent(asked(PROSE, ANSWER))
    worker.drafts.ready.clear()
    other = OnceService()
    for each in (worker, Worker(worker.drafts, other)):
        assert await each.sent(asked(PROSE, ANSWER, ASKED)) == form
    other.close()


async def test_what_is_remembered_neither_skips_the_writing_nor_lets_the_settled_expire(once: OnceService) -> None:
    worker = Worker(Drafts(), once)
    await worker.sent(asked())
    await worker.sent(asked())
    assert len(worker.drafts.asked) == 2, "one that failed is asked for again"
    await worker.sent(asked(PROSE, ANSWER))
    worker.drafts.cuts.clear()
    await worker.sent(asked(PROSE, ANSWER))
    assert list(worker.drafts.cuts) == [worker.drafts.asked[0].name]


@pytest.mark.parametrize(
    ("text", "call"),
    [
        pytest.param(ROWS, {}, id="a table"),
        pytest.param("A short one.", {}, id="a short text"),
        pytest.param(PROSE, {"tool": DEFINITION.name}, id="what was recalled"),
    ],
)
async def test_what_wants_none(once: OnceService, text: str, call: dict[str, str]) -> None:
    worker = Worker(Drafts(), once)
    for after in ([], [ANSWER]):
        assert await worker.sent(asked(text, *after, **call)) == await plainly(asked(text, *after, **call))
    assert (worker.drafts.asked, worker.drafts.cuts) == ([], {})


async def test_without_the_setting_nothing_is_asked_for(once: OnceService) -> None:
    off, on = Worker(Drafts(), once, gist=False), Worker(Drafts(), once)
    on.archive = off.archive
    for after in ([], [ANSWER]):
        assert await off.sent(asked(PROSE, *after)) == await plainly(asked(PROSE, *after))
    assert (off.drafts.asked, off.drafts.cuts) == ([], {})
    await on.sent(asked())
    ready(on.drafts)
    assert LINE in await on.sent(asked(PROSE, ANSWER)), "what another chain made is not taken for it"


async def test_its_tokens_count_when_a_form_must_pay(once: OnceService) -> None:
    text, worker = PROSE[:1700], Worker(Drafts(), once)
    other = user("And now for something else. " * 300)
    worker.rules = CacheRules(read=0.1, write=1.0, ttl=300)
    await worker.sent(asked(text, other))
    plain = OnceService()
    without = Worker(Drafts(), plain)
    without.rules = worker.rules
    turns = await least_turns(without, asked(text, other, ANSWER))
    worker.drafts.ready = {material.name: "so it goes " * 10 for material in worker.drafts.asked}
    assert await least_turns(worker, asked(text, other, ANSWER)) > turns
    plain.close()


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from([PROSE, PROSE[:1700], PROSE * 2, ROWS]), st.booleans()), min_size=1, max_size=6),
    st.sampled_from([CacheRules(), CacheRules(read=0.1, write=1.25, ttl=300)]),
)
async def test_whenever_a_gist_is_ready_what_was_sent_stays(steps: list[tuple[str, bool]], rules: CacheRules) -> None:
    services, drafts = [OnceService() for _ in range(3)], Drafts()
    workers = [Worker(drafts, once) for once in services]
    messages, before = list(chat("s u1").messages), [b""]
    for step, (text, is_ready) in enumerate(steps):
        messages += asked(text).messages[2:]
        now = []
        for worker in (workers[step % 2], workers[2]):
            worker.rules = rules
            now.append([message.raw for message in await worker.messages(chat("u1").with_messages(messages))])
        assert now[0] == now[1]
        assert now[0][: len(before) - 1] == before[:-1]
        before = now[0]
        if is_ready:
            ready(drafts)
    for once in services:
        once.close()


async def least_turns(worker: Worker, request: ChatRequest) -> int:
    """The fewest turns for which the form is taken."""
    for turns in range(1, 400):
        worker.policy = CompactToolResults(gist=True, turns=turns)
        if is_shortened(await worker.sent(request)):
            return turns
    raise AssertionError("it never pays")
