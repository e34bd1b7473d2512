"""Parts of a conversation that the client did not see, put back into its later requests at the same place.

That is what internal tools added, and signed reasoning that a client does not send back. It is found again by what the
client did see: the whole conversation up to an answer, and the answer. Without it the prefix that the provider has
cached would end there.
"""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, NamedTuple
from urllib.parse import quote

import orjson

from proxy.chat import ChatRequest, Message, called_name, encode
from proxy.chat.reasoning import AS_BLOCKS, AS_TEXT, is_signed
from proxy.context import Outage
from proxy.gateway.restoring import shown
from proxy.state.cache import Cache
from proxy.state.decisions import StoredMemory
from proxy.wires.view import View

_log = logging.getLogger("penstock.hidden")

_PATIENCE = 1.0
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


class HiddenParts:
    """Remembers what was hidden, and restores it.

    `scope` is whose conversation it is: the tenant and, behind a NUL, the session. Nothing crosses it.
    """

    def __init__(self, memory: StoredMemory, most: int = 50_000) -> None:
        """`most` bounds the answers of which it is known that nothing was added to them."""
        self._memory = memory
        self._absent: Cache[str, None] = Cache(most)

    def recorder(
        self,
        request: ChatRequest,
        scope: str,
        settle: Callable[[Sequence[Message]], None] | None = None,
        restores: Mapping[str, str] | None = None,
    ) -> "Recorder":
        """Remembers what is hidden of the answer to a request, which must be as the client sent it.

        `settle` is called with the hidden rounds where there is signed reasoning in or behind them. `restores` is what
        the client gets for placeholders.
        """
        return Recorder(self, request, scope, settle, restores)

    async def keep(self, key: str, value: bytes) -> None:
        """Keep bytes under a key. Raises where that cannot be done in time."""
        self._absent.pop(key)
        async with asyncio.timeout(_PATIENCE):
            await self._memory.put(key, value)

    async def restored(
        self, request: ChatRequest, scope: str, outage: Outage | None = None, *, signed: bool = False
    ) -> ChatRequest:
        """Return the request with everything hidden put back; the same object where there is nothing. Never fails.

        Signed reasoning that the client left out comes back only for who signs it (`signed`): others refuse it.
        """
        try:
            form, name = request.form, ("nothing hidden", scope)
            checked = form.resume(name, 0)[1]  # so many messages have nothing: an answer gets it before it is sent back
            keys = {place: _key(scope, each) for place, each in _answers(request, scope).keys if place >= checked}
            found = await self._fetch([key for key in keys.values() if key not in self._absent])
            hidden = {
                place: read for place, key in keys.items() if key in found and (read := _read(found[key])) is not None
            }
            if not any(place < form.settled and key in found for place, key in keys.items()):
                form.settle(name, form.settled)
            return request.with_messages(_whole(request.messages, hidden, signed=signed)) if hidden else request
        except Exception as error:
            if outage is not None:
                outage.begun = True
            _log.warning("what the client does not see is not restored", extra=_fields(error))
            return request

    async def _fetch(self, keys: Sequence[str]) -> dict[str, bytes]:
        if not keys:
            return {}
        async with asyncio.timeout(_PATIENCE):
            values = await self._memory.get_all(keys)
        for key, value in zip(keys, values, strict=True):
            if value is None:
                self._absent.put(key, None)
        return {key: value for key, value in zip(keys, values, strict=True) if value is not None}


class Recorder:
    """Remembers what the client does not see of the answer to one request. Never fails."""

    def __init__(
        self,
        parts: HiddenParts,
        request: ChatRequest,
        scope: str,
        settle: Callable[[Sequence[Message]], None] | None = None,
        restores: Mapping[str, str] | None = None,
    ) -> None:
        self._parts, self._request, self._scope, self._settle = parts, request, scope, settle
        self._restores = restores or {}

    async def __call__(self, hidden: Hidden) -> bool:
        """Remember what was hidden; whether that worked."""
        if self._settle is not None and any(map(is_signed, (*hidden.before, hidden.last))):
            self._settle(hidden.before)
        kept = {"before": hidden.before, "last": hidden.last, "results": hidden.results}
        try:
            key = _answers(self._request, self._scope).trail.key(shown(hidden.shown, self._restores))
            await self._parts.keep(_key(self._scope, key), encode(kept))
        except Exception as error:
            _log.warning("what the client does not see is not remembered", extra=_fields(error))
            return False
        return True

    async def keep(self, message: Message) -> bool:
        """Remember an answer of one round with signed reasoning, which clients do not send back."""
        return await self(Hidden(message, (), message))


def _key(scope: str, print_: str) -> str:
    """Return where it is kept: under the tenant, so that all of a tenant's can be found."""
    return f"{quote(scope.partition(chr(0))[0], safe='')}/{print_}"


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
    last, changes = hidden.last, dict[str, Any]()
    if hidden.results:
        own = {call.get("id"): call for call in message.get("tool_calls") or ()}
        changes["tool_calls"] = [own.get(call.get("id"), call) for call in last["tool_calls"]]
    if not last.get("content") and not last.get("tool_calls"):
        return message  # without its text it would be empty, and refused
    if isinstance(message, View):
        return last.copied_from(message)
    if any(earlier.get("content") for earlier in hidden.before if earlier.get("role") == "assistant"):
        changes["content"] = last.get("content")
    if signed and isinstance(last.get("content"), list):
        changes["content"] = last["content"]  # in the provider's own parts, with the reasoning in its place
    if signed and AS_BLOCKS in last and AS_BLOCKS not in message:
        changes[AS_BLOCKS] = last[AS_BLOCKS]
    joined = [key for key in (*AS_TEXT, AS_BLOCKS) if key in message and any(map(_with(key), hidden.before))]
    changes |= {key: last[key] for key in joined if key in last}
    lost = [key for key in joined if key not in last]
    kept = message.without(*lost) if lost else message
    return kept.with_changes(**changes) if changes else kept


def _with(key: str) -> Callable[[Message], bool]:
    return lambda message: bool(message.get(key))


def _fields(error: Exception) -> dict[str, Any]:
    return {"fields": {"error": type(error).__name__}}


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
        self._running.update(_digest(message))

    def copy(self) -> "Trail":
        """Return the same trail, to go on with elsewhere."""
        made = copy(self)
        made._running = self._running.copy()
        return made

    def here(self) -> str:
        """Return the print of what was added so far."""
        return self._running.hexdigest()

    def key(self, answer: Message) -> str:
        """Return the key of an answer to what was added."""
        texts = ["answer", "".join(answer.text.split())]
        for call in answer.get("tool_calls") or ():
            inner = call.get("function") or call.get("custom") or {}
            arguments = _normal(inner.get("arguments", inner.get("input", "")))
            texts += [str(call.get("id", "")), called_name(call), arguments]
        made = self._running.copy()
        made.update(_framed(texts))
        return made.hexdigest()


class _AnswersSoFar(NamedTuple):
    """The answers up to a message, and the trail to it."""

    trail: Trail
    keys: tuple[tuple[int, str], ...] = ()
    """Their places and keys."""
    end: int = 0
    """The number of messages."""


def _answers(request: ChatRequest, scope: str) -> _AnswersSoFar:
    """Return the answers in a conversation."""
    return request.form.fold(("answers", scope), _AnswersSoFar(Trail(scope)), _walked)


def _walked(before: _AnswersSoFar, messages: Sequence[Message]) -> _AnswersSoFar:
    trail, keys = before.trail.copy(), list(before.keys)
    for place, message in enumerate(messages, before.end):
        if message.get("role") == "assistant":
            keys.append((place, trail.key(message)))
        trail.add(message)
    return _AnswersSoFar(trail, tuple(keys), before.end + len(messages))


def digest(messages: Sequence[Message]) -> None:
    """Read messages for the trails that they will be part of; for a thread."""
    for message in messages:
        _digest(message)


def _digest(message: Message) -> bytes:
    return message.derive("trail", lambda: blake2b(_content(message), digest_size=32).digest())


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
