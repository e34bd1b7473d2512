"""Offering none of the client's tools but those that are always there."""

from typing import Any

import pytest
from hypothesis import given, settings

from policies.filter_tools import FilterTools
from proxy.chat import ChatRequest, Tool
from proxy.chat.wire import damage
from proxy.policy import Keep
from proxy.testing import chat, context, tool
from proxy.tools.deferral import OURS
from tests.decisions import rewrite
from tests.talk import calls, result
from tests.test_conformance import conversations

MANY = tuple(tool(f"tool_{n}", "word " * 20) for n in range(40))
DEFERRING = FilterTools(strategy="defer")


CUSTOM = [Tool({"type": "custom", "custom": {"name": f"c{n}", "description": "x"}}) for n in range(40)]
NAMED: Any = {"type": "function", "function": {"name": "tool_7"}}


async def made(request: ChatRequest, policy: FilterTools | None = None) -> ChatRequest:
    return rewrite(await (policy or DEFERRING).apply(request, context(request))).request


def names(request: ChatRequest) -> list[str]:
    return [each.name for each in request.tools]


async def test_pinned_ones_few_tools_and_what_other_steps_offer_stay() -> None:
    request = chat("s u1", tools=[tool("web_search"), *MANY, tool("web_open")])
    kept = await made(request, FilterTools(strategy="defer", always=("web_*", "tool_3")))
    assert names(kept) == ["web_search", "tool_3", "web_open", "search_tools", "call_tool"]
    few = chat("u1", tools=MANY[:30])
    assert isinstance(await DEFERRING.apply(few, context(few)), Keep)
    assert names(await made(few, FilterTools(strategy="defer", keep=29))) == ["search_tools", "call_tool"]
    assert names(await made(few, FilterTools(strategy="defer", max_tokens=100))) == ["search_tools", "call_tool"]
    sent = chat("u1", tools=MANY)
    request = sent.with_tools([*MANY, tool("recall")])
    decision = rewrite(await DEFERRING.apply(request, context(sent)))
    assert names(decision.request) == ["recall", "search_tools", "call_tool"]


async def test_one_tool_block_and_one_prefix_stay_with_calls_of_ours() -> None:
    sent: ChatRequest | None = None
    for words in ("u1", "u1 a1! t1", "u1 a1! t1 a1 u2", "u1 a1! t1 a1 u2 a!2,3 t2 t3 a2 u3"):
        request = await made(chat(words, tools=[*MANY, tool("look_up")]))
        if sent is not None:
            assert request.tools == sent.tools
            assert [each.raw for each in request.messages[: len(sent.messages)]] == [each.raw for each in sent.messages]
        sent = request
    asked, request = calls("c1", name="search_tools", arguments='{"query":"x"}'), chat("u1", tools=MANY)
    request = request.with_messages([*request.messages, asked, result("-")])
    assert (await made(request)).messages[1] is asked


@settings(max_examples=40, deadline=None)
@given(conversations())
async def test_whatever_the_conversation_it_stays_sound(talk: ChatRequest) -> None:
    request = talk.with_tools([*MANY, tool("look_up")])
    deferring = await made(request)
    assert not damage(request, deferring)
    assert not any("look_up" in message.called_tools for message in deferring.messages)
    again = await DEFERRING.apply(deferring, context(deferring))
    assert isinstance(again, Keep)


@pytest.mark.parametrize(
    "request_",
    [
        pytest.param(chat("u1"), id="no tools"),
        pytest.param(chat("u1", tools=[*MANY, tool("search_tools")]), id="the client's own search_tools"),
        pytest.param(chat("u1", tools=[*MANY, tool("call_tool")]), id="the client's own call_tool"),
        pytest.param(chat("u1", tools=[*OURS]), id="nothing but ours"),
        pytest.param(chat("u1", tools=CUSTOM), id="custom tools"),
        pytest.param(chat("u1", tools=MANY, tool_choice=NAMED), id="a forced tool"),
    ],
)
async def test_it_stays_as_it_is(request_: ChatRequest) -> None:
    assert isinstance(await DEFERRING.apply(request_, context(request_)), Keep)
