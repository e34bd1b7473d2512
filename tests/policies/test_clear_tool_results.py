import pytest

from policies.clear_tool_results import ClearToolResults
from policies.compact_tool_results import CompactToolResults
from proxy.chat import ChatRequest
from proxy.chat.wire import damage
from proxy.context import CacheRules
from proxy.policy import Keep, Rewrite
from proxy.testing import MemoryArchive, chat, context, profile, tool
from tests.decisions import rewrite
from tests.talk import calls, result, user

WINDOW = 2000


def steps(count: int) -> ChatRequest:
    """Calls with results of about 120 tokens each."""
    messages = list(chat("s u1").messages)
    for n in range(count):
        call, result = chat(f"a!c{n} tc{n}").messages
        messages += [call, result.with_changes(content=f"row {n} " + "word " * 90)]
    return chat("u1").with_messages(messages)


def lines(request: ChatRequest) -> int:
    return sum(message.text.startswith("[removed: look_up(") for message in request.messages)


@pytest.mark.parametrize(("count", "why"), [(1, "no old tool results"), (4, "context at 33%, no batch to clear")])
async def test_while_there_is_room_nothing_is_cleared(count: int, why: str) -> None:
    request = steps(count)
    assert await ClearToolResults().apply(request, context(request, window=WINDOW)) == Keep(why)


async def test_a_batch_is_cleared_when_the_window_forces_it() -> None:
    request, archive = steps(14), MemoryArchive()
    decision = rewrite(await ClearToolResults().apply(request, context(request, window=WINDOW, archive=archive)))
    assert decision.facts["cleared_results"] == lines(decision.request) == len(archive.contents)
    assert not damage(request, decision.request)
    assert decision.request.messages[-3:] == request.messages[-3:]
    handle, content = next(iter(archive.contents.items()))
    assert any(f'recall("{handle}")' in message.text for message in decision.request.messages)
    assert any(message.text == content for message in request.messages)


async def test_batches_are_rare_and_nothing_comes_back() -> None:
    counts = []
    for count in range(2, 60):
        request = steps(count)
        decision = await ClearToolResults().apply(request, context(request, window=WINDOW))
        counts.append(lines(decision.request) if isinstance(decision, Rewrite) else 0)
    assert counts == sorted(counts)
    assert 2 <= len(set(counts)) - 1 <= 60 * 150 / (0.4 * WINDOW)


async def test_many_small_results_leave_too() -> None:
    request = steps(90)
    small = [
        one.with_changes(content=one.text[:150]) if one.role == "tool" else one.with_changes()
        for one in request.messages
    ]
    request = request.with_messages(small)
    archive = MemoryArchive()
    ctx = context(request, window=6000, archive=archive)
    decision = rewrite(await ClearToolResults(stride=0.2).apply(request, ctx))
    gone = [one for one in decision.request.messages if one.text.startswith("[removed; recall(")]
    assert len(gone) == decision.facts["cleared_results"] == len(archive.contents) > 40
    assert sum(len(one.raw) for one in decision.request.messages) < 0.85 * sum(len(one.raw) for one in small)


@pytest.mark.parametrize(
    ("rules", "turns_ahead", "expected"),
    [
        pytest.param(CacheRules(), 0, Rewrite, id="without a cache nothing can break"),
        pytest.param(CacheRules(read=0.5, write=1.0, ttl=300), 0, Keep, id="only the window counts"),
        pytest.param(CacheRules(read=0.5, write=1.0, ttl=300), 20, Rewrite, id="it pays in time"),
        pytest.param(CacheRules(read=0.1, write=1.25, ttl=300), 20, Keep, id="it does not"),
        pytest.param(CacheRules(read=0.5, write=1.0, ttl=300), 1, Keep, id="the end is near"),
    ],
)
async def test_below_the_mark_it_must_pay(rules: CacheRules, turns_ahead: int, expected: type[Keep | Rewrite]) -> None:
    request = steps(14)
    ctx = context(request, model=profile(2 * WINDOW, cache=rules))
    policy = ClearToolResults(turns_ahead=turns_ahead, stride=0.2)
    assert isinstance(await policy.apply(request, ctx), expected)


async def test_a_quarter_of_the_requests_so_far_are_expected_and_no_more_than_the_setting_says() -> None:
    async def batches(turns_ahead: int) -> list[int]:
        found = []
        for count in range(3, 24):
            request = steps(count)
            ctx = context(request, model=profile(20 * WINDOW, cache=CacheRules(read=0.5, write=1.0, ttl=300)))
            decision = await ClearToolResults(turns_ahead=turns_ahead, stride=0.2).apply(request, ctx)
            found.append(lines(decision.request) if isinstance(decision, Rewrite) else 0)
        return found

    many = await batches(100)
    assert next(count for count, gone in enumerate(many, 3) if gone) == 8, (
        "a batch is worth it that pays within two further requests"
    )
    assert not any(await batches(1))
    assert len({*many}) > len({*(await batches(2))}), "with more requests ahead smaller batches pay, too"


@pytest.mark.parametrize(("name", "expected"), [("look_up", Rewrite), ("recall", Keep)])
async def test_what_the_model_recalled_stays(name: str, expected: type[Keep | Rewrite]) -> None:
    made = [calls(*message.call_ids, name=name) if message.called_tools else message for message in steps(14).messages]
    request = chat("u1", tools=[tool(name)]).with_messages(made)
    assert isinstance(await ClearToolResults().apply(request, context(request, window=WINDOW)), expected)


async def test_a_result_stays_where_a_later_one_would_show_its_lines_instead() -> None:
    read = "\n".join(f"line {n} of a file that is read twice" for n in range(200))
    read_twice = [user("u1"), *(message for call in ("c0", "c1") for message in (calls(call), result(read, call)))]
    incoming = chat("u1").with_messages(read_twice)
    ctx = context(incoming, window=WINDOW)
    short = rewrite(await CompactToolResults().apply(incoming, ctx)).request
    decision = await ClearToolResults(keep_last=0).apply(short, ctx)
    assert decision == Keep("1 tool results to clear, but later results show the same lines")


async def test_what_comes_back_where_a_result_refers_to_a_cleared_one_does_not_fill_the_window() -> None:
    read = "\n".join(f"line {n} of a file that is read again" for n in range(250))
    messages, before = [user("u1")], frozenset[str]()
    for step in range(40):
        said = read if step < 2 or step % 5 == 0 else "\n".join(f"{step} found {n} of the rest" for n in range(40))
        messages += [calls(f"c{step}"), result(said, f"c{step}")]
        request = chat("u1").with_messages(messages)
        ctx = context(request, window=4 * WINDOW)
        for policy in (CompactToolResults(), ClearToolResults()):
            decision = await policy.apply(request, ctx)
            request = decision.request if isinstance(decision, Rewrite) else request
        assert (await ctx.tokens.count(request)).total < ctx.model.usable(request)
        gone = {str(each["tool_call_id"]) for each in request.messages if each.text.startswith("[removed: ")}
        assert gone >= before
        before = frozenset(gone)
    assert before
