"""Parts of a conversation that the client did not see, put back into its later requests at the same place.

That is what internal tools added, and signed reasoning that a client does not send back. It is found again by what the
client did see: the whole conversation up to an answer, and the answer. Without it the prefix that the provider has
cached would end there.
"""

import asyncio
import json
import logging
from bisect import bisect_left
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import blake2b
from operator import itemgetter
from typing import Any, NamedTuple
from urllib.parse import quote

import orjson

from proxy.chat import ChatRequest, Message, called_name, encode
from proxy.chat.reasoning import AS_BLOCKS, AS_TEXT, is_signed
from proxy.context import Outage
from proxy.gateway.restoring import shown
from proxy.state.cache import Cache, SharedLimit
from proxy.state.decisions import StoredMemory

_log = logging.getLogger("penstock.hidden")

PATIENCE = 1.0
"""Seconds that the memory has, to find or to keep; after that the conversation goes on without it."""


@dataclass(frozen=True, slots=True)
class Hidden:
    """The parts of one answer that the client does not see."""

    shown: Message
    """The answer as the client gets it."""
    before: tuple[Message, ...]
    """The rounds in front of it: assistant messages with internal calls, each with its results."""
    last: Message
    """The message of the last round; where it called internal tools too, with these calls."""
    results: tuple[Message, ...] = ()
    """The results of the internal calls of the last round."""


Record = Callable[[Hidden], Awaitable[bool]]
"""Remembers what was hidden; whether that worked."""

Settle = Callable[[Sequence[Message]], None]
"""Stores what was sent, and behind it some rounds of internal tools, for the requests that follow. Never fails."""


@contextmanager
def done_without(lack: str, outage: Outage | None = None) -> Iterator[None]:
    """Go on without what fails in the block: the log says what is lacking, and the request's state counts as lost."""
    try:
        yield
    except Exception as error:
        if outage is not None:
            outage.begun = True
        _log.warning(lack, extra={"fields": {"error": type(error).__name__}})


class HiddenParts:
    """Remembers what was hidden, and restores it.

    `scope` is whose conversation it is: the tenant and, behind a NUL, the session. Nothing crosses it.
    """

    def __init__(self, memory: StoredMemory, limit: SharedLimit | int = 2**24) -> None:
        """`limit` bounds the bytes of answers of which it is known that nothing was added to them."""
        self._memory = memory
        self._absent: Cache[str, None] = Cache(limit)

    async def record(
        self,
        hidden: Hidden,
        request: ChatRequest,
        scope: str,
        settle: Settle | None = None,
        restores: Mapping[str, str] | None = None,
    ) -> bool:
        """Remember what is hidden of the answer to a request, which must be as the client sent it; whether that worked.

        `settle` is called with the hidden rounds where there is signed reasoning in or behind them. `restores` is what
        the client gets for placeholders.
        """
        if settle is not None and any(map(is_signed, (*hidden.before, hidden.last))):
            settle(hidden.before)
        parts = {"before": hidden.before, "last": hidden.last, "results": hidden.results}
        with done_without("what the client does not see is not remembered"):
            key = _key(scope, _key_of(shown(hidden.shown, restores or {}), answers_of(request, scope).running))
            self._absent.pop(key)
            async with asyncio.timeout(PATIENCE):
                await self._memory.put(key, encode(parts))
            return True
        return False

    async def restored(
        self, request: ChatRequest, scope: str, outage: Outage | None = None, *, signed: bool = False
    ) -> ChatRequest:
        """Return the request with everything hidden put back; the same object where there is nothing. Never fails.

        Signed reasoning that the client left out comes back only for who signs it (`signed`): others refuse it.
        """
        with done_without("what the client does not see is not restored", outage):
            form, name = request.form, ("nothing hidden", scope)
            checked = form.resume(name, 0)[1]  # so many messages have nothing: an answer gets it before it is sent back
            places = answers_of(request, scope).places
            new = places[bisect_left(places, checked, key=itemgetter(0)) :]
            keys = {place: _key(scope, key) for place, _, key in new}
            found = await self._fetch([key for key in keys.values() if key not in self._absent])
            hidden = {
                place: read for place, key in keys.items() if key in found and (read := _read(found[key])) is not None
            }
            if not any(place < form.settled and key in found for place, key in keys.items()):
                form.settle(name, form.settled)
            return request.with_messages(_whole(request.messages, hidden, signed=signed)) if hidden else request
        return request

    async def _fetch(self, keys: Sequence[str]) -> dict[str, bytes]:
        if not keys:
            return {}
        async with asyncio.timeout(PATIENCE):
            values = await self._memory.get_all(keys)
        for key, value in zip(keys, values, strict=True):
            if value is None:
                self._absent.put(key, None, _ABSENT)
        return {key: value for key, value in zip(keys, values, strict=True) if value is not None}


def _key(scope: str, key: str) -> str:
    """Return where it is kept: under the tenant, so that all of a tenant's can be found."""
    return f"{quote(scope.partition(chr(0))[0], safe='')}/{key}"


def _read(stored: bytes) -> Hidden | None:
    try:
        fields = json.loads(stored)
        before, results = (tuple(map(Message, fields[name])) for name in ("before", "results"))
        last = Message(fields["last"])
        unasked = {result.get("tool_call_id") for result in results} - {*last.call_ids}
        return None if unasked else Hidden(Message(), before, last, results)
    except (ValueError, TypeError, KeyError, AttributeError):
        return None


def _whole(messages: Sequence[Message], hidden: Mapping[int, Hidden], *, signed: bool) -> Iterator[Message]:
    for place, message in enumerate(messages):
        if place not in hidden or _answered(messages[place + 1 :], hidden[place].results):
            yield message
        else:
            yield from hidden[place].before
            if message.get("content") or message.get("tool_calls") or message.get("refusal"):
                yield _restored(message, hidden[place], signed=signed)
            yield from hidden[place].results


def _answered(behind: Sequence[Message], results: Sequence[Message]) -> bool:
    """Return whether the client itself sends a result for a call that it never saw."""
    ids = {result.get("tool_call_id") for result in results}
    for message in behind:
        if message.get("role") != "tool":
            return False
        if message.get("tool_call_id") in ids:
            return True
    return False


def _restored(message: Message, hidden: Hidden, *, signed: bool) -> Message:
    """Return the client's message as the model said it: only its last round, and with the calls that were hidden."""
    last = hidden.last
    if not last.get("content") and not last.get("tool_calls"):
        return message  # without its text it would be empty, and refused
    if message.source is not None:  # all of it, in its wire's own objects
        return last.copied_from(message)
    thoughts = [key for key in (*AS_TEXT, AS_BLOCKS) if key in message and any(each.get(key) for each in hidden.before)]
    names = {*thoughts, *(("tool_calls",) if hidden.results else ()), *((AS_BLOCKS,) if signed else ())}
    # in the provider's own parts, there is the reasoning in its place
    if any(each.get("content") for each in hidden.before if each.get("role") == "assistant") or (
        signed and isinstance(last.get("content"), list)
    ):
        names.add("content")
    lost = [key for key in thoughts if key not in last]
    changes = {key: value for key, value in last.items() if key in names and value != message.get(key)}
    bare = message.without(*lost) if lost else message
    return bare.with_changes(**changes) if changes else bare


_ABSENT = 400
"""Bytes that a key takes."""
_MARKS = frozenset({"cache_control", "prompt_cache_breakpoint"})
"""Marks that clients move from message to message while the conversation grows."""


def _key_of(answer: Message, before: blake2b) -> str:
    """Return the key of an answer behind what was digested before it.

    Of the answer itself only that is part of it which survives clients that re-write it, its white space and the JSON
    of its arguments included.
    """
    texts = ["answer", "".join(answer.text.split())]
    for call in answer.get("tool_calls") or ():
        inner = call.get("function") or call.get("custom") or {}
        arguments = _normal(inner.get("arguments", inner.get("input", "")))
        texts += [str(call.get("id", "")), called_name(call), arguments]
    made = before.copy()
    made.update(_framed(texts))
    return made.hexdigest()


class Answers(NamedTuple):
    """The answers in a conversation, or up to a message."""

    running: blake2b
    """The digest of the scope and of all messages so far."""
    places: tuple[tuple[int, str, str], ...] = ()
    """The place of each, the digest of what stands in front of it, and its key."""
    end: int = 0
    """The number of messages."""

    def then(self, messages: Sequence[Message]) -> "Answers":
        """Return the answers with those of more messages."""
        running, places = self.running.copy(), list(self.places)
        for place, message in enumerate(messages, self.end):
            if message.get("role") == "assistant":
                places.append((place, running.hexdigest(), _key_of(message, running)))
            running.update(_digest(message))
        return Answers(running, tuple(places), self.end + len(messages))


def answers_of(request: ChatRequest, scope: str) -> Answers:
    """Return the answers in a conversation."""
    return request.form.fold(("answers", scope), Answers(blake2b(_framed([scope]), digest_size=32)), Answers.then)


_DIGEST = "digest for answers"


def digest(messages: Sequence[Message]) -> None:
    """Read the new messages for the answers behind them; for a thread."""
    for message in reversed(messages):
        if message.derived(_DIGEST):  # an earlier request had those before it
            break
        _digest(message)


def _digest(message: Message) -> bytes:
    return message.derive(_DIGEST, lambda: blake2b(_content(message), digest_size=32).digest())


def _content(message: Message) -> bytes:
    content = message.get("content")
    texts = [str(message.get("role")), str(message.get("tool_call_id", ""))]
    if isinstance(content, str):
        texts.append(content)
    else:
        for part in message.parts:
            texts += [part["text"]] if isinstance(part.get("text"), str) else _flat(part)
    if message.get("tool_calls"):
        texts += [*message.call_ids, *message.called_tools]
    return _framed([str(len(texts)), *texts])


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
