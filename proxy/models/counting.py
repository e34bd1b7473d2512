"""The tokens of one message or tool: OpenAI's published rules, and estimates where nothing is published.

The rules are those of OpenAI's cookbook, "How to count tokens with tiktoken"; that for tools, section 7, is carried on
to nested objects, arrays, unions and references. Other families get tools as JSON. No JSON raises.
"""

import json
import re
from collections.abc import Iterator, Mapping
from math import ceil
from typing import Any

from proxy.chat.attachments import FILES, IMAGES, SOUNDS
from proxy.models.encodings import Encoder
from proxy.models.families import Family, base64_bytes, base64_dimensions, data_url_dimensions, decoded_head

MESSAGE_FRAME = 3
NAME_FRAME = 1
REPLY_FRAME = 3
"""Tokens that prime the answer, once a request."""
CALL_FRAME = 3

_DIGITS_A_TOKEN = 3
_DIGITS = re.compile(r"[0-9]{2,}")
_MORE_A_LETTER = 0.25
_SCRIPTS = re.compile(r"[\u0370-\u1dff\u2e80-\ud7ff\uf900-\ufaff]+")
"""Letters of other scripts than Latin: small vocabularies have more tokens for them, how many depends on the script. An
estimate that errs low: a refusal corrects it, and so does the first answer."""

_SILENT = frozenset(
    {
        "call_id", "cache_control", "id", "prompt_cache_breakpoint", "reasoning_signature", "signature", "status",
        "tool_call_id", "tool_use_id", "type",
    }
)  # fmt: skip
"""Keys whose values are not shown to the model."""
_SEALED = frozenset({"encrypted_content", "data", "blob"})
"""Keys of base64, such as the reasoning or the summary of an earlier answer that the provider alone can read."""
_SEALED_BYTES = 4
"""Bytes of what is sealed for each token: it is text, and has no more bytes than its cipher."""
_DATA_URL = re.compile(r"data:(image/)?[\w.+/-]*;base64,", re.IGNORECASE)
_PUBLISHED = frozenset({"text", "input_text", "output_text", "refusal"})

_PAGE_TOKENS, _PAGE_BYTES, _MOST_PAGES = 2000, 50_000, 100
"""A PDF's page as text and image, the bytes that such a page usually has, and the most pages: an estimate."""
_SOUND_BYTES = 16_000
_USUAL_SECONDS = 30


class Tally:
    """The tokens of one message or tool, added up."""

    __slots__ = ("encode", "estimated", "family", "media", "text")

    def __init__(self, encode: Encoder, family: Family) -> None:
        self.encode = encode
        self.family = family
        self.text = 0
        """Tokens of text, in the encoding's own measure."""
        self.media = 0
        """Tokens of images, sound and files, in the model's."""
        self.estimated = False
        """A part was counted by a rule that no provider publishes."""

    def add(self, text: str) -> None:
        if text:
            self.text += self.encode(text) + self._unmerged(text)

    def _unmerged(self, text: str) -> int:
        """Return the tokens that a vocabulary of the family has more than the one that stands in for it."""
        more = 0
        if self.family.digits:
            more = sum([len(run) - ceil(len(run) / _DIGITS_A_TOKEN) for run in _DIGITS.findall(text)])
        if self.family.scripts and not text.isascii():
            more += int(sum([len(run) for run in _SCRIPTS.findall(text)]) * _MORE_A_LETTER)
        return more

    def add_json(self, value: Any) -> None:
        """Count a value as the compact JSON that a provider would render: an estimate."""
        self.estimated = True
        self.add(compact(value))

    def message(self, message: Mapping[str, Any]) -> None:
        self.text += MESSAGE_FRAME
        for key, value in message.items():
            if key in _SILENT or value is None:
                continue
            if isinstance(value, str) and key not in _SEALED:
                self.add(value)
                self.text += NAME_FRAME if key == "name" else 0
            elif key == "content":
                self._content(value)
            elif key == "tool_calls":
                self._calls(value if isinstance(value, list) else [value])
            elif key == "function_call":
                self._calls([{"function": value}])
            else:
                self._content({key: value})

    def _calls(self, calls: list[Any]) -> None:
        self.estimated = self.estimated or bool(calls)
        for call in calls:
            called = call.get("function") or call.get("custom") if isinstance(call, Mapping) else None
            if isinstance(called, Mapping):
                self.text += CALL_FRAME
                for key in ("name", "arguments", "input"):
                    value = called.get(key)
                    self.add(value if isinstance(value, str) else "" if value is None else compact(value))

    def _content(self, content: Any) -> None:
        """Count content, or a field that a provider adds to messages, such as `thinking_blocks`."""
        waiting = [content]
        while waiting:  # a stack, not recursion: tool results may nest content as deep as a client likes
            part = waiting.pop()
            if isinstance(part, str):
                self.add(part)
            elif isinstance(part, list | tuple):
                waiting += part
            elif isinstance(part, Mapping):
                waiting += self._part(part)

    def _part(self, part: Mapping[str, Any]) -> Iterator[Any]:
        """Count a part, and return what it has inside. Of one of an unknown kind all texts count."""
        kind = part.get("type")
        kind = kind if isinstance(kind, str) else ""
        if kind in _PUBLISHED:
            yield from (part[key] for key in ("text", "refusal") if isinstance(part.get(key), str))
            return
        self.estimated = True
        if kind in IMAGES | SOUNDS | FILES:
            self.media += self._medium(kind, part)
            return
        for key, value in part.items():
            if key == "input" and isinstance(value, Mapping):
                self.add_json(value)
            elif isinstance(value, str):
                self._value(key, value)
            elif key not in _SILENT:
                yield value

    def _value(self, key: str, text: str) -> None:
        url = _DATA_URL.match(text)
        if url is not None and url[1]:
            self.media += self._image({"url": text})
        elif url is not None or key in _SEALED:
            self.text += ceil(base64_bytes(text) / _SEALED_BYTES)
        elif key not in _SILENT:
            self.add(text)

    def _medium(self, kind: str, part: Mapping[str, Any]) -> int:
        inner = part.get(kind, part.get("source", part))
        inner = inner if isinstance(inner, Mapping) else {"url": inner}
        if kind in IMAGES:
            return self._image(inner, part.get("detail"))
        data = inner.get("data") if kind in SOUNDS else inner.get("file_data", inner.get("data"))
        if kind in SOUNDS:
            return ceil(_seconds(data) * self.family.audio_rate)
        pages = ceil((base64_bytes(data) if isinstance(data, str) else 0) / _PAGE_BYTES)
        return _PAGE_TOKENS * min(_MOST_PAGES, max(1, pages))

    def _image(self, image: Mapping[str, Any], outer_detail: Any = None) -> int:
        url, data = image.get("url", image.get("image_url")), image.get("data")
        detail = image.get("detail", outer_detail)
        found = data_url_dimensions(url) if isinstance(url, str) else None
        if found is None and isinstance(data, str):
            found = base64_dimensions(data)
        return self.family.vision.tokens(found, detail if isinstance(detail, str) else "auto")


def compact(value: Any) -> str:
    """Return a value as JSON without spaces; what JSON cannot hold is left out."""
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)
    except (ValueError, RecursionError):
        return " ".join(shown_texts(value))


def shown_texts(value: Any) -> Iterator[str]:
    """Yield all strings in a JSON value, however deep, but for ids and signatures."""
    waiting = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, str):
            yield item
        elif isinstance(item, Mapping):
            waiting.extend(item[key] for key in reversed(list(item)) if key not in _SILENT)
        elif isinstance(item, list | tuple):
            waiting.extend(reversed(item))


def _seconds(data: Any) -> float:
    """Return the length of a sound: by a WAV's byte rate, else as sound of 128 kbit/s."""
    if not isinstance(data, str):
        return _USUAL_SECONDS
    head = decoded_head(data, 44)
    rate = int.from_bytes(head[28:32], "little") if head[:4] == b"RIFF" and head[8:12] == b"WAVE" else 0
    return base64_bytes(data) / (rate if rate >= 1000 else _SOUND_BYTES)


# --- tools ---

PROPERTIES_FRAME = 3
PROPERTY_FRAME = 3
ENUM_FRAME = -3
ITEM_FRAME = 3
JSON_FRAME = 8
"""Tokens around a tool that is rendered as JSON: an estimate."""

_DEEPEST = 16
"""Levels of nesting that are walked; what lies deeper is counted as JSON."""
_FLAT = frozenset({"type", "description", "enum"})
_ROOT = frozenset({"type", "properties", "required", "additionalProperties", "$schema"})


def count_tool(tally: Tally, tool: Mapping[str, Any]) -> None:
    """Count a function, a custom tool or a deprecated function; one that is loaded when found costs nothing."""
    if tool.get("defer_loading") is True:
        return
    inner = next((tool[key] for key in ("function", "custom") if isinstance(tool.get(key), Mapping)), tool)
    if not tally.family.terse_tools or not isinstance(inner.get("name"), str):
        tally.text += JSON_FRAME
        tally.add_json(inner)
        return
    tally.text += tally.family.function_start
    tally.add(f"{inner['name']}:{_description(inner)}")
    parameters, grammar = inner.get("parameters"), inner.get("format")
    if isinstance(parameters, Mapping):
        tally.estimated = tally.estimated or not parameters.keys() <= _ROOT
        _shape(tally, parameters, 0)
    elif parameters is not None:
        tally.add_json(parameters)
    if isinstance(grammar, Mapping):
        tally.add_json(grammar)


def _shape(tally: Tally, schema: Mapping[str, Any], depth: int) -> None:
    if depth > _DEEPEST:
        tally.add_json(schema)
        return
    items = schema.get("enum")
    if isinstance(items, list) and items:
        tally.text += ENUM_FRAME + ITEM_FRAME * len(items)
        for item in items:
            tally.add(item if isinstance(item, str) else compact(item))
    if isinstance(members := schema.get("properties"), Mapping) and members:
        tally.text += PROPERTIES_FRAME
    for name, inner in _inside(schema):
        _property(tally, name, inner, depth)
    for key in ("default", "const", "pattern", "format", "examples"):
        if schema.get(key) is not None:
            tally.add_json(schema[key])


def _inside(schema: Mapping[str, Any]) -> Iterator[tuple[str | None, Any]]:
    """Yield the members of an object with their names, then alternatives and the items of an array."""
    for key in ("properties", "$defs", "definitions"):
        if isinstance(found := schema.get(key), Mapping):
            yield from ((str(name), inner) for name, inner in found.items())
    for key in ("anyOf", "oneOf", "allOf", "prefixItems", "items", "additionalProperties", "not"):
        found = schema.get(key)
        yield from ((None, inner) for inner in (found if isinstance(found, list) else [found]))


def _property(tally: Tally, name: str | None, schema: Any, depth: int) -> None:
    tally.text += 0 if name is None else PROPERTY_FRAME
    if not isinstance(schema, Mapping):
        if name is not None:
            tally.add_json({name: schema})
        return
    is_flat = schema.keys() <= _FLAT and isinstance(schema.get("type"), str) and "description" in schema
    tally.estimated = tally.estimated or name is None or not is_flat
    about = f"{_type(schema)}:{_description(schema)}"
    tally.add(about.rstrip(":") if name is None else f"{name}:{about}")
    _shape(tally, schema, depth + 1)


def _type(schema: Mapping[str, Any]) -> str:
    kind = schema.get("type")
    if isinstance(kind, list):
        return "|".join(item for item in kind if isinstance(item, str))
    if isinstance(kind, str):
        return kind
    reference = schema.get("$ref")
    return reference.rsplit("/", 1)[-1] if isinstance(reference, str) else "any"


def _description(schema: Mapping[str, Any]) -> str:
    """Return the description as the cookbook counts it: without the full stop at its end."""
    text = schema.get("description")
    return text.removesuffix(".") if isinstance(text, str) else ""
