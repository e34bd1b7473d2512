"""Requests to sum the conversation up are known in many languages; others are not taken for one."""

from typing import Any

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
        "ช่วยสรุปบทสนทนาให้หน่อย",
        "Sum everything up, I have to go.",
        "Resúmeme la charla en diez puntos.",
        "Foglald össze, amiben megállapodtunk.",
        "请把这次会话整理成交接文档。",
        f"Text only.{' No tools.' * 20}\n\nYour task is to make a summary of the conversation.{' Leave out nothing.' * 90}",
        [
            {"type": "text", "text": "ok " * 900},
            {"type": "text", "text": f"Make a summary of this session.{' So.' * 900}"},
        ],
    ],
)
def test_request_for_a_summary_is_known(text: Any) -> None:
    assert asks_for_summary(chat("s").with_messages([user("hi"), assistant("hi"), user(text)]))


@pytest.mark.parametrize(
    "text",
    [
        f"{'lorem ipsum ' * 20} a summary, among other things {'lorem ipsum ' * 20}",
        f"Summarize this paragraph: {'The cat sat on the mat. ' * 9}",
        f"Is this letter polite?\n\nDear tenants, {'it was a good year. ' * 9}\n\nIn summary, you owe us 300 euros.",
        [{"type": "text", "text": "Summarize this."}, {"type": "file", "file": {"file_id": "f1"}}],
        "Our conversation was nice.",
        "<conversation_summary>\nx\n</conversation_summary>",
        "ok",
    ],
)
def test_other_messages_are_none(text: Any) -> None:
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


def test_only_the_first_request_without_tools_is_taken_for_a_summary() -> None:
    talk = [user("hi"), calls("c1"), result("c1"), assistant("Done."), user("Och nu?"), user("Och sen?")]
    assert asks_for_summary(chat("s").with_messages(talk))
    assert not asks_for_summary(chat("s").with_messages([*talk, assistant("Ingenting."), user("Bra.")]))


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


async def test_request_for_a_summary_that_does_not_fit_whole_moves_no_cut() -> None:
    talk = [message for n in range(90) for message in (user(f"{n} " + "word " * 30), assistant("word " * 32))]
    request = chat("s").with_messages([*talk, user("And now?")])
    asked = chat("s").with_messages([*talk, user("Recap?")])
    ctx = context(request, window=5640, archive=MemoryArchive())
    shorter, summed = await CompressHistory().apply(request, ctx), await CompressHistory().apply(asked, ctx)
    assert isinstance(shorter, Rewrite)
    assert isinstance(summed, Rewrite)
    assert shorter.request.messages[:-1] == summed.request.messages[:-1]
