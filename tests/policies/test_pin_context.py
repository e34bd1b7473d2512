import pytest
from pydantic import ValidationError

from policies.compress_history import CompressHistory
from policies.pin_context import PinContext
from policies.window_history import WindowHistory
from proxy.chain import run
from proxy.chat import ChatRequest, Message
from proxy.policy import Keep, Rewrite
from proxy.testing import Example, chat, context, script


def talk(turns: int) -> ChatRequest:
    messages = [Message({"role": "user", "content": "Book a flight. Never charge the card."})]
    for n in range(turns):
        messages += chat(f"a{n} u{n}" + "x" * 200).messages
    return chat("u").with_messages([*chat("s").messages, *messages])


EXAMPLES = [Example(talk(60), behind=(WindowHistory(summary=False),))]


async def test_nothing_left_nothing_to_do() -> None:
    request = talk(3)
    assert await PinContext().apply(request, context(request)) == Keep("nothing left the context")


async def test_what_a_window_dropped_comes_back_word_for_word() -> None:
    chain = [("window_history", WindowHistory(keep_turns=2, stride=2, summary=False)), ("pin_context", PinContext())]
    outcome = await run(chain, context(talk(6)), strict=True)
    head, pins, noted, *kept = outcome.request.messages
    assert (head.role, pins.role, noted.role, kept[0].role) == ("system", "user", "assistant", "user")
    assert pins.text == (
        "<pinned_context>\nSaid earlier in this conversation and still in force:\n"
        "- Book a flight. Never charge the card.\n</pinned_context>"
    )


async def test_it_stands_still_while_the_window_does() -> None:
    chain = [("window_history", WindowHistory(keep_turns=4, stride=3)), ("pin_context", PinContext())]
    starts = set()
    for turns in range(6, 40):
        outcome = await run(chain, context(talk(turns)), strict=True)
        starts.add(" ".join(script(outcome.request).split()[:3]) + str(turns // 100))
    assert len(starts) == 1


async def test_behind_a_step_that_pins_it_proves_it() -> None:
    request = talk(60)
    ctx = context(request, window=3000)
    outcome = await run([("compress_history", CompressHistory()), ("pin_context", PinContext())], ctx, strict=True)
    first, second = outcome.steps
    assert first.verdict == "rewrite"
    assert (second.verdict, second.why) == ("keep", "all 1 pinned texts stand in the request")


async def test_patterns_and_the_share_that_they_may_take() -> None:
    request = talk(6)
    ctx = context(request, window=4000)
    dropped = request.with_messages(request.messages[-3:])
    decision = await PinContext(patterns=(r"^a?u?3x+",)).apply(dropped, ctx)
    assert isinstance(decision, Rewrite)
    assert "- Book a flight" in decision.request.messages[0].text
    assert "\n- u3xxx" in decision.request.messages[0].text
    tight = await PinContext(share=0.001).apply(dropped, ctx)
    assert tight == Keep("1 pinned texts are missing and too long for 0% of the window")


def test_dangerous_patterns_are_refused() -> None:
    with pytest.raises(ValidationError, match="take forever"):
        PinContext(patterns=("(x+)*",))
