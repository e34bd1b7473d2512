"""A chat request in the terms of Ollama's own API (`POST /api/chat`). Pure; every wrong JSON type is a `BadRequest`.

The shapes are those of Ollama's `api/types.go`, which refuses the whole request for one value of another type.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from proxy.chat import ChatRequest, Message, chosen_tools
from proxy.chat.errors import wrong
from proxy.upstreams.request_fields import (
    BOOKKEEPING,
    FIELDS,
    asks,
    base64_of,
    called_function,
    calls_of,
    check_fields,
    effort_of,
    form_of,
    left_out,
    role_of,
    stops_of,
    unsupported,
)
from proxy.upstreams.translated import Translation

_TABLE: Mapping[str, Any] = FIELDS["ollama"]
DIRECT = frozenset(_TABLE["direct"])
"""Options that a client may also set at the top level."""
OPTIONS = DIRECT | set(_TABLE["options"])
"""Keys that a client may set in `options`; another value of any other makes the server load the model anew."""
EFFORTS: Mapping[str, str] = _TABLE["efforts"]
"""Ollama's level of thinking for OpenAI's `reasoning_effort`."""
READ = DIRECT | BOOKKEEPING | set(_TABLE["read"])
"""The fields that the translation reads, or that do not concern the answer."""


def translate(request: ChatRequest, *, num_ctx: int | None, keep_alive: str | int | None) -> Translation:
    """Return a request in Ollama's form. `num_ctx` and `keep_alive` are the operator's; a client's own are ignored.

    Raise `BadRequest` for values of a wrong type, and for requests that cannot be translated.
    """
    rest = check_fields(request, "native")
    messages = OllamaMessages(request.messages)
    options = _options(rest)
    if num_ctx is not None:
        options["num_ctx"] = num_ctx
    body = {
        "model": request.model,
        "messages": messages.translated,
        # Ollama streams unless told not to.
        "stream": rest.get("stream", False),
        "tools": _tools(request, rest),
        "format": _format(rest),
        "think": _think(rest, request.model),
        "logprobs": rest.get("logprobs"),
        "top_logprobs": rest.get("top_logprobs"),
        "options": options or None,
        "keep_alive": keep_alive,
    }
    ignored = messages.ignored | _ignored(rest)
    return Translation(
        {name: value for name, value in body.items() if value is not None}, tuple(sorted(ignored)), messages.countable
    )


def _options(rest: Mapping[str, Any]) -> dict[str, Any]:
    """Return the sampling options. OpenAI's fields win over `options`: room for the answer is kept by `max_tokens`."""
    own = rest.get("options", {})
    options = {name: value for name, value in own.items() if name in OPTIONS and value is not None}
    options |= {name: value for name, value in rest.items() if name in DIRECT}
    for name in ("max_tokens", "max_completion_tokens"):
        if name in rest:
            options["num_predict"] = rest[name]
    # An empty list would erase the stop texts of the model itself.
    options["stop"] = stops_of(rest.get("stop")) or stops_of(own.get("stop")) or None
    return {name: value for name, value in options.items() if value is not None}


def _tools(request: ChatRequest, rest: Mapping[str, Any]) -> list[dict[str, Any]] | None:
    """Return the tools that the model may call: none for `tool_choice: none`, else those that the choice names.

    A choice cannot be forced on Ollama; fewer tools is the most that can be done for it.
    """
    choice = rest.get("tool_choice")
    if choice == "none":
        return None
    offered = [_tool(tool, f"tools[{index}]") for index, tool in enumerate(request.tools)]
    if named := chosen_tools(choice):
        offered = [tool for tool in offered if tool["function"]["name"] in named]
        if not offered:
            wrong("tool_choice", "must name a tool that is offered")
    return offered or None


def _tool(tool: Mapping[str, Any], place: str) -> dict[str, Any]:
    """Return a function tool.

    A custom one is refused: Ollama cannot hold to its grammar, and gives no free text back.
    """
    if "function" not in tool:
        raise unsupported("Ollama only knows tools of the type function", f"{place}.type")
    given = tool["function"].get("parameters") or {}
    # Ollama hands `null` to the model's template where a schema lacks these.
    parameters = {"type": "object", "properties": {}} | {key: part for key, part in given.items() if part is not None}
    return {"type": "function", "function": {**tool["function"], "parameters": parameters}}


def _format(rest: Mapping[str, Any]) -> Any:
    kind, schema = form_of(rest)
    return None if kind == "text" else "json" if schema is None else schema


def _think(rest: Mapping[str, Any], model: str) -> bool | str | None:
    """Return Ollama's own `think`, or the value for `reasoning_effort` and this model; None to leave it open.

    Only gpt-oss takes levels on every version of Ollama; other models think or they do not.
    """
    if "think" in rest:
        own: bool | str = rest["think"]
        return own
    effort, _ = effort_of(rest, EFFORTS)
    if effort in (None, "none"):
        return None if effort is None else False
    takes_levels = model.rpartition("/")[2].startswith("gpt-oss")
    return EFFORTS[effort] if takes_levels else True


def _ignored(rest: Mapping[str, Any]) -> set[str]:
    fields = {name for name, value in rest.items() if name not in READ and asks(name, value)}
    if rest.get("tool_choice") == "none":
        fields.discard("tool_choice")
    return fields | {f"options.{name}" for name in rest.get("options", {}) if name not in OPTIONS}


# --- messages: content is one string beside a list of images, arguments are an object ---

ROLE = {"developer": "system", "function": "tool"}
"""Ollama's roles for those that its templates do not know; they would leave such messages out."""

THOUGHTS = ("reasoning_content", "reasoning")
"""The fields in which clients send reasoning back: Penstock's own, and that of Ollama's `/v1`."""


class OllamaMessages:
    """A conversation, translated. Raises `BadRequest` for parts that Ollama cannot take."""

    def __init__(self, messages: Iterable[Message]) -> None:
        self.translated: list[dict[str, Any]] = []
        self.ignored: set[str] = set()
        """Fields that were left out, such as `messages[].name`."""
        self.countable = True
        """Our count compares with Ollama's: the tokens of an image are unknown, and templates leave out old
        thoughts."""
        self._names: dict[str, str] = {}
        """The tool that each call so far went to, by its id."""
        for index, message in enumerate(messages):
            self._add(message, f"messages[{index}]")

    def _add(self, message: Message, place: str) -> None:
        text, media = _content(message, place)
        role = role_of(message, place)
        result: dict[str, Any] = {"role": ROLE.get(role, role), "content": text}
        if media:
            result["images"] = media
        if role == "assistant":
            result |= self._assistant(message, text, place)
        elif result["role"] == "tool":
            result |= self._result(message)
        # the name of a result is the tool's
        self.ignored |= left_out(message, "audio", *(() if result["role"] == "tool" else ("name",)))
        self.countable = self.countable and not ("images" in result or "thinking" in result)
        self.translated.append(result)

    def _assistant(self, message: Message, text: str, place: str) -> dict[str, Any]:
        result: dict[str, Any] = {}
        if message.get("refusal") is not None:
            result["content"] = text or message["refusal"]
        thoughts = [message[name] for name in THOUGHTS if isinstance(message.get(name), str)]
        if thoughts:
            result["thinking"] = next(filter(None, thoughts), "")
        if calls := [self._call(*call, n) for n, call in enumerate(calls_of(message, place))]:
            result["tool_calls"] = calls
        return result

    def _call(self, call: Mapping[str, Any], place: str, index: int) -> dict[str, Any]:
        name, arguments = called_function(call, place, "arguments")
        known = call.get("id")
        if known is not None:
            self._names[known] = name
        made = {} if known is None else {"id": known}
        return {**made, "function": {"index": index, "name": name, "arguments": arguments}}

    def _result(self, message: Message) -> dict[str, Any]:
        answers = message.get("tool_call_id")
        named = self._names.get(answers or "", message.get("name"))
        made = {"tool_name": named, "tool_call_id": answers}
        return {key: value for key, value in made.items() if value is not None}


def _content(message: Message, place: str) -> tuple[str, list[str]]:
    """Return the text of a message, its parts joined by line breaks, and its images and recordings in base64."""
    texts: list[str] = []
    media: list[str] = []
    for index, part in enumerate(message.parts):
        match part["type"]:
            case "text" | "refusal" as kind:
                texts.append(part[kind])
            case "image_url":
                media.append(_image(part["image_url"], f"{place}.content[{index}].image_url.url"))
            case "input_audio":
                # Ollama takes recordings among the images and tells them apart by their first bytes.
                media.append(part["input_audio"]["data"])
            case other:
                told = f"Ollama takes no part of the type {other[:50]!r}"
                raise unsupported(told, f"{place}.content[{index}]")
    return "\n".join(texts), media


def _image(image: str | Mapping[str, str], place: str) -> str:
    """Return the base64 text of a `data:` URL.

    No other address is fetched here: it may lie inside the operator's network.
    """
    url = image if isinstance(image, str) else image["url"]
    if not url.lower().startswith("data:"):
        raise unsupported("Ollama takes images only as data: URLs, and fetch_images_from is not set", place)
    return base64_of(url, place)[1]
