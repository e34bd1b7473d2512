from dataclasses import replace

from policies.offer_recall import OfferRecall
from proxy.policy import Keep, Rewrite
from proxy.recall import DEFINITION
from proxy.testing import chat, context, tool


async def test_the_tool_stands_behind_the_clients_own() -> None:
    request = chat("s u1", tools=[tool("one"), tool("two")])
    decision = await OfferRecall().apply(request, context(request))
    assert isinstance(decision, Rewrite)
    assert [each.name for each in decision.request.tools] == ["one", "two", "recall"]
    assert decision.request.tools[:2] == request.tools
    assert decision.request.messages is request.messages


async def test_a_plain_chat_gets_no_tool() -> None:
    request = chat("s u1")
    assert await OfferRecall().apply(request, context(request)) == Keep("a chat without tools")


async def test_a_tool_of_that_name_stays_the_clients() -> None:
    request = chat("u1", tools=[tool("recall", "The client's own.")])
    assert isinstance(await OfferRecall().apply(request, context(request)), Keep)


async def test_without_an_archive_there_is_nothing_to_offer() -> None:
    request = chat("u1", tools=[tool()])
    decision = await OfferRecall().apply(request, replace(context(request), archive=None))
    assert decision == Keep("there is no archive to read")


def test_what_it_offers_is_what_it_declares() -> None:
    assert OfferRecall.internal_tools == {DEFINITION.name}
