import pytest

from proxy.chat import Message
from proxy.clearing import Batches, clearable, cleared, line
from proxy.testing import chat

STEPS = "u1 " + " ".join(f"a!{n}k t{n}k" for n in range(1, 9)) + " a9"


def never(removed: int, rewritten: int) -> bool:
    return False


def batches(mark: int = 10**6, stride: int = 1, keep: int = 2, pays: bool = False) -> Batches:
    return Batches(mark, stride, keep, (lambda removed, rewritten: removed > 0) if pays else never)


def gone(conversation: str, when: Batches, size: int = 140) -> list[str]:
    messages = chat(conversation).messages
    sizes = [size if message.role == "tool" else 10 for message in messages]
    return [str(messages[index]["tool_call_id"]) for index in sorted(cleared(messages, sizes, sizes, when))]


@pytest.mark.parametrize(
    ("when", "size", "expected"),
    [
        pytest.param(batches(), 140, [], id="while there is room, nothing is cleared"),
        pytest.param(
            batches(mark=700, stride=300),
            140,
            [f"{n}k" for n in range(1, 7)],
            id="two batches, as the window forces them",
        ),
        pytest.param(batches(mark=700, stride=300, keep=0), 140, [f"{n}k" for n in range(1, 9)], id="none has to stay"),
        pytest.param(batches(mark=100, stride=10**5), 140, [], id="a small batch is not worth it"),
        pytest.param(batches(pays=True, stride=500), 140, ["1k", "2k", "3k", "4k", "5k"], id="or when it pays"),
        pytest.param(batches(mark=1), 60, [], id="short results stay"),
    ],
)
def test_which_results_are_cleared(when: Batches, size: int, expected: list[str]) -> None:
    assert gone(STEPS, when, size) == expected


def test_what_was_cleared_once_stays_cleared() -> None:
    words = STEPS.split()
    before: list[str] = []
    for end in range(1, len(words) + 1):
        now = gone(" ".join(words[:end]), batches(mark=600, stride=200))
        assert set(before) <= set(now)
        before = now
    assert len(before) > 3


def test_results_that_the_open_calls_drew_on_stay() -> None:
    words = "u1 a!one tone a!two ttwo a!three tthree"
    messages = list(chat(words + " a!last").messages)
    messages[2] = messages[2].with_changes(content="the value is zebra_77")
    messages[-1] = chat("a!zebra_77").messages[0]
    sizes = [200 if message.role == "tool" else 10 for message in messages]
    assert cleared(messages, sizes, sizes, batches(mark=1, stride=1, keep=0)) >= {4}
    assert 2 not in cleared(messages[:3] + messages[-1:], [10, 10, 200, 10], [10, 10, 200, 10], batches(1, 1, 0))


def test_a_line_is_a_function_of_the_content_and_keeps_the_message() -> None:
    result = Message({"role": "tool", "tool_call_id": "x", "content": "abc", "is_error": True})
    assert line(result, "h1") == {
        "role": "tool",
        "tool_call_id": "x",
        "content": '[result of 3 characters left; recall("h1") has it]',
        "is_error": True,
    }


def test_only_results_of_text_can_be_cleared() -> None:
    image = [{"type": "image_url", "image_url": {"url": "x"}}]
    assert clearable(Message({"role": "tool", "content": [{"type": "text", "text": "a"}]}))
    assert not clearable(Message({"role": "tool", "content": image}))
    assert not clearable(Message({"role": "tool", "content": None}))
    assert not clearable(Message({"role": "user", "content": "a"}))
