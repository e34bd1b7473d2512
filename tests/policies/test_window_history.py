import pytest
from pydantic import ValidationError

from policies.window_history import WindowHistory
from proxy.policy import Keep, Rewrite
from proxy.testing import chat, context, script


@pytest.mark.parametrize(
    ("given", "forwarded"),
    [
        pytest.param("s u1 a1 u2 a2 u3 a3 u4 a4 u5", "s u3 a3 u4 a4 u5", id="a stride leaves at once"),
        pytest.param("s u1 a1 u2 a2 u3 a3 u4 a4 u5 a5 u6", "s u3 a3 u4 a4 u5 a5 u6", id="the cut then stands still"),
        pytest.param("u1 a1! t1 a1 u2 u3 u4 u5", "u3 u4 u5", id="a tool result leaves with its call"),
        pytest.param("s d u1 u2 u3 u4 u5", "s d u3 u4 u5", id="all leading system messages stay"),
        pytest.param("a0 u1 u2 u3 u4", "u2 u3 u4", id="what comes before the first user message is a turn"),
        pytest.param("u1 u2 a! u3 ta u4 u5", "u4 u5", id="the cut waits until no call is open across it"),
    ],
)
async def test_old_turns_leave(given: str, forwarded: str) -> None:
    request = chat(given.replace("a!", "a2!a"))

    decision = await WindowHistory(keep_turns=4, stride=2).apply(request, context(request))

    assert isinstance(decision, Rewrite)
    assert script(decision.request) == forwarded
    assert decision.facts["dropped_messages"] == len(request.messages) - len(decision.request.messages)


async def test_a_short_conversation_is_kept() -> None:
    request = chat("s u1 a1 u2")
    assert await WindowHistory(keep_turns=4, stride=2).apply(request, context(request)) == Keep("2 turns")


async def test_nothing_leaves_where_every_cut_would_part_a_call_from_its_result() -> None:
    request = chat("u1 a1!x u2 u3 tx")
    decision = await WindowHistory(keep_turns=1, stride=1).apply(request, context(request))
    assert isinstance(decision, Keep)


async def test_kept_messages_are_the_same_objects() -> None:
    request = chat("u1 a1 u2 a2 u3")
    decision = await WindowHistory(keep_turns=2, stride=1).apply(request, context(request))
    assert isinstance(decision, Rewrite)
    assert all(any(kept is sent for sent in request.messages) for kept in decision.request.messages)


async def test_a_hundred_turns_break_the_prefix_once_a_stride() -> None:
    policy, words = WindowHistory(keep_turns=20, stride=10), ["s"]
    starts: list[str] = []
    for turn in range(100):
        words += [f"u{turn}"]
        request = chat(" ".join(words))
        decision = await policy.apply(request, context(request))
        forwarded = decision.request if isinstance(decision, Rewrite) else request
        starts.append(script(forwarded).split()[1])
        words += [f"a{turn}"]
    assert len(set(starts)) == 1 + 8


def test_a_stride_that_would_leave_nothing_is_refused() -> None:
    with pytest.raises(ValidationError, match=r"stride \(5\) must not exceed keep_turns \(4\)"):
        WindowHistory(keep_turns=4, stride=5)
