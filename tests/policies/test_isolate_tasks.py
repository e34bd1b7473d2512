import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.isolate_tasks import IsolateTasks
from policies.pin_context import PinContext
from policies.recall_history import RecallHistory
from proxy.chat import ChatRequest, Message
from proxy.chat.wire import flaws
from proxy.context import Context, Identity
from proxy.gateway.chain import run
from proxy.identity import TAG, key_of
from proxy.policy import Keep, Policy, Reject
from proxy.testing import Example, chat, context, message, script
from tests.decisions import rewrite


def tagged(conversation: str) -> ChatRequest:
    """A conversation in the tiny language; `x:u1` is the message `u1` of task x."""
    messages = []
    for word in conversation.split():
        task, colon, rest = word.rpartition(":")
        made = message(rest)
        messages.append(made.with_changes(**{TAG: task}) if colon else made)
    tools = chat("a1!").tools if any(each.call_ids for each in messages) else ()
    return ChatRequest("test-model", tuple(messages), tools)


def of_task(task: str, request: ChatRequest) -> Context:
    return context(request, identity=Identity("test", "named-s", task=key_of("task", "test", task)))


EXAMPLES = [Example(of_task("x", tagged("s x:u1 y:u2 x:a1 y:a2 x:u3")))]


@pytest.mark.parametrize(("task", "conversation", "seen"), [
    pytest.param("x", "s x:u1 y:u2 x:a1 y:a2 x:u3", "s u1 a1 u3", id="its own and the system's"),
    pytest.param("y", "s x:u1 y:u2 x:a1 y:a2 x:u3", "s u2 a2", id="though the last user message is another's"),
    pytest.param("x", "s shared:u1 y:u2 u3 x:u4", "s u1 u3 u4", id="what is shared, tagged so or not"),
    pytest.param("x", "s y:sY x:sX x:u1", "s sX u1", id="instructions for one task"),
    pytest.param("z", "s u1 y:u2", "s u1", id="a task that has none of its own"),
    pytest.param("", "s u1 y:u2", "s u1", id="no task"),
    pytest.param("z", "s x:u1 y:u2", "no_message_of_task", id="nothing"),
    pytest.param("x", "x:u1 x:a!1,2 x:t1 x:t2 y:u2 x:u3", "u1 a!1,2 t1 t2 u3", id="a call with its results"),
    pytest.param("y", "x:u1 x:a!1,2 x:t1 t2 y:u2", "u2", id="a result has the task of its call"),
    pytest.param("x", "x:u1 x:a!1 x:t1 y:u2 y:a!1 y:t1 x:u3 x:a!1 t1", "u1 a1! t1 u3 a1! t1", id="of the last call of its id"),
    pytest.param("x", "x:u1 y:u2 x:a1! y:a2! y:t2 x:t1", "u1 a1! t1", id="exchanges that are mixed up"),
    pytest.param("y", "x:u1 y:u2 x:a1! y:a1! y:t1 x:t1", "u2 a1! t1", id="calls with the same id"),
    pytest.param("x", "x:u1 y:u2 x:a1! y:a1! y:t1 x:t1", "u1 a1! t1", id="of both"),
    pytest.param("x", "x:u1 x:a!1,2 u2 x:t2 a2 x:t1 u3", "u1 a!1,2 t2 t1 u2 a2 u3", id="what came in between"),
    pytest.param("x", "x:u1 x:a1! y:t1", "invalid_task", id="a result of another task's"),
    pytest.param("x", "x:u1 x:a1! shared:t1", "invalid_task", id="a shared result of a call that is not"),
    pytest.param("x", "x:u1 a1! x:t1", "invalid_task", id="a result of one task to a shared call"),
])  # fmt: skip
async def test_a_task_sees_its_own_messages_and_those_of_all(task: str, conversation: str, seen: str) -> None:
    request = tagged(conversation)
    decision = await IsolateTasks().apply(request, of_task(task, request))
    if isinstance(decision, Reject):
        assert decision.code == seen
        return
    sent = rewrite(decision).request
    assert script(sent) == seen
    assert not any(TAG in each for each in sent.messages)


@pytest.mark.parametrize("tag", [1, "", [], {"a": 1}, True])
async def test_a_tag_must_be_a_name(tag: Any) -> None:
    request = chat("s u1").with_messages([message("s"), message("u1").with_changes(**{TAG: tag})])
    decision = await IsolateTasks().apply(request, of_task("x", request))
    assert isinstance(decision, Reject)
    assert decision.code == "invalid_task"
    assert decision.param == f"messages[1].{TAG}"


async def test_without_tags_nothing_is_done_and_a_tag_of_null_is_none() -> None:
    request = chat("u1").with_messages([message("u1").with_changes(**{TAG: None})])
    decision = rewrite(await IsolateTasks().apply(request, of_task("x", request)))
    assert [*decision.request.messages] == [message("u1")]
    request = chat("s u1 a1 u2")
    assert isinstance(await IsolateTasks().apply(request, of_task("x", request)), Keep)


@st.composite
def interleaved(draw: st.DrawFn) -> list[str]:
    """Turns of several tasks, whose messages come in any order that each task's own allows."""
    queues: list[list[str]] = []
    for task in ("x", "y", "shared"):
        words: list[str] = []
        for turn in range(draw(st.integers(0, 3))):
            words.append(f"{task}:u{task}{turn}")
            for step in range(draw(st.integers(0, 2))):
                ids = [f"{step}{n}" for n in range(draw(st.integers(1, 2)))]  # the same in all tasks
                words += [f"{task}:a!{','.join(ids)}", *(f"{task}:t{one}" for one in ids)]
            words.append(f"{task}:a{task}{turn}")
        queues.append(words)
    found: list[str] = []
    while any(queues):
        queue = draw(st.sampled_from([queue for queue in queues if queue]))
        found.append(queue.pop(0))
    return found


@given(words=interleaved(), task=st.sampled_from(["x", "y", "z", ""]))
async def test_each_task_has_a_sound_conversation_that_grows_at_its_end(words: list[str], task: str) -> None:
    before: list[bytes] = []
    for end in range(1, len(words) + 1):
        request = tagged(" ".join(["s", *words[:end]]))
        decision = await IsolateTasks().apply(request, of_task(task, request))
        if isinstance(decision, Reject):
            assert decision.code == "no_message_of_task"
            continue
        found = flaws(rewrite(decision).request)
        assert {flaw for flaw in found if "has no result" not in flaw} == set()
        raws = [each.raw for each in rewrite(decision).request.messages]
        is_open = any("has no result" in flaw for flaw in found)
        assert is_open or raws[: len(before)] == before
        before = before if is_open else raws  # nobody asks a model before its calls are answered
        mine = [word for word in words[:end] if word.partition(":")[0] in (task, "shared")]
        assert len(raws) == 1 + len(mine)


async def test_later_steps_cannot_bring_back_what_was_never_part_of_it() -> None:
    secret = {"role": "user", "content": "You must never tell anyone that the vault is opened by marmalade.", TAG: "y"}
    asked = {"role": "user", "content": "Which vault is opened by marmalade, never mind who must tell?", TAG: "x"}
    request = chat("u1").with_messages(map(Message, (secret, {"role": "assistant", "content": "ok", TAG: "y"}, asked)))
    chain: list[tuple[str, Policy]] = [("pin_context", PinContext()), ("recall_history", RecallHistory())]
    outcome = await run([("isolate_tasks", IsolateTasks()), *chain], of_task("x", request), strict=True)
    assert [*outcome.request.messages] == [Message({"role": "user", "content": asked["content"]})]
    assert "the vault is opened" not in json.dumps([*outcome.request.messages])
