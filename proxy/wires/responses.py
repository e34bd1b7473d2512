"""OpenAI's Responses: each run of a model's items as one view, and changes spliced into the client's own bytes.

Reasoning, texts and calls that stand in a row are one assistant message, so that they stay or leave together. A result
is found by `call_id`, whatever the types of both are: `shell_call_output` is a result like `function_call_output`.
Items of other types are opaque: those of the model stand within its message, all others have a role of their own. Some
of these say how the rest is to be read; they never leave. `instructions` is one message, and nothing is merged with it.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any, ClassVar, NamedTuple, TypeGuard

from proxy.chat import CONTROL, OPAQUE, Item, JsonObject, Message, called_name, encode, raws
from proxy.chat.errors import wrong
from proxy.chat.parse import Check, ParsedList, parse_list
from proxy.chat.reasoning import is_sealed
from proxy.chat.splice import fields, spliced
from proxy.text.tables import table
from proxy.wires.native import Grammar, NativeBody, NativeRequest, Unwritable, answer_of, plain, root_of

PATH = "/responses"
CALLS = {"function_call": "arguments", "custom_tool_call": "input"}
_RESULTS = frozenset({"function_call_output", "custom_tool_call_output"})
_ALONE = frozenset(table("wires")["responses"]["alone"])
"""Items that are no part of an answer, and that the conversation behind them needs."""
_OUTPUT = "_output"
_LABELS = frozenset({"type", "id", "call_id", "status"})
"""Keys of a call or a result whose values the model was not told as text."""
_TEXTS = frozenset({"input_text", "output_text"})
_REASONING = "reasoning_items"
ITEMS = "items"
"""The key of a message that the client did not see: what the model said, in its own items."""

_NEEDED = {"message": ("role",), "function_call": ("call_id", "name", "arguments")}
_NEEDED |= {"custom_tool_call": ("call_id", "name", "input")}


# --- read -------------------------------------------------------------------------------------------------------------


def _check(item: Mapping[str, Any], place: str) -> None:
    kind = _kind(item)
    if not isinstance(kind, str):
        wrong(f"{place}.type", "must be a string")
    for name in _NEEDED.get(kind, ()):
        if not isinstance(item.get(name), str):
            wrong(f"{place}.{name}", "must be a string")
    if kind == "message" and not isinstance(item.get("content"), str | list):
        wrong(f"{place}.content", "must be a string or a list of parts")
    for name in ("content", "output", "summary"):
        parts = item.get(name)
        if isinstance(parts, list) and not all(
            isinstance(part, dict) and isinstance(part.get("type"), str | None) for part in parts
        ):
            wrong(f"{place}.{name}", "must be a list of objects, whose types are strings")


def _read_choice(choice: Any) -> Any:
    if isinstance(choice, dict) and choice.get("type") == "allowed_tools":
        return {"type": "allowed_tools", "allowed_tools": {key: choice.get(key) for key in ("mode", "tools")}}
    return choice


def _read(listed: Sequence[JsonObject]) -> Iterator[Message]:
    """Yield one view for each run of items that a model said, one for each other item."""
    run: list[JsonObject] = []
    calls = _calls_of_results(listed)
    answered = frozenset(calls.values())
    for item in listed:
        if _is_said(item, answered, begun=bool(run)):
            run.append(item)
            continue
        if run:
            yield _answer(run)
            run = []
        call = calls.get(id(item))
        yield item.derive(("view", call), partial(_view, item, call))
    if run:
        yield _answer(run)


def _kind(item: Mapping[str, Any]) -> Any:
    return item.get("type") or ("message" if "role" in item else "item_reference")


def _is_result(item: Mapping[str, Any]) -> bool:
    return str(_kind(item)).endswith(_OUTPUT)


def _is_call(item: Mapping[str, Any]) -> bool:
    """Return whether an item that the model said is a call, of a type that is known or not."""
    return item.get("type") in CALLS or (isinstance(item.get("call_id"), str) and not _is_result(item))


def _calls_of_results(listed: Sequence[Mapping[str, Any]]) -> dict[int, str]:
    """Return the id of the call that each result answers, by the result. Some types name their call in `id`."""
    called, calls = dict[str, str](), dict[int, str]()
    for item in listed:
        call, own = item.get("call_id"), item.get("id")
        if _is_result(item):
            name = call if isinstance(call, str) else own
            if isinstance(name, str) and name in called:
                calls[id(item)] = called[name]
        elif isinstance(call, str) and _kind(item) not in _ALONE:
            called[call] = call
            if isinstance(own, str):
                called.setdefault(own, call)
    return calls


def _is_said(item: Mapping[str, Any], answered: Collection[str], *, begun: bool) -> bool:
    """Return whether the model said an item. One of an unknown type counts as its own behind another such one."""
    kind = _kind(item)
    if kind == "message":
        return bool(item["role"] == "assistant")
    if kind == "reasoning" or kind in CALLS or (_is_call(item) and item["call_id"] in answered):
        return True
    return begun and kind not in _ALONE and not _is_result(item)


def _view(item: JsonObject, call: str | None) -> Message:
    """Return the view of an item that no answer has; `call` is the one that it is the result of."""
    kind, output = _kind(item), item.get("output")
    if kind == "message":
        return Message({"role": item["role"], "content": _content(item["content"])}).standing_for(item)
    if call is None and kind in _RESULTS and isinstance(output, str | list):
        call = str(item.get("call_id") or "")
    if call is not None:
        return Message({"role": "tool", "tool_call_id": call, "content": _output(item)}).standing_for(item)
    return Message({"role": CONTROL if kind in _ALONE else OPAQUE, "content": [dict(item)]}).standing_for(item)


def _output(item: Mapping[str, Any]) -> str | list[Any]:
    """Return a result as chat has it; texts that stand in objects without a type, such as `stdout`, are parts."""
    output = item.get("output")
    if _is_content(output):
        return _content(output)
    if isinstance(output, Mapping):
        kind = "input_image" if isinstance(output.get("image_url"), str) else output.get("type", "output")
        return [{**output, "type": kind}]
    return plain([{"type": "text", "text": text} for _, _, text in _texts_in(item)]) or ""


def _is_content(output: Any) -> TypeGuard[str | list[Any]]:
    if isinstance(output, list):
        return all(isinstance(part, Mapping) and "type" in part for part in output)
    return isinstance(output, str)


def _texts_in(item: Mapping[str, Any]) -> Iterator[tuple[int | None, str, str]]:
    """Yield the texts of a result that is no content: the place of the object, the key and the text of each."""
    output = item.get("output")
    objects = [*enumerate(output)] if isinstance(output, list) else [(None, item)]
    for place, each in objects:
        if isinstance(each, Mapping):
            found = [(key, text) for key, text in each.items() if isinstance(text, str) and key not in _LABELS]
            yield from ((place, key, text) for key, text in found)


def _answer(run: Sequence[JsonObject]) -> Message:
    return run[0].derive(
        ("run", *map(id, run)), lambda: Message(said_in(run)).standing_for(JsonObject({"run": tuple(run)}))
    )


def said_in(run: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return items that a model said as one message in chat form."""
    parts = list[dict[str, Any]]()
    for item in run:
        kind = _kind(item)
        parts += _listed(item.get("content") or []) if kind == "message" else []
        parts += [] if kind in ("message", "reasoning") or _is_call(item) else [dict(item)]
    calls = [call_of(item) for item in run if _is_call(item)]
    reasoning = [dict(item) for item in run if _kind(item) == "reasoning"]
    return answer_of(parts, calls, reasoning, _REASONING)


def call_of(item: Mapping[str, Any]) -> dict[str, Any]:
    """Return an item that is a call, in chat form. One of an unknown type is a call of a custom tool of its name."""
    if item["type"] not in CALLS:
        asked = {key: value for key, value in item.items() if key not in _LABELS}
        custom = {"name": item["type"], "input": encode(asked).decode()}
        return {"id": item["call_id"], "type": "custom", "custom": custom}
    kind = "custom" if item["type"] == "custom_tool_call" else "function"
    name = CALLS[item["type"]]
    inner = {"name": item.get("name", ""), name: item.get(name, "")}
    return {"id": item.get("call_id", ""), "type": kind, kind: inner}


def _content(content: str | list[Any]) -> str | list[Any]:
    return content if isinstance(content, str) else plain(_listed(content))


def _listed(content: str | list[Any]) -> list[Any]:
    """Return content as chat has it, in parts."""
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return [_part(part) for part in content if isinstance(part, Mapping)]


def _part(part: Mapping[str, Any]) -> dict[str, Any]:
    """Return a part as chat has it; empty notes on a text say nothing."""
    if str(part.get("type")) not in _TEXTS or not isinstance(part.get("text"), str):
        return dict(part)
    return {"type": "text"} | {key: value for key, value in part.items() if key != "type" and value not in ([], None)}


# --- write ------------------------------------------------------------------------------------------------------------


class _WrittenItems(NamedTuple):
    """Messages as the items of the wire."""

    items: tuple[bytes, ...] = ()
    standing: frozenset[int] = frozenset()
    """The identities (`id`) of the client's messages that stand in some form."""
    system: tuple[Message, ...] = ()
    """The messages that stand for the instructions."""


def _write(request: NativeRequest) -> tuple[bytes | None, Sequence[bytes]]:
    came = request.came
    written = request.form.fold(("written", id(came.system)), _WrittenItems(), partial(_written, came.system))
    _check_lost(request, written.standing)
    if came.system is None:
        return None, written.items
    if not written.system:
        raise Unwritable("the instructions were taken out or merged")
    before, message = came.system["content"], written.system[-1]
    made = _native(before, (root_of(message) or message).parts, message.parts)
    return spliced(fields(came.system.raw)["content"], before, made), written.items


def _written(system: JsonObject | None, before: _WrittenItems, messages: Sequence[Message]) -> _WrittenItems:
    items, standing, instructions = list[bytes](), set[int](), list[Message]()
    for message in messages:
        root = root_of(message)
        if root is None:
            items += _new_items(message)
        elif system is not None and root.source is system:
            instructions.append(message)
        else:
            standing.add(id(root))
            items += message.derive("written", partial(tuple, _items_of(message, root)))
    return _WrittenItems((*before.items, *items), before.standing | standing, (*before.system, *instructions))


def _is_function(item: JsonObject) -> bool:
    return item.get("type") == "function"


def _write_tool(function: Mapping[str, Any], others: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "function", "strict": False, **function, **others}


def _write_choice(choice: Any) -> Any:
    """Return a choice in the words of the wire; one of a tool that the provider runs stays as it is."""
    if not isinstance(choice, Mapping):
        return choice
    if isinstance(allowed := choice.get("allowed_tools"), Mapping):
        return {"type": "allowed_tools", "mode": allowed["mode"], "tools": [*map(_write_choice, allowed["tools"])]}
    kind = next((kind for kind in ("function", "custom") if kind in choice), None)
    return choice if kind is None else {"type": kind, "name": called_name(choice)}


def _with_sealed(item: JsonObject, before: JsonObject) -> JsonObject:
    return before if before.get("type") == "reasoning" and is_sealed(before) else item


def _check_lost(request: NativeRequest, standing: Collection[int]) -> None:
    """Raise `Unwritable` where an item left that must stay, or an opaque one without what stands beside it."""
    came = request.came.messages
    places = request.folds.of(came).places("opaque", lambda message: message.role in (OPAQUE, CONTROL))
    for place in places:
        if id(came[place]) in standing:
            continue
        beside = [came[near] for near in (place - 1, place + 1) if 0 <= near < len(came)]
        if came[place].role == CONTROL or all(id(each) in standing or each.is_system for each in beside):
            raise Unwritable("an opaque item was taken out")
    controls = (came[place].source or came[place] for place in places if came[place].role == CONTROL)
    if any(_kind(each) == "item_reference" for each in controls):
        called = {call for message in came for call in message.call_ids}
        lost = (each for each in came if each.role == "tool" and id(each) not in standing)
        if any(each["tool_call_id"] not in called for each in lost):
            raise Unwritable("a result of a call that the provider has stored was taken out")


def _new_items(message: Message) -> Iterator[bytes]:
    """Yield the items of a message that is not the client's."""
    if message.role == "tool":
        output = {"call_id": message["tool_call_id"], "output": message.text}
        yield encode({"type": "function_call_output", **output})
        return
    if ITEMS in message:
        items = message[ITEMS] or ()
        yield from map(encode, _without_reasoning(items) if _is_bare(message, items) else items)
        return
    kind = "output_text" if message.role == "assistant" else "input_text"
    if message.text.strip():
        yield encode({"type": "message", "role": message.role, "content": _in_words(message.parts, kind)})
    for call in message.get("tool_calls") or ():
        function = {"name": called_name(call), "arguments": call["function"]["arguments"]}
        yield encode({"type": "function_call", "call_id": call["id"], **function})


def _items_of(message: Message, root: Message) -> Iterator[bytes]:
    """Yield the client's items that a message stands for, with what was changed."""
    item = root.source
    if item is None:
        return
    if message.role == "assistant" and ITEMS in message:
        yield from _new_items(message)  # as the model said it, with what its client did not see
    elif message.role == "assistant":
        yield from raws(item["run"]) if message is root else _edited(message, item["run"])
    elif message is root:
        yield item.raw
    elif root.role != "tool":
        yield spliced(item.raw, item, {**item, "content": _native(item["content"], root.parts, message.parts)})
    else:
        yield spliced(item.raw, item, _with_output(item, root, message))


def _with_output(item: JsonObject, root: Message, message: Message) -> Mapping[str, Any]:
    """Return a result with what was changed in it. A text for several ones takes the place of the first."""
    output = item.get("output")
    if _is_content(output):
        return {**item, "output": _native(output, root.parts, message.parts)}
    places, texts = [*_texts_in(item)], [str(part.get("text", "")) for part in message.parts]
    if not places:
        raise Unwritable("a result without a text was changed")
    if len(texts) != len(places):
        texts = [message.text, *[""] * (len(places) - 1)]
    made: dict[str, Any] = {**item, "output": [dict(each) for each in output]} if isinstance(output, list) else {**item}
    for (place, key, _), text in zip(places, texts, strict=True):
        (made if place is None else made["output"][place])[key] = text
    return made


_Parts = Sequence[Mapping[str, Any]]


def _in_words(parts: _Parts, kind: str) -> list[Mapping[str, Any]]:
    """Return parts in the words of the wire, whose texts are of this kind."""
    return [{**part, "type": kind} if part.get("type") == "text" else part for part in parts]


def _native(own: Any, before: _Parts, after: _Parts) -> Any:
    """Return content in the words of the wire; `own` is the client's, of which policies saw the parts `before`."""
    if isinstance(own, str):
        return Message({"content": [*after]}).text
    if len(before) != len(after):
        kind = own[0].get("type", "input_text") if own else "input_text"
        return _in_words(after, kind)
    changed = [
        {key: part[key] for key in part if part[key] != old.get(key)} for old, part in zip(before, after, strict=True)
    ]
    return [part | more for part, more in zip(own, changed, strict=True)]


def _edited(message: Message, run: Sequence[JsonObject]) -> Iterator[bytes]:
    """Yield what a model said, with texts or calls changed, calls taken out, or without its reasoning."""
    calls, parts = [*(message.get("tool_calls") or ())], iter(message.parts)
    bare = _is_bare(message, run)
    for item in run:
        changes = _changes(item, parts, calls)
        if changes is not None:
            made = [{**item, **changes}]
            yield from (spliced(item.raw, item, each) for each in (_without_reasoning(made) if bare else made))
    if calls or next(parts, None) is not None:
        raise Unwritable("something was added to an answer")


def _is_bare(message: Message, items: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether the reasoning that a model's items came with has left."""
    return _REASONING not in message and any(_kind(item) == "reasoning" for item in items)


def _without_reasoning(items: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield the items that are no reasoning, without their ids, which name the reasoning that they came with."""
    for item in items:
        if _kind(item) != "reasoning":
            yield {key: value for key, value in item.items() if key != "id"}


def _changes(item: JsonObject, parts: Iterator[Mapping[str, Any]], calls: list[Any]) -> dict[str, Any] | None:
    """Return what is new in an item of an answer, from the next parts and the calls; None for a call that has left."""
    kind = _kind(item)
    if _is_call(item):
        call = next((each for each in calls if each["id"] == item["call_id"]), None)
        if call is None:
            return None
        calls.remove(call)
        if kind not in CALLS:
            if call != call_of(item):
                raise Unwritable("a call of an unknown type was changed")
            return {}
        inner = call.get("function") or call.get("custom") or {}
        return {"name": inner["name"], CALLS[kind]: inner.get("arguments", inner.get("input"))} if inner else {}
    if kind == "message":
        before = _listed(item["content"])
        after = [*islice(parts, len(before))]
        if len(after) < len(before):
            raise Unwritable("a text was taken out of an answer")
        return {"content": _native(item["content"], before, after)}
    if kind != "reasoning":
        next(parts, None)
    return {}


# --- bodies -----------------------------------------------------------------------------------------------------------


class ResponsesRequest(NativeRequest):
    """A request in the form of Responses."""

    wire: ClassVar = "responses"
    limits: ClassVar = ("max_output_tokens",)
    names: ClassVar = ("input", "instructions")
    grammar: ClassVar = Grammar(
        _check, _read, _write, _with_sealed, _is_function, "parameters", _write_tool, _read_choice, _write_choice
    )


class ResponsesBody(NativeBody):
    """The body of a request."""

    wire: ClassVar = "responses"
    path: ClassVar = PATH
    conversation: ClassVar = ("input", "instructions", "tools")
    request: ClassVar = ResponsesRequest

    def check_messages(self) -> None:
        if self._has("input") and bytes(self._fields["input"])[:1] not in (b"[", b'"'):
            wrong("input", "must be a string or a list of items")

    @property
    def is_compaction(self) -> bool:
        """True where the client has the conversation summed up; that is passed whole."""
        return b'"compaction_trigger"' in self.raw

    def parse_conversation(self, kind: type[Item], check: Check, most: int | None) -> ParsedList[Item]:
        if bytes(memoryview(self._fields.get("input", b""))[:1]) == b"[":
            return super().parse_conversation(kind, check, most)
        said = b'{"role":"user","content":' + self.raw_of("input") + b"}" if self._has("input") else b""
        return parse_list("input", b"[" + said + b"]", kind, check, most, self.earlier)


class InputTokensBody(ResponsesBody):
    """The body of a request whose tokens are to be counted."""

    path: ClassVar = f"{PATH}/input_tokens"
