"""A chat request in the terms of Ollama's own API (`POST /api/chat`). Pure; every wrong JSON type is a `BadRequest`.

The shapes are those of Ollama's `api/types.go`, which refuses the whole request for one value of another type.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from proxy.chat import ChatRequest, Message, chosen_tools
from proxy.upstreams.request_fields import (
    BOOKKEEPING,
    asks,
    boolean,
    called_function,
    integer,
    mapping,
    number,
    role_of,
    sequence,
    string,
    unsupported,
    wrong,
)

OPTIONS = {
    "temperature": number, "top_p": number, "min_p": number, "typical_p": number, "repeat_penalty": number,
    "presence_penalty": number, "frequency_penalty": number,
    "top_k": integer, "seed": integer, "repeat_last_n": integer, "num_predict": integer, "num_keep": integer,
}  # fmt: skip
"""Keys that a client may set in `options`, next to `stop`. All others (`num_ctx`, `num_gpu`, `num_batch`, ...) belong
to the loaded model: another value makes the server load it anew, for every client."""

DIRECT = OPTIONS.keys() - {"num_predict", "num_keep"}
"""Options that a client may also set at the top level, as OpenAI's fields or as extras of its SDK."""

EFFORTS = {
    "minimal": "low", "low": "low", "medium": "medium", "high": "high", "xhigh": "high", "max": "high", "ultra": "high",
}  # fmt: skip
"""Ollama's level of thinking for OpenAI's `reasoning_effort`. Its own `max` is left to `think`: older servers refuse
it, and models that take levels read it as `high`."""

LEVELS = frozenset({"low", "medium", "high", "max"})

READ = DIRECT | BOOKKEEPING | {
    "stop", "max_tokens", "max_completion_tokens", "options", "stream", "stream_options", "response_format", "think",
    "reasoning_effort", "reasoning", "logprobs", "top_logprobs", "service_tier", "user",
}  # fmt: skip
"""The fields that the translation reads, or that do not concern the answer."""


@dataclass(frozen=True, slots=True)
class OllamaRequest:
    """A request in the form of `POST /api/chat`."""

    body: dict[str, Any]
    """The JSON body of `POST /api/chat`."""
    ignored: tuple[str, ...]
    """The client's fields that Ollama does not support, sorted."""
    countable: bool
    """Our count of the prompt compares with Ollama's."""


def translate(request: ChatRequest, *, num_ctx: int | None, keep_alive: str | int | None) -> OllamaRequest:
    """Return a request in Ollama's form. `num_ctx` and `keep_alive` are the operator's; a client's own are ignored.

    Raise `BadRequest` for values of a wrong type, and for requests that cannot be translated.
    """
    rest = {name: value for name, value in request.rest.items() if value is not None}
    messages = OllamaMessages(request.messages)
    options = _options(rest)
    if num_ctx is not None:
        options["num_ctx"] = num_ctx
    body = {
        "model": request.model,
        "messages": messages.translated,
        # Ollama streams unless told not to.
        "stream": boolean(rest.get("stream", False), "stream"),
        "tools": _tools(request, rest),
        "format": _format(rest),
        "think": _think(rest, request.model),
        "logprobs": boolean(rest["logprobs"], "logprobs") if "logprobs" in rest else None,
        "top_logprobs": integer(rest["top_logprobs"], "top_logprobs") if "top_logprobs" in rest else None,
        "options": options or None,
        "keep_alive": keep_alive,
    }
    mapping(rest.get("stream_options", {}), "stream_options")
    ignored = messages.ignored | _ignored(rest)
    return OllamaRequest(
        {name: value for name, value in body.items() if value is not None}, tuple(sorted(ignored)), messages.countable
    )


def _options(rest: Mapping[str, Any]) -> dict[str, Any]:
    """Return the sampling options. OpenAI's fields win over `options`: room for the answer is kept by `max_tokens`."""
    own = mapping(rest.get("options", {}), "options")
    options: dict[str, Any] = {
        name: read(own[name], f"options.{name}") for name, read in OPTIONS.items() if own.get(name) is not None
    }
    options |= {name: OPTIONS[name](rest[name], name) for name in OPTIONS if name in DIRECT and name in rest}
    for name in ("max_tokens", "max_completion_tokens"):
        if name in rest:
            options["num_predict"] = integer(rest[name], name)
    stops = _stops(rest.get("stop"), "stop") or _stops(own.get("stop"), "options.stop")
    if stops:
        # An empty list would erase the stop texts of the model itself.
        options["stop"] = stops
    return options


def _stops(value: Any, place: str) -> list[str]:
    if value is None:
        return []
    if isinstance(value, str):
        return [value]
    return [string(stop, f"{place}[{index}]") for index, stop in enumerate(sequence(value, place))]


def _tools(request: ChatRequest, rest: Mapping[str, Any]) -> list[dict[str, Any]] | None:
    """Return the tools that the model may call: none for `tool_choice: none`, else those that the choice names.

    A choice cannot be forced on Ollama; fewer tools is the most that can be done for it.
    """
    choice = rest.get("tool_choice")
    if choice == "none":
        return None
    offered = [_tool(tool, f"tools[{index}]") for index, tool in enumerate(request.tools)]
    named = _chosen(choice)
    if named:
        offered = [tool for tool in offered if tool["function"]["name"] in named]
        if not offered:
            wrong("tool_choice", "must name a tool that is offered")
    return offered or None


def _chosen(choice: Any) -> tuple[str, ...]:
    if choice is None or isinstance(choice, str):
        return ()
    allowed = mapping(choice, "tool_choice").get("allowed_tools")
    if allowed is not None:
        sequence(mapping(allowed, "tool_choice.allowed_tools").get("tools"), "tool_choice.allowed_tools.tools")
    return chosen_tools(choice)


def _tool(tool: Mapping[str, Any], place: str) -> dict[str, Any]:
    """Return a function tool.

    A custom one is refused: Ollama cannot hold to its grammar, and gives no free text back.
    """
    if tool.get("type", "function") != "function":
        raise unsupported("Ollama only knows tools of the type function", f"{place}.type")
    function = mapping(tool.get("function"), f"{place}.function")
    string(function.get("name"), f"{place}.function.name")
    if function.get("description") is not None:
        string(function["description"], f"{place}.function.description")
    given = function.get("parameters")
    given = {} if given is None else mapping(given, f"{place}.function.parameters")
    # Ollama hands `null` to the model's template where a schema lacks these.
    parameters = {"type": "object", "properties": {}} | {key: part for key, part in given.items() if part is not None}
    return {"type": "function", "function": {**function, "parameters": parameters}}


def _format(rest: Mapping[str, Any]) -> Any:
    """Return the form of the answer: `json`, or a JSON schema."""
    wanted = mapping(rest.get("response_format", {"type": "text"}), "response_format")
    match wanted.get("type"):
        case "text":
            return None
        case "json_object":
            return "json"
        case "json_schema":
            described = mapping(wanted.get("json_schema"), "response_format.json_schema")
            schema = described.get("schema")
            return "json" if schema is None else mapping(schema, "response_format.json_schema.schema")
    return wrong("response_format.type", "must be text, json_object or json_schema")


def _think(rest: Mapping[str, Any], model: str) -> bool | str | None:
    """Return Ollama's own `think`, or the value for `reasoning_effort` and this model; None to leave it open.

    Only gpt-oss takes levels on every version of Ollama; other models think or they do not.
    """
    own = rest.get("think")
    if own is not None:
        if isinstance(own, bool) or (isinstance(own, str) and own in LEVELS):
            return own
        wrong("think", "must be true, false, low, medium, high or max")
    effort, place = rest.get("reasoning_effort"), "reasoning_effort"
    nested = mapping(rest.get("reasoning", {}), "reasoning").get("effort")
    if effort is None:
        effort, place = nested, "reasoning.effort"
    if effort is None:
        return None
    if effort == "none":
        return False
    if not isinstance(effort, str) or effort not in EFFORTS:
        wrong(place, f"must be none, {', '.join(EFFORTS)}")
    takes_levels = model.rpartition("/")[2].startswith("gpt-oss")
    return EFFORTS[effort] if takes_levels else True


def _ignored(rest: Mapping[str, Any]) -> set[str]:
    if "n" in rest:
        integer(rest["n"], "n")
    fields = {name for name, value in rest.items() if name not in READ and asks(name, value)}
    if rest.get("tool_choice") == "none":
        fields.discard("tool_choice")
    own = {f"options.{name}" for name in rest.get("options", {}) if name not in OPTIONS and name != "stop"}
    return fields | own


# --- messages: content is one string beside a list of images, arguments are an object ---

ROLE = {"developer": "system", "function": "tool"}
"""Ollama's roles for those that its templates do not know; they would leave such messages out."""

THOUGHTS = ("reasoning_content", "reasoning")
"""The fields in which clients send reasoning back: Penstock's own, and that of Ollama's `/v1`."""

UNTRANSLATED = ("name", "audio")
"""Keys of a message that Ollama does not support."""


class OllamaMessages:
    """A conversation, translated. Raises `BadRequest` for wrong types and for parts that Ollama cannot take."""

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
        role = role_of(message, place)
        text, media = _content(message.get("content"), f"{place}.content")
        result: dict[str, Any] = {"role": ROLE.get(role, role), "content": text}
        if media:
            result["images"] = media
        if role == "assistant":
            result |= self._assistant(message, text, place)
        elif role in ("tool", "function"):
            result |= self._result(message, place)
        # The name of a result is the tool's, and read there.
        names = UNTRANSLATED[1:] if result["role"] == "tool" else UNTRANSLATED
        self.ignored |= {f"messages[].{name}" for name in names if message.get(name)}
        self.countable = self.countable and not ("images" in result or "thinking" in result)
        self.translated.append(result)

    def _assistant(self, message: Message, text: str, place: str) -> dict[str, Any]:
        result: dict[str, Any] = {}
        if message.get("refusal") is not None:
            refusal = string(message["refusal"], f"{place}.refusal")
            result = {"content": text or refusal}
        for name in THOUGHTS:
            if message.get(name) is not None and not result.get("thinking"):
                result["thinking"] = string(message[name], f"{place}.{name}")
        calls = message.get("tool_calls")
        listed: Sequence[Any] = () if calls is None else sequence(calls, f"{place}.tool_calls")
        if message.get("function_call") is not None:
            listed = [*listed, {"function": message["function_call"]}]
        if listed:
            result["tool_calls"] = [self._call(call, i, f"{place}.tool_calls[{i}]") for i, call in enumerate(listed)]
        return result

    def _call(self, call: Any, index: int, place: str) -> dict[str, Any]:
        fields = mapping(call, place)
        result: dict[str, Any] = {}
        if fields.get("id") is not None:
            result["id"] = string(fields["id"], f"{place}.id")
        name, arguments = called_function(fields, place, "arguments")
        if "id" in result:
            self._names[result["id"]] = name
        return {**result, "function": {"index": index, "name": name, "arguments": arguments}}

    def _result(self, message: Message, place: str) -> dict[str, Any]:
        result: dict[str, Any] = {}
        if message.get("name") is not None:
            result["tool_name"] = string(message["name"], f"{place}.name")
        if message.get("tool_call_id") is not None:
            answers = string(message["tool_call_id"], f"{place}.tool_call_id")
            result["tool_call_id"] = answers
            if answers in self._names:
                result["tool_name"] = self._names[answers]
        return result


def _content(content: Any, place: str) -> tuple[str, list[str]]:
    """Return the text of a content, its parts joined by line breaks, and its images and recordings in base64."""
    if content is None or isinstance(content, str):
        return content or "", []
    texts: list[str] = []
    media: list[str] = []
    for index, item in enumerate(sequence(content, place)):
        here = f"{place}[{index}]"
        part = mapping(item, here)
        match part.get("type"):
            case "text" | "refusal" as kind:
                texts.append(string(part.get(kind), f"{here}.{kind}"))
            case "image_url":
                media.append(_image(part.get("image_url"), f"{here}.image_url"))
            case "input_audio":
                # Ollama takes recordings among the images and tells them apart by their first bytes.
                recording = mapping(part.get("input_audio"), f"{here}.input_audio")
                media.append(string(recording.get("data"), f"{here}.input_audio.data"))
            case other:
                named = string(other, f"{here}.type")[:50]
                raise unsupported(f"Ollama takes no part of the type {named!r}", here)
    return "\n".join(texts), media


def _image(image: Any, place: str) -> str:
    """Return the base64 text of a `data:` URL.

    No other address is fetched here: it may lie inside the operator's network.
    """
    url = string(image.get("url") if isinstance(image, dict) else image, f"{place}.url")
    head, comma, data = url.partition(",")
    if not head.lower().startswith("data:"):
        raise unsupported("Ollama takes images only as data: URLs, and fetch_images_from is not set", f"{place}.url")
    if not comma or not head.lower().endswith(";base64") or not data:
        wrong(f"{place}.url", "must be a data: URL with base64")
    return data
