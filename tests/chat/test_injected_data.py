from collections.abc import Callable

import pytest

from proxy.chat import ChatRequest, Message
from proxy.chat.injected_data import blocks, leaving, without
from proxy.testing import chat

TAGS = ("context", "memories")


def never(tool: str) -> bool:
    return False


def found(request: ChatRequest, is_source: Callable[[str], bool] = never, size: int = 100) -> list[str]:
    return [one.content for one in blocks(request.messages, [size] * len(request.messages), TAGS, is_source)]


@pytest.mark.parametrize(("text", "contents"), [
    pytest.param("<context>a</context> b?", ["<context>a</context>"], id="one"),
    pytest.param("<context id='1'>a\nb</context>", ["<context id='1'>a\nb</context>"], id="with attributes"),
    pytest.param("<context>a</context>x<memories>b</memories>", ["<context>a</context>", "<memories>b</memories>"], id="two"),
    pytest.param("<context><memories>a</memories></context>", ["<context><memories>a</memories></context>"], id="nested"),
    pytest.param("<context>a <context>", [], id="never closed"),
    pytest.param("</context>a<context>", [], id="the wrong way round"),
    pytest.param("<contexts>a</contexts>", [], id="another tag"),
    pytest.param("<context>" * 200_000, [], id="very many that are never closed"),
])  # fmt: skip
def test_blocks_of_a_user_message(text: str, contents: list[str]) -> None:
    assert found(chat("s").with_messages([Message({"role": "user", "content": text})])) == contents


def test_only_users_and_tools_that_are_a_source_put_data_in_with_their_tokens() -> None:
    block = "<context>a</context>"
    request = chat("s u1 a!1 t1 a2")
    request = request.with_messages(
        message.with_changes(content=block) if message.get("content") else message for message in request.messages
    )
    assert found(request) == [block]
    assert found(request, lambda name: name == "look_up") == [block, block]
    message = Message({"role": "user", "content": "<context>" + "x" * 31 + "</context>" + "y" * 50})
    (found_block,) = blocks([message], [200], TAGS, never)
    assert found_block.tokens == 100


def conversation(words: str) -> ChatRequest:
    """User messages that begin with `k` are a block of 100 tokens of that name."""
    return chat(words).with_messages(
        message.with_changes(content=f"<context>{message.text[1:]}</context>")
        if message.text.startswith("uk")
        else message
        for message in chat(words).messages
    )


@pytest.mark.parametrize(
    ("words", "gone"),
    [
        pytest.param("uk1 a1 uk2 a2 uk3 a3 u4", [], id="within the limit"),
        pytest.param("uk1 a1 uk2 a2 uk3 a3 uk4", ["k1", "k2", "k3"], id="over it, down to half of it"),
        pytest.param("uk1 a1 uk2 a2 uk3 uk4", ["k1", "k2"], id="what was not read yet stays"),
        pytest.param("uk1 uk2 uk3 uk4", [], id="nothing was read yet"),
        pytest.param("uk1 a1 uk2 a2 uk3 a3 uk4 a4 uk5 a5 uk6 a6 u7", ["k1", "k2", "k3"], id="and then room again"),
        pytest.param("uk1 a1 uk2 a2 uk3 a3 uk4 a4 uk5 a5 uk6", ["k1", "k2", "k3"], id="a batch is enough for a while"),
    ],
)
def test_the_oldest_leave_in_batches(words: str, gone: list[str]) -> None:
    messages = conversation(words).messages
    all_blocks = blocks(messages, [100] * len(messages), TAGS, never)
    assert [block.content[9:-10] for block in leaving(messages, all_blocks, 300)] == gone


def test_what_left_once_has_left_in_every_longer_conversation() -> None:
    words = " ".join(f"uk{n} a{n}" for n in range(30)).split()
    before: list[str] = []
    batches = 0
    for end in range(1, len(words) + 1):
        messages = conversation(" ".join(words[:end])).messages
        gone = leaving(messages, blocks(messages, [100] * end, TAGS, never), 1000)
        now = [block.content for block in gone]
        assert now[: len(before)] == before
        batches += now != before
        before = now
    assert 2 <= batches <= 6


def test_a_line_stands_for_each_block_and_all_else_stays() -> None:
    text = "before <context>a</context> between <memories>b</memories> after"
    message = Message({"role": "user", "content": [{"type": "text", "text": text}, {"type": "image_url"}], "name": "x"})
    first, second = blocks([message], [10], TAGS, never)
    (changed,) = without([message], [(first, "h1"), (second, "h2")])

    assert changed["content"][0]["text"] == (
        'before [20 characters of data left; recall("h1") has them] between '
        '[22 characters of data left; recall("h2") has them] after'
    )
    assert changed["content"][1] is message["content"][1]
    assert message["content"][0]["text"] == text
