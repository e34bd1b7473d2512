import pytest

from proxy.chat import ChatRequest, Message
from proxy.chat.provenance import departed
from proxy.testing import chat


def left(incoming: str, request: str) -> str:
    """What left, where both share the messages that read alike."""
    before = chat(incoming)
    by_word = dict(zip(incoming.split(), before.messages, strict=True))
    after = [by_word[word] for word in request.split()]
    return " ".join(incoming.split()[place] for place in departed(before, before.with_messages(after)))


@pytest.mark.parametrize(
    ("incoming", "request_", "expected"),
    [
        ("s u1 a1 u2", "s u1 a1 u2", ""),
        ("s u1 a1 u2 a2 u3", "s u2 a2 u3", "u1 a1"),
        ("s u1 aA! tA a1 u2", "s u2", "u1 aA! tA a1"),
        ("s u1 a1 u2 aB! tB", "s u2", "u1 a1"),
        ("s1 s2 u1 a1 u2", "u2", "u1 a1"),
    ],
    ids=["nothing", "the oldest", "with a call", "not what is behind the question", "no system message"],
)
def test_what_left(incoming: str, request_: str, expected: str) -> None:
    assert left(incoming, request_) == expected


def test_a_shorter_result_has_left_and_its_call_has_not() -> None:
    incoming = chat("u1 aA! tA a1 u2")
    call = incoming.messages[1].with_changes(content="shorter")
    kept = [incoming.messages[0], call, incoming.messages[2].with_changes(content="..."), *incoming.messages[3:]]
    assert departed(incoming, incoming.with_messages(kept)) == [2]


def test_an_earlier_call_of_the_same_id_has_left_and_one_that_stands_word_for_word_has_not() -> None:
    incoming = chat("u1 aA! tA a1 u2 aA! tA a2 u3")
    kept = list(incoming.messages[4:])
    assert departed(incoming, incoming.with_messages(kept)) == [0, 3]
    kept[1] = kept[1].with_changes(content="thinking")
    assert departed(incoming, incoming.with_messages(kept)) == [0, 1, 3]


def test_a_message_that_was_read_again_from_the_same_bytes_has_not_left() -> None:
    incoming = chat("u1 a1 u2")
    again = [Message(dict(message)) for message in incoming.messages]
    assert departed(incoming, incoming.with_messages(again)) == []
    assert departed(ChatRequest("m", ()), ChatRequest("m", ())) == []
