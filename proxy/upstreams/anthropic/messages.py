"""OpenAI's messages as Anthropic's: turns of the user and of the assistant, and the system prompt in front of them.

Parts become content blocks, calls `tool_use`. Whatever is no part of OpenAI's, such as `document` or `thinking`, is
Anthropic's own and stays as it is.
"""

import re
from base64 import b64decode
from collections.abc import Mapping
from hashlib import sha256
from typing import Any

from proxy.chat import SYSTEM_ROLES, Message
from proxy.chat.errors import wrong
from proxy.upstreams.request_fields import CheckedRequest, base64_of, calls_of, unsupported
from proxy.wires.messages import THOUGHTS

Block = dict[str, Any]

_ID = re.compile(r"[A-Za-z0-9_-]{1,256}")
_KIND = re.compile(r"[a-z0-9.+-]+/[a-z0-9.+-]+")
"""A media type."""

_OWN = frozenset({"index"})
"""Keys that accumulators of streams add to `thinking_blocks`, and Anthropic does not know."""

_UNSIGNED = ("reasoning_content", "reasoning")
"""The fields in which clients send reasoning back as text, which Anthropic does not accept."""


class AnthropicMessages:
    """A conversation, translated. Raises `BadRequest` for wrong types and for parts that Anthropic cannot take."""

    def __init__(self, asked: CheckedRequest, *, system_messages: bool) -> None:
        """`system_messages` says whether `role: system` may stand among the messages."""
        self.system: list[Block] = []
        self.translated: list[dict[str, Any]] = []
        self.called: dict[str, None] = {}
        """The tools that were called, in order."""
        self._asked, self._system_messages = asked, system_messages
        self._results: list[Block] = []
        self._user_blocks: list[Block] = []
        self._instructions: list[Block] = []
        is_head = True
        for place, message in asked.messages:
            is_head = is_head and message.is_system
            if is_head:
                self.system += self._blocks(message, place)
            else:
                self._add(message, place)
        self._end_turn()
        if self.system and not self.translated:
            self.system, self.translated = [], [{"role": "user", "content": self.system}]
        if (
            self.translated
            and self.translated[-1]["role"] == "assistant"
            and (text := self.translated[-1]["content"][-1])["type"] == "text"
        ):
            # the wire refuses white space at the end of what the model is to go on with
            self.translated[-1]["content"][-1] = {**text, "text": text["text"].rstrip()}

    @property
    def thinks(self) -> bool:
        """True unless an open loop of tool calls began without thinking, which it may not begin then."""
        turns = [each["content"] for each in self.translated if each["role"] != "system"][-2:]
        if len(turns) < 2 or turns[-1][0]["type"] != "tool_result":
            return True
        return turns[0][0]["type"] in THOUGHTS

    def _add(self, message: Message, place: str) -> None:
        role = message.role
        if role == "assistant":
            blocks = self._assistant(message, place)
            if blocks:
                self._end_turn()
                self._say("assistant", blocks)
        elif role in ("tool", "function"):
            self._results.append(self._result(message, place))
        elif role in SYSTEM_ROLES and self._system_messages:
            self._instructions += self._blocks(message, place)
        else:
            self._user_blocks += self._blocks(message, place)

    def _end_turn(self) -> None:
        """Write what stands between two answers: results first, then what the user said, then what the operator did.

        The wire allows no other order, and so the place of each depends on its neighbours alone: a conversation that
        goes on keeps its beginning.
        """
        user_blocks = [*self._results, *self._user_blocks]
        instructions, self._results, self._user_blocks, self._instructions = self._instructions, [], [], []
        if user_blocks:
            self._say("user", user_blocks)
        if instructions:
            self._say("system" if user_blocks else "user", instructions)

    def _say(self, role: str, blocks: list[Block]) -> None:
        if self.translated and self.translated[-1]["role"] == role:
            self.translated[-1]["content"] += blocks
        else:
            self.translated.append({"role": role, "content": blocks})

    def _blocks(self, message: Message, place: str) -> list[Block]:
        self._asked.leave_out(message, "name")
        return marked(blocks_of(message, place), message)

    def _assistant(self, message: Message, place: str) -> list[Block]:
        """Return thinking first, then text, then calls; Anthropic's own blocks keep their places in the content."""
        content = blocks_of(message, place)
        thoughts = [] if any(block["type"] in THOUGHTS for block in content) else self._thoughts(message)
        if message.get("refusal") and not content:
            content = text_blocks(message["refusal"])
        self._asked.leave_out(message, "audio")
        if not thoughts and not any(block["type"] in THOUGHTS for block in content):
            self._asked.leave_out(message, *_UNSIGNED)
        stand = [block.get("id") for block in content if block["type"] == "tool_use"]
        calls = [call for call in self._calls(message, place) if call["id"] not in stand]
        return marked([*thoughts, *content, *calls], message)

    def _thoughts(self, message: Message) -> list[Block]:
        signed: list[Block] = []
        for block in message.get("thinking_blocks") or ():
            if isinstance(block, Mapping) and (block.get("signature") or block.get("data")):
                signed.append({key: value for key, value in block.items() if key not in _OWN})
            else:
                self._asked.ignored.add("messages[].thinking_blocks")
        return signed

    def _calls(self, message: Message, place: str) -> list[Block]:
        made: list[Block] = []
        for call, at, name, given in calls_of(message, place):
            block = {"type": "tool_use", "id": wire_id(call.get("id"), f"{at}.id"), "name": name, "input": given}
            made += marked([block], call)
            self.called[name] = None
        return made

    def _result(self, message: Message, place: str) -> Block:
        """Return a result as a block. Cache marks of its parts move to the block."""
        content = blocks_of(message, place)
        control = next((block["cache_control"] for block in reversed(content) if "cache_control" in block), None)
        known = message.get("tool_call_id") or (f"call_{message.get('name')}" if message.role == "function" else None)
        made: Block = {"type": "tool_result", "tool_use_id": wire_id(known, f"{place}.tool_call_id")}
        if content:
            made["content"] = [{key: value for key, value in b.items() if key != "cache_control"} for b in content]
        if message.get("is_error") is True:
            made["is_error"] = True
        return marked([made], {"cache_control": control} | message)[0]


# --- parts ---


def blocks_of(message: Message, place: str) -> list[Block]:
    """Return the blocks of a content, without empty texts, which Anthropic refuses. Raise `BadRequest`."""
    return [block for at, part in enumerate(message.parts) for block in _blocks(part, f"{place}.content[{at}]")]


def text_blocks(text: str) -> list[Block]:
    """Return a text as a block; none where it is empty or white space."""
    return [{"type": "text", "text": text}] if text.strip() else []


def _blocks(part: Mapping[str, Any], place: str) -> list[Block]:
    match part["type"]:
        case "text" if part.keys() - {"type", "text", "cache_control"}:
            return [dict(part)] if part["text"].strip() else []
        case "text" | "refusal" as kind:
            blocks = text_blocks(part[kind])
        case "image_url":
            blocks = [{"type": "image", "source": _image(part["image_url"], f"{place}.image_url.url")}]
        case "file":
            blocks = [_document(part["file"], f"{place}.file.file_data")]
        case "input_audio" | "input_video" | "video_url" as kind:
            raise unsupported(f"Anthropic takes no part of the type {kind!r}", place)
        case _:
            return [{key: value for key, value in part.items() if key != "index"}]
    return marked(blocks, part)


def marked(blocks: list[Block], source: Mapping[str, Any]) -> list[Block]:
    """Return the blocks with the `cache_control` of their message or part on the last block that can have it."""
    control = source.get("cache_control")
    last = next((n for n in reversed(range(len(blocks))) if blocks[n].get("type") not in THOUGHTS), None)
    if control is None or last is None:
        return blocks
    return [*blocks[:last], {**blocks[last], "cache_control": control}, *blocks[last + 1 :]]


def _image(image: str | Mapping[str, str], place: str) -> Block:
    """Return the source of an image.

    Anthropic itself reads `https:` addresses; `http:` ones are fetched before, if at all.
    """
    url = image if isinstance(image, str) else image["url"]
    if url.lower().startswith("https://"):
        return {"type": "url", "url": url}
    return {"type": "base64", **_data(url, "images as https: and data: URLs, and fetch_images_from is not set", place)}


def _data(url: str, takes: str, place: str) -> Block:
    if not url.lower().startswith("data:"):
        raise unsupported(f"Anthropic takes {takes}", place)
    kind, data = base64_of(url, place)
    if not _KIND.fullmatch(kind):
        wrong(place, "must be a data: URL with a media type and base64")
    return {"media_type": "image/jpeg" if kind == "image/jpg" else kind, "data": data}


def _document(file: Mapping[str, Any], place: str) -> Block:
    title = {"title": file["filename"]} if file.get("filename") else {}
    if file.get("file_id") is not None:
        return {"type": "document", "source": {"type": "file", "file_id": file["file_id"]}, **title}
    if "file_data" not in file:
        wrong(place, "is missing")
    data = _data(file["file_data"], "files as data: URLs", place)
    if data["media_type"].startswith("image/"):
        return {"type": "image", "source": {"type": "base64", **data}}
    if data["media_type"].startswith("text/"):
        try:
            text = b64decode(data["data"]).decode(errors="replace")
        except ValueError:
            wrong(place, "must be a data: URL with base64")
        return {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": text}, **title}
    return {"type": "document", "source": {"type": "base64", **data}, **title}


def wire_id(known: str | None, place: str) -> str:
    """Return the id of a call in the characters that Anthropic allows."""
    if known is None:
        wrong(place, "is missing")
    if _ID.fullmatch(known):
        return known
    return f"{re.sub(r'[^A-Za-z0-9_-]', '_', known)[:64]}_{sha256(known.encode(errors='replace')).hexdigest()[:12]}"
