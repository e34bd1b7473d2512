"""The value that policies work on: a chat request, its turns and exchanges.

Everything here is immutable and needs nothing but the standard library. A message or a tool remembers the bytes that
the client sent for it, so that a request in which one message changed re-sends all others byte for byte.
"""

import json
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from hashlib import blake2b
from itertools import accumulate, pairwise, takewhile
from typing import Any, ClassVar, NoReturn, Self, TypeVar, cast

from proxy.chat.folds import Folds, Form

SYSTEM_ROLES = frozenset({"system", "developer"})
"""Roles that carry the operator's authority; `developer` is what OpenAI's reasoning models call `system`."""

ROLES = SYSTEM_ROLES | {"user", "assistant", "tool", "function"}

OPAQUE = "opaque"
"""The role of an item of a wire that only the provider reads; it leaves with the messages beside it."""

CONTROL = "control"
"""The role of an item that says how those behind it are to be read; it never leaves."""

_ARGUMENTS = frozenset({"arguments", "input"})
_TEXTS = _ARGUMENTS | {"text", "content", "refusal", "reasoning_content", "reasoning"}
"""The keys of a message and of its parts under which text stands; that of signed reasoning is another."""

_NO_CALLS: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())

_NOTHING: Mapping[Any, Any] = {}
_UNREAD: Any = object()

Derived = TypeVar("Derived")
Instance = TypeVar("Instance")
Item = TypeVar("Item", bound="JsonObject")

_DERIVED = 32
"""Results that a list of messages or tools keeps."""


class JsonObject(dict[str, Any]):
    """A JSON object that cannot be changed at its top level and that knows its own bytes.

    Reads are those of a dict. Nested lists and objects must be left alone too; the conformance test checks it.
    """

    __slots__ = ("_derived", "_raw", "_source")
    _derived: dict[Hashable, Any]
    _raw: bytes | None
    _source: "JsonObject"

    def __init__(self, data: Mapping[str, Any] | Iterable[tuple[str, Any]] = (), raw: bytes | None = None) -> None:
        super().__init__(data)
        self._raw = raw

    @property
    def raw(self) -> bytes:
        """The JSON text: the client's own bytes, or for an object made here its compact UTF-8 form."""
        if self._raw is None:
            self._raw = encode(self)
        return self._raw

    @property
    def source(self) -> "JsonObject | None":
        """The client's own object, in the form of another wire, that this one stands for, or for a part of."""
        return getattr(self, "_source", None)

    def standing_for(self, source: "JsonObject") -> Self:
        """Return the object, which knows its source; no copy does."""
        self._source = source
        return self

    def derive(self, key: Hashable, make: Callable[[], Derived]) -> Derived:
        """Return what follows from this object and a key alone: made once for as long as the object is known.

        The next request of a conversation has the same objects, so a step gives it the same forms at no cost.
        """
        try:
            known = self._derived
        except AttributeError:
            known = self._derived = {}
        if key not in known:
            known[key] = make()
        derived: Derived = known[key]
        return derived

    def derived(self, key: Hashable) -> Any:
        """Return what `derive` has made for a key; None where that is nothing yet."""
        return getattr(self, "_derived", _NOTHING).get(key)

    def with_changes(self, **changes: Any) -> Self:
        """Return a copy with these keys set; keys keep their place, a value of `None` stays as null."""
        return self.changed_copy({**self, **changes})

    def without(self, *keys: str) -> Self:
        return self.changed_copy({key: value for key, value in self.items() if key not in keys})

    def changed_copy(self, data: Mapping[str, Any]) -> Self:
        """Return these data as a changed copy of the object."""
        return type(self)(data)

    def _refuse(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise TypeError(f"{type(self).__name__} is read-only: use with_changes() and build a new request")

    __setitem__ = __delitem__ = __ior__ = clear = pop = popitem = setdefault = update = _refuse

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"{type(self).__name__} is not copied or pickled: use with_changes(), or send its raw bytes")


class Fields(Mapping[str, Any]):
    """Fields that stay as the client's bytes until somebody reads them. They cannot be changed."""

    __slots__ = ("_raw", "_read", "_values")

    def __init__(
        self,
        values: Mapping[str, Any] = _NOTHING,
        raw: Mapping[str, bytes] = _NOTHING,
        read: Callable[[bytes, str], Any] | None = None,
    ) -> None:
        """`values` are the fields in their order, `_UNREAD` for those that `read` makes of their bytes in `raw`."""
        self._values, self._raw, self._read = dict(values), raw, read

    @classmethod
    def unread(cls, raw: Mapping[str, bytes], read: Callable[[bytes, str], Any]) -> Self:
        """Return fields of which none was read; `read` gets the bytes and the name of one."""
        return cls(dict.fromkeys(raw, _UNREAD), raw, read)

    def __getitem__(self, name: str) -> Any:
        value = self._values[name]
        if value is _UNREAD and self._read is not None:
            value = self._values[name] = self._read(self._raw[name], name)
        return value

    def get(self, name: str, default: Any = None) -> Any:
        return self[name] if name in self._values else default

    def __contains__(self, name: object) -> bool:
        return name in self._values

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def raw(self, name: str) -> bytes:
        """Return the JSON text of a field: the client's own bytes, or those of a value that was set here."""
        return self._raw.get(name) or encode(self._values[name])

    def with_changes(self, **changes: Any) -> Self:
        """Return a copy with these fields set; fields keep their place."""
        kept = {name: raw for name, raw in self._raw.items() if name not in changes}
        return type(self)({**self._values, **changes}, kept, self._read)

    def without(self, *names: str) -> Self:
        values = {name: value for name, value in self._values.items() if name not in names}
        return type(self)(values, {name: raw for name, raw in self._raw.items() if name in values}, self._read)


class Message(JsonObject):
    """One chat message."""

    __slots__ = ("_calls", "_made_of")
    _made_of: "Message"
    _calls: tuple[tuple[str, ...], tuple[str, ...]]

    @property
    def made_of(self) -> "Message | None":
        """The message that this is a changed copy of; None for one that was made from nothing."""
        try:
            return self._made_of
        except AttributeError:
            return None

    def changed_copy(self, data: Mapping[str, Any]) -> Self:
        """Return a changed copy, which knows what it was made of."""
        changed = type(self)(data)
        changed._made_of = self
        return changed

    def copied_from(self, original: "Message") -> Self:
        """Return the same message as a copy of this one: for what is remembered from an earlier request."""
        copied = type(self)(self, self.raw)
        copied._made_of = original
        return copied

    @property
    def is_marked(self) -> bool:
        """True if the client marked it for a provider's cache, as it marks others in its next request."""
        if self.made_of is not None:
            return self.made_of.is_marked
        raw = (self.source or self)._raw or b""
        return self.derive("marked", lambda: b'"cache_control"' in raw or b'"prompt_cache_breakpoint"' in raw)

    def in_place_of(self, other: "Message") -> None:
        """Let the message know that it stands in the place of another one."""
        if other is not self:
            self._made_of = other

    @property
    def role(self) -> str:
        """`system`, `developer`, `user`, `assistant`, `tool` or the deprecated `function`."""
        return str(self.get("role", ""))

    @property
    def is_system(self) -> bool:
        return self.role in SYSTEM_ROLES

    @property
    def parts(self) -> tuple[Mapping[str, Any], ...]:
        """The content as parts: a string is one text part, an absent content none."""
        content = self.get("content")
        if isinstance(content, str):
            return ({"type": "text", "text": content},)
        return tuple(content) if isinstance(content, list) else ()

    @property
    def text(self) -> str:
        """The text of all text parts, joined by line breaks."""
        content = self.get("content")
        if isinstance(content, str):
            return content
        return "\n".join(part["text"] for part in self.parts if isinstance(part.get("text"), str))

    def with_texts(self, change: Callable[[str], str]) -> Self:
        """Return a copy with each of its texts changed; the message itself where none is.

        Texts are the content or its text parts, a refusal, unsigned reasoning, and the arguments of calls, which are
        JSON in a string.
        """
        changes = {
            key: new
            for key in ("content", "refusal", "reasoning_content", "reasoning", "tool_calls", "function_call")
            if (old := self.get(key)) and (new := _changed(old, change, key)) != old
        }
        return self.with_changes(**changes) if changes else self

    @property
    def call_ids(self) -> tuple[str, ...]:
        return self._named_calls()[0]

    @property
    def called_tools(self) -> tuple[str, ...]:
        return self._named_calls()[1]

    def _named_calls(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        if not self.get("tool_calls"):
            return _NO_CALLS
        try:
            return self._calls
        except AttributeError:  # steps ask a dozen times
            calls = self["tool_calls"]
            self._calls = tuple(str(call.get("id", "")) for call in calls), tuple(map(called_name, calls))
            return self._calls


def _changed(value: Any, change: Callable[[str], str], key: str) -> Any:
    if isinstance(value, str):
        return change(value) if key in _TEXTS else value
    if isinstance(value, list):
        return [_changed(item, change, key) for item in value]
    if isinstance(value, Mapping):
        return {name: _changed(item, change, key if key in _ARGUMENTS else name) for name, item in value.items()}
    return value


class Listed(tuple[Item, ...]):
    """Messages or tools that know what follows from all of them: later steps and requests often have the same ones."""

    @cached_property
    def raws(self) -> tuple[bytes, ...]:
        """The JSON text of each."""
        return tuple([item._raw or item.raw for item in self])  # a call for each would take most of the time

    @cached_property
    def names(self) -> frozenset[str]:
        """The names of tools."""
        return frozenset([item.name for item in self if isinstance(item, Tool)])

    def derive(self, key: Hashable, make: Callable[[], Derived]) -> Derived:
        """Return what follows from these and a key alone, made once for each of the latest keys."""
        derived: Derived = self._derived.get(key, _UNREAD)
        if derived is _UNREAD:
            derived = self._derived[key] = make()
            if len(self._derived) > _DERIVED:
                self._derived.pop(next(iter(self._derived)))
        return derived

    @cached_property
    def _derived(self) -> dict[Hashable, Any]:
        return {}


_NO_ITEMS = Listed[Any]()


def listed(items: Iterable[Item]) -> Listed[Item]:
    """Return messages or tools as such a list: those of a request are one already."""
    return items if type(items) is Listed else Listed(items) if items else _NO_ITEMS


def raws(items: Iterable[JsonObject]) -> Sequence[bytes]:
    """Return the JSON text of each."""
    return listed(items).raws


def digest(message: Message) -> bytes:
    """Return what stands for the bytes of a message, the same in every process."""
    return message.derive("digest", lambda: blake2b(message.raw, digest_size=16).digest())


class Tool(JsonObject):
    """One tool definition, of a function or a custom tool."""

    __slots__ = ("is_function", "name")

    def __init__(self, data: Mapping[str, Any] | Iterable[tuple[str, Any]] = (), raw: bytes | None = None) -> None:
        super().__init__(data, raw)
        self.name = called_name(self)
        """The name that the model calls it by; empty if the client gave none."""
        function = self.get("function")
        self.is_function: bool = isinstance(function, (dict, Mapping)) and bool(function.get("name"))
        """True if it takes arguments in JSON, as custom tools and those of a provider do not."""

    @classmethod
    def function(
        cls, name: str, description: str, properties: Mapping[str, Any] | None = None, required: Sequence[str] = ()
    ) -> Self:
        """Return the definition of a function. `properties` are its parameters: the name of a type, or a schema."""
        schemas = {key: {"type": each} if isinstance(each, str) else each for key, each in (properties or {}).items()}
        parameters: dict[str, Any] = {"type": "object", "properties": schemas}
        if required:
            parameters["required"] = [*required]
        function = {"name": name, "description": description, "parameters": parameters}
        return cls({"type": "function", "function": function})


@dataclass(frozen=True, slots=True)
class CacheMarks:
    """Places at which a provider is to keep a prompt's prefix in its cache (`cache_control`)."""

    messages: tuple[int, ...]
    """Indexes of messages."""
    tools: bool = False
    """True if the last tool has a mark too."""
    ttl: str = "5m"
    """The time for which an unused prefix stays."""


def with_fields(instance: Instance, **changes: Any) -> Instance:
    """Return a copy of a data class without slots; `dataclasses.replace` takes ten times as long."""
    made: Instance = object.__new__(type(instance))
    vars(made).update(vars(instance), **changes)
    return made


@dataclass(frozen=True, eq=False)
class ChatRequest:
    """A client's request to a model. A policy never changes one: it builds another.

    Compare with `is`: a request that nobody changed is the same object.
    """

    wire: ClassVar[str] = "chat"
    """The form in which its client speaks. Policies see chat completions in any case."""
    keeps_system: ClassVar[bool] = False
    """True if its wire has a field for the system prompt, with which nothing may be merged."""
    limits: ClassVar[tuple[str, ...]] = ("max_completion_tokens", "max_tokens")
    """The fields by which the client limits the answer, the one that counts first."""

    model: str
    messages: tuple[Message, ...]
    tools: tuple[Tool, ...] = ()
    rest: Fields = field(default_factory=Fields)
    """Every other field, in client order."""
    order: tuple[str, ...] = ("model", "messages", "tools")
    """The top-level keys as the client ordered them; new ones are written behind these."""
    cache_marks: "CacheMarks | None" = None
    """The end of the provider's cache; written into the messages when the request is sent."""
    folds: Folds = field(default_factory=Folds, repr=False)
    """Results about the conversation's messages, in each of their forms."""

    def with_messages(self, messages: Iterable[Message]) -> Self:
        """Return the same request with other messages, of which none is marked for the provider's cache."""
        return with_fields(self, messages=listed(messages), cache_marks=None)

    def with_tools(self, tools: Iterable[Tool]) -> Self:
        """Return the same request with other tools. Without any, what only makes sense beside tools leaves too."""
        request = with_fields(self, tools=listed(tools))
        return request if request.tools else request.without("tool_choice", "parallel_tool_calls")

    @property
    def own(self) -> Mapping[str, Sequence[JsonObject]]:
        """All objects that the client sent, by the field that they stand in."""
        return {"messages": self.messages, "tools": self.tools}

    def with_each(self, change: Callable[[JsonObject], JsonObject]) -> Self:
        """Return the same request with each object changed that the client sent, the same object where none is."""
        request = self
        messages, tools = [[*map(change, items)] for items in (self.messages, self.tools)]
        if any(new is not old for new, old in zip(tools, self.tools, strict=True)):
            request = request.with_tools(cast(list[Tool], tools))
        if any(new is not old for new, old in zip(messages, self.messages, strict=True)):
            request = request.with_messages(cast(list[Message], messages))
        return request

    def with_model(self, model: str) -> Self:
        return self if model == self.model else with_fields(self, model=model)

    def with_field(self, name: str, value: Any) -> Self:
        return with_fields(self, rest=self.rest.with_changes(**{name: value}))

    def with_cache_marks(self, marks: CacheMarks) -> Self:
        return with_fields(self, cache_marks=marks)

    def without(self, *names: str) -> Self:
        if not any(name in self.rest for name in names):
            return self
        return with_fields(self, rest=self.rest.without(*names))

    @property
    def form(self) -> Form:
        """Results about the conversation in this form."""
        return self.folds.of(self.messages)

    @property
    def last_user_message(self) -> Message | None:
        def newest(before: Message | None, messages: Sequence[Message]) -> Message | None:
            return next((message for message in reversed(messages) if message.get("role") == "user"), before)

        return self.form.fold("last user message", None, newest)

    @property
    def size(self) -> int:
        return sum(map(len, (*raws(self.messages), *raws(self.tools), *map(self.rest.raw, self.rest))))

    @property
    def stream(self) -> bool:
        return self.rest.get("stream") is True

    @property
    def max_output_tokens(self) -> int | None:
        """The longest answer that the client allows, in tokens, or None where it does not say."""
        for name in self.limits:
            value = self.rest.get(name)
            if type(value) is int and value > 0:
                return value
        return None

    @property
    def output_limits(self) -> dict[str, int]:
        """The fields by which the client limits the answer, the one that counts first."""
        values = {name: self.rest.get(name) for name in self.limits}
        return {name: value for name, value in values.items() if type(value) is int and value > 0}

    def with_shorter_answer(self, limit: int) -> "ChatRequest":
        """Lower the client's limits of the answer to `limit`, but at least 1; none is added."""
        request, limit = self, max(1, limit)
        for name, wanted in self.output_limits.items():
            if wanted > limit:
                request = request.with_field(name, limit)
        return request

    def flaw(self) -> str | None:
        """Why its wire has no form for it; None if it has."""
        return None

    def encode(self) -> bytes:
        """Return the JSON body: client order, client bytes for all that was not changed, compact UTF-8 for the rest."""
        parts: list[bytes] = []  # joined once: each copy of a long body costs more than the list
        for key in dict.fromkeys((*self.order, "tools", *self.rest)):
            if value := self._encoded(key):
                value[0] = encode(key) + b":" + value[0]
                parts += value
        parts = parts or [b""]
        parts[0] = b"{" + parts[0]
        parts[-1] += b"}"
        return b",".join(parts)

    @property
    def _message_raws(self) -> tuple[bytes, ...]:
        """The JSON text of each message; those that an earlier request had are not asked again."""
        return self.form.fold("JSON texts", tuple[bytes, ...](), lambda before, new: (*before, *raws(new)))

    def _encoded(self, key: str) -> list[bytes]:
        """Return a field's JSON, divided between the items of a list; none where there is no such field."""
        if key == "model":
            return [encode(self.model)]
        if key == "messages" or (key == "tools" and self.tools):
            parts = [*(self._message_raws if key == "messages" else raws(self.tools))] or [b""]
            parts[0] = b"[" + parts[0]
            parts[-1] += b"]"
            return parts
        return [self.rest.raw(key)] if key in self.rest else []


_COMPACT = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))


def encode(value: Any) -> bytes:
    """Compact UTF-8 JSON, keys in their own order: the one form in which Penstock writes what it made."""
    return _COMPACT.encode(value).encode()


# --- structure --------------------------------------------------------------------------------------------------------


def head_of(messages: Sequence[Message]) -> tuple[Message, ...]:
    """Return the leading system messages."""
    return tuple(takewhile(lambda message: message.is_system, messages))


def split_head(messages: Sequence[Message]) -> tuple[tuple[Message, ...], tuple[Message, ...]]:
    """Return the leading system messages, and the conversation behind them."""
    head = head_of(messages)
    return head, tuple(messages[len(head) :])


def turns(messages: Sequence[Message]) -> list[tuple[Message, ...]]:
    """Return the conversation cut before each user message; what comes before the first one is a turn of its own."""
    groups: list[list[Message]] = []
    for message in messages:
        if message.get("role") == "user" or not groups:
            groups.append([])
        groups[-1].append(message)
    return [tuple(group) for group in groups]


def exchanges(messages: Sequence[Message]) -> list[tuple[Message, ...]]:
    """Return the smallest pieces that may leave a conversation: one message, or a tool call with all its results.

    Results are found by id, never by neighbourhood, also those of tools that a provider runs; whatever stands between
    a call and its last result is part of the exchange, so that no cut can separate them.
    """
    ends = _ends(messages)
    return [tuple(messages[start:end]) for start, end in pairwise((0, *ends))]


def legal_cuts(messages: Sequence[Message]) -> frozenset[int]:
    """Return the indexes at which a conversation may be cut in two without separating a call from its result."""
    return frozenset({0, *_ends(messages)})


def _ends(messages: Sequence[Message]) -> list[int]:
    reach = list(range(len(messages)))
    caller: dict[str, int] = {}
    for index, message in enumerate(messages):
        if message.get("tool_calls"):
            caller.update(dict.fromkeys(message.call_ids, index))
        if message.get("role") == "tool":
            # one without a call belongs to the results in front of it: the model reads them together
            before = index - (index > 0 and messages[index - 1].get("role") == "tool")
            asked = caller.get(str(message.get("tool_call_id", "")), before)
            reach[asked] = index
        if isinstance(message.get("content"), list):
            ids, named = message.derive("ids of parts", partial(_ids_of_parts, message))
            for each in named:
                reach[caller.get(each, index)] = index
            caller.update(dict.fromkeys(ids, index))
    last = list(accumulate(reach, max))
    return [index + 1 for index, end in enumerate(last) if end == index]


def _ids_of_parts(message: Message) -> tuple[Sequence[str], Sequence[str]]:
    """Return the ids of the calls and requests among the parts of a message, and those that its parts belong to."""
    parts = [part for part in message.parts if isinstance(part, Mapping) and part.get("type") != "text"]
    ids = [part[key] for part in parts for key in ("id", "call_id") if isinstance(part.get(key), str)]
    named = [each for part in parts for key, each in part.items() if key.endswith("_id") and isinstance(each, str)]
    return ids, named


def called_name(call: Mapping[str, Any]) -> str:
    """Return the name in a tool definition, a call or a choice: under `function` or `custom`, or beside the type."""
    for kind in ("function", "custom"):
        inner = call.get(kind)
        if isinstance(inner, dict) or (inner is not None and isinstance(inner, Mapping)):  # the first is quick
            return str(inner.get("name", ""))
    return str(call.get("name", ""))


def chosen_tools(choice: Any) -> tuple[str, ...]:
    """Return the tools that a `tool_choice` names: one, or those of `allowed_tools`; none for a mode word."""
    if not isinstance(choice, Mapping):
        return ()
    allowed = choice.get("allowed_tools")
    if isinstance(allowed, Mapping):
        tools = allowed.get("tools")
        named = tools if isinstance(tools, list) else ()
        return tuple(filter(None, [called_name(tool) for tool in named if isinstance(tool, Mapping)]))
    return tuple(filter(None, (called_name(choice),)))
