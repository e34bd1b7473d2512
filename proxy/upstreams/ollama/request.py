"""A chat request in the terms of Ollama's own API (`POST /api/chat`). Pure; every wrong JSON type is a `BadRequest`.

The shapes are those of Ollama's `api/types.go`, which refuses the whole request for one value of another type.
"""

from collections.abc import Mapping
from typing import Any

from proxy.chat import ChatRequest, Message, chosen_tools
from proxy.chat.errors import wrong
from proxy.upstreams.request_fields import (
    BOOKKEEPING,
    FIELDS,
    CheckedRequest,
    Translation,
    base64_of,
    calls_of,
    unsupported,
)

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
    asked = CheckedRequest(request)
    rest, messages = asked.rest, OllamaMessages(asked)
    options, tools = _options(asked), _tools(asked)
    form, schema = asked.form
    body = {
        "model": request.model,
        "messages": messages.translated,
        # Ollama streams unless told not to.
        "stream": rest.get("stream", False),
        "tools": tools,
        "format": schema if schema is not None or form == "text" else "json",
        "think": _think(asked),
        "logprobs": rest.get("logprobs"),
        "top_logprobs": rest.get("top_logprobs"),
        "options": (options if num_ctx is None else {**options, "num_ctx": num_ctx}) or None,
        "keep_alive": keep_alive,
    }
    asked.ignored |= {f"options.{name}" for name in rest.get("options", {}) if name not in OPTIONS}
    read = READ | {"tool_choice"} if rest.get("tool_choice") == "none" else READ
    return asked.translation(body, read, countable=messages.countable)


def _options(asked: CheckedRequest) -> dict[str, Any]:
    """Return the sampling options. OpenAI's fields win over `options`: room for the answer is kept by `max_tokens`."""
    rest, own = asked.rest, asked.rest.get("options", {})
    options = {name: value for name, value in own.items() if name in OPTIONS and value is not None}
    options |= {name: value for name, value in rest.items() if name in DIRECT}
    for name in ("max_tokens", "max_completion_tokens"):
        if name in rest:
            options["num_predict"] = rest[name]
    # An empty list would erase the stop texts of the model itself.
    stop = own.get("stop")
    options["stop"] = asked.stops or ([stop] if isinstance(stop, str) else stop) or None
    return {name: value for name, value in options.items() if value is not None}


def _tools(asked: CheckedRequest) -> list[dict[str, Any]] | None:
    """Return the tools that the model may call: none for `tool_choice: none`, else those that the choice names.

    A choice cannot be forced on Ollama; fewer tools is the most that can be done for it.
    """
    choice = asked.rest.get("tool_choice")
    if choice == "none":
        return None
    offered = [_tool(tool, f"tools[{index}]") for index, tool in enumerate(asked.tools)]
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


def _think(asked: CheckedRequest) -> bool | str | None:
    """Return Ollama's own `think`, or the value for `reasoning_effort` and this model; None to leave it open.

    Only gpt-oss takes levels on every version of Ollama; other models think or they do not.
    """
    if "think" in asked.rest:
        own: bool | str = asked.rest["think"]
        return own
    effort, _ = asked.effort(EFFORTS)
    if effort in (None, "none"):
        return None if effort is None else False
    takes_levels = asked.model.rpartition("/")[2].startswith("gpt-oss")
    return EFFORTS[effort] if takes_levels else True


# --- messages: content is one string beside a list of images, arguments are an object ---

ROLE = {"developer": "system", "function": "tool"}
"""Ollama's roles for those that its templates do not know; they would leave such messages out."""

THOUGHTS = ("reasoning_content", "reasoning")
"""The fields in which clients send reasoning back: Penstock's own, and that of Ollama's `/v1`."""


class OllamaMessages:
    """A conversation, translated. Raises `BadRequest` for parts that Ollama cannot take."""

    def __init__(self, asked: CheckedRequest) -> None:
        self.translated: list[dict[str, Any]] = []
        self.countable = True
        """Our count compares with Ollama's: the tokens of an image are unknown, and templates leave out old
        thoughts."""
        self._names: dict[str, str] = {}
        """The tool that each call so far went to, by its id."""
        for place, message in asked.messages:
            text, media = _content(message, place)
            result: dict[str, Any] = {"role": ROLE.get(message.role, message.role), "content": text}
            if media:
                result["images"] = media
            if message.role == "assistant":
                result |= self._assistant(message, text, place)
            elif result["role"] == "tool":
                result |= self._result(message)
            # the name of a result is the tool's
            asked.leave_out(message, "audio", *(() if result["role"] == "tool" else ("name",)))
            self.countable = self.countable and not ("images" in result or "thinking" in result)
            self.translated.append(result)

    def _assistant(self, message: Message, text: str, place: str) -> dict[str, Any]:
        result: dict[str, Any] = {}
        if message.get("refusal") is not None:
            result["content"] = text or message["refusal"]
        thoughts = [message[name] for name in THOUGHTS if isinstance(message.get(name), str)]
        if thoughts:
            result["thinking"] = next(filter(None, thoughts), "")
        calls = []
        for index, (call, _, name, arguments) in enumerate(calls_of(message, place, "arguments")):
            known = {} if call.get("id") is None else {"id": call["id"]}
            self._names |= {id: name for id in known.values()}
            calls.append({**known, "function": {"index": index, "name": name, "arguments": arguments}})
        return {**result, "tool_calls": calls} if calls else result

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
