"""Anthropic's answers, whole or as events, in OpenAI's exact form."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from proxy.chat import encode
from proxy.upstreams.anthropic.messages import Block
from proxy.upstreams.completion import Facts, nonsense, spent
from proxy.wires.messages import THOUGHTS, call_of
from proxy.wires.messages_answer import FINISH, Blocks

SERVER = "Anthropic"

PAUSED = "pause_turn"
"""The stop reason of an answer that goes on when it is sent back."""

TIERS = {"standard": "default", "priority": "priority"}


def annotation(citation: Mapping[str, Any], start: int, end: int) -> dict[str, Any]:
    """Return a citation of a page in OpenAI's form, any other in Anthropic's under the name of its type."""
    place = {"start_index": start, "end_index": end}
    if citation.get("url"):
        cited = {"url": citation["url"], "title": citation.get("title") or ""}
        return {"type": "url_citation", "url_citation": {**cited, **place}}
    kind = str(citation.get("type"))
    return {"type": kind, kind: {key: value for key, value in citation.items() if key != "type"} | place}


def _events_of(answer: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the events of a stream that says what a whole answer does. Raise `UpstreamFailed` for a body with none."""
    content = answer.get("content")
    if not isinstance(content, list) or not all(isinstance(block, dict) for block in content):
        raise nonsense(SERVER)
    yield {"type": "message_start", "message": answer}
    for index, block in enumerate(content):
        yield {"type": "content_block_start", "index": index, "content_block": block}
        yield {"type": "content_block_stop", "index": index}
    yield {"type": "message_delta", "delta": {"stop_reason": answer.get("stop_reason")}}
    yield {"type": "message_stop"}


class AnthropicAnswer:
    """The rounds of one answer. One that pauses goes on with the next round, and is one answer to the client."""

    def __init__(self) -> None:
        self.is_over = False
        self._rounds = [Blocks()]
        self._thoughts = self._calls = 0
        self._length = 0
        """Characters of text so far."""

    @property
    def content(self) -> list[Block]:
        """All blocks so far, as they go back to the model."""
        return [block for each in self._rounds for block in each.sent_back]

    @property
    def pauses(self) -> int:
        return len(self._rounds) - 1

    @property
    def paused(self) -> bool:
        return self._rounds[-1].stop == PAUSED

    def go_on(self) -> None:
        self._rounds.append(Blocks())

    def kept_message(self) -> dict[str, Any] | None:
        """Return the message that must go back to the model; None where any client sends it back by itself.

        A client can send thinking in front, then one text, then calls in OpenAI's fields. Any other order keeps the
        provider's own blocks, as the parts of its content.
        """
        content = self.content
        kinds = [str(block.get("type")) for block in content]
        if not set(kinds) - {"text", "tool_use"}:
            return None
        message: dict[str, Any] = {"role": "assistant", "content": content}
        order = sorted(kinds, key=lambda kind: (kind not in THOUGHTS) + (kind == "tool_use"))
        texts = [block for block in content if block.get("type") == "text"]
        is_plain = set(kinds) <= {*THOUGHTS, "text", "tool_use"} and kinds == order and len(texts) <= 1
        if is_plain and not any(text.get("citations") for text in texts):
            message["content"] = next((text["text"] for text in texts), None)
            message["thinking_blocks"] = [block for block in content if block.get("type") in THOUGHTS]
        if calls := [call_of(block) for block in content if block.get("type") == "tool_use"]:
            message["tool_calls"] = calls
        return message

    def deltas(self, part: Mapping[str, Any]) -> Iterator[dict[str, Any] | None]:
        """Yield what an event adds to the message, or a whole answer; None for a sign of life."""
        for event in _events_of(part) if "content" in part else (part,):
            yield from self._added(event)

    def _added(self, event: Mapping[str, Any]) -> Sequence[dict[str, Any] | None]:
        blocks = self._rounds[-1]
        try:
            blocks.feed(event)
            self.is_over = event["type"] == "message_stop"
            if not event["type"].startswith("content_block_"):
                return [None] if event["type"] == "ping" else []
            if event["index"] != len(blocks.content) - 1:
                raise nonsense(SERVER)
            match event["type"]:
                case "content_block_start":
                    return self._begin(blocks.content[-1])
                case "content_block_delta":
                    return self._more(blocks.content[-1], event["delta"])
            return self._end(blocks)
        except (KeyError, TypeError, AttributeError):
            raise nonsense(SERVER) from None

    def _begin(self, block: Block) -> list[dict[str, Any]]:
        if not all(isinstance(block.get(name, ""), str) for name in ("type", "text", "thinking")):
            raise nonsense(SERVER)
        match block["type"]:
            case "text":
                return [{"content": block["text"]}] if block.get("text") else []
            case "thinking" | "redacted_thinking" as kind:
                self._thoughts += 1
                text = {"reasoning_content": block["thinking"]} if block.get("thinking") else {}
                is_whole = block.get("signature") or kind == "redacted_thinking"
                return [{**text, **self._thought(block)}] if text or is_whole else []
            case "tool_use":
                self._calls += 1
                return [self._call({"id": block["id"], "type": "function"}, {"name": block["name"], "arguments": ""})]
        return []

    def _more(self, block: Block, delta: Mapping[str, Any]) -> list[dict[str, Any]]:
        match delta["type"]:
            case "text_delta":
                return [{"content": delta["text"]}]
            case "input_json_delta" if delta["partial_json"] and block["type"] == "tool_use":
                return [self._call({}, {"arguments": delta["partial_json"]})]
            case "thinking_delta" if delta["thinking"]:
                thought = self._thought({"type": "thinking", "thinking": delta["thinking"]})
                return [{"reasoning_content": delta["thinking"], **thought}]
            case "signature_delta":
                first = {} if block.get("thinking") else {"thinking": ""}
                return [self._thought({"type": "thinking", **first, "signature": delta["signature"]})]
        return []

    def _end(self, blocks: Blocks) -> list[dict[str, Any]]:
        block = blocks.content[-1]
        if block["type"] == "text":
            start, self._length = self._length, self._length + len(block["text"])
            cited = [annotation(each, start, self._length) for each in block.get("citations") or ()]
            return [{"annotations": cited}] if cited else []
        if block["type"] == "tool_use" and not any(blocks.arguments):
            return [self._call({}, {"arguments": encode(block.get("input") or {}).decode()})]
        return []

    def _thought(self, block: Block) -> dict[str, Any]:
        """Return the delta of a thinking block, with the index and type by which SDKs accumulate it."""
        return {"thinking_blocks": [{"index": self._thoughts - 1, **block}]}

    def _call(self, call: Mapping[str, Any], function: Mapping[str, Any]) -> dict[str, Any]:
        return {"tool_calls": [{"index": self._calls - 1, **call, "function": function}]}

    @property
    def finish_reason(self) -> str:
        return FINISH.get(str(self._rounds[-1].stop), "stop")

    @property
    def service_tier(self) -> str | None:
        return TIERS.get(str(self._rounds[-1].usage.get("service_tier")))

    def usage(self, facts: Facts) -> dict[str, Any]:
        """Return OpenAI's `usage` of all rounds, and note the figures."""
        used = spent(*(each.usage for each in self._rounds))
        details = used["prompt_tokens_details"]
        facts |= {name: used[name] for name in ("prompt_tokens", "completion_tokens")}
        facts |= {"cached_tokens": details["cached_tokens"]}
        if written := details.get("cache_write_tokens"):
            facts["written_tokens"] = written
        return used
