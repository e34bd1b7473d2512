"""Requests to sum the conversation up are known in many languages; others are not taken for one."""

import pytest

from policies.compress_history import CompressHistory
from policies.reject_oversize import RejectOversize
from proxy.chat import Tool
from proxy.history.handover import asks_for_summary
from proxy.policy import Keep, Rewrite
from proxy.testing import MemoryArchive, chat, context, tool
from tests.talk import assistant, calls, result, user


@pytest.mark.parametrize(
    "text",
    [
        "Please summarize the conversation.",
        "Your task is to create a detailed summary of the conversation so far, paying close attention to the requests.",
        "Resume la conversación hasta aquí.",
        "Fasse das bisherige Gespräch zusammen.",
        "Подведи итог нашему разговору.",
        "请总结一下到目前为止的对话。",
        "지금까지의 대화를 요약해 줘.",
        "لخص المحادثة حتى الآن.",
        "TL;DR",
        "Sammanfatta samtalet.",
        "Shrň nám to.",
        "Hãy tóm tắt mọi thứ.",
        "סכם את השיחה.",
        "สรุปให้หน่อย",
        f"{'lorem ipsum ' * 40} Sum up? Or rather summarize it.",
    ],
)
def test_request_for_a_summary_is_known(text: str) -> None:
    assert asks_for_summary(chat("s").with_messages([user("hi"), assistant("hi"), user(text)]))


@pytest.mark.parametrize(
    "text",
    [
        f"{'lorem ipsum ' * 20} a summary, among other things {'lorem ipsum ' * 20}",
        "Our conversation was nice.",
        "<conversation_summary>\nx\n</conversation_summary>",
        "ok",
    ],
)
def test_other_messages_are_none(text: str) -> None:
    assert not asks_for_summary(chat("s").with_messages([user(text)]))


@pytest.mark.parametrize(
    ("was_called", "tools", "fields", "known"),
    [
        (True, [], {}, True),
        (True, [tool()], {"tool_choice": "none"}, True),
        (True, [tool()], {}, False),
        (False, [], {}, False),
    ],
)
def test_an_agent_that_may_call_no_tool_any_more_asks_for_a_text(
    was_called: bool, tools: list[Tool], fields: dict[str, str], known: bool
) -> None:
    work = [calls("c1"), result("c1")] if was_called else [assistant("hi")]
    request = chat("s", tools=tools, **fields).with_messages([user("hi"), *work, user("Och nu?")])
    assert asks_for_summary(request) is known


@pytest.mark.parametrize(("text", "whole"), [("Please summarise our conversation so far.", True), ("And now?", False)])
async def test_request_for_a_summary_goes_whole_while_it_fits(text: str, whole: bool) -> None:
    talk = [message for n in range(60) for message in (user(f"{n} " + "word " * 30), assistant("word " * 32))]
    request = chat("s").with_messages([*talk, user(text)])
    ctx = context(request, window=5640, archive=MemoryArchive())
    total = (await ctx.tokens.count(request)).total
    assert 0.95 * 5640 < total <= 5640
    decision = await CompressHistory().apply(request, ctx)
    assert isinstance(decision, Keep if whole else Rewrite)
    if whole:
        assert isinstance(await RejectOversize().apply(request, ctx), Keep)
