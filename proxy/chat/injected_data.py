"""Injected data in a conversation: where it stands, and which of it leaves when it takes more than its share."""

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import NamedTuple

from proxy.chat import Message
from proxy.chat.markers import MARKER
from proxy.chat.texts import Text, texts_of, with_text

_DEPTH = 0.5
"""The share of the limit that stays after a batch; a low one makes batches, which break the prompt cache, rare."""


class InjectedData(NamedTuple):
    """A stretch of a text that is data which somebody put there."""

    text: Text
    start: int
    end: int
    tokens: int
    """About: the message's tokens, divided by characters."""

    @property
    def content(self) -> str:
        return self.text.original[self.start : self.end]


def blocks(
    messages: Sequence[Message], sizes: Sequence[int], tags: Collection[str], is_source: Callable[[str], bool]
) -> list[InjectedData]:
    """Return the blocks of a conversation in order.

    They are what stands in one of these tags in a user message, and results of the tools that are a source of data.
    """
    calls = {call: name for one in messages for call, name in zip(one.call_ids, one.called_tools, strict=True)}
    injected: list[InjectedData] = []
    for place, (message, size) in enumerate(zip(messages, sizes, strict=True)):
        if message.role == "user" and tags:
            texts = list(texts_of(place, message, "user"))
            stretches = [(text, *pair) for text in texts for pair in _tagged(text.original, tags)]
        elif message.role == "tool" and is_source(calls.get(str(message.get("tool_call_id")), "")):
            texts = list(texts_of(place, message))
            stretches = [(text, 0, len(text.original)) for text in texts]
        else:
            continue
        length = sum(len(text.original) for text in texts) or 1
        injected += [InjectedData(text, start, end, size * (end - start) // length) for text, start, end in stretches]
    return injected


def _tagged(text: str, tags: Collection[str]) -> Iterator[tuple[int, int]]:
    """Yield where one of the tags opens and where it closes; what is inside of one is part of it."""
    opens = re.compile(rf"<({'|'.join(map(re.escape, sorted(tags)))})(?:\s[^<>]{{0,300}})?>")
    unclosed: set[str] = set()
    end = 0
    for tag in opens.finditer(text):
        if tag.start() < end or tag[1] in unclosed:
            continue
        closer = f"</{tag[1]}>"
        place = text.find(closer, tag.end())
        if place < 0:
            unclosed.add(tag[1])
            continue
        end = place + len(closer)
        yield tag.start(), end


def leaving(messages: Sequence[Message], injected: Sequence[InjectedData], limit: int) -> list[InjectedData]:
    """Return the oldest blocks, in batches down to half the limit; replayed, so that nothing is stored.

    What a block's arrival makes leave depends on what stands before it alone. What no assistant message has followed
    by then stays, and so does what stands in the last user message.
    """
    gone: list[InjectedData] = []
    waiting: list[InjectedData] = []
    total = 0
    for block in injected:
        waiting.append(block)
        total += block.tokens
        if total <= limit:
            continue
        at = block.text.message
        read = next((place for place in range(at, -1, -1) if messages[place].role == "assistant"), 0)
        asked = next((place for place in range(at, -1, -1) if messages[place].role == "user"), at)
        for old in [one for one in waiting if one.text.message < read and one.text.message != asked]:
            if total <= limit * _DEPTH:
                break
            waiting.remove(old)
            gone.append(old)
            total -= old.tokens
    return gone


def without(messages: Sequence[Message], gone: Sequence[tuple[InjectedData, str]]) -> list[Message]:
    """Return the messages with a line in the place of each block, which names its handle."""
    changed = list(messages)
    texts: dict[int, dict[int, Text]] = {}
    # from the end of each text, so that places in front of it hold
    for block, handle in sorted(gone, key=lambda pair: pair[0].start, reverse=True):
        text = block.text
        line = f'[{block.end - block.start} characters of data left; {MARKER}{handle}") has them]'
        text.sent = text.sent[: block.start] + line + text.sent[block.end :]
        texts.setdefault(text.message, {})[id(text)] = text
    for place, own in texts.items():
        changed[place] = with_text(changed[place], *own.values())
    return changed
