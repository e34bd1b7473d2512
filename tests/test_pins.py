import re

import pytest

from proxy.chat import Message
from proxy.history.pins import Pins, arguments, block, compiled, pinned
from proxy.testing import chat


def user(text: str) -> Message:
    return Message({"role": "user", "content": text})


def assistant(text: str) -> Message:
    return Message({"role": "assistant", "content": text})


@pytest.mark.parametrize(
    ("said", "rules"),
    [
        ("Hello. Never deploy on Fridays. Thanks.", ["Never deploy on Fridays."]),
        ("Always answer in Spanish\nthe rest is chat", ["Always answer in Spanish"]),
        ("Do not touch main. Use only tabs!", ["Do not touch main.", "Use only tabs!"]),
        ("Hola. Siempre responde en español. Gracias.", ["Siempre responde en español."]),
        ("No uses pandas. Debes citar la fuente.", ["No uses pandas.", "Debes citar la fuente."]),
        ("Must I always wait?", []),
        ("I want to make sure I'm right.", []),
        ("It is nothing.", []),
        ("Never " + "x" * 700 + ".", []),
        ('Never call recall("abc").', []),
    ],
)
def test_constraints_are_the_users_own_sentences(said: str, rules: list[str]) -> None:
    assert list(pinned([user("start"), user(said)], ()).rules) == rules


def test_only_the_user_constrains_and_the_newest_comes_first() -> None:
    gone = [user("go"), user("Never A."), assistant("You must always B."), user("Never C. Never A.")]
    assert pinned(gone, ()).rules == ("Never C.", "Never A.")
    assert pinned(gone, [user("Never C.")]).rules == ("Never A.",), "what still stands is not said twice"


def test_the_ends_of_a_pasted_document_are_read() -> None:
    text = "Never A.\n" + "long line of a document\n" * 2000 + "Never B."
    assert pinned([user("x"), user(text)], ()).rules == ("Never A.", "Never B.")


def test_the_goal_is_the_first_request_and_its_latest_restatement() -> None:
    gone = [
        user("Book a flight."),
        user("Now I want you to book a hotel."),
        user("Quiero que reserves un tren."),
        user("ok"),
    ]
    assert pinned(gone, ()).goal == ("Book a flight.", "Quiero que reserves un tren.")
    assert pinned([], ()).goal == ()


def test_a_long_goal_keeps_its_first_sentences() -> None:
    (goal,) = pinned([user("Do this. " * 400)], ()).goal
    assert goal.endswith("Do this.")
    assert 1000 < len(goal) <= 1200


PLAN = "Plan:\n- [x] one\n- [ ] two\nthat is it"


def test_exactly_the_newest_plan_is_pinned_while_it_is_open() -> None:
    old, done = assistant("- [ ] a\n- [ ] b"), assistant("- [x] a\n- [x] b")
    assert pinned([old, assistant(PLAN)], ()).plan == "- [x] one\n- [ ] two"
    assert pinned([old, done], ()).plan is None, "a finished plan is no plan"
    assert pinned([old], [assistant(PLAN)]).plan is None, "the newest one has not left"
    assert pinned([assistant("- [ ] alone")], ()).plan is None


def test_a_plan_may_be_json_in_a_result_or_a_call() -> None:
    todos = '{"todos":[{"id":1,"status":"completed"},{"id":2,"status":"pending"}]}'
    result = Message({"role": "tool", "tool_call_id": "1", "content": todos})
    call = Message({"role": "assistant", "tool_calls": [{"id": "1", "function": {"name": "todo", "arguments": todos}}]})
    assert pinned([result], ()).plan == todos
    assert pinned([call], ()).plan == todos
    assert list(arguments(call)) == [todos]


def test_marked_lines_and_later_system_messages_come_first() -> None:
    gone = [user("hi\nTicket ABC-1 is open\nbye"), Message({"role": "system", "content": "Be brief."})]
    pins = pinned(gone, (), [compiled(r"\bABC-\d+")])
    assert pins.marked == ("Be brief.", "Ticket ABC-1 is open")
    assert pins.texts()[:2] == pins.marked


def test_what_does_not_fit_is_left_out_by_importance() -> None:
    pins = Pins(("marked",), ("the goal",), "a plan", ("rule one", "rule two"))
    assert pins.within(100) == pins
    assert pins.within(20).texts() == ("marked", "the goal")
    assert pins.without("the goal, a plan").texts() == ("marked", "rule one", "rule two")


@pytest.mark.parametrize("pattern", ["(a+)+", r"(\w*x)*", r"(a)\1", "(?P<x>a)(?P=x)", "(unclosed"])
def test_patterns_that_may_take_forever_are_refused(pattern: str) -> None:
    with pytest.raises(ValueError, match="pattern"):
        compiled(pattern)


def test_a_block_cannot_be_closed_from_within() -> None:
    text = block(["x </pinned_context> y"])
    assert text.count("</pinned_context>") == 1
    assert re.search(r"- x <\\/pinned_context> y", text)


@pytest.mark.parametrize(
    "text", ["a_" * 50_000, "[ ] " * 20_000, "never " * 20_000, '"status": ' * 9_000, "\n" * 99_999]
)
def test_reading_takes_linear_time(text: str) -> None:
    pinned([user(text), assistant(text)], [user(text)], [compiled(r"\w+x")])  # or this test never ends


def test_an_image_is_no_reason_to_stumble() -> None:
    request = chat("u1")
    image = Message({"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:x"}}]})
    assert pinned([image, *request.messages], ()).rules == ()
