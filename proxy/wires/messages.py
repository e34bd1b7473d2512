"""Anthropic's Messages: each block as a view for policies, and what they change spliced into the client's own bytes.

A user message holds tool results and text. For policies each result is a message of its own (role `tool`), and all else
is one user message. An assistant message is one message, so that its thinking stays or leaves with it. The system
prompt is one message, and nothing is merged with it: its first block may be one that counts only there.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby
from operator import is_
from typing import Any, ClassVar, NamedTuple

import orjson

from proxy.chat import JsonObject, Message, called_name, encode, split_head
from proxy.chat.cache_marks import FIELD
from proxy.chat.errors import BadRequest, wrong
from proxy.chat.reasoning import AS_BLOCKS, is_sealed
from proxy.chat.splice import fields, spliced
from proxy.text.json_values import json_object, json_objects, mapping
from proxy.text.tables import table
from proxy.wires.native import MALFORMED, Grammar, NativeBody, NativeRequest, Unwritable, answer_of, plain, root_of

PATH = "/messages"

THOUGHTS = frozenset({"thinking", "redacted_thinking"})
"""The types of blocks that nothing may be changed in."""
_CHOICES = {"auto": "auto", "any": "required", "none": "none"}
"""The modes of `tool_choice` in chat's words."""
_NATIVE_CHOICES = {ours: theirs for theirs, ours in _CHOICES.items()}

_WORDS = table("wires")["messages"]
FINISH: Mapping[str, str] = _WORDS["finish"]
"""Chat's finish reasons for Anthropic's stop reasons."""
STOPS: Mapping[str, str] = _WORDS["stops"]
"""Anthropic's stop reasons for chat's finish reasons."""
STATUSES: Mapping[str, int] = _WORDS["statuses"]
"""The statuses of errors."""
_TYPES = {status: kind for kind, status in STATUSES.items()} | {503: "overloaded_error"}

_NEEDED = {"text": ("text",), "tool_use": ("id", "name"), "tool_result": ("tool_use_id",)}


# --- read -------------------------------------------------------------------------------------------------------------


def _check(item: Mapping[str, Any], place: str) -> None:
    if not isinstance(item.get("role"), str):
        wrong(f"{place}.role", "must be a string")
    content = item.get("content")
    if isinstance(content, list):
        for index, block in enumerate(content):
            _check_block(block, f"{place}.content[{index}]")
    elif not isinstance(content, str) and not (content is None and item["role"] == "system"):
        wrong(f"{place}.content", "must be a string or a list of blocks")


def _read_choice(choice: Any) -> Any:
    if not isinstance(choice, dict):
        return choice
    if choice.get("type") == "tool":
        return {"type": "function", "function": {"name": choice.get("name", "")}}
    return _CHOICES.get(str(choice.get("type")), choice)


def _read(listed: Sequence[JsonObject]) -> Iterator[Message]:
    return (view for item in listed for view in item.derive("views", partial(_views, item)))


def _check_block(block: Any, place: str) -> None:
    kind = block.get("type") if isinstance(block, dict) else None
    if not isinstance(kind, str):
        wrong(place, "must be an object with a type")
    for name in _NEEDED.get(kind, ()):
        if not isinstance(block.get(name), str):
            wrong(f"{place}.{name}", "must be a string")
    if kind == "tool_use" and not isinstance(block.get("input"), dict):
        wrong(f"{place}.input", "must be an object")
    content = block.get("content") if kind == "tool_result" else None
    if not isinstance(content, str | list | None):
        wrong(f"{place}.content", "must be a string or a list of blocks")
    for index, inner in enumerate(content if isinstance(content, list) else ()):
        _check_block(inner, f"{place}.content[{index}]")


def _views(item: JsonObject) -> tuple[Message, ...]:
    """Return the views of one of the client's messages, results first."""
    role, content = item["role"], item.get("content")
    if not isinstance(content, list):
        return (Message({"role": role, "content": content}).standing_for(item),)
    if role == "assistant":
        calls = [call_of(block) for block in content if block["type"] == "tool_use"]
        thoughts = [block for block in content if block["type"] in THOUGHTS]
        answer = answer_of([*filter(_is_content, content)], calls, thoughts, AS_BLOCKS)
        return (Message(answer).standing_for(item),)
    found = [_result(block).standing_for(item) for block in content if block["type"] == "tool_result"]
    others = [block for block in content if block["type"] != "tool_result"]
    if others or not found:
        found.append(Message({"role": role, "content": plain(others)}).standing_for(item))
    return tuple(found)


def _result(block: Mapping[str, Any]) -> Message:
    content = block.get("content")
    data = {"role": "tool", "tool_call_id": block["tool_use_id"]}
    data["content"] = plain(content) if isinstance(content, list) else content or ""
    data |= {key: value for key, value in block.items() if key in ("is_error", "cache_control")}
    return Message(data)


def _is_content(block: Mapping[str, Any]) -> bool:
    return block["type"] not in THOUGHTS and block["type"] != "tool_use"


def call_of(block: Mapping[str, Any]) -> dict[str, Any]:
    """Return a `tool_use` block as a call in chat form."""
    arguments = block.get("malformed") or encode(block.get("input") or {}).decode()
    function = {"name": block.get("name", ""), "arguments": arguments}
    return {"id": block.get("id", ""), "type": "function", "function": function}


# --- write ------------------------------------------------------------------------------------------------------------


def source_of(message: Message) -> JsonObject | None:
    """Return the client's own object that a message stands for."""
    root = root_of(message)
    return None if root is None else root.source


class _Written(NamedTuple):
    """The first `end` messages as the wire has them, without those of the system prompt."""

    end: int = 0
    roles: tuple[str, ...] = ()
    raws: tuple[bytes, ...] = ()


def _write(request: NativeRequest) -> tuple[bytes | None, Sequence[bytes]]:
    came, (head, _) = request.came, split_head(request.messages)
    sources = [source_of(each) for each in head]
    is_said = (source is not None and source is not came.system for source in sources)
    count = next((place for place, said in enumerate(is_said) if said), len(head))

    def extend(before: _Written, messages: Sequence[Message]) -> _Written:
        pairs = [*_written(messages[max(0, count - before.end) :])]
        roles, made = zip(*pairs, strict=True) if pairs else ((), ())
        return _Written(before.end + len(messages), before.roles + roles, before.raws + made)

    written = request.form.fold(("written", count), _Written(), extend)
    _check_order(written.roles, came.items)
    return _system(head[:count], came.system), written.raws


def _is_function(item: JsonObject) -> bool:
    return "input_schema" in item


def _write_tool(function: Mapping[str, Any], others: Mapping[str, Any]) -> dict[str, Any]:
    schema = {"type": "object", **(function.get("parameters") or {})}
    made = {"name": function["name"], "description": function.get("description") or "", "input_schema": schema}
    return made | {**others}


def _write_choice(choice: Any) -> Any:
    if isinstance(choice, str):
        return {"type": _NATIVE_CHOICES[choice]}
    return {"type": "tool", "name": called_name(choice)} if "function" in choice else choice


def _with_sealed(item: JsonObject, before: JsonObject) -> JsonObject:
    content = item.get("content")
    if before.get("role") != "assistant" or not isinstance(content, list):
        return item
    pairs = zip(before["content"], content, strict=True)
    blocks = [old if old.get("type") in THOUGHTS and is_sealed(old) else new for old, new in pairs]
    return item if blocks == content else item.with_changes(content=blocks)


def _system(head: Sequence[Message], came: JsonObject | None) -> bytes | None:
    """Return the system prompt: the client's own, and behind it what policies added."""
    own = [message for message in head if source_of(message) is not None]
    added = [message for message in head if source_of(message) is None]
    if len(own) > 1 or (own and source_of(own[0]) is not came):
        raise Unwritable("a system message was moved into the system prompt")
    if came is not None and not own:
        raise Unwritable("the client's own system prompt was taken out or merged")
    before = None if came is None else came["content"]
    content = _content(own[0], before) if own else None
    if added:
        first = [{"type": "text", "text": content}] if isinstance(content, str) else content or []
        content = [*first, *({"type": "text", "text": message.text} for message in added)]
    if came is None or content is None:
        return encode(content) if content else None
    return spliced(fields(came.raw)["content"], before, content)


def _written(messages: Sequence[Message]) -> Iterator[tuple[str, bytes]]:
    """Yield the role and the bytes of each message of the wire."""
    for _, group in groupby(messages, key=_whole_of):
        views = tuple(group)
        item = source_of(views[0])
        if item is None:
            raw = _new_message(views)
        elif views == item.derive("views", partial(_views, item)):
            raw = item.raw
        else:
            raw = _written_once(item, views)
        if raw is not None:
            yield "assistant" if views[0].role == "assistant" else "system" if views[0].is_system else "user", raw


def _check_order(roles: Sequence[str], items: Sequence[JsonObject]) -> None:
    """Raise `Unwritable` for an order that the wire does not have."""
    if not roles or (roles[0] != "user" and items[0]["role"] == "user"):
        raise Unwritable("the conversation begins with no user message")
    if "system" not in roles or len(roles) == len(items):
        return
    for before, role, after in zip(["", *roles], roles, [*roles[1:], "assistant"], strict=False):
        if role == "system" and (before != "user" or after != "assistant"):
            raise Unwritable("a system message has no place in the conversation")


def _whole_of(message: Message) -> int:
    """Return what stands for the message of the wire that one is a part of; results in a row are of one."""
    source = source_of(message)
    return id(source) if source is not None else 0 if message.role == "tool" else id(message)


def _new_message(messages: Sequence[Message]) -> bytes | None:
    """Return the bytes of a message that is not the client's, or of results in a row."""
    message = messages[0]
    if message.role == "tool":
        results = [{"tool_use_id": each["tool_call_id"], **_result_fields(each)} for each in messages]
        return encode({"role": "user", "content": [{"type": "tool_result", **each} for each in results]})
    blocks = [part for part in message.parts if part.get("type") != "text" or part["text"].strip()]
    stand = {part.get("id") for part in blocks}
    calls = [call for call in message.get("tool_calls") or () if call["id"] not in stand]
    blocks += [{"type": "tool_use", "id": call["id"], **_called(call)} for call in calls]
    role = "assistant" if message.role == "assistant" else "user"
    return encode({"role": role, "content": plain(blocks)}) if blocks else None


def _called(call: Mapping[str, Any]) -> dict[str, Any]:
    return {"name": called_name(call), "input": orjson.loads(call["function"]["arguments"] or "{}")}


def _written_once(item: JsonObject, views: tuple[Message, ...]) -> bytes | None:
    """Return what `_changed` does; each step of a chain, and the next request, has most of the same views."""
    first, *rest = views
    known: list[tuple[list[Message], bytes | None]] = first.derive("written", list)
    for others, raw in known:
        if len(others) == len(rest) and all(map(is_, others, rest)):
            return raw
    known[:] = [(rest, _changed(item, views)), *known[: _FORMS - 1]]
    return known[0][1]


_FORMS = 4
"""Forms of a message that are remembered: as each step left it."""


def _changed(item: JsonObject, views: Sequence[Message]) -> bytes | None:
    """Return one of the client's messages, of which something was changed or taken out."""
    before, content = item.get("content"), list[Any]()
    if any(not _is_content(part) for part in views[0].parts):
        return _new_message(views)  # as the model said it, with what its client did not see
    if not isinstance(before, list):
        made = _content(views[0], before)
        return spliced(item.raw, item, {**item, "content": made}) if made else None
    if item["role"] == "assistant":
        content = _answer(views[0], before)
    else:
        others = [block for block in before if block["type"] != "tool_result"]
        results = [block for block in before if block["type"] == "tool_result"]
        own = dict(zip(map(id, item.derive("views", partial(_views, item))), results, strict=False))
        for view in views:
            is_result = view.role == "tool"
            content += [_result_block(view, own.get(id(root_of(view))))] if is_result else _content(view, others)
    return spliced(item.raw, item, {**item, "content": content}) if content else None


def _content(view: Message, before: Any) -> Any:
    """Return a content of which all is one view; `before` is what the client sent."""
    if not isinstance(before, list):
        return view.get("content") or None
    if len(view.parts) == len(before):
        return [*view.parts]
    return [part for part in view.parts if part.get("type") != "text" or part["text"].strip() or part in before]


def _result_block(view: Message, block: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """Return the block of a result, as it came where nothing of it was changed."""
    if block is None:
        raise Unwritable("a tool result is of no message")
    if view.source is not None:
        return block
    made, before = _result_fields(view), block.get("content")
    if isinstance(made["content"], str) and isinstance(before, list) and [b.get("type") for b in before] == ["text"]:
        made["content"] = [{**before[0], "text": made["content"]}]
    return {**block, **made}


def _result_fields(view: Message) -> dict[str, Any]:
    """Return the content of a result. A mark for the cache that a step put on a part of it stands on all of it."""
    content = view.get("content") or ""
    if not isinstance(content, list):
        return {"content": content}
    marks = next(({FIELD: part[FIELD]} for part in reversed(content) if FIELD in part), {})
    bare = [{key: value for key, value in part.items() if key != FIELD} for part in content]
    return {"content": plain(bare), **marks}


def _answer(view: Message, before: Sequence[Mapping[str, Any]]) -> list[Any]:
    """Return the blocks of an answer: thinking as it came or not at all, calls by their ids, texts in order."""
    content = [block for block in before if _is_content(block)]
    texts: list[Any] = _content(view, content)
    is_aligned = len(texts) == len(content)
    calls = {str(call["id"]): call for call in view.get("tool_calls") or ()}
    blocks = list[Any]()
    for block in before:
        if block["type"] in THOUGHTS:
            blocks += [block] if AS_BLOCKS in view else []
        elif block["type"] == "tool_use":
            if (call := calls.pop(block["id"], None)) is not None:
                blocks.append({**block, **_called(call)})
        else:
            here = 1 if is_aligned else len(texts)
            blocks, texts = [*blocks, *texts[:here]], texts[here:]
    if calls:
        raise Unwritable("a call was added to an answer")
    return [*blocks, *texts]


# --- bodies -----------------------------------------------------------------------------------------------------------


class MessagesRequest(NativeRequest):
    """A request in Anthropic's form."""

    wire: ClassVar = "messages"
    names: ClassVar = ("messages", "system")
    grammar: ClassVar = Grammar(
        _check, _read, _write, _with_sealed, _is_function, "input_schema", _write_tool, _read_choice, _write_choice
    )


class MessagesBody(NativeBody):
    """The body of a request."""

    wire: ClassVar = "messages"
    path: ClassVar = PATH
    conversation: ClassVar = ("messages", "system", "tools")
    request: ClassVar = MessagesRequest

    def parse(self, most: int | None = None) -> NativeRequest:
        if self._has("thread"):
            told = "a request must have the whole conversation here: steps read all of it"
            raise BadRequest(told, param="thread", code="thread_unsupported_request")
        return super().parse(most)


class CountBody(MessagesBody):
    """The body of a request whose tokens are to be counted."""

    path: ClassVar = f"{PATH}/count_tokens"


# --- answers ----------------------------------------------------------------------------------------------------------


class Blocks:
    """The blocks of an answer, put together from its events. Nothing here raises."""

    def __init__(self) -> None:
        self.content: list[dict[str, Any]] = []
        """The complete blocks, and the one that is under way."""
        self.usage: dict[str, Any] = {}
        self.stop: str | None = None
        self.begun = False
        self.error = False
        self.arguments: list[str] = []
        """The pieces of the arguments of the last call."""

    def take(self, message: Mapping[str, Any]) -> None:
        self.begun, self.stop = message.get("type") == "message", message.get("stop_reason")
        self.content[:], self.usage = json_objects(message.get("content")), mapping(message.get("usage"))

    def feed(self, event: Mapping[str, Any]) -> None:
        kind, delta = event.get("type"), event.get("delta")
        if kind == "message_start" and isinstance(event.get("message"), dict):
            self.begun = True
            self.usage = dict(mapping(event["message"].get("usage")))
        elif kind == "content_block_start" and isinstance(event.get("content_block"), dict):
            self.content.append(dict(event["content_block"]))
            self.arguments = []
        elif kind == "content_block_delta" and isinstance(delta, dict) and self.content:
            self._more(self.content[-1], delta)
        elif kind == "content_block_stop" and self.content and str(self.content[-1].get("type")).endswith("tool_use"):
            block, text = self.content[-1], "".join(self.arguments)
            block["input"] = json_object(text.encode()) if text else block.get("input") or {}
            if text and not block["input"]:
                block["malformed"] = text
        elif kind == "message_delta" and isinstance(delta, dict):
            self.stop = delta.get("stop_reason") or self.stop
            self.usage |= {name: count for name, count in mapping(event.get("usage")).items() if count is not None}
        elif kind == "error":
            self.error = True

    def _more(self, block: dict[str, Any], delta: Mapping[str, Any]) -> None:
        for name in ("text", "thinking", "signature"):
            if isinstance(delta.get(name), str):
                block[name] = str(block.get(name) or "") + delta[name]
        if isinstance(delta.get("partial_json"), str):
            self.arguments.append(delta["partial_json"])
        if "citation" in delta:
            earlier = block.get("citations")
            block["citations"] = [*(earlier if isinstance(earlier, list) else ()), delta["citation"]]

    @property
    def sent_back(self) -> list[dict[str, Any]]:
        """The blocks as they go back to the model: an object quotes arguments that are no JSON."""
        sent = list[dict[str, Any]]()
        for block in self.content:
            bare = {name: part for name, part in block.items() if name != "malformed"}
            sent.append({**bare, "input": {MALFORMED: block["malformed"]}} if "malformed" in block else block)
        return sent


def error_type(status: int) -> str:
    """Return the type of an error with a status."""
    return _TYPES.get(status) or ("api_error" if status >= 500 else "invalid_request_error")
