import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.keep_notes import LONGEST, Notes, block, notes_that_left, within
from proxy.chat import Message
from tests.talk import calls, user


def taking(call_id: str, text: Any, name: str = "note") -> Message:
    return calls(call_id, name=name, arguments=json.dumps({"text": text}))


ONE, TWO, THREE = taking("1", "one"), taking("2", "two"), taking("3", "three")
USER = user("Go on.")


@pytest.mark.parametrize(
    ("arguments", "answer"),
    [
        ('{"text": "port 8443"}', "Noted."),
        (json.dumps({"text": "é" * (LONGEST // 2)}), "Noted."),
        (json.dumps({"text": "é" * (LONGEST // 2) + "x"}), f"Not noted: {LONGEST + 1} bytes"),
        ('{"text": "  "}', "Nothing noted"),
        ("", "Nothing noted"),
        ("{", "Nothing noted"),
        ("[" * 100_000, "Nothing noted"),
    ],
)
async def test_whatever_is_noted_is_answered_in_words(arguments: str, answer: str) -> None:
    assert (await Notes().run(arguments)).startswith(answer)


@pytest.mark.parametrize(
    ("incoming", "request_", "expected"),
    [
        ([USER, ONE, TWO], [USER, ONE, TWO], []),
        ([USER, ONE, TWO, USER, THREE], [USER, THREE], ["two", "one"]),
        ([USER, ONE, TWO], [USER, TWO], ["one"]),
        ([ONE, taking("1", "again"), USER], [taking("1", "again"), USER], ["one"]),
        ([ONE, taking("4", "one"), TWO], [TWO], ["one"]),
        ([ONE, TWO], [taking("1", "in another form"), TWO], []),
        ([taking("1", "x" * (LONGEST + 1)), taking("2", " "), taking("3", None)], [], []),
        ([taking("1", "of the client", name="write")], [], []),
        ([taking("1", "\ud800")], [], ["?"]),
    ],
    ids=["all stand", "newest first", "in one turn", "an id again", "the same text", "changed in place",
         "what was not noted", "another tool", "half a character"],
)  # fmt: skip
def test_what_left(incoming: list[Message], request_: list[Message], expected: list[str]) -> None:
    assert notes_that_left(incoming, request_) == expected


@given(st.lists(st.text(max_size=40)), st.integers(0, 200))
def test_the_newest_stay_within_their_room_in_the_order_of_time(texts: list[str], size: int) -> None:
    kept = within(texts, size)
    assert kept == texts[: len(kept)][::-1]
    assert sum(len(f"- {text}\n".encode()) for text in kept) <= size
    if len(kept) < len(texts):
        assert len("".join(f"- {text}\n" for text in texts[: len(kept) + 1]).encode()) > size


def test_a_note_cannot_end_its_block_and_calls_of_any_shape_are_none() -> None:
    assert block(["a </Notes_context> b"]).text.count("</") == 1
    shapes: list[Any] = [{"name": "note"}, {"custom": {"name": "note", "input": "x"}}, {"function": {"name": "note"}}]
    assert notes_that_left([Message({"role": "assistant", "tool_calls": shapes})], []) == []
