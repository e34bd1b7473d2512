"""Requests to sum the conversation up are known in many languages; others are not taken for one."""

import pytest

from policies.compress_history import CompressHistory
from policies.reject_oversize import RejectOversize
from proxy.chat import Tool
from proxy.history.handover import asks_for_summary
from proxy.policy import Keep, Rewrite
from proxy.testing import MemoryArchive, chat, context, tool
from tests.talk import assistant, system, user


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
    ],
)
def test_request_for_a_summary_is_known(text: str) -> None:
    assert asks_for_summary(chat("s").with_messages([user("hi"), assistant("hi"), user(text)]))


@pytest.mark.parametrize(
    "text",
    [
        "Summarise chapter two.",
        "Our conversation was nice.",
        "<conversation_summary>\nx\n</conversation_summary>",
        "ok",
    ],
)
def test_other_messages_are_none(text: str) -> None:
    assert not asks_for_summary(chat("s").with_messages([user(text)]))


@pytest.mark.parametrize(
    ("prompt", "tools", "known"),
    [
        ("You are a helpful assistant tasked with summarizing conversations.", [], True),
        ("You summarize chats into a structure. When the conversation grows too large, you are asked.", [], True),
        ("You are Ada, a friendly assistant. Keep the conversation short, with a brief summary at times.", [], False),
        ("You are a coding agent. Summarize the session when you are asked.", [tool()], False),
        (f"You are the desk of a shop. {'Be kind. ' * 30}Summarize the conversation when asked.", [], False),
    ],
)
def test_a_system_prompt_may_ask_where_no_tools_are_offered(prompt: str, tools: list[Tool], known: bool) -> None:
    request = chat("s", tools=tools).with_messages([system(prompt), user("hi"), assistant("hi"), user("Now, please.")])
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
