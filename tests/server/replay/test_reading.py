"""The forms in which conversations come."""

import json
from pathlib import Path
from typing import Any

import pytest

from proxy.chat.errors import BadRequest
from proxy.server.replay.reading import Conversation, read
from proxy.wires import body_of

TALK: list[dict[str, Any]] = [
    {"role": "system", "content": "You serve."},
    {"role": "user", "content": "Where is order A-1?"},
    {"role": "assistant", "content": "In Quito."},
    {"role": "user", "content": "And A-2?"},
    {"role": "assistant", "content": "In Lima."},
]


def written(folder: Path, *rows: Any, name: str = "talks.jsonl") -> Path:
    path = folder / name
    path.write_text("\n".join(json.dumps(row) for row in rows))
    return path


def sizes(conversation: Conversation) -> list[int]:
    return [len(point.body["messages"]) for point in conversation.points]


def test_a_message_list_has_its_request_points(tmp_path: Path) -> None:
    row = {"id": "one", "source": "shop", "messages": TALK, "request_points": [2, 4], "tools": []}
    (found,) = read(written(tmp_path, row))
    assert (found.name, found.source, sizes(found)) == ("one", "shop", [2, 4])
    assert [point.answer for point in found.points] == [TALK[2], TALK[4]]


def test_lists_of_one_name_are_conversations_of_their_own(tmp_path: Path) -> None:
    found = read(written(tmp_path, *[{"id": "one", "messages": TALK}] * 2))
    assert [(each.name, sizes(each)) for each in found] == [("one", [2, 4])] * 2


def test_of_a_plain_message_list_each_answer_was_asked_for(tmp_path: Path) -> None:
    (found,) = read(written(tmp_path, {"messages": TALK}))
    assert (found.name, sizes(found)) == ("talks-1", [2, 4])
    (found,) = read(written(tmp_path, {"messages": TALK[:4]}))
    assert sizes(found) == [2, 4]
    assert found.points[1].answer is None


def test_chat_requests_are_one_conversation_where_they_open_alike(tmp_path: Path) -> None:
    other = [{"role": "user", "content": "Hi."}]
    bodies = [{"model": "m", "messages": talk} for talk in (TALK[:2], other, TALK[:4])]
    talk, hello = read(written(tmp_path, *bodies))
    assert (sizes(talk), sizes(hello)) == ([2, 4], [1])
    assert [point.answer for point in talk.points] == [TALK[2], None]


def test_saved_requests_come_in_their_order_with_what_was_reported(tmp_path: Path) -> None:
    usage = {"prompt_tokens": 50, "prompt_tokens_details": {"cached_tokens": 40}}
    rows = [
        {"at": "2026-01-01T10:01:00+00:00", "request": {"model": "m", "messages": TALK[:4]}, "usage": usage},
        {"at": "2026-01-01T10:00:00+00:00", "request": {"model": "m", "messages": TALK[:2]}, "headers": {"X-A": "b"}},
    ]
    (found,) = read(written(tmp_path, *rows))
    first, second = found.points
    assert sizes(found) == [2, 4]
    assert second.usage is not None
    assert (second.usage.input, second.usage.cached) == (50, 40)
    assert (second.at or 0) - (first.at or 0) == 60
    assert first.headers == {"x-a": "b"}


def test_a_request_without_messages_is_left_out_and_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    by_prompt = {"request": {"model": "m", "prompt": {"id": "pmpt_1"}}, "response": {"id": "resp_1", "output": []}}
    going_on = {"request": {"model": "m", "previous_response_id": "resp_0"}}
    path = written(tmp_path, by_prompt, {"request": {"model": "m", "messages": TALK[:2]}}, going_on)
    (found,) = read(path)
    assert sizes(found) == [2]
    assert capsys.readouterr().err == f"warning: 2 requests without messages left out, the first at {path}:1\n"


def test_a_stored_conversation_is_whole_where_a_request_adds_nothing(tmp_path: Path) -> None:
    said = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "In Quito."}]}
    begun = {"request": {"model": "m", "input": "Where is A-1?"}, "response": {"id": "resp_1", "output": [said]}}
    (found,) = read(written(tmp_path, begun, {"request": {"model": "m", "previous_response_id": "resp_1"}}))
    assert len(found.points[1].body["input"]) == 2


def test_logged_answers_are_read(tmp_path: Path) -> None:
    response = {"choices": [{"message": TALK[2]}], "usage": {"prompt_tokens": 9}}
    (found,) = read(written(tmp_path, {"request": {"model": "m", "messages": TALK[:2]}, "response": response}))
    assert found.points[0].answer == TALK[2]
    assert found.points[0].usage is not None
    assert found.points[0].usage.input == 9


def test_records_with_text_are_read_as_the_admin_endpoint_gives_them(tmp_path: Path) -> None:
    text = {"before": TALK[:4], "after": TALK[:1] + TALK[3:4], "tools_before": [], "tools_after": [], "answer": TALK[4]}
    record: dict[str, Any] = {"request_id": "r", "conversation": "c", "model": "m", "ended": "2026-01-01T10:00:00Z"}
    record |= {"text": text, "input_tokens": 30, "cached_tokens": 10}
    answer = {"id": "c", "requests": [record]}
    path = tmp_path / "conversation.json"
    path.write_text(json.dumps(answer, indent=1))
    (found,) = read(path)
    (point,) = found.points
    assert (found.name, point.answer, point.body["messages"]) == ("c", TALK[4], TALK[:4])
    assert point.sent == {"model": "m", "messages": [TALK[0], TALK[3]]}
    assert point.usage is not None
    assert point.usage.cached == 10


def test_a_byte_order_mark_is_no_content_and_half_a_surrogate_pair_is_read_as_when_it_is_served(tmp_path: Path) -> None:
    path = tmp_path / "talks.jsonl"
    for more in ("", '\n{"model": "m", "messages": [{"role": "user", "content": "other"}]}'):
        path.write_text('\ufeff{"model": "m", "messages": [{"role": "user", "content": "cut \\ud83d here"}]}' + more)
        point = read(path)[0].points[0]
        assert point.raw is not None
        (message,) = body_of(point.raw).parse().messages
        assert message.text == "cut \ufffd here"


@pytest.mark.parametrize(("text", "told"), [
    ('{"messages": [{"role": "user"}]}\n{"messages": [', "talks.jsonl:2: not JSON"),
    ('{"model": "m"}\n{"model": "m"}', "talks.jsonl:1: messages"),
    ('{"nothing": 1}', "messages must be a list of messages; docs/how-to/replay.md"),
    ("", "no conversation in it"),
    ('{"messages": []}', "messages is empty"),
    ('{"messages": ' + "[" * 100_000, "not JSON"),
    ('{"messages": [{"role": "user"}, {"role": "assistant", "tool_calls": 5}]}', "tool_calls"),
    ('{"request": {"messages": [{"role": "user"}]}, "answer": {"role": "assistant", "tool_calls": 5}}', "tool_calls"),
    ('{"at": 1' + "0" * 400 + ', "request": {"messages": [{"role": "user"}]}}', "no conversation (OverflowError"),
    ('{"request_id": "r", "model": "m"}', "a record without text"),
    ('{"conversation": "c", "request": {"model": "m"}}', "no conversation in it"),
    ('{"request": {"model": "m", "messages": 5}}', "messages must be a list of messages"),
    ("3", "a request or a conversation is a JSON object"),
    ('{"conversations": ["x"]}', "a request or a conversation is a JSON object"),
])  # fmt: skip
def test_what_cannot_be_read_is_told_with_its_place(tmp_path: Path, text: str, told: str) -> None:
    path = tmp_path / "talks.jsonl"
    path.write_text(text)
    with pytest.raises(BadRequest, match="talks.jsonl") as raised:
        read(path)
    assert told in str(raised.value)
