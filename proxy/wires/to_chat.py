"""Requests of the other wires as chat completions, for upstreams that speak only these.

Policies see a request in chat form already, so its messages are that form without what only the vendor's wire has. What
a chat completion cannot carry is left out and named (`Bridge.ignored`), or refused where the answer would be another.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from proxy.chat import CONTROL, OPAQUE, ChatRequest, Fields, Message, Tool, called_name
from proxy.chat.errors import BadRequest
from proxy.text.tables import table
from proxy.wires.view import plain

INPUT = "input"
"""The one argument of a function that stands for a custom tool."""

_SEEN = "See the attachments of this result in the next message."
_WORDS: Mapping[str, list[str]] = table("wires")["chat"]
_STORED, _PASSED = _WORDS["stored"], _WORDS["passed"]


class Bridge(NamedTuple):
    """A request in chat form."""

    request: ChatRequest
    ignored: tuple[str, ...]
    """Fields and parts that it could not carry, by their place in the client's request."""
    custom: frozenset[str]
    """Names of custom tools, which are functions here."""


def bridge(request: ChatRequest, *, limit: str = "max_tokens") -> Bridge:
    """Return a request of Messages or Responses as a chat completion; `limit` is the field for the longest answer.

    Raise `BadRequest` where it needs what the vendor has stored.
    """
    for name in _STORED:
        if request.rest.get(name):
            raise _unsupported(name, "the whole conversation", param=name)
    ignored: dict[str, None] = {}
    messages = tuple(_messages(request.messages, lambda place: ignored.setdefault(place)))
    tools, custom = list[Tool](), set[str]()
    for tool in request.tools:
        function = _function(tool)
        if function is None:
            ignored[f"tools[{tool.get('type', '')}]"] = None
            continue
        tools.append(Tool({"type": "function", "function": function}))
        custom |= {tool.name} if tool.get("type") == "custom" else set()
    fields = dict(_fields(request, limit, lambda name: ignored.setdefault(name)))
    choice = request.rest.get("tool_choice")
    if tools and choice is not None:
        tools, mode = _chosen(tools, choice)
        fields["tool_choice"] = mode
    if not tools:
        fields.pop("parallel_tool_calls", None)
    made = ChatRequest(request.model, messages, tuple(tools), Fields(fields), ("model", "messages", "tools", *fields))
    return Bridge(made, tuple(ignored), frozenset(custom))


def _unsupported(name: str, instead: str, param: str) -> BadRequest:
    message = f"{name} needs an upstream that speaks Responses; send {instead}"
    return BadRequest(message, param=param, code="unsupported_parameter")


# --- messages ---------------------------------------------------------------------------------------------------------

_Note = Callable[[str], object]


def _messages(messages: Sequence[Message], note: _Note) -> Iterator[Message]:
    """Yield the messages; attachments of tool results follow behind the last result of a run, as a user message."""
    attached = list[dict[str, Any]]()
    for message in messages:
        if attached and message.role != "tool":
            yield Message({"role": "user", "content": [*attached]})
            attached = []
        if message.role == "tool":
            content, more = _result(message, note)
            attached += more
            yield Message({"role": "tool", "tool_call_id": str(message.get("tool_call_id", "")), "content": content})
        elif message.role == "assistant":
            yield from _assistant_messages(message, note)
        elif message.role in (OPAQUE, CONTROL):
            _opaque(message, note)
        else:
            role = "system" if message.is_system else "user"
            parts = [*_parts(message, note)]
            if parts or message.text:
                yield Message({"role": role, "content": plain(parts) if parts else message.text})
    if attached:
        yield Message({"role": "user", "content": attached})


def _assistant_messages(message: Message, note: _Note) -> Iterator[Message]:
    texts = [part for part in _parts(message, note) if part.get("type") == "text" and part["text"]]
    calls = [_call(call) for call in message.get("tool_calls") or ()]
    if texts or calls:
        content = "".join(part["text"] for part in texts) or None
        yield Message({"role": "assistant", "content": content, **({"tool_calls": calls} if calls else {})})


def _call(call: Mapping[str, Any]) -> dict[str, Any]:
    if call.get("type") != "custom":
        return {"id": call["id"], "type": "function", "function": dict(call["function"])}
    arguments = Message({INPUT: call["custom"].get("input", "")}).raw.decode()
    return {"id": call["id"], "type": "function", "function": {"name": called_name(call), "arguments": arguments}}


def _result(message: Message, note: _Note) -> tuple[str, list[dict[str, Any]]]:
    """Return the text of a tool result, which is all that chat takes there, and its attachments."""
    parts = [*_parts(message, note)]
    texts = [part["text"] for part in parts if part.get("type") == "text"]
    others = [part for part in parts if part.get("type") != "text"]
    return "\n".join([*texts, *([_SEEN] if others else [])]), others


def _opaque(message: Message, note: _Note) -> None:
    for part in message.parts:
        kind = str(part.get("type") or "item_reference")
        if kind == "item_reference":
            raise _unsupported(kind, "the item itself", param="input")
        note(f"input[].{kind}")


_IN_CALLS = frozenset({"tool_use", "function_call", "custom_tool_call"})
"""Parts that stand in the calls of a message as well."""


def _parts(message: Message, note: _Note) -> Iterator[dict[str, Any]]:
    for part in message.parts:
        made = _part(part)
        if made is not None:
            yield made
        elif part.get("type") not in _IN_CALLS:
            note(f"messages[].{part.get('type', '')}")


def _part(part: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return a part as chat has it; None for one that it has not."""
    kind, source = part.get("type"), part.get("source")
    if kind == "text":
        return {"type": "text", "text": str(part.get("text", ""))}
    if kind == "refusal":
        return {"type": "text", "text": str(part.get("refusal", ""))}
    if kind == "input_image" and isinstance(part.get("image_url"), str):
        detail = {"detail": part["detail"]} if part.get("detail") in ("low", "high", "auto") else {}
        return {"type": "image_url", "image_url": {"url": part["image_url"], **detail}}
    if kind == "input_file" and isinstance(part.get("file_data"), str):
        return _file(part["file_data"], part.get("filename"))
    if kind in ("image_url", "file", "input_audio"):
        return {key: value for key, value in part.items() if key != "cache_control"}
    return _sourced(str(kind), source, part) if isinstance(source, Mapping) else None


def _sourced(kind: str, source: Mapping[str, Any], part: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return an image or a document of Messages as chat has it."""
    form, data = source.get("type"), source.get("data")
    if form == "text" and isinstance(data, str):
        return {"type": "text", "text": data}
    url = source.get("url") if form == "url" else None
    if form == "base64" and isinstance(data, str):
        url = f"data:{source.get('media_type', 'application/octet-stream')};base64,{data}"
    if not isinstance(url, str):
        return None
    if kind == "image":
        return {"type": "image_url", "image_url": {"url": url}}
    return _file(url, part.get("title")) if kind == "document" and form == "base64" else None


def _file(data: str, name: Any) -> dict[str, Any]:
    return {"type": "file", "file": {"file_data": data, "filename": name if isinstance(name, str) else "document"}}


# --- tools and fields -------------------------------------------------------------------------------------------------


def _function(tool: Tool) -> dict[str, Any] | None:
    """Return a tool as a function; None for one that the vendor runs."""
    function = tool.get("function")
    if isinstance(function, Mapping):
        return dict(function)
    if tool.get("type") != "custom":
        return None
    description = tool.get("description") or ""
    form = tool.get("format")
    if isinstance(form, Mapping) and form.get("definition"):
        description = (
            f"{description}\n\nThe input has this form ({form.get('syntax', 'grammar')}):\n{form['definition']}"
        )
    text = {"type": "string", "description": "The whole input, as it is."}
    schema = {"type": "object", "properties": {INPUT: text}, "required": [INPUT]}
    return {"name": tool.name, "description": description, "parameters": schema}


def _chosen(tools: list[Tool], choice: Any) -> tuple[list[Tool], Any]:
    """Return the tools that may be called, and chat's `tool_choice`."""
    if not isinstance(choice, Mapping):
        return tools, choice
    allowed = choice.get("allowed_tools")
    if isinstance(allowed, Mapping):
        names = {called_name(each) for each in allowed.get("tools") or ()}
        return [tool for tool in tools if tool.name in names], allowed.get("mode") or "auto"
    if name := called_name(choice):
        return tools, {"type": "function", "function": {"name": name}}
    return tools, "auto"


def _fields(request: ChatRequest, limit: str, note: _Note) -> Iterator[tuple[str, Any]]:
    rest = request.rest
    yield from ((name, rest[name]) for name in _PASSED if rest.get(name) is not None)
    if rest.get("stream") is True:
        yield "stream_options", {"include_usage": True}
    if request.max_output_tokens is not None:
        yield limit, request.max_output_tokens
    if rest.get("stop_sequences"):
        yield "stop", rest["stop_sequences"]
    read = {"stop_sequences", *(name for names in _WORDS.values() for name in names)}
    for name in ("text", "output_config", "reasoning"):
        if isinstance(value := rest.get(name), Mapping) and (fields := _settings(value)):
            yield from fields.items()
            read.add(name)
    for name in rest:
        if name not in read and rest[name] is not None:
            note(name)


def _settings(value: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields for an answer in a form, such as JSON of a schema, and for the effort of its reasoning."""
    form, fields = value.get("format"), dict[str, Any]()
    if isinstance(form, Mapping) and form.get("type") == "json_schema":
        schema = {key: form[key] for key in ("name", "description", "schema", "strict") if form.get(key) is not None}
        fields["response_format"] = {"type": "json_schema", "json_schema": {"name": "answer", **schema}}
    elif isinstance(form, Mapping) and form.get("type") == "json_object":
        fields["response_format"] = {"type": "json_object"}
    if isinstance(effort := value.get("effort"), str):
        fields["reasoning_effort"] = effort
    return fields
