from functools import partial
from typing import Any

import pytest

from policies.clear_tool_results import Batches, clearable, cleared, line
from proxy.chat import Message
from proxy.context import CacheRules
from proxy.economics import turns_to_pay
from proxy.testing import chat

STEPS = "u1 " + " ".join(f"a!{n}k t{n}k" for n in range(1, 9)) + " a9"


CACHED = partial(turns_to_pay, CacheRules(read=0.1, write=1.0, ttl=300))
UNCACHED = partial(turns_to_pay, CacheRules())


def batches(mark: int = 10**6, stride: int = 1, keep: int = 2, **fields: Any) -> Batches:
    return Batches(mark, stride, keep, **{"due": CACHED, **fields})


def gone(conversation: str, when: Batches, size: int = 148) -> list[str]:
    messages = chat(conversation).messages
    sizes = [size if message.role == "tool" else 10 for message in messages]
    return [str(messages[index]["tool_call_id"]) for index in sorted(cleared(messages, sizes, sizes, when))]


@pytest.mark.parametrize(("when", "size", "expected"), [
    pytest.param(batches(), 148, [], id="while there is room, nothing is cleared"),
    pytest.param(batches(mark=740, stride=300), 148, [f"{n}k" for n in range(1, 7)], id="two batches, as the window forces them"),
    pytest.param(batches(mark=740, stride=300, keep=0), 148, [f"{n}k" for n in range(1, 9)], id="none has to stay"),
    pytest.param(batches(mark=100, stride=10**5), 140, [], id="a small batch is not worth it"),
    pytest.param(batches(due=UNCACHED, stride=500), 148, ["1k", "2k", "3k", "4k", "5k"], id="or no cache would break"),
    pytest.param(batches(keep=0, ahead=1000), 100, [], id="what pays some time is not worth it in short talks"),
    pytest.param(batches(keep=0, ahead=0), 14_000, [], id="nor anything if no further request is expected"),
    pytest.param(batches(mark=9000, stride=900, spared=frozenset({"look_up"})), 1400, [], id="nor what the model recalled"),
    pytest.param(batches(mark=1), 40, [], id="short results stay"),
])  # fmt: skip
def test_which_results_are_cleared(when: Batches, size: int, expected: list[str]) -> None:
    assert gone(STEPS, when, size) == expected


def test_a_batch_pays_only_when_the_conversation_has_gone_on_for_long_enough() -> None:
    words, when = STEPS.split(), batches(keep=0, ahead=8)
    # nine times the 50 tokens behind the first result, against the 530 that clearing it frees: about one request
    assert gone(" ".join(words[:6]), when, size=580) == []
    assert gone(" ".join(words[:8]), when, size=580) == ["1k", "2k", "3k"]
    assert gone(" ".join(words[:8]), batches(keep=0, ahead=0.9), size=580) == []


@pytest.mark.parametrize(("first", "second", "expected"), [(1500, 1500, {2, 4}), (100, 2900, {4})])
def test_a_forced_batch_begins_where_it_costs_least(first: int, second: int, expected: set[int]) -> None:
    messages = chat("u1 a!1k t1k a!2k t2k a!3k t3k a4").messages
    sizes = [10, 10, first, 10, second, 10, 100, 10]
    assert cleared(messages, sizes, sizes, batches(mark=3100, stride=1000, keep=1)) == expected


def test_results_that_the_open_calls_drew_on_stay() -> None:
    words = "u1 a!one tone a!two ttwo a!three tthree"
    messages = list(chat(words + " a!last").messages)
    messages[2] = messages[2].with_changes(content="the value is zebra_77")
    messages[-1] = chat("a!zebra_77").messages[0]
    sizes = [200 if message.role == "tool" else 10 for message in messages]
    assert cleared(messages, sizes, sizes, batches(mark=1, stride=1, keep=0)) == {2, 4, 6}, (
        "but not what had left before"
    )
    assert 2 not in cleared(messages[:3] + messages[-1:], [10, 10, 200, 10], [10, 10, 200, 10], batches(1, 1, 0))


@pytest.mark.parametrize(("content", "held"), [
    pytest.param("abc", "3 characters, abc", id="a word"),
    pytest.param("---\nHallo Welt\nzwei", "19 characters, Hallo Welt (first of 3 lines)", id="lines"),
    pytest.param('{"n": 2, "rows": [{"a": 1}, {"a": 2}]}', '38 characters, {"n": 2, "rows": 2 items with {"a"}}', id="JSON"),
    pytest.param("ñ " * 400, "800 characters, " + "ñ " * 34 + "ñ…", id="a long line"),
])  # fmt: skip
def test_a_line_says_which_call_gave_what(content: str, held: str) -> None:
    result = Message({"role": "tool", "tool_call_id": "x", "content": content, "is_error": True})
    said = f'[removed: look_up({{"key":"x"}}) gave {held}; recall("h1") has it]'
    assert line(result, "h1", 'look_up({"key":"x"})') == {**result, "content": said}


def test_only_results_of_text_can_be_cleared() -> None:
    image = [{"type": "image_url", "image_url": {"url": "x"}}]
    assert clearable(Message({"role": "tool", "content": [{"type": "text", "text": "a"}]}))
    assert not clearable(Message({"role": "tool", "content": image}))
    assert not clearable(Message({"role": "tool", "content": None}))
    assert not clearable(Message({"role": "user", "content": "a"}))
