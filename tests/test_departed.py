import pytest

from proxy.chat import ChatRequest, Message
from proxy.departed import departed
from proxy.testing import chat


def left(incoming: str, request: str) -> str:
    """What left, where both share the messages that read alike."""
    before = chat(incoming)
    by_word = dict(zip(incoming.split(), before.messages, strict=True))
    after = [by_word[word] for word in request.split()]
    return " ".join(word for word in incoming.split() if by_word[word] in departed(before.messages, after))


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


def test_a_result_in_another_form_has_not_left_but_an_earlier_one_of_the_same_id_has() -> None:
    incoming = chat("u1 aA! tA a1 u2 aA! tA a2 u3")
    kept = list(incoming.messages[4:])
    kept[2] = kept[2].with_changes(content="shorter")
    first_user, call, result, answer = incoming.messages[:4]
    assert call.raw == kept[1].raw, "the same call stands there again, word for word"
    assert departed(incoming.messages, kept) == [first_user, result, answer]


def test_a_message_that_was_read_again_from_the_same_bytes_has_not_left() -> None:
    incoming = chat("u1 a1 u2")
    again = [Message(dict(message)) for message in incoming.messages]
    assert departed(incoming.messages, again) == []
    assert departed(ChatRequest("m", ()).messages, ()) == []
