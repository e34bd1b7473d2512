"""Forward the messages of one task, and those that all tasks share."""

from collections.abc import Sequence
from typing import ClassVar, Literal

from pydantic import Field

from proxy.chat import ChatRequest, Message
from proxy.context import Context
from proxy.identity import TAG, is_tagged, key_of, tag_of
from proxy.policy import Decision, Keep, Policy, Reject, Rewrite
from proxy.text import counted


class IsolateTasks(Policy):
    """Forward the messages of the request's task, and those that all tasks share; the others never were part of it.

    A message names its task by the key `x_penstock_task`, which no provider sees; without it, or with `shared`, it is
    for all. The task of a request is the one that its header or metadata names, else that of its last user message. A
    tool result belongs to the task of its call. Nothing of the other tasks is archived, summed up or recalled. The step
    stands first in its chain. Each task has a prefix of its own in the prompt cache.
    """

    defines_conversation: ClassVar[bool] = True

    on_error: Literal["skip", "reject"] = Field(default="reject")
    """The outcome of a fault: `reject` answers 500; `skip` would show each task the messages of all others."""

    async def apply(self, request: ChatRequest, ctx: Context) -> Decision:
        if not is_tagged(request):
            return Keep("no message is tagged with a task")
        tasks = _tasks(request.messages)
        if isinstance(tasks, Reject):
            return tasks
        own = {"", ctx.identity.task}
        keys = {task: key_of("task", ctx.identity.tenant, task) for task in tasks}
        mine = _together(
            [
                (message.without(TAG) if TAG in message else message, task)
                for message, task in zip(request.messages, tasks, strict=True)
                if keys[task] in own
            ]
        )
        if all(message.is_system for message in mine):
            return Reject("no message is of this request's task, nor shared", "no_message_of_task", param="messages")
        left = len(request.messages) - len(mine)
        others = len({task for task in tasks if keys[task] not in own})
        why = f"left out {left} of {len(request.messages)} messages, of {counted(others, 'other task')}"
        return Rewrite(request.with_messages(mine), why, {"messages": len(mine), "messages_left_out": left})


def _together(messages: Sequence[tuple[Message, str]]) -> list[Message]:
    """Return messages of these tasks, in order; but results stand right behind their call."""
    groups: list[list[Message]] = []
    called: dict[tuple[str, str], list[Message]] = {}
    for message, task in messages:
        group = called.get((task, str(message.get("tool_call_id", "")))) if message.get("role") == "tool" else None
        if group is not None:
            group.append(message)
            continue
        groups.append([message])
        for call in message.call_ids if message.get("tool_calls") else ():
            called[task, call] = groups[-1]
    return [message for group in groups for message in group]


def _tasks(messages: Sequence[Message]) -> list[str] | Reject:
    """Return the task of each message; a tool result has that of its call, and may not be tagged with another.

    Tasks may use the same ids for their calls: a tagged result belongs to the last such call of its own task.
    """
    tasks: list[str] = []
    called: dict[str, dict[str, None]] = {}  # the tasks that made a call of this id, the last one last
    for place, message in enumerate(messages):
        task, param = tag_of(message), f"messages[{place}].{TAG}"
        if (tag := message.get(TAG)) is not None and (not isinstance(tag, str) or not tag):
            return Reject(f"{param} must be the name of a task", "invalid_task", param=param)
        if message.get("role") == "tool":
            callers = called.get(str(message.get("tool_call_id", "")), {})
            if TAG not in message and callers:
                task = next(reversed(callers))
            elif callers and task not in callers:
                return Reject(f"{param} is not the task of the call that it answers", "invalid_task", param=param)
        for call in message.call_ids if message.get("tool_calls") else ():
            callers = called.setdefault(call, {})
            callers.pop(task, None)
            callers[task] = None
        tasks.append(task)
    return tasks
