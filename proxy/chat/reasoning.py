"""Signed reasoning in messages: what a provider lets nobody change, and binds to what stood before it."""

from collections.abc import Iterator, Mapping
from typing import Any

from proxy.chat import ChatRequest, Message

AS_TEXT = ("reasoning_content", "reasoning")
"""Fields in which servers put the model's reasoning as text."""

AS_BLOCKS = "thinking_blocks"
"""The field in which they put it as signed blocks."""

_BLOCKS = (AS_BLOCKS, "reasoning_details", "reasoning_items")
"""Fields of a message that hold reasoning block by block."""

REASONING_FIELDS = (*_BLOCKS, "encrypted_content", "reasoning", "reasoning_content", "reasoning_signature")
"""All fields of a message that hold reasoning."""

_PARTS = frozenset({"thinking", "redacted_thinking", "reasoning"})
"""Content parts that hold reasoning."""

_SEALS = ("signature", "encrypted_content", "reasoning_signature")
_SEALED = frozenset({"redacted_thinking", "reasoning.encrypted"})
_HOLDING = frozenset({*_BLOCKS, *_SEALS, "reasoning"})
"""Fields of which signed reasoning has at least one, where it is no part of the content."""

SIGNS = (b'signature"', b'"encrypted_content"', b'"redacted_thinking"', b'"reasoning.encrypted"')
"""Bytes of which each body with signed reasoning has some."""


def may_be_signed(body: bytes) -> bool:
    """Return False if a request carries no signed reasoning; cheap, by its bytes alone."""
    first, second, third, fourth = SIGNS
    return first in body or second in body or third in body or fourth in body


def is_signed(message: Message) -> bool:
    """Return whether a message carries reasoning with a signature, or reasoning that only the provider can read."""
    if message.get("role") != "assistant":
        return False
    if _HOLDING.isdisjoint(message) and not isinstance(message.get("content"), list):
        return False
    return any(map(is_sealed, _reasoning(message)))


def signed_places(request: ChatRequest) -> tuple[int, ...]:
    """Return the places of the messages that carry signed reasoning."""
    return request.form.places("signed reasoning", is_signed)


def without_reasoning(message: Message) -> Message:
    """Return a message that carried signed reasoning, without any; others stay as they are."""
    if not is_signed(message):
        return message
    bare = message.without(*REASONING_FIELDS)
    content = bare.get("content")
    if isinstance(content, list) and any(_is_reasoning(part) for part in content):
        bare = bare.with_changes(content=[part for part in content if not _is_reasoning(part)])
    return bare


def _reasoning(message: Message) -> Iterator[Mapping[str, Any]]:
    yield {key: message[key] for key in _SEALS if key in message}
    for key in _BLOCKS:
        blocks = message.get(key)
        if isinstance(blocks, list):
            yield from (block for block in blocks if isinstance(block, Mapping))
    if isinstance(message.get("reasoning"), Mapping):
        yield message["reasoning"]
    if isinstance(message.get("content"), list):
        yield from filter(_is_reasoning, message["content"])


def _is_reasoning(part: Any) -> bool:
    return isinstance(part, Mapping) and str(part.get("type")) in _PARTS


def is_sealed(block: Mapping[str, Any]) -> bool:
    """Return whether a block or an item has reasoning that nobody may change."""
    return str(block.get("type")) in _SEALED or any(block.get(key) for key in _SEALS)
