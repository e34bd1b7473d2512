"""One round of the model: what it said, and which of its calls are the client's and which are answered inside."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import orjson

from proxy.chat import Message, called_name, encode

CUT_OFF = frozenset({"length", "content_filter"})
"""Finish reasons behind which the last call may be half a call."""

REASONING = ("reasoning_content", "reasoning")
"""Fields in which servers put the model's reasoning as text."""

BLOCKS = "thinking_blocks"
"""The field in which they put it as signed blocks."""


@dataclass(frozen=True, slots=True)
class InternalCall:
    """One call of an internal tool."""

    id: str
    name: str
    arguments: str
    """A JSON object, or what the model wrote instead of one."""
    flaw: str | None = None
    """Why the arguments cannot be used."""


@dataclass(frozen=True, slots=True)
class Round:
    """What the model said in one round."""

    message: Message
    """As it goes back to the model: everything that it said, signed reasoning included."""
    internal: tuple[InternalCall, ...]
    client: tuple[Mapping[str, Any], ...]
    """The calls that the client has to answer."""
    whole: bool = True
    """Whether it is all there is: one choice, not cut off, no error in between."""

    @property
    def spoken(self) -> Message:
        """The message without the internal calls."""
        message = self.message.without("tool_calls")
        return message.with_changes(tool_calls=list(self.client)) if self.client else message


def heard(said: Mapping[str, Any], finish: Any, names: frozenset[str]) -> Round:
    """The round that an assistant message is. The same message gives the same bytes, streamed or whole."""
    internal: list[InternalCall] = []
    client: list[Mapping[str, Any]] = []
    calls: list[Mapping[str, Any]] = []
    listed = said.get("tool_calls")
    made_calls = [call for call in listed if isinstance(call, Mapping)] if isinstance(listed, list) else []
    taken = {str(call.get("id", "")) for call in made_calls if called_name(call) not in names}
    for place, call in enumerate(made_calls):
        kept = {key: value for key, value in call.items() if key != "index"}
        if called_name(kept) in names:
            made = _internal(kept, place, taken)
            internal.append(made)
            kept = _answerable(kept, made)
            taken.add(made.id)
        else:
            client.append(kept)
        calls.append(kept)
    rest = {key: value for key, value in said.items() if key not in ("role", "content", "tool_calls", "index")}
    fields = {key: value for key, value in rest.items() if value is not None and value != []}
    message = Message({"role": "assistant", "content": said.get("content") or None, **fields})
    if calls:
        message = message.with_changes(tool_calls=calls)
    return Round(message, tuple(internal), tuple(client), whole=finish not in CUT_OFF)


def _internal(call: Mapping[str, Any], place: int, taken: set[str]) -> InternalCall:
    name = called_name(call)
    inner = call.get("function") or call.get("custom")
    given = inner.get("arguments", inner.get("input")) if isinstance(inner, Mapping) else None
    text = given if isinstance(given, str) else encode(given or {}).decode(errors="replace")
    call_id = call.get("id")
    if not isinstance(call_id, str) or not call_id or call_id in taken:
        # A result must be told apart from the others; nothing random, so that a replay has the same bytes.
        call_id = "call_" + sha256(f"{place}\0{name}\0{text}".encode(errors="replace")).hexdigest()[:24]
    if not text.strip():
        text = "{}"
    return InternalCall(call_id, name, text, _flaw(text))


def _flaw(arguments: str) -> str | None:
    try:
        found = orjson.loads(arguments)
    except (orjson.JSONDecodeError, UnicodeEncodeError) as error:
        return f"the arguments are not valid JSON ({error})"
    return None if isinstance(found, dict) else "the arguments are not a JSON object"


def _answerable(call: Mapping[str, Any], made: InternalCall) -> dict[str, Any]:
    """The call as history: many servers parse the arguments of old calls, and refuse a request in which they cannot."""
    function = call.get("function")
    if not isinstance(function, Mapping):
        return {**call, "id": made.id}
    function = {**function, "arguments": "{}" if made.flaw else made.arguments}
    return {**call, "id": made.id, "function": function}


def joined(before: str, after: str) -> str:
    """The texts of two rounds as one, set apart where they would run into each other."""
    return before + gap(before, after) + after


def gap(before: str, after: str) -> str:
    """What stands between the texts of two rounds."""
    return "\n\n" if before and after and not before[-1].isspace() and not after[0].isspace() else ""


def without_internal(choices: Iterable[Any], names: frozenset[str]) -> bool:
    """Take the internal calls out of the choices of a whole answer, in place; whether there were any."""
    found = False
    for choice in _calling(choices):
        message = choice["message"]
        calls = message["tool_calls"]
        kept = [call for call in calls if not (isinstance(call, dict) and called_name(call) in names)]
        if len(kept) == len(calls):
            continue
        found = True
        message["tool_calls"] = kept
        if not kept:
            del message["tool_calls"]
            message["content"] = message.get("content") or ""
            if choice.get("finish_reason") == "tool_calls":
                choice["finish_reason"] = "stop"
    return found


def messages_of(choices: Iterable[Any]) -> list[dict[str, Any]]:
    """The messages of a whole answer that call tools."""
    return [choice["message"] for choice in _calling(choices)]


def _calling(choices: Iterable[Any]) -> list[dict[str, Any]]:
    found = [choice for choice in choices if isinstance(choice, dict) and isinstance(choice.get("message"), dict)]
    return [choice for choice in found if isinstance(choice["message"].get("tool_calls"), list)]
