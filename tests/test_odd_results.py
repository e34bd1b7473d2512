"""Tool results that stand where nobody expects them, and results that repeat others: no step of a chain fails."""

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from proxy.chat import Message
from proxy.chat.wire import flaws
from proxy.config.load import policy_class
from proxy.config.settings import Chain
from proxy.gateway.chain import Outcome, run
from proxy.testing import MemoryMemo, chat, context, tool
from tests.talk import assistant, calls, result, system, user
from tests.test_conversations import CHAIN

CLEARING = tuple(
    (name, policy_class(name).model_validate(fields))
    for name, fields in (
        ("compact_tool_results", {}),
        ("clear_tool_results", {"keep_last": 1}),
        ("window_history", {"keep_turns": 2, "stride": 1}),
        ("recall_history", {}),
    )
)
SIZES = st.sampled_from([1, 5, 40, 120, 300, 900])


@st.composite
def loops(draw: st.DrawFn) -> list[Message]:
    """A call with results: in another order, missing, twice, of no call, with messages of others between."""
    used = st.sampled_from("abcdef") | st.integers(0, 9999).map(str)
    ids = draw(st.lists(used, min_size=1, max_size=4))
    answers = draw(st.permutations([*ids, *draw(st.lists(st.sampled_from([*ids, "orphan"]), max_size=2))]))
    said = [calls(*ids)]
    for each in answers[draw(st.integers(0, 1)) :]:
        said.append(result("word " * draw(SIZES) + each, each))
        between = draw(st.sampled_from([None, None, None, user, system]))
        said += [between("word " * draw(SIZES))] if between else []
    return [*said, assistant("Done.")][: len(said) + draw(st.integers(0, 1))]


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    parts=st.lists(loops() | st.just([user("Go on.")]), min_size=2, max_size=12),
    window=st.sampled_from([700, 1500, 3000]),
    chain=st.sampled_from([CHAIN, CLEARING]),
)
async def test_no_step_fails_on_odd_tool_loops(parts: list[list[Message]], window: int, chain: Chain) -> None:
    request = chat("", tools=[tool()]).with_messages(message for part in parts for message in part)

    outcome = await run(chain, context(request, window=window, memo=MemoryMemo()), strict=True)

    assert outcome.rejected is not None or flaws(outcome.request) <= flaws(request)


@pytest.mark.parametrize("orphans", [["x"], ["x", "y"], ["x", "y", "z"], ["x", "x"]])
@pytest.mark.parametrize("before", [[], [calls("c"), result("one", "c")]], ids=["behind words", "behind a result"])
async def test_results_that_nobody_has_read_stay_though_their_calls_are_gone(
    orphans: list[str], before: list[Message]
) -> None:
    talk = [user("word " * 300), assistant("Well."), *before, *(result("word " * 400 + each, each) for each in orphans)]
    request = chat("", tools=[tool()]).with_messages(talk)

    outcome = await run(
        [step for step in CHAIN if step[0] == "compress_history"], context(request, window=700), strict=True
    )

    named = [message.get("tool_call_id") for message in outcome.request.messages if message.role == "tool"]
    assert named[-len(orphans) :] == orphans


async def look_again(window: int, name: str, **fields: Any) -> Outcome:
    """Run a cut over results that all have one long line, and so refer to the first one."""
    talk = [
        each
        for turn in range(8)
        for each in (user("Look."), calls(f"c{turn}"), result("word " * 900, f"c{turn}"), assistant("Seen."))
    ]
    request = chat("", tools=[tool()]).with_messages([*talk, user("And?")])
    steps = [
        (each, policy_class(each).model_validate(given))
        for each, given in (("compact_tool_results", {}), (name, fields))
    ]
    return await run(steps, context(request, window=window), strict=True)


async def test_nothing_leaves_where_what_refers_to_it_would_be_longer() -> None:
    outcome = await look_again(8000, "window_history", keep_turns=2, stride=1)

    assert [step.verdict for step in outcome.steps] == ["rewrite", "keep"]
    assert "refer to" in outcome.steps[1].why


async def test_a_tight_cut_shows_no_note_on_lines_that_left() -> None:
    outcome = await look_again(700, "compress_history")

    assert outcome.steps[1].verdict == "rewrite"
    assert not any("as above" in message.text for message in outcome.request.messages)
