"""The kit for policy authors: the tiny language and the counter of characters."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.chat.wire import flaws
from proxy.testing import CharTokens, chat, message, script, tool

names = st.text("abcxyz0189_-", min_size=1, max_size=4)
a_word = (
    st.builds("{}{}".format, st.sampled_from("sduat"), names)
    | names.map("a{}!".format)
    | st.lists(names, min_size=2, max_size=3).map(lambda ids: "a!" + ",".join(ids))
)


@given(st.lists(a_word).map(" ".join))
@settings(max_examples=100, deadline=None)
def test_every_conversation_reads_back_as_it_was_written(conversation: str) -> None:
    assert script(chat(conversation)) == conversation


@pytest.mark.parametrize(("word", "sent"), [
    pytest.param("s", {"role": "system", "content": "s"}, id="system"),
    pytest.param("d1", {"role": "developer", "content": "d1"}, id="developer"),
    pytest.param("u1", {"role": "user", "content": "u1"}, id="user"),
    pytest.param("a1", {"role": "assistant", "content": "a1"}, id="assistant"),
    pytest.param("tx", {"role": "tool", "tool_call_id": "x", "content": "result x"}, id="tool"),
])  # fmt: skip
def test_what_a_word_stands_for(word: str, sent: dict[str, str]) -> None:
    assert message(word) == sent


@pytest.mark.parametrize(
    ("word", "ids"), [("a1!", ("1",)), ("a1!x", ("x",)), ("a1!x,y", ("x", "y")), ("a!x,y", ("x", "y"))]
)
def test_a_word_with_a_bang_calls_tools(word: str, ids: tuple[str, ...]) -> None:
    made = message(word)

    assert made.call_ids == ids
    assert made.called_tools == ("look_up",) * len(ids)
    assert made["content"] is None


def test_a_conversation_with_calls_offers_the_tool_that_it_calls() -> None:
    assert [item.name for item in chat("u1 ax! tx").tools] == ["look_up"]
    assert chat("u1 a1").tools == ()
    assert [item.name for item in chat("u1 ax! tx", tools=[tool("f")]).tools] == ["f"]
    assert flaws(chat("s u1 a!x,y tx ty a1")) == set()


async def test_four_characters_are_a_token() -> None:
    tokens = CharTokens()
    request = chat("s u1 ax! tx")

    sizes = await tokens.sizes(request.messages)
    count = await tokens.count(request)
    assert sizes == tuple(len(item.raw) // 4 for item in request.messages)
    (tools,) = await tokens.tool_sizes(request.tools)
    assert (count.system, count.tools, count.messages) == (sizes[0], tools, sum(sizes[1:]))
    assert count.total == count.system + count.tools + count.messages
    assert not count.exact
