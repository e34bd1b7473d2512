"""Bodies of the vendors' wires: what Anthropic refuses of one, and one that a policy changes."""

from collections.abc import Callable
from typing import Any

from proxy.chat import ChatRequest, Message

Json = dict[str, Any]
Change = Callable[[list[Message]], object]

MARK: Json = {"type": "ephemeral"}


def refusals(body: Json) -> list[str]:
    """What Anthropic refuses: calls without results right behind them, results without calls, another order."""
    broken, waiting = list[str](), set[str]()
    for place, message in enumerate(body["messages"]):
        content = message["content"] if isinstance(message["content"], list) else []
        results = [each["tool_use_id"] for each in content if each["type"] == "tool_result"]
        first = [each["type"] == "tool_result" for each in content[: len(results)]]
        if {*results} != waiting or not all(first) or (waiting and message["role"] != "user"):
            broken.append(f"messages[{place}]")
        waiting = {each["id"] for each in content if each["type"] == "tool_use"}
    return broken + (["messages[0]"] if body["messages"][0]["role"] != "user" else [])


def edited(request: ChatRequest, change: Change) -> ChatRequest:
    """The request with its messages as a policy changes them."""
    messages = list(request.messages)
    change(messages)
    return request.with_messages(messages)
