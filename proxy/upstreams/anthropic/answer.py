"""Anthropic's answers, whole or as events, in OpenAI's exact form."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from proxy.chat import encode
from proxy.upstreams.anthropic.messages import THOUGHTS, Block
from proxy.upstreams.completion import DONE, Completion, nonsense, usage
from proxy.upstreams.request_fields import parsed_arguments
from proxy.wires.messages_answer import FINISH

Made = TypeVar("Made")
Facts = dict[str, str | int | float | bool]

SERVER = "Anthropic"

PAUSED = "pause_turn"
"""The stop reason of an answer that goes on when it is sent back."""

TIERS = {"standard": "default", "priority": "priority"}

_COUNTS = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens", "output_tokens")


def message_of(content: Sequence[Block]) -> dict[str, Any]:
    """Return the message of some content blocks, without blocks that OpenAI has no form for."""
    texts = [block["text"] for block in content if block.get("type") == "text"]
    calls = [called(block) for block in content if block.get("type") == "tool_use"]
    thoughts = [block for block in content if block.get("type") in THOUGHTS]
    message: dict[str, Any] = {"content": "".join(texts) if texts or not calls else None}
    if thoughts:
        message["reasoning_content"] = "".join([block.get("thinking", "") for block in thoughts])
        message["thinking_blocks"] = thoughts
    if calls:
        message["tool_calls"] = calls
    if found := annotations(content):
        message["annotations"] = found
    return message


def kept_message(content: Sequence[Block]) -> dict[str, Any] | None:
    """Return the message that must go back to the model; None where any client sends it back by itself.

    A client can send thinking in front, then one text, then calls in OpenAI's fields. Any other order keeps the
    provider's own blocks, as the parts of its content.
    """
    kinds = [str(block.get("type")) for block in content]
    if not set(kinds) - {"text", "tool_use"}:
        return None
    message = {"role": "assistant", **message_of(content)}
    message.pop("reasoning_content", None)
    order = sorted(kinds, key=lambda kind: (kind not in THOUGHTS) + (kind == "tool_use"))
    plain = set(kinds) <= {*THOUGHTS, "text", "tool_use"} and kinds == order and kinds.count("text") <= 1
    if not plain or message.pop("annotations", None):
        message.pop("thinking_blocks", None)
        message["content"] = list(content)
    return message


def called(block: Block) -> dict[str, Any]:
    """Return a `tool_use` block as a call."""
    arguments = encode(block.get("input") or {}).decode()
    return {"id": block["id"], "type": "function", "function": {"name": block["name"], "arguments": arguments}}


def annotations(content: Iterable[Block]) -> list[dict[str, Any]]:
    """Return the citations of texts, each with its part of the whole text."""
    result: list[dict[str, Any]] = []
    start = 0
    for block in content:
        if block.get("type") == "text":
            end = start + len(block["text"])
            result += [annotation(each, start, end) for each in block.get("citations") or ()]
            start = end
    return result


def annotation(citation: Mapping[str, Any], start: int, end: int) -> dict[str, Any]:
    """Return a citation of a page in OpenAI's form, any other in Anthropic's under the name of its type."""
    place = {"start_index": start, "end_index": end}
    if citation.get("url"):
        cited = {"url": citation["url"], "title": citation.get("title") or ""}
        return {"type": "url_citation", "url_citation": {**cited, **place}}
    kind = str(citation.get("type"))
    return {"type": kind, kind: {key: value for key, value in citation.items() if key != "type"} | place}


class AnthropicAnswer:
    """One answer on its way to the client: makes its events or its body, and fills `facts` once it is done.

    An answer that pauses goes on with the next one, and is one answer to the client.
    """

    def __init__(self, model: str, facts: Facts, *, show_usage: bool) -> None:
        self.facts = facts
        self.content: list[Block] = []
        """All blocks so far, as they go back to the model."""
        self.stop_reason: str | None = None
        self.done = False
        """The end of the answer that is being read has come."""
        self._completion = Completion(model)
        self._show_usage = show_usage
        self._begun = False
        self._earlier = dict.fromkeys(_COUNTS, 0)
        """Usage of the answers that paused."""
        self._counts: dict[str, int] = {}
        self._tokens_of_thought = 0
        self._tier: str | None = None
        self._base = 0
        self._thoughts = 0
        self._calls = 0
        self._texts = 0
        self._parts: dict[int, list[str]] = {}
        """The pieces of the blocks that are not complete, by their index."""
        self._places: dict[int, int] = {}
        """The index of a block's thinking, or of its call, in what the client gets."""

    @property
    def paused(self) -> bool:
        """True if the answer goes on when it is sent back."""
        return self.stop_reason == PAUSED

    def go_on(self) -> None:
        """Begin with the answer that goes on with this one."""
        self._earlier = {key: self._earlier[key] + self._counts.get(key, 0) for key in _COUNTS}
        self._counts, self.stop_reason, self.done = {}, None, False
        self._base = len(self.content)

    def read(self, answer: Mapping[str, Any]) -> None:
        """Take in a whole answer. Raise `UpstreamFailed` for a body that holds none."""
        content = answer.get("content")
        if not isinstance(content, list) or not all(isinstance(block, dict) for block in content):
            raise nonsense(SERVER)
        self.content += content
        self._note(answer.get("usage"))
        self.stop_reason, self.done = answer.get("stop_reason"), True

    def whole(self) -> bytes:
        """Return the body of the whole answer."""
        extra = {} if self._tier is None else {"service_tier": self._tier}
        return self._completion.whole(self._sound(message_of), self._finish_reason, self._used(), **extra)

    def to_remember(self) -> dict[str, Any] | None:
        """Return the message to remember; None for an answer that any client sends back as it was."""
        return self._sound(kept_message)

    def _sound(self, make: Callable[[Sequence[Block]], Made]) -> Made:
        """Return the result of a function of the blocks. Raise `UpstreamFailed` for malformed blocks."""
        try:
            return make(self.content)
        except (KeyError, TypeError, AttributeError):
            raise nonsense(SERVER) from None

    def end(self) -> bytes:
        """Return the last events of a stream."""
        made = [b"" if self._begun else self._completion.first(), self._completion.chunk({}, self._finish_reason)]
        used = self._used()
        if self._show_usage:
            made.append(self._completion.usage_chunk(used))
        return b"".join((*made, DONE))

    def events(self, event: Mapping[str, Any]) -> bytes:
        """Return the client's events for one event of Anthropic's, if any.

        Raise `UpstreamFailed` for a malformed event.
        """
        try:
            deltas = self._deltas(event)
        except (KeyError, TypeError, AttributeError, IndexError):
            raise nonsense(SERVER) from None
        if not deltas:
            return b""
        made = [self._completion.chunk(delta) for delta in deltas]
        if not self._begun:
            self._begun = True
            made.insert(0, self._completion.first())
        return b"".join(made)

    def _deltas(self, event: Mapping[str, Any]) -> list[dict[str, Any]]:
        match event["type"]:
            case "content_block_delta":
                return self._more(self._base + event["index"], event["delta"])
            case "content_block_start":
                return self._start(self._base + event["index"], event["content_block"])
            case "content_block_stop":
                return self._stop(self._base + event["index"])
            case "message_start":
                self._note(event["message"].get("usage"))
            case "message_delta":
                self.stop_reason = event["delta"].get("stop_reason") or self.stop_reason
                self._note(event.get("usage"))
            case "message_stop":
                self.done = True
        return []

    def _start(self, index: int, block: Block) -> list[dict[str, Any]]:
        if index != len(self.content):
            raise nonsense(SERVER)
        self.content.append(block)
        self._parts[index] = []
        match block["type"]:
            case "text":
                self._parts[index] = [block["text"]] if block.get("text") else []
                return [{"content": block["text"]}] if block.get("text") else []
            case "thinking" | "redacted_thinking" as kind:
                self._places[index], self._thoughts = self._thoughts, self._thoughts + 1
                return [self._thought(index, block)] if kind == "redacted_thinking" else []
            case "tool_use":
                self._places[index], self._calls = self._calls, self._calls + 1
                return [self._call(index, called({**block, "input": None}), "")]
        return []

    def _more(self, index: int, delta: Mapping[str, Any]) -> list[dict[str, Any]]:
        block = self.content[index]
        match delta["type"]:
            case "text_delta":
                self._parts[index].append(delta["text"])
                return [{"content": delta["text"]}]
            case "input_json_delta":
                text = delta["partial_json"]
                self._parts[index].append(text)
                return [self._call(index, {}, text)] if text and block["type"] == "tool_use" else []
            case "thinking_delta":
                text = delta["thinking"]
                self._parts[index].append(text)
                thought = self._thought(index, {"type": "thinking", "thinking": text})
                return [{"reasoning_content": text, **thought}] if text else []
            case "signature_delta":
                first = {} if self._parts[index] else {"thinking": ""}
                block["signature"] = block.get("signature", "") + delta["signature"]
                return [self._thought(index, {"type": "thinking", **first, "signature": delta["signature"]})]
            case "citations_delta":
                block["citations"] = [*(block.get("citations") or ()), delta["citation"]]
        return []

    def _stop(self, index: int) -> list[dict[str, Any]]:
        block, text = self.content[index], "".join(self._parts.pop(index))
        match block["type"]:
            case "text":
                block["text"] = text
                start, self._texts = self._texts, self._texts + len(text)
                cited = [annotation(each, start, self._texts) for each in block.get("citations") or ()]
                return [{"annotations": cited}] if cited else []
            case "thinking":
                block["thinking"] = text
            case "tool_use" | "server_tool_use" | "mcp_tool_use" if text:
                block["input"] = parsed_arguments(text, "input", "malformed_arguments")
            case "tool_use":
                return [self._call(index, {}, encode(block.get("input") or {}).decode())]
        return []

    def _thought(self, index: int, block: Block) -> dict[str, Any]:
        """Return the delta of a thinking block, with the index and type by which SDKs accumulate it."""
        return {"thinking_blocks": [{"index": self._places[index], **block}]}

    def _call(self, index: int, call: Mapping[str, Any], arguments: str) -> dict[str, Any]:
        function = {**call.get("function", {}), "arguments": arguments}
        return {"tool_calls": [{"index": self._places[index], **call, "function": function}]}

    @property
    def _finish_reason(self) -> str:
        return FINISH.get(self.stop_reason or "", "stop")

    def _note(self, used: Any) -> None:
        """Take note of figures; those of a stream are of all of the answer so far."""
        if not isinstance(used, Mapping):
            return
        self._counts |= {key: used[key] for key in _COUNTS if isinstance(used.get(key), int)}
        details = used.get("output_tokens_details")
        if isinstance(details, Mapping) and isinstance(details.get("thinking_tokens"), int):
            self._tokens_of_thought = details["thinking_tokens"]
        self._tier = TIERS.get(str(used.get("service_tier")), self._tier)

    def _used(self) -> dict[str, Any]:
        """Return OpenAI's `usage` of the whole answer, and note it as facts."""
        fresh, read, written, answered = (self._earlier[key] + self._counts.get(key, 0) for key in _COUNTS)
        prompt = fresh + read + written
        self.facts |= {"prompt_tokens": prompt, "completion_tokens": answered, "cached_tokens": read}
        used = usage(prompt, answered, cached=read, reasoning=self._tokens_of_thought)
        if written:
            self.facts["written_tokens"] = used["prompt_tokens_details"]["cache_write_tokens"] = written
        return used
