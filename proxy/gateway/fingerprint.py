"""Whether two requests belong to one conversation, seen through clients that do not re-send it byte for byte."""

from collections.abc import Iterator, Mapping, Sequence
from hashlib import blake2b
from itertools import accumulate
from typing import Any

import orjson

from proxy.chat import Message, called_name
from proxy.state.cache import Cache

_MARKS = frozenset({"cache_control", "prompt_cache_breakpoint"})
"""Marks that clients move from message to message while the conversation grows."""


class Trail:
    """The prints of a conversation's answers: each stands for the whole conversation up to it, and for its scope.

    Of the answer itself only that is part of it which survives clients that re-write it, its white space and the JSON
    of its arguments included.
    """

    def __init__(self, scope: str) -> None:
        self._running = blake2b(_framed([scope]), digest_size=32)

    def add(self, message: Message) -> None:
        """Go on with a message."""
        content = message.get("content")
        texts = [str(message.get("role")), str(message.get("tool_call_id", ""))]
        if isinstance(content, str):
            texts.append(content)
        else:
            for part in message.parts:
                texts += [part["text"]] if isinstance(part.get("text"), str) else _flat(part)
        if message.get("tool_calls"):
            texts += [*message.call_ids, *message.called_tools]
        self._running.update(_framed([str(len(texts)), *texts]))

    def here(self) -> str:
        """The print of what was added so far."""
        return self._running.hexdigest()

    def key(self, answer: Message) -> str:
        """The key of an answer to what was added."""
        texts = ["answer", "".join(answer.text.split())]
        for call in answer.get("tool_calls") or ():
            inner = call.get("function") or call.get("custom") or {}
            arguments = _normal(inner.get("arguments", inner.get("input", "")))
            texts += [str(call.get("id", "")), called_name(call), arguments]
        made = self._running.copy()
        made.update(_framed(texts))
        return made.hexdigest()


class AnswerKeys:
    """Works out the keys of the answers in conversations; of one that has grown, only what is new is read.

    It goes on where the last request with the same beginning ended. A beginning is known by a hash of its bytes in this
    process, under its scope.
    """

    def __init__(self, most: int = 100_000) -> None:
        """`most` bounds the keys that are remembered, of all conversations: each takes about 200 bytes."""
        self._known: Cache[tuple[str, int, int], tuple[Trail, dict[int, str]]] = Cache(most)

    def of(self, messages: Sequence[Message], scope: str) -> dict[int, str]:
        """The keys of the answers in a conversation, by their places."""
        raws = [message.raw for message in messages]
        hashes = list(accumulate(map(hash, raws), lambda *both: hash(both), initial=0))
        starts = ((scope, place, hashes[place]) for place in range(len(messages), 0, -1))
        found = next((start for start in starts if start in self._known), None)
        trail, keys = (found and self._known.pop(found)) or (Trail(scope), {})
        start = found[1] if found else 0
        for place, message in enumerate(messages[start:], start):
            if message.get("role") == "assistant":
                keys[place] = trail.key(message)
            trail.add(message)
        self._known.put((scope, len(messages), hashes[-1]), (trail, keys), 1 + len(keys))
        return dict(keys)


def next_key(messages: Sequence[Message], scope: str, answer: Message) -> str:
    """The key of the answer to a conversation."""
    trail = Trail(scope)
    for message in messages:
        trail.add(message)
    return trail.key(answer)


def _framed(texts: Sequence[str]) -> bytes:
    """Texts as bytes, each set apart from the next whatever is in it."""
    return "".join([f"{len(text)}:{text}" for text in texts]).encode(errors="surrogatepass")


def _flat(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        for key in sorted(value.keys() - _MARKS):
            yield key
            yield from _flat(value[key])
    elif isinstance(value, list):
        for item in value:
            yield from _flat(item)
    else:
        yield value if isinstance(value, str) else repr(value)


def _normal(arguments: Any) -> str:
    try:
        return orjson.dumps(orjson.loads(arguments), option=orjson.OPT_SORT_KEYS).decode()
    except (TypeError, ValueError):
        return str(arguments)
