"""What of a conversation comes from outside, and where it stands in the request that was made of it."""

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from hashlib import blake2b
from typing import Any, NamedTuple

from policies.validate_content.content import Content, required_of
from proxy.chat import ChatRequest, Message
from proxy.chat.injected_data import blocks
from proxy.chat.provenance import of_client
from proxy.chat.texts import texts_of

_ENDS = 1000
"""Characters of each end of what the user says that count as the question."""


class Item(NamedTuple):
    """A content in the conversation as the client sent it."""

    place: int
    message: Message
    content: Content
    is_new: bool
    """Whether no assistant message has followed it yet."""
    part: int | None = None
    """Its place among the parts of the message; None where that is one text, or the content is in a user message."""
    added: bool = False
    """Whether an earlier step has put it there; its place is then that of the client's message behind it."""

    @property
    def in_user_message(self) -> bool:
        """Whether it is data in what the user sent."""
        return self.message.get("role") == "user"

    @property
    def name(self) -> str:
        """Stands for its content and its place: the same on every replica."""
        # what a step adds may come to stand elsewhere when messages leave
        asked = json.dumps([None if self.added else self.place, self.part, *self.content])
        return blake2b(asked.encode(), digest_size=12).hexdigest()


def items(incoming: ChatRequest, tags: Collection[str], skip: Collection[str]) -> Iterator[Item]:
    """Tool results, without those of tools that one of the globs in `skip` names, and tagged data in user messages."""
    calls: dict[str, Mapping[str, Any]] = {}
    tools = {tool.name: tool for tool in incoming.tools}
    messages, asked = incoming.messages, ""
    new = new_from(messages)
    for place, message in enumerate(messages):
        role = message.get("role")
        if role == "user":
            data, asked = data_in(message, tags)
            yield from (Item(place, message, Content(text, asked), place >= new) for text in data)
        elif role == "assistant":
            calls.update(zip(message.call_ids, message.get("tool_calls") or (), strict=True))
        elif role == "tool":
            name, arguments = _called(calls.get(str(message.get("tool_call_id"))))
            if any(fnmatchcase(name, glob) for glob in skip):
                continue
            required = required_of(tools.get(name))
            for text in texts_of(place, message):
                yield Item(
                    place, message, Content(text.given, asked, arguments, required, name), place >= new, text.part
                )


def standing(request: ChatRequest, incoming: ChatRequest) -> dict[int, int]:
    """Where the client's messages stand in the request, as they are or in another form.

    A call's id may be used again, so results are told apart from the end.
    """
    same = {at: place for place, at in of_client(request.messages, incoming.messages).items()}
    results: dict[str, list[int]] = {}
    for place, message in enumerate(request.messages):
        if message.get("role") == "tool":
            results.setdefault(str(message.get("tool_call_id")), []).append(place)
    found: dict[int, int] = {}
    for place in range(len(incoming.messages) - 1, -1, -1):
        message = incoming.messages[place]
        if message.get("role") == "tool":
            if places := results.get(str(message.get("tool_call_id"))):
                found[place] = places.pop()
        elif place in same:
            found[place] = same[place]
    return found


def new_from(messages: Sequence[Message]) -> int:
    """The place from which on no assistant message has followed."""
    backwards = range(len(messages) - 1, -1, -1)
    return next((place for place in backwards if messages[place].get("role") == "assistant"), -1) + 1


def data_in(message: Message, tags: Collection[str]) -> tuple[list[str], str]:
    """The tagged data in a user's message, and what the user says beside them."""
    if not tags or not any(f"<{tag}" in message.text for tag in tags):
        return [], _question(message.text, ())
    data = [block.content for block in blocks([message], [0], tags, lambda tool: False)]
    return data, _question(message.text, data)


def _question(text: str, data: Sequence[str]) -> str:
    """What a user says beside the data: its beginning and its end."""
    for each in data:
        text = text.replace(each, " ")
    return text if len(text) <= 2 * _ENDS else f"{text[:_ENDS]} {text[-_ENDS:]}"


def _called(call: Mapping[str, Any] | None) -> tuple[str, str]:
    """The name and the arguments of a call; empty where there are none."""
    function = call.get("function") if call is not None else None
    if not isinstance(function, Mapping):
        return "", ""
    return str(function.get("name", "")), str(function.get("arguments", ""))
