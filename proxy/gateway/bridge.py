"""An upstream that speaks only chat completions, as one that speaks the wire of a client.

Policies see a request in chat form already, so its messages are that form without what only the vendor's wire has. What
a chat completion cannot carry is left out and named, or refused where the answer would be another.
"""

import secrets
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing
from typing import Any, cast
from urllib.parse import urlsplit

import orjson

from proxy.chat import CONTROL, OPAQUE, ChatRequest, Fields, Message, Tool, called_name, with_fields
from proxy.chat.errors import BadRequest, Unanswered
from proxy.chat.parse import do_sized
from proxy.chat.reasoning import AS_TEXT
from proxy.chat.sse import ByteStream, EventSplitter, encoded_event, event_data, read_event
from proxy.models.usage import Usage, read_usage
from proxy.text.tables import table
from proxy.upstreams.base import CHAT, OF_BODY, Abilities, Call, Reply, Upstream
from proxy.upstreams.completion import STREAM_HEADERS, nonsense, parsed
from proxy.upstreams.refusal import refusal_in
from proxy.wires import WIRES
from proxy.wires.messages import STOPS
from proxy.wires.native import MALFORMED, parsed_arguments, plain

_OF_RESPONSES: Mapping[str, Any] = table("wires")["responses"]

_Piece = tuple[str, int, str, Mapping[str, Any]]
"""A piece of an answer: `reasoning`, `text` or `call`, the place of a call, more text or arguments, and the call."""


def pieces_of(message: Mapping[str, Any]) -> Iterator[_Piece]:
    """Yield the pieces of a message or of a delta, reasoning first."""
    yield from (("reasoning", 0, message[name], {}) for name in AS_TEXT if isinstance(message.get(name), str))
    for name in ("content", "refusal"):
        if isinstance(message.get(name), str) and message[name]:
            yield "text", 0, message[name], {}
    for place, call in enumerate(message.get("tool_calls") or ()):
        arguments, index = (call.get("function") or {}).get("arguments"), call.get("index")
        yield "call", index if isinstance(index, int) else place, str(arguments or ""), call


def _identifier(prefix: str) -> str:
    return f"{prefix}_{secrets.token_hex(12)}"


class AnswerWriter(ABC):
    """Writes one answer in the form of a wire: `begin`, then `feed` for each delta, then `end`.

    A whole answer is what its stream says in the end (`whole`).
    """

    def __init__(self, request: ChatRequest, custom: frozenset[str], prompt: int) -> None:
        """`request` is the client's, `custom` are the names of its custom tools; `prompt` are tokens, about."""
        self._request, self._custom, self._prompt = request, custom, prompt
        self._id, self._created = secrets.token_hex(12), int(time.time())
        self._parts: list[dict[str, Any]] = []
        """Parts so far; the last one may be under way."""
        self._open: tuple[str, int] | None = None
        """The kind and the place of the part that is under way."""
        self._text: list[str] = []
        self.is_over = False
        """True once the server said that this is all."""
        self._model, self._finish, self._usage = request.model, "stop", Usage()

    def take(self, answer: Mapping[str, Any]) -> None:
        if isinstance(answer.get("model"), str):
            self._model = answer["model"]
        if isinstance(answer.get("usage"), Mapping):
            self._usage = read_usage(answer["usage"])

    def feed(self, message: Mapping[str, Any], finish: str | None = None) -> Iterator[bytes]:
        if finish and isinstance(finish, str):
            self._finish, self.is_over = finish, True
        for kind, place, text, call in pieces_of(message):
            if self._open != (kind, place):
                yield from self._close()
                self._open, self._text = (kind, place), []
                self._parts.append(self._part(kind, str(call.get("id") or ""), called_name(call)))
                yield from self._added(kind)
            if text:
                self._text.append(text)
                yield from self._more(kind, text)

    def _close(self) -> Iterator[bytes]:
        if self._open is not None:
            kind, self._open = self._open[0], None
            yield from self._done(kind, "".join(self._text))

    @property
    def _counts(self) -> tuple[int, int, int, int]:
        """The tokens of the prompt and of the answer, and those of them that were cached, and reasoning."""
        used = self._usage
        return used.input or 0, used.output or 0, used.cached or 0, used.reasoning or 0

    def whole(self, answer: Mapping[str, Any]) -> bytes:
        choices = answer.get("choices")
        choice = choices[0] if isinstance(choices, Sequence) and choices else {}
        self.take(answer)
        _ = [*self.feed(choice.get("message") or {}, choice.get("finish_reason")), *self._close()]
        return orjson.dumps(self._answer())

    @abstractmethod
    def begin(self) -> Iterator[bytes]:
        """Yield the first events."""

    @abstractmethod
    def _part(self, kind: str, id: str, name: str) -> dict[str, Any]:
        """Return a part that begins."""

    @abstractmethod
    def _added(self, kind: str) -> Iterator[bytes]:
        """Yield the events for it."""

    @abstractmethod
    def _more(self, kind: str, text: str) -> Iterator[bytes]:
        """Yield the events for more of it."""

    @abstractmethod
    def _done(self, kind: str, text: str) -> Iterator[bytes]:
        """Yield the events for its end."""

    @abstractmethod
    def end(self) -> Iterator[bytes]:
        """Yield the last events."""

    @abstractmethod
    def _answer(self) -> dict[str, Any]:
        """Return the answer so far."""


class MessagesWriter(AnswerWriter):
    """Writes an answer of Messages."""

    def begin(self) -> Iterator[bytes]:
        message = {**self._answer(), "content": [], "stop_reason": None}
        message["usage"] = {"input_tokens": self._prompt, "output_tokens": 0}
        yield encoded_event("message_start", message=message)

    def _part(self, kind: str, id: str, name: str) -> dict[str, Any]:
        if kind == "reasoning":
            return {"type": "thinking", "thinking": "", "signature": ""}
        called = {"type": "tool_use", "id": id or _identifier("toolu"), "name": name, "input": {}}
        return called if kind == "call" else {"type": "text", "text": ""}

    def _event(self, kind: str, **content: Any) -> Iterator[bytes]:
        yield encoded_event(f"content_block_{kind}", index=len(self._parts) - 1, **content)

    def _added(self, kind: str) -> Iterator[bytes]:
        return self._event("start", content_block=self._parts[-1])

    def _more(self, kind: str, text: str) -> Iterator[bytes]:
        name = self._parts[-1]["type"]
        call = {"type": "input_json_delta", "partial_json": text}
        return self._event("delta", delta=call if kind == "call" else {"type": f"{name}_delta", name: text})

    def _done(self, kind: str, text: str) -> Iterator[bytes]:
        block = self._parts[-1]
        block |= {"input": parsed_arguments(text)} if kind == "call" else {block["type"]: text}
        return self._event("stop")

    def end(self) -> Iterator[bytes]:
        yield from self._close()
        answer = self._answer()
        delta = {"stop_reason": answer["stop_reason"], "stop_sequence": None}
        yield encoded_event("message_delta", delta=delta, usage=answer["usage"])
        yield encoded_event("message_stop")

    def _answer(self) -> dict[str, Any]:
        prompt, answered, cached, _ = self._counts
        stop = "tool_use" if self._parts and self._parts[-1]["type"] == "tool_use" else "end_turn"
        return {
            "id": f"msg_{self._id}",
            "type": "message",
            "role": "assistant",
            "model": self._model,
            "content": self._parts,
            "stop_reason": STOPS.get(self._finish, stop),
            "stop_sequence": None,
            "usage": {
                "input_tokens": max(0, prompt - cached),
                "cache_read_input_tokens": cached,
                "cache_creation_input_tokens": 0,
                "output_tokens": answered,
            },
        }


class ResponsesWriter(AnswerWriter):
    """Writes an answer of Responses."""

    _number = 0

    def begin(self) -> Iterator[bytes]:
        for kind in ("created", "in_progress"):
            yield self._numbered(kind, response={**self._answer(), "status": "in_progress", "usage": None})

    def _numbered(self, kind: str, **content: Any) -> bytes:
        self._number += 1
        return encoded_event(f"response.{kind}", sequence_number=self._number - 1, **content)

    def _of_item(self, kind: str, **content: Any) -> bytes:
        at = {"output_index": len(self._parts) - 1, "item_id": self._parts[-1]["id"]}
        return self._numbered(kind, **at, **content)

    def _part(self, kind: str, id: str, name: str) -> dict[str, Any]:
        if kind == "reasoning":
            return {"type": "reasoning", "id": _identifier("rs"), "summary": [], "content": [], **_BEGUN}
        if kind == "text":
            return {"type": "message", "id": _identifier("msg"), "role": "assistant", "content": [], **_BEGUN}
        call = {"call_id": id or _identifier("call"), "name": name}
        if name in self._custom:
            return {"type": "custom_tool_call", "id": _identifier("ctc"), **call, "input": "", **_BEGUN}
        return {"type": "function_call", "id": _identifier("fc"), **call, "arguments": "", **_BEGUN}

    def _added(self, kind: str) -> Iterator[bytes]:
        yield self._numbered("output_item.added", output_index=len(self._parts) - 1, item=self._parts[-1])
        if kind != "call":
            yield self._of_item("content_part.added", content_index=0, part=_response_part(kind, ""))

    def _more(self, kind: str, text: str) -> Iterator[bytes]:
        if kind != "call":
            yield self._of_item(f"{_response_part(kind, '')['type']}.delta", content_index=0, delta=text)
        elif self._parts[-1]["type"] == "function_call":  # the input of a custom tool is JSON here until its end
            yield self._of_item("function_call_arguments.delta", delta=text)

    def _done(self, kind: str, text: str) -> Iterator[bytes]:
        item = self._parts[-1]
        item["status"] = "completed"
        if kind != "call":
            item["content"] = [part := _response_part(kind, text)]
            yield self._of_item(f"{part['type']}.done", content_index=0, text=text)
            yield self._of_item("content_part.done", content_index=0, part=part)
        elif item["type"] == "function_call":
            item["arguments"] = text or "{}"
            yield self._of_item("function_call_arguments.done", name=item["name"], arguments=item["arguments"])
        else:
            given = parsed_arguments(text)
            item["input"] = str(given.get(INPUT, given.get(MALFORMED, text)))
            yield self._of_item("custom_tool_call_input.delta", delta=item["input"])
            yield self._of_item("custom_tool_call_input.done", input=item["input"])
        yield self._numbered("output_item.done", output_index=len(self._parts) - 1, item=item)

    def end(self) -> Iterator[bytes]:
        yield from self._close()
        answer = self._answer()
        yield self._numbered(answer["status"], response=answer)

    def _answer(self) -> dict[str, Any]:
        rest = self._request.rest
        reason = _OF_RESPONSES["incomplete"].get(self._finish)
        prompt, answered, cached, reasoned = self._counts
        return {
            "id": f"resp_{self._id}",
            "created_at": self._created,
            **_OF_RESPONSES["answer"],
            "status": "completed" if reason is None else "incomplete",
            "incomplete_details": None if reason is None else {"reason": reason},
            "model": self._model,
            "output": self._parts,
            "parallel_tool_calls": rest.get("parallel_tool_calls") is not False,
            **{name: rest.get(name) for name in ("temperature", "top_p")},
            "tool_choice": rest.get("tool_choice") or "auto",
            "metadata": rest.get("metadata") or {},
            "usage": {
                "input_tokens": prompt,
                "input_tokens_details": {"cached_tokens": cached},
                "output_tokens": answered,
                "output_tokens_details": {"reasoning_tokens": reasoned},
                "total_tokens": prompt + answered,
            },
        }


_BEGUN = {"status": "in_progress"}


def _response_part(kind: str, text: str) -> dict[str, Any]:
    if kind == "reasoning":
        return {"type": "reasoning_text", "text": text}
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


_WRITERS: Mapping[str, type[AnswerWriter]] = {"messages": MessagesWriter, "responses": ResponsesWriter}
"""By wire."""

_MALFORMED = (AttributeError, KeyError, TypeError)
"""Errors of a writer that reads an answer with parts of other types than a chat completion has."""

_OWN_LIMIT = "api.openai.com"
"""The server whose newer models take no `max_tokens`."""


class BridgedUpstream:
    """Asks an upstream for a chat completion, and gives the answer in the form of another wire."""

    def __init__(self, upstream: Upstream, wire: str) -> None:
        self._upstream, self._wire = upstream, WIRES[wire]
        self.name, self.address, self.provider = upstream.name, upstream.address, upstream.provider
        self.profile, self.models, self.aclose = upstream.profile, upstream.models, upstream.aclose
        own = upstream.abilities
        self.abilities = Abilities(
            translates=False, limits_answers=own.limits_answers, speaks=frozenset({wire}), ask_usage=False
        )
        self._limit = "max_completion_tokens" if urlsplit(self.address or "").hostname == _OWN_LIMIT else "max_tokens"

    async def send(self, call: Call) -> Reply:
        """Forward a call. Raise `BadRequest` where chat cannot carry it, else what the upstream raises."""
        asked = call.request
        if asked is None:
            asked = await do_sized(len(call.body), lambda: self._wire.body(call.body).parse())
        made, ignored, custom = await do_sized(len(call.body), lambda: _as_chat(asked, self._limit))
        forwarded = {name: value for name, value in call.headers.items() if not name.startswith("anthropic-")}
        chat = with_fields(call, path=CHAT, query="", headers=forwarded, request=made, body=made.encode(), keep=None)
        reply = await self._upstream.send(chat)
        if ignored:
            named = filter(None, (str(reply.facts.get("ignored") or ""), *ignored))
            cast(dict[str, Any], reply.facts)["ignored"] = ",".join(named)
        if reply.status >= 400:
            if reply.chunks is not None:
                await reply.chunks.aclose()
            return reply.as_json(self._wire.error(refusal_in(reply)))
        writer = _WRITERS[self._wire.body.wire](asked, custom, 0 if call.counted is None else call.counted.total)
        if reply.chunks is None:
            answer = parsed(reply.body or b"", "OpenAI")
            try:
                return reply.as_json(writer.whole(answer))
            except _MALFORMED:
                raise nonsense("OpenAI") from None
        chunks = self._written(reply.chunks, writer)
        await anext(chunks)  # a generator that was never begun ignores its closing
        headers = [(name, value) for name, value in reply.headers if name not in OF_BODY]
        return with_fields(reply, headers=[*headers, *STREAM_HEADERS], chunks=chunks)

    async def _written(self, chunks: ByteStream, writer: AnswerWriter) -> AsyncGenerator[bytes, None]:
        """Yield an empty chunk, then the events of the wire."""
        events = EventSplitter()
        async with aclosing(chunks):
            yield b""
            yield b"".join(writer.begin())
            async for chunk in chunks:
                written = b""
                try:
                    for event, _ in events.feed(chunk):
                        written += self._event(event, writer)
                finally:  # what came in front of an error is the client's, too
                    if written:
                        yield written
            if written := self._event(events.rest(), writer):
                yield written
        if not writer.is_over:
            raise Unanswered("the upstream broke off its answer; it may have processed the request")
        yield b"".join(writer.end())

    def _event(self, event: bytes, writer: AnswerWriter) -> bytes:
        content = read_event(event)
        writer.is_over = writer.is_over or event_data(event) == b"[DONE]"
        if (error := content.get("error")) and isinstance(error, Mapping):
            raise Unanswered(str(error.get("message") or "the upstream broke off"), code="upstream_broke_off")
        writer.take(content)
        choices = content.get("choices")
        if not isinstance(choices, list) or not choices:
            return b""
        if not isinstance(choices[0], dict):
            raise nonsense("OpenAI")
        try:
            return b"".join(writer.feed(choices[0].get("delta") or {}, choices[0].get("finish_reason")))
        except _MALFORMED:
            raise nonsense("OpenAI") from None

    async def ignored(self, call: Call) -> tuple[str, ...]:
        return ()


# --- requests as chat completions ---

INPUT = "input"
"""The one argument of a function that stands for a custom tool."""

_SEEN = "See the attachments of this result in the next message."
_WORDS: Mapping[str, list[str]] = table("wires")["chat"]
_STORED, _PASSED = _WORDS["stored"], _WORDS["passed"]


def _as_chat(request: ChatRequest, limit: str) -> tuple[ChatRequest, tuple[str, ...], frozenset[str]]:
    """Return a request of Messages or Responses as a chat completion; `limit` is the field for the longest answer.

    Behind it stand the places of the fields and parts that it cannot carry, and the names of custom tools, which are
    functions there. Raise `BadRequest` where the request needs what the vendor has stored.
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
    return made, tuple(ignored), frozenset(custom)


def _unsupported(name: str, instead: str, param: str) -> BadRequest:
    message = f"{name} needs an upstream that speaks Responses; send {instead}"
    return BadRequest(message, param=param, code="unsupported_parameter")


# --- their messages ---

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


# --- their tools and fields ---


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
