"""The runner: a fault never reaches a request, a verdict always does."""

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Literal

import pytest

from proxy.chat import ChatRequest, Fields, Message
from proxy.chat.placeholders import StandIn
from proxy.context import Context, Identity, ModelProfile, Once
from proxy.gateway.chain import BrokenRequest, Outcome, run
from proxy.policy import Decision, Guard, Keep, Policy, Reject, Rewrite, When
from proxy.state.cache import OnceService
from proxy.testing import chat, context, message, script, tool

_HURRY = 0.01
"""Seconds that a step may take here."""


CONVERSATION = chat("s u1 a1 u2")
CHANGES: dict[str, Callable[[Sequence[Message]], Sequence[Message]]] = {
    "drop": lambda messages: messages[1:],
    "grow": lambda messages: [message("s" + "x" * 99), *messages],
    "lose_the_user": lambda messages: messages[:-1],
    "redact": lambda messages: [*messages[:-1], messages[-1].with_texts(lambda text: text[0] + "*" * 30)],
    "replace_the_user": lambda messages: [*messages[:-1], message("u9")],
}
WAITS: dict[str, Callable[[], Awaitable[Any]]] = {
    "wait": lambda: asyncio.Event().wait(),
    "yield": lambda: asyncio.sleep(0),
    "drop_slowly": lambda: asyncio.sleep(2 * _HURRY),
}


class Scripted(Policy):
    act: str = "keep"

    async def apply(self, request: ChatRequest, ctx: Context) -> Decision:
        if self.act in WAITS:
            await WAITS[self.act]()
        if change := CHANGES.get(self.act.removesuffix("_slowly")):
            return Rewrite(request.with_messages(change(request.messages)), self.act, {"dropped": 1})
        if self.act == "raise":
            raise ValueError(f"secret: {request.messages[0].text}")
        if self.act == "reject":
            return Reject("no", code="no_way", status=403)
        return None if self.act == "nonsense" else Keep("nothing to do")  # type: ignore[return-value]


class Growing(Scripted):
    may_grow = True


class GivingWay(Growing):
    gives_way = True


class Defining(Scripted):
    defines_conversation = True


async def ran(*steps: Policy, request: ChatRequest = CONVERSATION, **about: Any) -> Outcome:
    return await run([(f"step{i}", step) for i, step in enumerate(steps)], context(request, **about))


async def verdict(*steps: Policy, **about: Any) -> str:
    """What becomes of the first step."""
    return (await ran(*steps, **about)).steps[0].verdict


async def test_an_empty_chain_hands_on_the_request_and_each_step_gets_what_the_last_made() -> None:
    request = chat("u1")
    outcome = await ran(request=request)
    assert outcome.request is request
    assert (outcome.before, outcome.steps) == (None, ())
    outcome = await ran(Scripted(act="drop"), Scripted(act="drop"))
    assert script(outcome.request) == "a1 u2"
    first, second = outcome.steps
    assert first.tokens_after == second.tokens_before
    assert outcome.before is not None
    assert outcome.after is not None
    assert outcome.after.total < outcome.before.total
    assert first.facts == {"dropped": 1}
    assert first.compressed


def hurried(act: str, **about: Any) -> Scripted:
    """A step with no time to wait; one that waits for nothing is in no hurry."""
    return Scripted(act=act, timeout=_HURRY if act == "wait" else 60, **about)


@pytest.mark.parametrize("act", ["raise", "wait", "nonsense", "lose_the_user", "grow"])
class TestAFault:
    async def test_leaves_the_request_as_it_was_and_says_why_without_quoting(self, act: str) -> None:
        outcome = await ran(hurried(act), Scripted(act="drop"))
        assert script(outcome.request) == "u1 a1 u2"
        assert outcome.steps[0].verdict == "fail"
        assert "secret" not in outcome.steps[0].why

    async def test_a_fault_is_raised_in_strict_runs_and_rejects_where_the_operator_wants_it(self, act: str) -> None:
        with pytest.raises((ValueError, TimeoutError, BrokenRequest)):
            await run([("step", hurried(act))], context(CONVERSATION), strict=True)
        outcome = await ran(hurried(act, on_error="reject"), Scripted(act="drop"))
        assert outcome.rejected is not None
        assert outcome.rejected.status == 500
        assert outcome.rejected.why.startswith("policy 'step0' failed: ")
        assert [step.verdict for step in outcome.steps] == ["fail"]
        shadow = await ran(hurried(act, mode="observe", on_error="reject"))
        assert shadow.rejected is None


@pytest.mark.parametrize(
    ("window", "kind", "verdicts"),
    [
        pytest.param(30, Scripted, ["rewrite", "rewrite"], id="as long as it takes, where the prompt does not fit"),
        pytest.param(8192, Scripted, ["fail", "rewrite"], id="its timeout, where it does"),
        pytest.param(30, Growing, ["fail", "rewrite"], id="its timeout, where it makes nothing shorter"),
    ],
)
async def test_a_step_has(window: int, kind: type[Scripted], verdicts: list[str]) -> None:
    outcome = await ran(kind(act="drop_slowly", timeout=_HURRY), Scripted(act="drop"), window=window)
    assert [step.verdict for step in outcome.steps] == verdicts


async def test_a_step_that_fitting_needs_counts_alone_and_ends_with_the_patience() -> None:
    outcome = await ran(hurried("wait"), Scripted(act="reject"), window=30, patience=_HURRY)
    assert outcome.late
    steps = Scripted(act="drop_slowly"), Growing(act="yield"), Scripted(act="reject")
    outcome = await ran(*steps, window=30, deadline=1.5 * _HURRY)
    assert [step.verdict for step in outcome.steps] == ["rewrite", "keep", "reject"]


@pytest.mark.parametrize(
    ("act", "mode", "late"), [("wait", "enforce", True), ("wait", "observe", False), ("raise", "enforce", False)]
)
async def test_a_rejection_tells_of_a_late_step(act: str, mode: Literal["enforce", "observe"], late: bool) -> None:
    outcome = await ran(hurried(act, mode=mode), Scripted(act="reject"))
    assert outcome.rejected is not None
    assert outcome.late is late


async def test_what_gives_way_is_dropped_where_it_would_fill_the_window() -> None:
    before, after = [(await ran(Growing(act=act))).after for act in ("keep", "grow")]
    assert before is not None
    assert after is not None
    full = int(after.total / 0.94)  # so large that it fills just so much
    for window, step, told in [
        (full + 2, GivingWay(act="grow"), "rewrite"),
        (full - 2, GivingWay(act="grow"), "keep"),
        (full - 2, Growing(act="grow"), "rewrite"),
        (before.total, GivingWay(act="grow"), "rewrite"),  # it did not fit before: others see to that
    ]:
        outcome = await ran(step, model=roomy(window))
        assert outcome.steps[0].verdict == told
        assert outcome.after == (after if told == "rewrite" else before)


def roomy(usable: int) -> ModelProfile:
    """A model with so many tokens for a prompt."""
    return ModelProfile(name="test", window=usable, max_output=1, reserve=0)


async def test_a_rejection_ends_the_chain_whatever_on_error_says() -> None:
    outcome = await ran(Scripted(act="reject", on_error="skip"), Scripted(act="raise"))
    assert outcome.rejected == Reject("no", code="no_way", status=403)
    assert [step.verdict for step in outcome.steps] == ["reject"]


@pytest.mark.parametrize("act", ["drop", "reject", "keep"])
async def test_shadow_mode_reports_and_changes_nothing(act: str) -> None:
    outcome = await ran(Scripted(act=act, mode="observe"))
    assert outcome.request is CONVERSATION
    assert outcome.rejected is None
    assert outcome.after == outcome.before
    step = outcome.steps[0]
    assert (step.verdict, step.observed, step.compressed) == ({"drop": "rewrite"}.get(act, act), True, False)


@pytest.mark.parametrize(
    ("when", "window", "told"),
    [
        pytest.param(When(context_over=0.5), 30, "rewrite", id="over half"),
        pytest.param(When(context_over=0.5), 3000, "skip", id="not over half"),
        pytest.param(When(header="x-team"), 30, "skip", id="no header"),
    ],
)
async def test_a_step_runs_when_its_conditions_hold(when: When, window: int, told: str) -> None:
    assert await verdict(Scripted(act="drop", when=when), window=window) == told


async def test_the_deadline_bounds_all_steps_that_wait_together() -> None:
    outcome = await ran(Scripted(act="wait"), Scripted(act="drop"), deadline=-1)
    assert [step.verdict for step in outcome.steps] == ["fail", "rewrite"]
    outcome = await ran(*(Scripted(act="wait", timeout=60),) * 3, deadline=0.02)
    assert [step.verdict for step in outcome.steps] == ["fail"] * 3


async def test_cancelling_the_request_cancels_the_step() -> None:
    task = asyncio.ensure_future(ran(Scripted(act="wait", timeout=60)))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


class Changing(Scripted):
    changes_last_user_message = True


class Guarding(Guard, Scripted):
    gives_way = True

    def redact(self, text: str, stand_in: StandIn) -> str:
        return text

    async def apply(self, request: ChatRequest, ctx: Context) -> Decision:
        return await Scripted.apply(self, request, ctx)


@pytest.mark.parametrize(
    ("act", "is_lost"),
    [
        pytest.param("redact", False, id="a changed copy, longer than before"),
        pytest.param("lose_the_user", True, id="a lost one"),
        pytest.param("replace_the_user", True, id="another message in its place"),
    ],
)
async def test_a_policy_that_may_change_the_last_user_message_may_not_drop_it(act: str, is_lost: bool) -> None:
    assert await verdict(Scripted(act=act)) == "fail"
    for kind in (Changing, Guarding):
        assert await verdict(kind(act=act)) == ("fail" if is_lost or kind is Changing else "rewrite")


@pytest.mark.parametrize("act", ["raise", "wait", "nonsense", "lose_the_user"])
async def test_a_guard_fails_closed(act: str) -> None:
    seconds = _HURRY if act == "wait" else 60
    outcome = await ran(Guarding(act=act, timeout=seconds), Scripted(act="drop"), patience=seconds)
    assert outcome.rejected is not None
    assert (outcome.rejected.status, outcome.rejected.code) == (500, "policy_failed")
    assert len(outcome.steps) == 1


async def test_a_guard_never_gives_way_and_later_steps_know_only_what_it_leaves() -> None:
    full = (await ran(Scripted())).before
    assert full is not None
    assert await verdict(Guarding(act="redact"), model=roomy(int(full.total / 0.94) + 2)) == "rewrite"
    outcome = await ran(Guarding(act="redact"), Remembering())
    assert outcome.incoming is not None
    assert script(outcome.incoming) == script(outcome.request) == f"s u1 a1 u{'*' * 30}"


async def test_tools_that_were_left_out_before_a_guard_can_still_be_searched() -> None:
    request = chat("s u1", tools=[tool("one"), tool("two")])
    outcome = await ran(Narrowing(), Guarding(act="redact"), request=request)
    assert [each.name for each in outcome.request.tools] == ["one"]
    assert outcome.incoming is not None
    assert [each.name for each in outcome.incoming.tools] == ["one", "two"]


class Narrowing(Policy):
    async def apply(self, request: ChatRequest, ctx: Context) -> Decision:
        return Rewrite(request.with_tools(request.tools[:1]), "one tool")


class Remembering(Policy):
    may_grow = True

    async def apply(self, request: ChatRequest, ctx: Context) -> Decision:
        return Rewrite(request.with_messages(ctx.incoming.messages), "put all back")


@pytest.mark.parametrize(
    ("first", "rest"),
    [
        pytest.param(Scripted(act="drop"), 0, id="a step that defines nothing"),
        pytest.param(Defining(act="drop"), 1, id="a step that defines it"),
        pytest.param(Defining(act="drop", mode="observe"), 0, id="one that only observes"),
    ],
)
async def test_later_steps_know_what_a_defining_step_leaves(first: Policy, rest: int) -> None:
    assert (await ran(first, Remembering())).request.messages == CONVERSATION.messages[rest:]


async def test_it_may_leave_out_the_last_user_message_and_flaws_of_the_client_are_no_fault() -> None:
    assert await verdict(Defining(act="lose_the_user")) == "rewrite"
    assert await verdict(Defining(act="drop"), request=chat("a1! t1 u1")) == "fail"
    orphan = chat("s t9 u1", tools=[tool()])
    outcome = await run([("step", Scripted(act="drop"))], context(orphan), strict=True)
    assert script(outcome.request) == "t9 u1"


class Ignorable(Policy):
    how: Callable[[ChatRequest], ChatRequest] = lambda request: request

    async def apply(self, request: ChatRequest, ctx: Context) -> Decision:
        return Rewrite(self.how(request), "changed it")


@pytest.mark.parametrize(("how", "told"), [
    pytest.param(lambda request: request.with_model("gpt-5"), "fail", id="another model"),
    pytest.param(lambda request: request.with_field("stream", True), "fail", id="another form"),
    pytest.param(lambda request: replace(request, rest=request.rest.with_changes(user="b")), "rewrite", id="a field by itself"),
    pytest.param(lambda request: request.with_field("model", "gpt-5"), "fail", id="in rest"),
    pytest.param(lambda request: request.with_field("user", "b"), "rewrite", id="a field of its own"),
])  # fmt: skip
async def test_a_change_without_effect_is_a_fault(how: Callable[[ChatRequest], ChatRequest], told: str) -> None:
    request = replace(chat("u1"), rest=Fields({"user": "a"}))
    outcome = await ran(Ignorable(how=how), request=request)
    assert (outcome.request is request) == (told == "fail")
    assert outcome.steps[0].verdict == told


class Reading(Policy):
    def apply(self, request: ChatRequest, ctx: Context) -> Decision:
        return Keep("read", {"thread": threading.get_ident()})


@pytest.fixture
def once() -> Iterator[Once]:
    service = OnceService()
    yield service.bind(Identity("test"))
    service.close()


@pytest.mark.parametrize(("length", "is_apart"), [(10, False), (800_000, True)])
async def test_a_plain_apply_reads_a_large_request_beside_the_loop(length: int, is_apart: bool, once: Once) -> None:
    outcome = await ran(Reading(), request=chat("u" + "x" * length), once=once)
    assert (outcome.steps[0].facts["thread"] != threading.get_ident()) == is_apart


class Working(Policy):
    """Has a thread do a job: one that takes CPU, or one that a busy machine keeps from it."""

    burns: bool
    seconds: float

    async def apply(self, request: ChatRequest, ctx: Context) -> Decision:
        await ctx.once.run(10**9, partial(self._job, time.thread_time if self.burns else time.monotonic))
        return Keep("done")

    def _job(self, clock: Callable[[], float]) -> None:
        end = clock() + self.seconds
        while clock() < end:
            time.sleep(0 if self.burns else 0.001)


@pytest.mark.parametrize(
    ("burns", "seconds", "told"),
    [
        pytest.param(False, 0.15, "keep", id="kept from working"),
        pytest.param(True, 0.5, "fail", id="works too long"),
        pytest.param(False, 2.0, "fail", id="kept from working for too long"),
    ],
)
async def test_a_busy_machine_takes_none_of_a_steps_time(burns: bool, seconds: float, told: str, once: Once) -> None:
    assert await verdict(Working(burns=burns, seconds=seconds, timeout=0.1), once=once) == told
