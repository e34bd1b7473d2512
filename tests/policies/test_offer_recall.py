import pytest

from policies.offer_recall import OfferRecall
from policies.window_history import WindowHistory
from proxy.chat import ChatRequest, Message
from proxy.policy import Keep, Rewrite
from proxy.testing import Example, MemoryArchive, chat, context, lifelike, tool
from tests.decisions import rewrite
from tests.talk import calls, user

HANDLE = 'the rest: recall("abc")'


def with_handle(request: ChatRequest) -> ChatRequest:
    return request.with_messages([*request.messages, user(HANDLE)])


EXAMPLES = [Example(lifelike(8), before=(WindowHistory(keep_turns=2, stride=1),))]


async def test_the_tool_stands_behind_the_clients_own_and_stays_once_it_was_called() -> None:
    request = with_handle(chat("s u1", tools=[tool("one"), tool("two")]))
    decision = rewrite(await OfferRecall().apply(request, context(request)))
    assert [each.name for each in decision.request.tools] == ["one", "two", "recall"]
    assert decision.request.tools[:2] == request.tools
    assert decision.request.messages is request.messages
    request = chat("u1", tools=[tool()]).with_messages([calls("c", name="recall")])
    assert isinstance(await OfferRecall().apply(request, context(request)), Rewrite)


@pytest.mark.parametrize(
    ("request_", "why"),
    [
        (chat("s u1"), "a chat without tools"),
        (chat("u1", tools=[tool("recall", "The client's own.")]), "a tool 'recall' is there already"),
        (chat("u1", tools=[tool()]), "there is no archive to read"),
    ],
)
async def test_where_it_cannot_be_used_it_is_not_offered(request_: ChatRequest, why: str) -> None:
    archive = None if "archive" in why else MemoryArchive()
    assert await OfferRecall().apply(with_handle(request_), context(request_, archive=archive)) == Keep(why)


@pytest.mark.parametrize(
    "changed",
    [
        user(HANDLE),
        user([{"type": "text", "text": HANDLE}]),
        calls("c", name="write", arguments='{"text":"recall(\\"abc\\")"}'),
    ],
    ids=["text", "parts", "arguments"],
)
async def test_it_comes_with_the_first_handle(changed: Message) -> None:
    incoming = chat("u1 a1 u2", tools=[tool()])
    shortened = incoming.with_messages([changed, *incoming.messages[1:]])
    assert isinstance(await OfferRecall().apply(shortened, context(incoming)), Rewrite)
    assert isinstance(await OfferRecall().apply(incoming, context(incoming)), Keep)
