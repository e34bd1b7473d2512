"""Values that an answer needed: what its calls and its text repeat of what was said before."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

from proxy.chat import Message
from proxy.compaction.identifiers import identifiers, is_identifier

_LONGEST = 200


def text_of(messages: Iterable[Message]) -> str:
    """Return what of messages can be read: their texts, and the arguments of calls, as JSON and as what that says."""
    return "\n".join(_readable(message) for message in messages)


def stands(value: str, text: str) -> bool:
    """Return whether a value stands in a text, and not as a part of a longer word."""
    place = text.find(value)
    while place >= 0:
        before, behind = text[place - 1 : place], text[place + len(value) : place + len(value) + 1]
        if not (before.isalnum() and value[0].isalnum()) and not (behind.isalnum() and value[-1].isalnum()):
            return True
        place = text.find(value, place + 1)
    return False


def needed_by(answer: Mapping[str, Any], messages: Sequence[Message]) -> tuple[str, ...]:
    """Return the identifiers, numbers and paths in an answer that somebody else than the model had said first."""
    said = Message(answer)
    words = [value.partition(" ")[0] for value, _ in identifiers(said.text)]
    words += [value for call in _arguments(said) for value in _leaves(call) if is_identifier(value)]
    texts = [(message.role, _readable(message)) for message in messages]
    return tuple(value for value in dict.fromkeys(words) if _LONGEST >= len(value) > 2 and _was_given(value, texts))


def _was_given(value: str, texts: Sequence[tuple[str, str]]) -> bool:
    first = next((role for role, text in texts if stands(value, text)), "assistant")
    return first != "assistant"


def _readable(message: Message) -> str:
    texts = [message.text]
    for arguments in _arguments(message):
        texts += (arguments, *_leaves(arguments))
    return "\n".join(texts)


def _arguments(message: Message) -> Iterator[str]:
    for call in message.get("tool_calls") or ():
        inner = call.get("function") or call.get("custom") or {}
        yield str(inner.get("arguments", inner.get("input", "")))


@lru_cache(20_000)
def _leaves(arguments: str) -> tuple[str, ...]:
    """Return the scalars in arguments, as text."""
    try:
        found = json.loads(arguments)
    except (ValueError, RecursionError):
        return ()

    def each(value: Any) -> Iterator[str]:
        if isinstance(value, dict):
            value = list(value.values())
        if isinstance(value, list):
            for item in value:
                yield from each(item)
        elif isinstance(value, str) or (isinstance(value, (int, float)) and not isinstance(value, bool)):
            yield str(value)

    return tuple(each(found))
