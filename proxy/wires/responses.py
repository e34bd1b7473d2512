"""OpenAI's Responses: each run of a model's items as one view, and changes spliced into the client's own bytes.

Reasoning, texts and calls that stand in a row are one assistant message, so that they stay or leave together. A result
is found by `call_id`. Items of other types are opaque: those of the model stand within its message, all others have a
role of their own, which no step touches. `instructions` is one message, and nothing is merged with it.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any, ClassVar

import orjson

from proxy.chat import JsonObject, Message, called_name, encode
from proxy.chat.errors import wrong
from proxy.chat.parse import Body, EarlierLists, parse_list, parse_value
from proxy.chat.reasoning import is_sealed
from proxy.wires.native import Came, NativeRequest, check_untagged, parse_tools
from proxy.wires.splice import fields, items, joined, spliced, with_items, with_members
from proxy.wires.view import ToolView, Unwritable, View, plain, root_of

PATH = "/responses"
OPAQUE = "opaque"
"""The role of an item that no step may touch."""

_CALLS = {"function_call": "arguments", "custom_tool_call": "input"}
_RESULTS = frozenset({"function_call_output", "custom_tool_call_output"})
_ALONE = frozenset(
    {
        "additional_tools",
        "compaction",
        "compaction_trigger",
        "configuration_update",
        "context_compaction",
        "item_reference",
    }
)
"""Items that are no part of an answer."""
_TEXTS = frozenset({"input_text", "output_text"})
_REASONING = "reasoning_items"
ITEMS = "items"
"""The key of a message that the client did not see: what the model said, in its own items."""
_TOOL = ("type", "name", "description", "parameters")


class ResponsesBody(Body):
    """The body of a request."""

    wire: ClassVar = "responses"
    path: ClassVar = PATH
    conversation: ClassVar = ("input", "instructions", "tools")

    def check_messages(self) -> None:
        if self._has("input") and bytes(self._fields["input"])[:1] not in (b"[", b'"'):
            wrong("input", "must be a string or a list of items")

    @property
    def is_compaction(self) -> bool:
        """True where the client has the conversation summed up; that is passed whole."""
        return b'"compaction_trigger"' in self.raw

    def parse(self, most: int | None = None, earlier: EarlierLists | None = None) -> "ResponsesRequest":
        """Return the request as policies see it. Raises `BadRequest`."""
        model = self.model
        self.check_messages()
        said = self.raw_of("input") if self._has("input") else b"[]"
        is_text, head = said[:1] == b'"', list[bytes]()
        if self._has("instructions"):
            head.append(b'{"role":"system","content":' + self.raw_of("instructions") + b"}")
        listed = b'[{"role":"user","content":' + said + b"}]" if is_text else said
        raw = b"[" + head[0] + (b"," if items(listed) else b"") + listed[1:] if head else listed
        found = parse_list("input", raw, JsonObject, _check_item, most, earlier, len(head))
        messages = tuple(_views(found.items))
        tools = parse_tools(self.raw_of("tools"), _tool, most, earlier) if self._has("tools") else ()
        rest = self._rest(("model", "input", "instructions", *(("tools",) if tools else ())), _value)
        return ResponsesRequest.of(self.raw, model, found, len(head), messages=messages, tools=tools, rest=rest)


class InputTokensBody(ResponsesBody):
    """The body of a request whose tokens are to be counted."""

    path: ClassVar = f"{PATH}/input_tokens"


class ResponsesRequest(NativeRequest):
    """A request in the form of Responses."""

    __slots__ = ()
    wire: ClassVar = "responses"
    limits: ClassVar = ("max_output_tokens",)
    names: ClassVar = ("input", "instructions")

    def views_of(self, items: Sequence[JsonObject]) -> Iterator[View]:
        return _views(items)

    def tool_of(self, item: JsonObject) -> ToolView:
        return _tool(item)

    def with_sealed(self, item: JsonObject, before: JsonObject) -> JsonObject:
        return before if before.get("type") == "reasoning" and is_sealed(before) else item

    def write_messages(self, came: Came) -> Iterator[tuple[str, bytes | None]]:
        return _conversation(self.messages, came)

    def native_tool(self, function: Mapping[str, Any], others: Mapping[str, Any]) -> dict[str, Any]:
        return {"type": "function", "strict": False, **function, **others}

    def native_field(self, name: str, value: Any) -> Any:
        if name != "tool_choice" or not isinstance(value, Mapping):
            return value
        if isinstance(allowed := value.get("allowed_tools"), Mapping):
            tools = [{"type": "function", "name": called_name(tool)} for tool in allowed["tools"]]
            return {"type": "allowed_tools", "mode": allowed["mode"], "tools": tools}
        return {"type": "function", "name": called_name(value)} if "function" in value else value


# --- read -------------------------------------------------------------------------------------------------------------


def _check_item(item: Mapping[str, Any], place: str) -> None:
    kind = _kind(item)
    if not isinstance(kind, str):
        wrong(f"{place}.type", "must be a string")
    check_untagged(item, place)
    for name in _NEEDED.get(kind, ()):
        if not isinstance(item.get(name), str):
            wrong(f"{place}.{name}", "must be a string")
    if kind == "message" and not isinstance(item.get("content"), str | list):
        wrong(f"{place}.content", "must be a string or a list of parts")
    for name in ("content", "output", "summary"):
        parts = item.get(name)
        if isinstance(parts, list) and not all(isinstance(part, dict) for part in parts):
            wrong(f"{place}.{name}", "must be a list of objects")


_NEEDED = {"message": ("role",), "function_call": ("call_id", "name", "arguments")}
_NEEDED |= {"custom_tool_call": ("call_id", "name", "input")}


def _kind(item: Mapping[str, Any]) -> Any:
    return item.get("type") or ("message" if "role" in item else "item_reference")


def _value(raw: bytes, name: str) -> Any:
    """Return a field in chat's words."""
    value = parse_value(raw, name)
    if name == "tool_choice" and isinstance(value, dict) and value.get("type") == "allowed_tools":
        return {"type": "allowed_tools", "allowed_tools": {key: value.get(key) for key in ("mode", "tools")}}
    return value


def _views(listed: Sequence[JsonObject]) -> Iterator[View]:
    """Yield the views of all items: one for each run of those that a model said, one for each other."""
    run: list[JsonObject] = []
    for item in listed:
        if _is_said(item, begun=bool(run)):
            run.append(item)
            continue
        if run:
            yield _answer(run)
            run = []
        yield item.derive("view", partial(_view, item))
    if run:
        yield _answer(run)


def _is_said(item: Mapping[str, Any], *, begun: bool) -> bool:
    """Return whether the model said an item. An item of an unknown type counts as its own behind another such one."""
    kind = _kind(item)
    if kind == "message":
        return bool(item["role"] == "assistant")
    if kind == "reasoning" or kind in _CALLS:
        return True
    return begun and kind not in _ALONE and not str(kind).endswith("_output")


def _view(item: JsonObject) -> View:
    kind = _kind(item)
    if kind == "message":
        return View.over({"role": item["role"], "content": _content(item["content"])}, item)
    if kind in _RESULTS and isinstance(item.get("output"), str | list):
        output = _content(item["output"])
        return View.over({"role": "tool", "tool_call_id": str(item.get("call_id") or ""), "content": output}, item)
    return View.over({"role": OPAQUE, "content": [dict(item)]}, item)


def _answer(run: Sequence[JsonObject]) -> View:
    """Return what a model said in one go."""
    return run[0].derive(("run", *map(id, run)), lambda: View.over(said_in(run), JsonObject({"run": tuple(run)})))


def said_in(run: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return items that a model said as one message in chat form."""
    parts = list[dict[str, Any]]()
    for item in run:
        kind = _kind(item)
        parts += _listed(item["content"]) if kind == "message" else []
        parts += [] if kind in ("message", "reasoning", *_CALLS) else [dict(item)]
    calls = [call_of(item) for item in run if _kind(item) in _CALLS]
    reasoning = [dict(item) for item in run if _kind(item) == "reasoning"]
    return {
        "role": "assistant",
        "content": plain(parts) if parts else None,
        **({_REASONING: reasoning} if reasoning else {}),
        **({"tool_calls": calls} if calls else {}),
    }


def call_of(item: Mapping[str, Any]) -> dict[str, Any]:
    """Return an item that is a call, in chat form."""
    if item["type"] == "custom_tool_call":
        return {"id": item["call_id"], "type": "custom", "custom": {"name": item["name"], "input": item["input"]}}
    function = {"name": item["name"], "arguments": item["arguments"]}
    return {"id": item["call_id"], "type": "function", "function": function}


def _content(content: str | list[Any]) -> str | list[Any]:
    return content if isinstance(content, str) else plain(_listed(content))


def _listed(content: str | list[Any]) -> list[Any]:
    """Return content as chat has it, in parts."""
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return [_part(part) for part in content]


def _part(part: Mapping[str, Any]) -> dict[str, Any]:
    """Return a part as chat has it; empty notes on a text say nothing."""
    if part.get("type") not in _TEXTS or not isinstance(part.get("text"), str):
        return dict(part)
    return {"type": "text"} | {key: value for key, value in part.items() if key != "type" and value not in ([], None)}


def _tool(item: JsonObject) -> ToolView:
    """Return a tool in chat form; one that the vendor runs, such as web search, stays as it is."""
    if item.get("type") != "function":
        return ToolView.over(item, item)
    function = {key: item.get(key) or "" for key in ("name", "description")}
    function["parameters"] = item.get("parameters") or {}
    others = {key: value for key, value in item.items() if key not in _TOOL}
    return ToolView.over({"type": "function", "function": function, **others}, item)


# --- write ------------------------------------------------------------------------------------------------------------


def _conversation(messages: Sequence[Message], came: Came) -> Iterator[tuple[str, bytes | None]]:
    items: list[bytes] = []
    lost = {id(view.item) for view in map(root_of, came.messages) if view is not None and view.role == OPAQUE}
    has_system = came.system is None
    for message in messages:
        root = root_of(message)
        if root is None:
            items += _new_items(message)
        elif root.item is came.system and came.system is not None:
            has_system = True
            if message is not root:
                yield "instructions", _spliced(message, root, fields(came.system.raw)["content"])
        else:
            lost.discard(id(root.item))
            items += message.derive("written", partial(_items_of, message, root))
    if lost:
        raise Unwritable("an opaque item was taken out")
    if not has_system:
        raise Unwritable("the instructions were taken out or merged")
    before, own = [item.raw for item in came.items], came.own.get("input", b"[]")
    if before != items:
        yield "input", joined(items) if own[:1] == b'"' else with_items(own, before, items)


def _new_items(message: Message) -> Iterator[bytes]:
    """Yield the items of a message that is not the client's."""
    if message.role == "tool":
        output = {"call_id": message["tool_call_id"], "output": message.text}
        yield encode({"type": "function_call_output", **output})
        return
    if ITEMS in message:
        bare = _REASONING not in message
        for item in message[ITEMS] or ():
            if not (bare and item["type"] == "reasoning"):
                yield encode({key: value for key, value in item.items() if not (bare and key == "id")})
        return
    kind = "output_text" if message.role == "assistant" else "input_text"
    if message.text.strip():
        parts = [{**part, "type": kind} for part in message.parts]
        yield encode({"type": "message", "role": message.role, "content": parts})
    for call in message.get("tool_calls") or ():
        function = {"name": called_name(call), "arguments": call["function"]["arguments"]}
        yield encode({"type": "function_call", "call_id": call["id"], **function})


def _items_of(message: Message, root: View) -> tuple[bytes, ...]:
    return tuple(_items(message, root))


def _items(message: Message, root: View) -> Iterator[bytes]:
    item = root.item
    if item is None:
        return
    if message.role == "assistant" and ITEMS in message:
        yield from _new_items(message)  # as the model said it, with what its client did not see
    elif message.role == "assistant":
        yield from (each.raw for each in item["run"]) if message is root else _edited(message, item["run"])
    elif message is root:
        yield item.raw
    else:
        name = "output" if root.role == "tool" else "content"
        yield with_members(item.raw, {name: _spliced(message, root, fields(item.raw)[name])})


def _spliced(message: Message, root: View, raw: bytes) -> bytes:
    """Return content with what was changed; `raw` is what the client sent."""
    text = message.get("content")
    if raw[:1] == b'"':
        return encode(text if isinstance(text, str) else message.text)
    before, after, old = root.parts, message.parts, items(raw)
    if len(before) != len(after):
        kind = orjson.loads(old[0]).get("type", "input_text") if old else "input_text"
        return joined([encode({**part, "type": kind} if part.get("type") == "text" else part) for part in after])
    made = []
    for part, was, now in zip(old, before, after, strict=True):
        parsed = orjson.loads(part)
        changed = {key: value for key, value in now.items() if value != was.get(key)}
        made.append(spliced(part, parsed, {**parsed, **changed}) if changed else part)
    return with_items(raw, old, made)


def _edited(message: Message, run: Sequence[JsonObject]) -> Iterator[bytes]:
    """Yield what a model said, with texts or calls changed, calls taken out, or without its reasoning."""
    calls = {str(call["id"]): call for call in message.get("tool_calls") or ()}
    parts = iter(message.parts)
    bare = _REASONING not in message and any(_kind(item) == "reasoning" for item in run)
    for item in run:
        kind = _kind(item)
        if kind == "reasoning":
            if not bare:
                yield item.raw
            continue
        # an id names the reasoning that it came with
        changes: dict[str, bytes | None] = {"id": None} if bare and "id" in item else {}
        if kind == "message":
            changes |= _text_changes(item, parts)
        elif kind in _CALLS:
            call = calls.pop(str(item["call_id"]), None)
            if call is None:
                continue
            changes |= _call_changes(item, call)
        else:
            next(parts, None)
        yield with_members(item.raw, changes)
    if calls or next(parts, None) is not None:
        raise Unwritable("something was added to an answer")


def _text_changes(item: JsonObject, parts: Iterator[Mapping[str, Any]]) -> dict[str, bytes | None]:
    before = _listed(item["content"])
    after = [*islice(parts, len(before))]
    if len(after) < len(before):
        raise Unwritable("a text was taken out of an answer")
    if after == before:
        return {}
    now = Message({"role": "assistant", "content": after})
    return {"content": _spliced(now, View({"content": before}), fields(item.raw)["content"])}


def _call_changes(item: JsonObject, call: Mapping[str, Any]) -> dict[str, bytes | None]:
    inner, name = call.get("function") or call.get("custom"), _CALLS[item["type"]]
    made = {"name": inner["name"], name: inner.get("arguments", inner.get("input"))} if inner else {}
    return {key: encode(value) for key, value in made.items() if value != item[key]}
