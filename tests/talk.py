"""Messages for tests in which their words matter; `proxy.testing.chat` makes all others."""

from typing import Any

from proxy.chat import Message


def system(content: Any) -> Message:
    return Message({"role": "system", "content": content})


def user(content: Any) -> Message:
    return Message({"role": "user", "content": content})


def assistant(content: Any) -> Message:
    return Message({"role": "assistant", "content": content})


def calls(*ids: str, name: str = "look_up", arguments: str = "{}") -> Message:
    """A message that calls one tool, once for each id."""
    function = {"name": name, "arguments": arguments}
    made = [{"id": each, "type": "function", "function": function} for each in ids]
    return Message({"role": "assistant", "content": None, "tool_calls": made})


def result(content: Any, call: str = "c1") -> Message:
    return Message({"role": "tool", "tool_call_id": call, "content": content})
