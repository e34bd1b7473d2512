"""Collect texts from outside, with the question that they answer and where they stand in the request. Pure."""

import json
from collections.abc import Collection, Iterator, Sequence
from fnmatch import fnmatchcase
from hashlib import blake2b
from typing import NamedTuple

from proxy.chat import ChatRequest, Message
from proxy.chat.blocks import MEMORIES, RECALLED, SHARED, Stretch, content, passage_spans, spans
from proxy.chat.injected_data import blocks
from proxy.chat.provenance import added, of_client, unanswered
from proxy.chat.texts import texts_of

_ENDS = 1000
"""Characters of each end of a user's message that count as the question."""


class Item(NamedTuple):
    """A text from outside, where the client has sent it or where an earlier step has put it."""

    place: int
    """The place of its message among the client's; of one that a step has put there, of the client's behind it."""
    text: str
    is_new: bool
    """Followed by no assistant message yet."""
    asked: str = ""
    """The user's last request; empty where nothing compares the text with it, as for results of tools."""
    part: int | None = None
    """Its place among the parts of a tool's result; None where that is one text."""
    is_result: bool = False
    stretch: Stretch | None = None
    """Where an earlier step has put it into the request."""

    @property
    def key(self) -> tuple[str, str]:
        """All that a verdict depends on, but for the age."""
        return self.text, self.asked

    @property
    def name(self) -> str:
        """A hash of the content and its place: the same on every replica."""
        # what a step has put there may come to stand elsewhere when messages leave
        place = self.place if self.stretch is None else None
        return blake2b(json.dumps([place, self.part, *self.key]).encode(), digest_size=12).hexdigest()


def items(incoming: ChatRequest, tags: Collection[str], skip: Collection[str]) -> Iterator[Item]:
    """Yield tool results, but for tools that one of the globs in `skip` names, and tagged data in user messages."""
    called: dict[str, str] = {}
    new = unanswered(incoming.messages)
    for place, message in enumerate(incoming.messages):
        if message.role == "user":
            data, asked = _data_in(message, tags)
            yield from (Item(place, text, place >= new, asked) for text in data)
        elif message.role == "assistant":
            called.update(zip(message.call_ids, message.called_tools, strict=True))
        elif message.role == "tool":
            name = called.get(str(message.get("tool_call_id")), "")
            if any(fnmatchcase(name, glob) for glob in skip):
                continue
            for text in texts_of(place, message):
                yield Item(place, text.original, place >= new, part=text.part, is_result=True)


def _data_in(message: Message, tags: Collection[str]) -> tuple[list[str], str]:
    """Return the tagged data in a user's message, and the user's own words: the beginning and the end."""
    data: list[str] = []
    if tags and any(f"<{tag}" in message.text for tag in tags):
        data = [block.content for block in blocks([message], [0], tags, lambda tool: False)]
    text = message.text
    for each in data:
        text = text.replace(each, " ")
    return data, text if len(text) <= 2 * _ENDS else f"{text[:_ENDS]} {text[-_ENDS:]}"


def injected(request: ChatRequest, incoming: ChatRequest, tags: Collection[str]) -> Iterator[Item]:
    """Yield each item of the blocks in one of these tags that are not the client's: a memory, a shared text, a block.

    An item is new with the message of the client's in front of which it stands. A text from another agent, who did not
    know the question, is not compared with it.
    """
    every = list(_blocks(request, incoming, tags))
    if not every:
        return
    behind = of_client(request, incoming)
    new, questions, end = unanswered(incoming.messages), _questions(incoming.messages, tags), len(incoming.messages)
    for place, text, tag in every:
        at = next((behind[n] for n in range(place + 1, len(request.messages)) if n in behind), end)
        asked = "" if tag == SHARED else questions[at]
        ends = spans(text) if tag == MEMORIES else [content(text)] if tag == SHARED else [(0, len(text))]
        for start, stop in ends:
            stretch = Stretch(place, start, stop, may_leave=tag == MEMORIES)
            yield Item(at, text[start:stop], at >= new - 1, asked, stretch=stretch)


def passages(request: ChatRequest, incoming: ChatRequest, content: str) -> Iterator[Stretch]:
    """Yield where passages of a content stand that left the request, and that an earlier step has brought back."""
    for place, text, _ in _blocks(request, incoming, (RECALLED,)):
        yield from (Stretch(place, *span) for span in passage_spans(text, content))


def _blocks(request: ChatRequest, incoming: ChatRequest, tags: Collection[str]) -> Iterator[tuple[int, str, str]]:
    """Yield the places, texts and tags of the messages that are not the client's and begin with one of these tags."""
    for place in added(request, incoming):
        message = request.messages[place]
        if message.role == "user":
            tag = message.text.partition(">")[0].removeprefix("<").partition(" ")[0]
            if message.text.startswith("<") and tag in tags:
                yield place, message.text, tag


def _questions(messages: Sequence[Message], tags: Collection[str]) -> list[str]:
    """Return the user's last question at each message, and behind the last one."""
    asked, questions = "", list[str]()
    for message in messages:
        if message.role == "user":
            asked = _data_in(message, tags)[1]
        questions.append(asked)
    return [*questions, asked]
