"""What messages stem from and carry: passages, attachments, reasoning, and what left."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.chat import ChatRequest, Message, provenance
from proxy.chat.attachments import attachments, label
from proxy.chat.folds import Folds
from proxy.chat.passages import WHOLE, passages
from proxy.chat.provenance import identities, of_client, standing, stands
from proxy.chat.reasoning import is_signed, may_be_signed, signed_places, without_reasoning
from proxy.testing import chat

ADDRESS = "https://x.test/plans/floor.png?v=2"


@pytest.mark.parametrize(
    ("part", "named"),
    [
        ({"type": "image_url", "image_url": {"url": ADDRESS}}, "[image floor.png]"),
        ({"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}, "[image]"),
        ({"type": "input_image", "image_url": ADDRESS}, "[image floor.png]"),
        ({"type": "image", "source": {"type": "url", "url": ADDRESS}}, "[image floor.png]"),
        ({"type": "input_file", "file_url": "https://x.test/a.pdf"}, "[file a.pdf]"),
        ({"type": "document", "title": "Lease", "source": {"type": "file", "file_id": "file_1"}}, "[document Lease]"),
        ({"type": "file", "file": {"file_id": "file-1"}}, "[file file-1]"),
        ({"type": "input_file", "file_id": "file-1", "filename": "b.pdf"}, "[file b.pdf]"),
    ],
)
def test_a_label_names_an_attachment_on_each_wire(part: dict[str, Any], named: str) -> None:
    assert label(part) == named


@pytest.mark.parametrize(("role", "count"), [("user", 3), ("tool", 1), ("assistant", 0), ("opaque", 0)])
def test_parts_that_may_stand_nowhere_else_are_no_attachments(role: str, count: int) -> None:
    kinds = ("text", "image", "tool_reference", "server_tool_use")
    parts = [{"type": kind, **({"text": "x"} if kind == "text" else {})} for kind in kinds]
    assert len(attachments(Message({"role": role, "content": parts}))) == count


TEXTS = st.lists(st.sampled_from(["word ", "A sentence ends. ", "\n", "\n\n", "# Title\n", "x" * 900, "é" * 50])).map(
    "".join
)


def parts(text: str) -> list[str]:
    return [part.of(text) for part in passages(text)]


@given(TEXTS)
def test_passages_are_slices_in_order_and_leave_out_white_space_only(text: str) -> None:
    found = passages(text)
    assert all(one.end <= two.start for one, two in pairwise(found))
    assert "".join("".join(parts(text)).split()) == "".join(text.split())
    assert all(part == part.strip() and part for part in parts(text))


@given(TEXTS)
def test_no_passage_is_too_long(text: str) -> None:
    assert all(len(part) <= 2400 for part in parts(text))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        ("  short  ", ["short"]),
        ("a" * WHOLE, ["a" * WHOLE]),
        ("b" * 1300 + "\n\n" + "c" * 500, ["b" * 1300, "c" * 500]),
        ("\n\n".join("d" * 250 for _ in range(6)), ["d" * 250 + "\n\n" + "d" * 250] * 3),
    ],
)
def test_paragraphs_are_joined_while_they_are_short(text: str, expected: list[str]) -> None:
    assert parts(text) == expected


def test_a_long_paragraph_is_cut_between_sentences_with_spaces_or_without() -> None:
    text = "This sentence has forty characters here. " * 100
    found = parts(text)
    assert all(part.endswith(".") and part.startswith("This") for part in found)
    assert [len(part) for part in found] == [614] * 5 + [1024], "the end is no longer than two others"
    assert all(part.endswith("。") for part in parts("札幌の天気は晴れです。" * 400))


THINKING = {"type": "thinking", "thinking": "Veamos.", "signature": "s1g"}
TEXT = {"type": "text", "text": "¡Hola!"}


@pytest.mark.parametrize(
    ("fields", "bare"),
    [
        ({"thinking_blocks": [THINKING], "reasoning_content": "Veamos."}, {"content": "¡Hola!"}),
        ({"thinking_blocks": [{**THINKING, "thinking": ""}]}, {"content": "¡Hola!"}),
        ({"thinking_blocks": [{"type": "redacted_thinking", "data": "x"}]}, {"content": "¡Hola!"}),
        ({"reasoning_details": [{"type": "reasoning.text", "text": "t", "signature": "s"}]}, {"content": "¡Hola!"}),
        ({"reasoning_details": [{"type": "reasoning.encrypted", "data": "x"}]}, {"content": "¡Hola!"}),
        ({"reasoning_items": [{"type": "reasoning", "encrypted_content": "x"}]}, {"content": "¡Hola!"}),
        ({"reasoning": {"type": "reasoning", "encrypted_content": "x"}}, {"content": "¡Hola!"}),
        ({"encrypted_content": "x"}, {"content": "¡Hola!"}),
        ({"content": [THINKING, TEXT]}, {"content": [TEXT]}),
        ({"content": [{"type": "redacted_thinking", "data": "x"}, TEXT]}, {"content": [TEXT]}),
    ],
)
def test_signed_reasoning_is_found_and_leaves(fields: dict[str, Any], bare: dict[str, Any]) -> None:
    message = Message({"role": "assistant", "content": "¡Hola!", **fields})
    assert is_signed(message)
    assert may_be_signed(message.raw)
    assert without_reasoning(message) == {"role": "assistant", **bare}
    assert without_reasoning(message).made_of is not None


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"reasoning_content": "Let me see."},
        {"reasoning": "Let me see."},
        {"thinking_blocks": [{"type": "thinking", "thinking": "no signature"}]},
        {"thinking_blocks": None, "reasoning_details": "text", "content": None},
        {"thinking_blocks": [{"type": {}}], "content": [{"type": []}]},
        {"reasoning_details": [{"type": "reasoning.summary", "summary": "short"}]},
    ],
)
def test_what_nobody_signed_stays(fields: dict[str, Any]) -> None:
    message = Message({"role": "assistant", "content": "Hi!", **fields})
    assert not is_signed(message)
    assert without_reasoning(message) is message


def test_only_answers_carry_it() -> None:
    messages = [
        Message({"role": role, "content": "x", "thinking_blocks": [THINKING]}) for role in ("user", "assistant")
    ]
    assert signed_places(ChatRequest("m", tuple(messages))) == (1,)


def request(messages: Sequence[Message]) -> ChatRequest:
    return ChatRequest("m", tuple(messages))


def test_the_clients_messages_are_found_in_any_form_and_no_others() -> None:
    first = Message({"role": "user", "content": "hello", "name": "ann"})
    second = first.with_changes(content="hello [note]")
    third = second.without("name")
    assert (third.made_of, second.made_of, first.made_of) == (second, first, None)
    incoming = chat("s u1 a1 u2").messages
    marked = incoming[1].with_changes(content="u1 [note]").with_changes(content="u1 [note] [another]")
    added = Message({"role": "user", "content": "u1"})
    assert of_client(request([incoming[0], added, marked, incoming[3]]), request(incoming)) == {0: 0, 2: 1, 3: 3}
    incoming = chat("u1").messages
    assert of_client(request([chat("u1").messages[0].with_changes(content="x")]), request(incoming)) == {}
    before = chat("u1").messages[0]
    latest = before.without("task")
    assert of_client(request([latest.with_changes(content="u1 [note]")]), request([latest])) == {0: 0}
    incoming = chat("s u1 a1 u2").messages
    for same in (incoming, [*incoming]):
        assert of_client(request(same), request(incoming)) == {0: 0, 1: 1, 2: 2, 3: 3}
    assert list(of_client(request([*incoming[2:], incoming[0]]), request(incoming)).items()) == [(0, 2), (1, 3), (2, 0)]


def test_a_users_message_stands_with_marks_in_it_and_not_in_a_short_form() -> None:
    incoming = chat("u1 u2 u3 a1").messages
    marked = incoming[0].with_changes(content="u1 [note]")
    short = incoming[1].with_changes(content='u\n[shortened: 1 of 2 characters; recall("h") has the whole]')
    both = short.with_changes(content=short.text + " [note]")
    assert [*map(stands, [marked, short, incoming[2]], incoming)] == [True, False, True]
    assert not stands(both, incoming[1])
    assert standing(request([marked, short, incoming[2], incoming[3]]), request(incoming)) == {0, 2, 3}
    assert standing(request([both]), request(incoming)) == frozenset()


def test_places_are_those_in_the_request_that_is_asked_about() -> None:
    """Two that begin alike, such as one with what the client did not see, do not share what was found."""
    came = chat("s u1 a1 u2 a2 u3 a3 u4 a4 u5")
    *earlier, last = came.messages
    whole = came.with_messages([*earlier, *chat("a9 u9").messages, last])
    assert of_client(whole, whole) == {place: place for place in range(12)}
    assert of_client(whole, came) == {**{place: place for place in range(9)}, 11: 9}


@given(st.lists(st.tuples(st.integers(0, 12), st.integers(0, 60)), max_size=10))
def test_places_are_those_of_the_request_however_it_has_grown(steps: list[tuple[int, int]]) -> None:
    folds, talk = Folds(), list[Message]()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(provenance, "_RECENT", 5)
        for added, kept in steps:
            talk = talk[:kept] + [
                Message({"role": ("user", "assistant")[n % 2], "content": str(n)}) for n in range(added)
            ]
            made = ChatRequest("m", tuple(talk), folds=folds.begin())
            find = identities(made)
            assert {id(each): find(id(each)) for each in talk} == {id(each): at for at, each in enumerate(talk)}
            assert find(id(Message())) is None
