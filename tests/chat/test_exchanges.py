"""The structure of a conversation: its head, its turns, its exchanges, and where it may be cut."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.chat import ChatRequest, Message, exchanges, legal_cuts, split_head, turns
from proxy.chat.wire import flaws
from proxy.testing import chat, script
from tests.chat.parsing import thorough


def words(messages: tuple[Message, ...]) -> str:
    return script(ChatRequest("m", messages))


@pytest.mark.parametrize(
    ("conversation", "head", "rest"),
    [
        pytest.param("s1 d2 u1 s3 a1", "s1 d2", "u1 s3 a1", id="only leading system messages"),
        pytest.param("u1 s1", "", "u1 s1", id="no head"),
        pytest.param("s1 s2", "s1 s2", "", id="nothing else"),
        pytest.param("", "", "", id="nothing at all"),
    ],
)
def test_the_head_is_split_off(conversation: str, head: str, rest: str) -> None:
    first, second = split_head(chat(conversation).messages)
    assert (words(first), words(second)) == (head, rest)


@pytest.mark.parametrize(
    ("conversation", "expected"),
    [
        pytest.param("u1 a1 u2 a2", ["u1 a1", "u2 a2"], id="a turn starts at each user message"),
        pytest.param("a0 u1", ["a0", "u1"], id="what comes before the first is a turn of its own"),
        pytest.param("u1 u2 a2", ["u1", "u2 a2"], id="two user messages in a row are two turns"),
        pytest.param("u1 ax! tx a1 u2", ["u1 ax! tx a1", "u2"], id="tool calls stay in their turn"),
        pytest.param("", [], id="nothing"),
    ],
)
def test_turns(conversation: str, expected: list[str]) -> None:
    assert [words(turn) for turn in turns(chat(conversation).messages)] == expected


@pytest.mark.parametrize(
    ("conversation", "expected"),
    [
        pytest.param("s u1 a1", ["s", "u1", "a1"], id="a plain message stands alone"),
        pytest.param("u1 ax! tx a1", ["u1", "ax! tx", "a1"], id="a call with its result"),
        pytest.param("a!x,y tx ty a1", ["a!x,y tx ty", "a1"], id="parallel calls with all their results"),
        pytest.param("a!x,y ty tx a1", ["a!x,y ty tx", "a1"], id="results in another order"),
        pytest.param("a!x,y tx a1 ty u2", ["a!x,y tx a1 ty", "u2"], id="a late result takes along what is between"),
        pytest.param("ax! ay! tx ty u1", ["ax! ay! tx ty", "u1"], id="interleaved calls are one"),
        pytest.param("ax! ay! ty tx u1", ["ax! ay! ty tx", "u1"], id="nested calls are one"),
        pytest.param("ax! u1 a1 u2 a2 u3 a3 u4 a4 tx u5", ["ax! u1 a1 u2 a2 u3 a3 u4 a4 tx", "u5"], id="far away"),
        pytest.param("tx u1", ["tx", "u1"], id="an orphan result stands alone"),
        pytest.param("tx ty u1", ["tx ty", "u1"], id="orphan results in a row stand together"),
        pytest.param("ax! tx tz u1", ["ax! tx tz", "u1"], id="an orphan result behind a result is one with it"),
        pytest.param("tx ax! u1", ["tx", "ax!", "u1"], id="a result before its call is an orphan"),
        pytest.param("ax! u1", ["ax!", "u1"], id="an open call stands alone"),
        pytest.param("a!x,y tx u1", ["a!x,y tx", "u1"], id="a half answered call"),
        pytest.param("ax! tx tx u1", ["ax! tx tx", "u1"], id="two results of one call leave together"),
        pytest.param("ax! tx a1 ax! tx a2", ["ax! tx", "a1", "ax! tx", "a2"], id="an id that is used again"),
        pytest.param("", [], id="nothing"),
    ],
)
def test_exchanges(conversation: str, expected: list[str]) -> None:
    messages = chat(conversation).messages
    assert [words(group) for group in exchanges(messages)] == expected
    starts = [sum(len(group.split()) for group in expected[:n]) for n in range(len(expected) + 1)]
    assert legal_cuts(messages) == set(starts)


@st.composite
def sound_conversations(draw: st.DrawFn) -> str:
    """Calls with ids of their own, each answered in some order before the next message."""
    said: list[str] = []
    for number in range(draw(st.integers(1, 8))):
        calls = [f"{number}{letter}" for letter in "pqr"[: draw(st.integers(0, 3))]]
        if calls:
            said += ["a!" + ",".join(calls), *(f"t{call}" for call in draw(st.permutations(calls)))]
        else:
            said.append(draw(st.sampled_from(["u", "a", "s"])) + str(number))
    return " ".join(said)


@given(sound_conversations())
@thorough
def test_both_sides_of_a_legal_cut_are_sound(conversation: str) -> None:
    request = chat(conversation)
    assert not flaws(request)
    for cut in legal_cuts(request.messages) - {0, len(request.messages)}:
        assert not flaws(request.with_messages(request.messages[:cut]))
        assert not flaws(request.with_messages(request.messages[cut:]))


@given(sound_conversations())
@thorough
def test_a_conversation_that_is_cut_anywhere_else_is_not_sound(conversation: str) -> None:
    request = chat(conversation)
    for cut in set(range(1, len(request.messages))) - legal_cuts(request.messages):
        assert flaws(request.with_messages(request.messages[cut:]))
