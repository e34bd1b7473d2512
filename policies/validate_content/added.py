"""What earlier steps of a chain have put into a request from outside: single memories, texts that other agents gave."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from policies.validate_content.content import Content
from policies.validate_content.outside import Item, data_in, new_from, standing
from proxy.chat import ChatRequest, Message
from proxy.chat.blocks import MEMORIES, RECALLED, SHARED, content, passage_spans, spans
from proxy.chat.edits import Stretch
from proxy.chat.provenance import of_client

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
    sent = of_client(request.messages, incoming.messages)
    for place, message in enumerate(request.messages):
        if place not in sent and message.get("role") == "user" and isinstance(message.get("content"), str):
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
