"""Requests in a form that is not chat's: policies see a view, and their changes are made in the client's own bytes."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from operator import is_not
from typing import Any, ClassVar, NamedTuple, Self, cast

import orjson

from proxy.chat import ChatRequest, Fields, JsonObject, Message, Tool, encode, listed, raws, with_fields
from proxy.chat.cache_marks import write_marks
from proxy.chat.errors import wrong
from proxy.chat.parse import Body, Check, parse_list, parse_value
from proxy.chat.reasoning import without_reasoning
from proxy.chat.splice import fields, joined, spliced, with_items, with_members
from proxy.identity import TAG

# --- views: messages and tools in chat form, and the client's own objects that they stand for ---


class Unwritable(Exception):
    """A wire has no form for what a policy made of a request."""


def root_of(message: Message) -> Message | None:
    """Return the client's message that one was made of; None for one that a policy made."""
    each: Message | None = message
    while each is not None and each.source is None:
        each = each.made_of
    return each


def plain(parts: list[Any]) -> str | list[Any]:
    """Return content as chat has it: the text alone where it is one text and nothing else."""
    if len(parts) == 1 and parts[0].keys() == {"type", "text"} and parts[0]["type"] == "text":
        return str(parts[0]["text"])
    return parts


def answer_of(parts: list[Any], calls: Sequence[Any], thoughts: Sequence[Any], name: str) -> dict[str, Any]:
    """Return an answer in chat form; its reasoning stands in the field of this name."""
    content = plain(parts) if parts else None
    more = {name: thoughts, "tool_calls": calls}
    return {"role": "assistant", "content": content, **{key: each for key, each in more.items() if each}}


MALFORMED = "malformed_arguments"
"""The one argument of a call whose arguments are no JSON object, where a wire demands one."""


def parsed_arguments(arguments: Any, otherwise: str = MALFORMED) -> dict[str, Any]:
    """Return the arguments of a call as an object.

    Text that is no JSON object becomes the one argument `otherwise`, word for word: the model sees its own mistake, and
    the tool's answer to it still makes sense.
    """
    if not arguments:
        return {}
    if isinstance(arguments, dict):
        return arguments
    try:
        parsed = orjson.loads(arguments)
    except ValueError:
        parsed = None
    return parsed if isinstance(parsed, dict) else {otherwise: arguments}


# --- requests ---


class Came(NamedTuple):
    """A request as the client sent it."""

    raw: bytes
    own: Mapping[str, bytes]
    """Its fields."""
    model: str
    messages: tuple[Message, ...]
    tools: tuple[Tool, ...]
    rest: Fields
    items: tuple[JsonObject, ...]
    """The client's own messages or items, the system prompt not among them."""
    system: JsonObject | None


class Grammar(NamedTuple):
    """The functions that read and write the objects of a wire."""

    check: Check
    """Raises `BadRequest` for an object of a conversation that has a wrong shape, with its place."""
    views: Callable[[Sequence[JsonObject]], Iterator[Message]]
    """Yields the messages that policies see of the client's own, the system prompt in front."""
    write: "Callable[[NativeRequest], tuple[bytes | None, Sequence[bytes]]]"
    """Returns the system prompt, if there is one, and the messages or items. Raises `Unwritable`."""
    with_sealed: Callable[[JsonObject, JsonObject], JsonObject]
    """Returns an object with the sealed reasoning that another form of it has."""
    is_function: Callable[[JsonObject], bool]
    """Returns whether a tool is a function of the client's."""
    schema: str
    """The field in which a function has its schema."""
    write_tool: Callable[[Mapping[str, Any], Mapping[str, Any]], dict[str, Any]]
    """Returns a function that policies offer, with its other keys, as a tool of the wire."""
    read_choice: Callable[[Any], Any]
    """Returns a `tool_choice` in chat's words."""
    write_choice: Callable[[Any], Any]
    """Returns chat's `tool_choice` in the words of the wire."""

    def read_field(self, raw: bytes, name: str) -> Any:
        value = parse_value(raw, name)
        return self.read_choice(value) if name == "tool_choice" else value

    def read_tool(self, item: JsonObject) -> Tool:
        """Return a tool in chat form; one that the vendor runs, such as web search, stays as it is."""
        return item.derive(("tool", self.schema), partial(self._tool, item))

    def _tool(self, item: JsonObject) -> Tool:
        if not self.is_function(item):
            return Tool(item).standing_for(item)
        function = {"name": item.get("name") or "", "description": item.get("description") or ""}
        function["parameters"] = item.get(self.schema) or {}
        others = {key: value for key, value in item.items() if key not in ("type", "name", "description", self.schema)}
        return Tool({"type": "function", "function": function, **others}).standing_for(item)


@dataclass(frozen=True, eq=False)
class NativeRequest(ChatRequest):
    """A request that knows what the client sent. It is written by changing that."""

    keeps_system: ClassVar = True
    names: ClassVar[tuple[str, str]]
    """The fields of the conversation and of the system prompt."""
    grammar: ClassVar[Grammar]
    came: Came = field(kw_only=True)

    @property
    def own(self) -> Mapping[str, Sequence[JsonObject]]:
        """All objects that the client sent, by the field that they stand in."""
        came, (listed, head) = self.came, self.names
        return {head: [came.system] if came.system else [], listed: came.items, "tools": _tool_items(came.tools)}

    def with_each(self, change: Callable[[JsonObject], JsonObject]) -> Self:
        """Return the request as if the client had sent each object changed.

        Sealed reasoning cannot be changed: where it would be, it leaves its message. Raises `Unwritable`.
        """
        renewal = _Renewal(self, change)
        messages, tools = tuple(map(renewal.message, self.messages)), tuple(map(renewal.tool, self.tools))
        if not any(map(is_not, (*messages, *tools), (*self.messages, *self.tools))):
            return self
        return with_fields(self, messages=messages, tools=tools, came=renewal.came, cache_marks=None)

    def flaw(self) -> str | None:
        try:
            write_marks(self).encode()
        except Unwritable as error:
            return str(error)
        return None

    def encode(self) -> bytes:
        """Return the client's own bytes, and in them what was changed. Raises `Unwritable`."""
        try:
            return with_members(self.came.raw, dict(self._changes()))
        except (ValueError, KeyError, TypeError) as error:
            raise Unwritable(f"the wire has no form for it ({type(error).__name__})") from error

    def _changes(self) -> Iterator[tuple[str, bytes | None]]:
        came = self.came
        if self.model != came.model:
            yield "model", encode(self.model)
        if self.messages is not came.messages:
            listed, head = self.names
            system, items = self.grammar.write(self)
            if system is not None or came.system is not None:
                yield head, system
            yield listed, _changed_list(came.own.get(listed, b"[]"), raws(came.items), items) or b"[]"
        if self.tools is not came.tools:
            yield "tools", _changed_list(came.own.get("tools", b"[]"), self._raws(came.tools), self._raws(self.tools))
        for name in () if self.rest is came.rest else dict.fromkeys((*came.rest, *self.rest)):
            if name not in self.rest:
                yield name, None
            elif name not in came.rest or self.rest.raw(name) != came.rest.raw(name):
                value = self.rest[name]
                yield name, encode(self.grammar.write_choice(value) if name == "tool_choice" else value)

    def _raws(self, tools: tuple[Tool, ...]) -> Sequence[bytes]:
        return listed(tools).derive(self.grammar.write_tool, lambda: [*map(self._raw, tools)])

    def _raw(self, tool: Tool) -> bytes:
        if tool.source is not None:
            return tool.source.raw
        if not isinstance(function := tool.get("function"), Mapping):
            return encode(tool)
        others = {key: value for key, value in tool.items() if key not in ("type", "function")}
        return encode(self.grammar.write_tool(function, others))


class NativeBody(Body):
    """The body of such a request."""

    request: ClassVar[type[NativeRequest]]

    def parse(self, most: int | None = None) -> NativeRequest:
        model, kind = self.model, self.request
        self.check_messages()
        _, head = kind.names
        check, system = partial(_checked, kind.grammar.check), tuple[JsonObject, ...]()
        if self._has(head):
            said = b'[{"role":"system","content":' + self.raw_of(head) + b"}]"
            system = parse_list(head, said, JsonObject, check, most, self.earlier, least=0).items
        parsed = self.parse_conversation(JsonObject, check, most)
        tools: tuple[Tool, ...] = ()
        if self._has("tools"):
            items = parse_list("tools", self.raw_of("tools"), JsonObject, _check_tool, most, self.earlier).items
            tools = items.derive(("tools", kind), lambda: listed(map(kind.grammar.read_tool, items)))
        rest = self._rest(("model", *kind.names, *(("tools",) if tools else ())), kind.grammar.read_field)
        messages = listed(kind.grammar.views((*system, *parsed.items)))
        first = system[0] if system else None
        came = Came(self.raw, _fields_of(self.raw), model, messages, tools, rest, parsed.items, first)
        return kind(model, messages, tools, rest, folds=parsed.folds.begin(), came=came)


def _fields_of(raw: bytes) -> Mapping[str, bytes]:
    """Return the fields of a body; none of one with half a surrogate pair, which no step can change."""
    try:
        return fields(raw)
    except ValueError:
        return {}


def _tool_items(tools: Iterable[Tool]) -> tuple[JsonObject, ...]:
    return tuple(tool.source for tool in tools if tool.source is not None)


class _Renewal:
    """A request as if the client had sent each of its objects changed."""

    def __init__(self, request: NativeRequest, change: Callable[[JsonObject], JsonObject]) -> None:
        self._request, self._change, came = request, change, request.came
        self._opened = set[int]()
        """Objects whose sealed reasoning would be changed."""
        system = None if came.system is None else self._item(came.system)
        listed, tools = tuple(map(self._item, came.items)), tuple(map(self.tool, came.tools))
        views = tuple(request.grammar.views(listed if system is None else (system, *listed)))
        if len(views) != len(came.messages):
            raise Unwritable("a message would become another one")
        self._views = dict[int, Message]()
        """By the message in whose place each view stands, and those in whose place that one stood before it."""
        for old, new in zip(came.messages, views, strict=True):
            earlier: Message | None = old
            while earlier is not None:
                self._views[id(earlier)] = new
                earlier = earlier.made_of
            new.in_place_of(old)
        changes, (name, head) = dict[str, bytes | None](), request.names
        after = {head: [system] if system else [], name: listed, "tools": _tool_items(tools)}
        for key, before in request.own.items():
            if not any(map(is_not, before, after[key])):
                continue
            if key == head or came.own[key][:1] == b'"':
                changes[key] = fields(after[key][0].raw)["content"]
            else:
                changes[key] = with_items(came.own[key], raws(before), raws(after[key]))
        raw = with_members(came.raw, changes)
        self.came = Came(raw, fields(raw), came.model, views, tools, came.rest, listed, system)

    def message(self, message: Message) -> Message:
        view = self._views.get(id(message))
        if view is not None:
            item = view.source or view
            is_opened = not self._opened.isdisjoint((id(item), *map(id, item.get("run", ()))))
            return view.derive("bare", partial(without_reasoning, view)) if is_opened else view
        new, root = cast(Message, self._change(message)), root_of(message)  # made here, or with hidden parts
        moved = root if root is None else self._views[id(root)]
        return new if moved is None or moved is root else new.copied_from(moved)

    def tool(self, tool: Tool) -> Tool:
        if (item := tool.source) is None:
            return cast(Tool, self._change(tool))
        new = self._item(item)
        return tool if new is item else self._request.grammar.read_tool(new)

    def _item(self, item: JsonObject) -> JsonObject:
        if (new := self._change(item)) is item:
            return item
        made = new.derive("own", partial(self._spliced, item, new))
        if made != new:
            self._opened.add(id(made))
        return made

    def _spliced(self, item: JsonObject, new: JsonObject) -> JsonObject:
        """Return an object changed within its own bytes, its sealed reasoning as it was; the same if that was all."""
        made = self._request.grammar.with_sealed(new, item)
        return item if made == item else JsonObject(made, spliced(item.raw, item, made))


def _changed_list(raw: bytes, before: Iterable[bytes], after: Iterable[bytes]) -> bytes | None:
    """Return a list of the body with other items; None for an empty one."""
    old, new = [*before], [*after]
    if old == new:
        return raw
    return None if not new else with_items(raw, old, new) if raw[:1] == b"[" else joined(new)


def _checked(check: Check, item: Mapping[str, Any], place: str) -> None:
    """Check an object, and that it has no tag of a task: in this form no step would read it."""
    check(item, place)
    if TAG in item:
        wrong(f"{place}.{TAG}", "is read in chat completions only; send the messages of one task here")


def _check_tool(item: Mapping[str, Any], place: str) -> None:
    if not isinstance(item.get("name", ""), str):
        wrong(f"{place}.name", "must be a string")
