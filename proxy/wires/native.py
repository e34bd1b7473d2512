"""Requests in a form that is not chat's: policies see a view, and their changes are made in the client's own bytes."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, NamedTuple, NoReturn, Self

from proxy.chat import ChatRequest, Fields, JsonObject, Message, Tool, encode
from proxy.chat.cache_marks import write_marks
from proxy.chat.errors import BadRequest
from proxy.chat.parse import EarlierLists, ParsedList, parse_list
from proxy.wires.splice import fields, with_items, with_members
from proxy.wires.view import ToolView, Unwritable


class Came(NamedTuple):
    """A request as the client sent it."""

    raw: bytes
    model: str
    messages: tuple[Message, ...]
    tools: tuple[Tool, ...]
    rest: Fields
    items: tuple[JsonObject, ...]
    """The client's own messages or items, the system prompt not among them."""
    system: JsonObject | None


@dataclass(frozen=True, slots=True, eq=False)
class NativeRequest(ChatRequest):
    """A request that knows what the client sent. It is written by changing that."""

    keeps_system: ClassVar = True
    came: Came | None = None

    @classmethod
    def of(cls, raw: bytes, model: str, listed: ParsedList[JsonObject], ahead: int, **parts: Any) -> Self:
        """Return a request as it came; the first item listed is the system prompt if one stands `ahead`."""
        request = cls(model, folds=listed.folds.begin(), **parts)
        system = listed.items[0] if ahead else None
        came = Came(raw, model, request.messages, request.tools, request.rest, listed.items[ahead:], system)
        return replace(request, came=came)

    def flaw(self) -> str | None:
        try:
            write_marks(self).encode()
        except Unwritable as error:
            return str(error)
        return None

    def encode(self) -> bytes:
        """Return the client's own bytes, and in them what was changed. Raises `Unwritable`."""
        came = self.came
        if came is None:
            raise Unwritable("nothing is known of what the client sent")
        try:
            return with_members(came.raw, dict(self._changes(came)))
        except (ValueError, KeyError, TypeError) as error:
            raise Unwritable(f"the wire has no form for it ({type(error).__name__})") from error

    def _changes(self, came: Came) -> Iterator[tuple[str, bytes | None]]:
        if self.model != came.model:
            yield "model", encode(self.model)
        if self.messages is not came.messages:
            yield from self.write_messages(came)
        if self.tools is not came.tools:
            yield "tools", changed_list(came.raw, "tools", map(self._tool, came.tools), map(self._tool, self.tools))
        for name in () if self.rest is came.rest else {*came.rest, *self.rest}:
            if name not in self.rest:
                yield name, None
            elif name not in came.rest or self.rest.raw(name) != came.rest.raw(name):
                yield name, encode(self.native_field(name, self.rest[name]))

    def _tool(self, tool: Tool) -> bytes:
        if isinstance(tool, ToolView) and tool.item is not None:
            return tool.item.raw
        if not isinstance(function := tool.get("function"), Mapping):
            return encode(tool)
        others = {key: value for key, value in tool.items() if key not in ("type", "function")}
        return encode(self.native_tool(function, others))

    def write_messages(self, came: Came) -> Iterator[tuple[str, bytes | None]]:
        """Yield the fields of the conversation. Raises `Unwritable`."""
        raise NotImplementedError

    def native_tool(self, function: Mapping[str, Any], others: Mapping[str, Any]) -> dict[str, Any]:
        """Return a function that policies offer, with its `others` keys, as a tool of the wire."""
        raise NotImplementedError

    def native_field(self, name: str, value: Any) -> Any:
        """Return a field in the words of the wire."""
        raise NotImplementedError


def changed_list(raw: bytes, name: str, before: Iterable[bytes], after: Iterable[bytes]) -> bytes | None:
    """Return a list of the body with other items; None for an empty one."""
    own = fields(raw).get(name, b"[]")
    old, new = [*before], [*after]
    return own if old == new else with_items(own, old, new) if new else None


def parse_tools(
    raw: bytes, view: Callable[[JsonObject], ToolView], most: int | None, earlier: EarlierLists | None
) -> tuple[Tool, ...]:
    """Return the views of tools. Raises `BadRequest`."""
    listed = parse_list("tools", raw, JsonObject, _check_tool, most, earlier)
    return tuple(item.derive("tool", partial(view, item)) for item in listed.items)


def _check_tool(item: Mapping[str, Any], place: str) -> None:
    if not isinstance(item.get("name", ""), str):
        wrong(f"{place}.name", "must be a string")


def wrong(place: str, must: str) -> NoReturn:
    """Raise `BadRequest` for something at a place."""
    raise BadRequest(f"{place} {must}", param=place, code="invalid_type")
