"""What is judged: texts from outside, what is known about why they are there, and where they stand in the request."""

import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from hashlib import blake2b
from typing import Any, NamedTuple

import orjson

from proxy.chat import ChatRequest, Message, Tool
from proxy.chat.blocks import MEMORIES, RECALLED, SHARED, content, passage_spans, spans
from proxy.chat.edits import Stretch
from proxy.chat.injected_data import blocks
from proxy.chat.provenance import of_client
from proxy.chat.texts import texts_of
from proxy.text.json_values import Pairs
from proxy.text.tables import patterns

_SCHEMAS = ("outputSchema", "output_schema", "returns", "response")
"""Where tool definitions say what the tool answers: MCP has the first, others are used by agents' frameworks."""
_MOST_ARGUMENTS = 50


class Content(NamedTuple):
    """A text, and what asked for it."""

    text: str
    asked: str
    """The user's last request."""
    arguments: str = ""
    """The call's arguments, as JSON; empty for what no tool brought."""
    required: tuple[str, ...] = ()
    """The members that the tool's definition promises."""
    tool: str = ""
    """The tool's name; empty for what no tool brought."""

    @property
    def query(self) -> str:
        """The words that asked for it: the user's, the tool's name, the values of the call's arguments."""
        return f"{self.asked} {self.tool} {words_of(self.arguments)}"


class Finding(NamedTuple):
    """A score of one measure, from 0 to 1, and in words what is wrong."""

    score: float
    what: str = ""


GOOD = Finding(1.0)
SAID = {name: re.compile(pattern, re.IGNORECASE) for name, pattern in patterns("pages").items()}
"""What texts say of themselves (`data/pages.txt`)."""


def required_of(tool: Tool | None) -> tuple[str, ...]:
    """The members that a tool's definition says its answer always has."""
    function = tool.get("function") if tool is not None else None
    for key in _SCHEMAS:
        schema = function.get(key) if isinstance(function, Mapping) else None
        names = schema.get("required") if isinstance(schema, Mapping) else None
        if isinstance(names, list):
            return tuple(name for name in names if isinstance(name, str))
    return ()


def arguments_of(text: str) -> dict[str, Any]:
    """The arguments of a call; none where they are no JSON object."""
    try:
        found = orjson.loads(text) if text else {}
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def words_of(arguments: str) -> str:
    """What the values of a call's arguments say."""
    values = list(arguments_of(arguments).values())[:_MOST_ARGUMENTS]
    return " ".join(re.sub(r"\s+", " ", str(value))[:500] for value in values)


def members(value: Pairs | list[Any], most: int = 5000) -> Iterator[Pairs | list[Any]]:
    """The objects and lists of a JSON value, itself first; at most so many."""
    waiting: list[Any] = [value]
    for _ in range(most):
        if not waiting:
            return
        item = waiting.pop()
        yield item
        inner: Sequence[Any] = [each for _, each in item] if isinstance(item, Pairs) else item
        waiting += [each for each in inner if isinstance(each, (Pairs, list))]


def scalar(value: Any) -> str | None:
    """A string or number of JSON as text; None for anything else."""
    if isinstance(value, bool) or value is None:
        return None
    return str(value) if isinstance(value, (str, int, float)) else None


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
    same = {at: place for place, at in of_client(request, incoming).items()}
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


_SPANS: Mapping[str, Callable[[str], list[tuple[int, int]]]] = {
    MEMORIES: spans,
    SHARED: lambda text: [content(text)],
}
"""Where the items of a block stand, by its tag; a block of any other tag is one item."""


def injected(request: ChatRequest, incoming: ChatRequest, tags: Collection[str]) -> Iterator[tuple[Item, Stretch]]:
    """Each item of the blocks in one of these tags that are not the client's, and where it stands.

    An item is new with the message of the client's in front of which it stands. What was given by another agent, who
    did not know the question, is not compared with it.
    """
    blocks = list(_blocks(request, incoming, tags))
    if not blocks:
        return
    behind = {there: place for place, there in standing(request, incoming).items()}
    new, questions = new_from(incoming.messages), _questions(incoming.messages, tags)
    for place, message, tag in blocks:
        text, at = message.text, _anchor(behind, place, len(request.messages), len(incoming.messages))
        asked = "" if tag == SHARED else questions[at]
        for start, end in _SPANS.get(tag, _whole)(text):
            item = Item(at, message, Content(told(text[start:end]), asked), at >= new - 1, added=True)
            yield item, Stretch(place, start, end, may_leave=tag == MEMORIES)


def passages(request: ChatRequest, incoming: ChatRequest, content: str) -> Iterator[Stretch]:
    """Where passages of a content stand that left the request, and that an earlier step has brought back."""
    for place, message, _ in _blocks(request, incoming, (RECALLED,)):
        yield from (Stretch(place, *span) for span in passage_spans(message.text, content))


def told(text: str) -> str:
    """A text without the line that was put in front of it."""
    if not text.startswith("[quality check: "):
        return text
    return text[end + 1 :].lstrip() if (end := text.find("]", 0, 400)) > 0 else text


def _blocks(request: ChatRequest, incoming: ChatRequest, tags: Collection[str]) -> Iterator[tuple[int, Message, str]]:
    """The messages that are not the client's and begin with one of these tags."""
    sent = of_client(request, incoming)
    for place, message in enumerate(request.messages):
        if place not in sent and message.get("role") == "user":
            tag = message.text.partition(">")[0].removeprefix("<").partition(" ")[0]
            if message.text.startswith("<") and tag in tags:
                yield place, message, tag


def _whole(text: str) -> list[tuple[int, int]]:
    return [(0, len(text))]


def _anchor(behind: Mapping[int, int], place: int, end: int, otherwise: int) -> int:
    """The client's message in front of which something stands, by its place in what the client sent."""
    return next((behind[there] for there in range(place + 1, end) if there in behind), otherwise)


def _questions(messages: Sequence[Message], tags: Collection[str]) -> list[str]:
    """What the user asks with each message, or has asked last before it; and behind the last one."""
    asked, found = "", list[str]()
    for message in messages:
        if message.get("role") == "user":
            asked = data_in(message, tags)[1]
        found.append(asked)
    return [*found, asked]
