"""Which old tool results are cleared, and when: replayed from the conversation, so that nothing is stored."""

import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from proxy.chat import Message
from proxy.pins import MARKER, arguments

LINE = 40
"""The most tokens that a cleared result takes."""
_WORTH = 2 * LINE
"""Smaller results are not worth a line that stands for them."""
_VALUE = re.compile(r'[^\s"\\{}\[\],:]{4,80}')
_VALUES = 64


@dataclass(frozen=True, slots=True)
class Batches:
    """When results are cleared."""

    mark: int
    """Above so many tokens of conversation, a batch is cleared."""
    stride: int
    """The tokens that a batch must free."""
    keep: int
    """The newest results stay."""
    pays: Callable[[int, int], bool]
    """Whether a batch that removes so many tokens, in front of so many that stay, is worth it below the mark."""


def cleared(messages: Sequence[Message], sizes: Sequence[int], born: Sequence[int], batches: Batches) -> frozenset[int]:
    """The indexes of the results to clear. What a shorter conversation cleared stays cleared in the longer one.

    A batch leaves out what the model has not read yet and what the calls of the open exchange were made from: results
    that hold a value of their arguments.
    """
    gone: set[int] = set()
    waiting: list[int] = []
    before: list[int] = []
    total = unread = freed = tried = gain = 0
    for index, message in enumerate(messages):
        role = message.get("role")
        before.append(total)
        total += sizes[index]
        if role == "tool":
            unread += max(0, born[index] - sizes[index])
            if sizes[index] > _WORTH and clearable(message):
                waiting.append(index)
                if len(waiting) > batches.keep:
                    gain += sizes[waiting[-1 - batches.keep]] - LINE
            continue
        unread = 0 if role == "assistant" else unread
        if gain < max(1, batches.stride, tried):
            continue
        old = waiting[: len(waiting) - batches.keep]
        if total + unread - freed <= batches.mark and not batches.pays(gain, total - before[old[0]] - gain):
            continue
        used = _in_use(messages, index, old)
        batch = [place for place in old if place not in used]
        removed = sum(sizes[place] - LINE for place in batch)
        if removed < batches.stride:
            tried = gain + batches.stride // 4
            continue
        tried, freed, gain = 0, freed + removed, gain - removed
        gone.update(batch)
        waiting = [place for place in waiting if place not in gone]
    return frozenset(gone)


def clearable(message: Message) -> bool:
    """Whether a message is a tool result of nothing but text."""
    content = message.get("content")
    return message.get("role") == "tool" and (
        isinstance(content, str)
        or (isinstance(content, list) and all(isinstance(part.get("text"), str) for part in message.parts))
    )


def line(message: Message, handle: str) -> Message:
    """What stands for a cleared result: a pure function of its content."""
    text = f'[result of {len(message.text)} characters left; {MARKER}{handle}") has it]'
    return message.with_changes(content=text)


def _in_use(messages: Sequence[Message], index: int, old: Sequence[int]) -> Collection[int]:
    """The newest results that hold a value of the calls of the open exchange, those of the last message that calls."""
    caller = next((one for one in reversed(messages[: index + 1]) if one.get("tool_calls")), None)
    if caller is None:
        return ()
    values = {value for text in arguments(caller) for value in _VALUE.findall(text[:4000])}
    used: set[int] = set()
    for value in sorted(values)[:_VALUES]:
        holding = next((place for place in reversed(old) if value in messages[place].text), None)
        if holding is not None:
            used.add(holding)
    return used
