"""OpenAI's messages as Ollama's: content is one string beside a list of images, arguments are an object."""

from collections.abc import Iterable, Sequence
from typing import Any

from proxy.chat import Message
from proxy.upstreams.request_fields import called_function, mapping, role_of, sequence, string, unsupported, wrong

ROLE = {"developer": "system", "function": "tool"}
"""Ollama's roles for those that its templates do not know; they would leave such messages out."""

THOUGHTS = ("reasoning_content", "reasoning")
"""Where clients send back what a model thought: the name that Penstock answers with, and that of Ollama's `/v1`."""

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
