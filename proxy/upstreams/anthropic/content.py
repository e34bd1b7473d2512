"""The parts of OpenAI's messages as the content blocks of Anthropic's, and calls as `tool_use`.

Whatever is no part of OpenAI's, such as `document` or `thinking`, is Anthropic's own and stays as it is.
"""

import re
from base64 import b64decode
from collections.abc import Mapping
from hashlib import sha256
from typing import Any

from proxy.upstreams.request_fields import called_function, mapping, sequence, string, unsupported, wrong

Block = dict[str, Any]

THOUGHTS = frozenset({"thinking", "redacted_thinking"})
"""The types of blocks that nothing may be changed in."""

_ID = re.compile(r"[A-Za-z0-9_-]{1,256}")
_DATA = re.compile(r"data:([a-z0-9.+/-]+);base64,(.+)", re.IGNORECASE | re.DOTALL)


def blocks_of(content: Any, place: str) -> list[Block]:
    """Return the blocks of a content, without empty texts, which Anthropic refuses. Raise `BadRequest`."""
    if content is None:
        return []
    if isinstance(content, str):
        return text_blocks(content)
    found: list[Block] = []
    for index, part in enumerate(sequence(content, place)):
        found += _blocks(mapping(part, f"{place}[{index}]"), f"{place}[{index}]")
    return found


def text_blocks(text: str) -> list[Block]:
    """Return a text as a block; none where it is empty or white space."""
    return [{"type": "text", "text": text}] if text.strip() else []


def _blocks(part: Mapping[str, Any], place: str) -> list[Block]:
    blocks: list[Block]
    match part.get("type"):
        case "text" if not part.keys() - {"type", "text", "cache_control"}:
            blocks = text_blocks(string(part.get("text"), f"{place}.text"))
        case "text":
            return [dict(part)] if string(part.get("text"), f"{place}.text").strip() else []
        case "refusal":
            blocks = text_blocks(string(part.get("refusal"), f"{place}.refusal"))
        case "image_url":
            blocks = [{"type": "image", "source": _image(part.get("image_url"), f"{place}.image_url")}]
        case "file":
            blocks = [_document(mapping(part.get("file"), f"{place}.file"), f"{place}.file")]
        case "input_audio" | "input_video" | "video_url" as kind:
            raise unsupported(f"Anthropic takes no part of the type {kind!r}", place)
        case kind:
            string(kind, f"{place}.type")
            return [{key: value for key, value in part.items() if key != "index"}]
    return marked(blocks, part)


def marked(blocks: list[Block], source: Mapping[str, Any]) -> list[Block]:
    """Return the blocks with the `cache_control` of their message or part on the last block that can have it."""
    control = source.get("cache_control")
    last = next((n for n in reversed(range(len(blocks))) if blocks[n].get("type") not in THOUGHTS), None)
    if control is None or last is None:
        return blocks
    return [*blocks[:last], {**blocks[last], "cache_control": control}, *blocks[last + 1 :]]


def _image(image: Any, place: str) -> Block:
    """Return the source of an image.

    Anthropic itself reads `https:` addresses; `http:` ones are fetched before, if at all.
    """
    url = string(image.get("url") if isinstance(image, Mapping) else image, f"{place}.url")
    if url.lower().startswith("https://"):
        return {"type": "url", "url": url}
    hint = ", and fetch_images_from is not set"
    return {"type": "base64", **_data(url, f"images as https: and data: URLs{hint}", f"{place}.url")}


def _data(url: str, takes: str, place: str) -> Block:
    if not url.lower().startswith("data:"):
        raise unsupported(f"Anthropic takes {takes}", place)
    found = _DATA.fullmatch(url)
    if found is None:
        wrong(place, "must be a data: URL with base64")
    kind = found[1].lower()
    return {"media_type": "image/jpeg" if kind == "image/jpg" else kind, "data": found[2]}


def _document(file: Mapping[str, Any], place: str) -> Block:
    title = {"title": string(file["filename"], f"{place}.filename")} if file.get("filename") else {}
    if file.get("file_id") is not None:
        source = {"type": "file", "file_id": string(file["file_id"], f"{place}.file_id")}
        return {"type": "document", "source": source, **title}
    data = _data(string(file.get("file_data"), f"{place}.file_data"), "files as data: URLs", f"{place}.file_data")
    if data["media_type"].startswith("image/"):
        return {"type": "image", "source": {"type": "base64", **data}}
    if data["media_type"].startswith("text/"):
        try:
            text = b64decode(data["data"]).decode(errors="replace")
        except ValueError:
            wrong(f"{place}.file_data", "must be a data: URL with base64")
        return {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": text}, **title}
    return {"type": "document", "source": {"type": "base64", **data}, **title}


def call_block(call: Any, place: str) -> Block:
    """Return a tool call as a block. Arguments that are no JSON object become one that quotes them."""
    fields = mapping(call, place)
    name, given = called_function(fields, place, "malformed_arguments")
    made = {"type": "tool_use", "id": wire_id(fields.get("id"), place), "name": name, "input": given}
    return marked([made], fields)[0]


def wire_id(call_id: Any, place: str) -> str:
    """Return the id of a call in the characters that Anthropic allows."""
    known = string(call_id, f"{place}.id")
    if _ID.fullmatch(known):
        return known
    return f"{re.sub(r'[^A-Za-z0-9_-]', '_', known)[:64]}_{sha256(known.encode(errors='replace')).hexdigest()[:12]}"
