"""Anthropic through its own API: prompts are cached as it does it, and signed thinking survives.

`/v1/chat/completions` is translated to `/v1/messages`; every other path goes to Anthropic's own `/v1` as it is.
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import aclosing
from dataclasses import replace
from typing import Any

from proxy.chat import ChatRequest, Message, encode
from proxy.chat.errors import NotFound, Unauthorized
from proxy.config.settings import AnthropicUpstream
from proxy.http.client import Response
from proxy.http.headers import without_credentials
from proxy.text.json_values import json_object, json_objects
from proxy.upstreams.anthropic.messages import Block
from proxy.upstreams.anthropic.request import AnthropicRequest
from proxy.upstreams.base import Abilities, Call, Upstream
from proxy.upstreams.completion import Completion, Deltas, Facts, nonsense, spent, timestamp
from proxy.upstreams.keys import fitting
from proxy.upstreams.request_fields import Translation
from proxy.upstreams.translated import TranslatedServer
from proxy.wires.messages import FINISH, THOUGHTS, Blocks, call_of

VERSION = "2023-06-01"
"""The version of the API that is translated to."""

MOST_PAUSES = 8

PAUSED = "pause_turn"
"""The stop reason of an answer that goes on when it is sent back."""

TIERS = {"standard": "default", "priority": "priority"}

_MODEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@-]*", re.ASCII)

_KEPT = frozenset({"accept-encoding", "traceparent", "tracestate", "user-agent"})
"""Headers of a translated request that go out, besides those that begin with `anthropic-`."""

_OAUTH = "sk-ant-oat"
"""The beginning of keys that go out as a bearer token."""


def build(upstreams: Mapping[str, AnthropicUpstream], settings: object) -> dict[str, Upstream]:
    """Return the upstreams of this kind by name."""
    return {name: Anthropic(name, each) for name, each in upstreams.items()}


class Anthropic(TranslatedServer):
    """Anthropic. Facts of an answer are also `cached_tokens` and `written_tokens`, and `pauses`."""

    provider, server, path = "anthropic", "Anthropic", "/v1/messages"
    line = b"data:"
    abilities = Abilities(
        signs=True,
        speaks=frozenset({"chat", "messages"}),
        native_edits={"messages": frozenset({"clear_tool_uses_20250919", "defer_loading"})},
    )
    relayed = (b"request-id", b"anthropic-")  # its request id, and the remaining rates
    unread = ("http",)

    def _headers(self, call: Call, *, own: bool) -> Mapping[str, str]:
        if own:
            kept = {key: each for key, each in call.headers.items() if key in _KEPT or key.startswith("anthropic-")}
            credentials = self._credentials(call.headers, call.model)
            return {"anthropic-version": VERSION, **kept, "content-type": "application/json", **credentials}
        if self._key is None:
            return fitting(call.headers, self, call.model)
        return {**without_credentials(call.headers), **self._credentials(call.headers, "")}

    async def models(self, headers: Mapping[str, str]) -> list[dict[str, Any]]:
        own = {"anthropic-version": VERSION, **without_credentials(headers), **self._credentials(headers, "")}
        response = await self._request("GET", "/v1/models?limit=1000", own, None)
        body = json_object(await response.read())
        if response.status in (401, 403):
            raise self._refusal(body, Call("/models", "", b"", headers), response.status, {})
        listed = json_objects(body.get("data")) if response.status == 200 else []
        return [_described(each) for each in listed if isinstance(each.get("id"), str)]

    def _credentials(self, headers: Mapping[str, str], model: str) -> dict[str, str]:
        """Return the header of the operator's key, else of the client's. Raise `Unauthorized` if there is none."""
        key = self._key
        if key is None:
            headers = fitting(headers, self, model)
            kind, _, bearer = headers.get("authorization", "").partition(" ")
            key = headers.get("x-api-key") or (bearer.strip() if kind.lower() == "bearer" else "")
        if not key:
            raise Unauthorized(f"no API key was given; upstream {self.name!r} needs one as a bearer token")
        return {"authorization": f"Bearer {key}"} if key.startswith(_OAUTH) else {"x-api-key": key}

    async def _deltas(self, response: Response, completion: Completion, call: Call, translation: Translation) -> Deltas:
        answer, body, facts = AnthropicAnswer(), translation.body, completion.facts
        asked = body["messages"]
        while True:
            async with aclosing(self._read(response, answer, call, is_stream=completion.stream)) as deltas:
                async for delta in deltas:
                    yield delta
            if answer.rounds[-1].stop != PAUSED or len(answer.rounds) > MOST_PAUSES:
                break
            body = {**body, "messages": [*asked, {"role": "assistant", "content": answer.content}]}
            facts["pauses"] = len(answer.rounds)
            answer.rounds.append(Blocks())
            response = await self._ask(call, body)
        # clients may not send it back as it was; one that was cut off is not kept, because nobody goes on with it
        message = answer.kept_message()
        if message is not None and call.keep is not None and not await call.keep(Message(message)):
            facts["unkept"] = "thinking_blocks"
        completion.usage = answer.usage(facts)
        if tier := TIERS.get(str(answer.rounds[-1].usage.get("service_tier"))):
            completion.head["service_tier"] = tier
        yield {"finish_reason": answer.finish_reason}

    async def _translated(self, call: Call, request: ChatRequest) -> Translation:
        if not _MODEL.fullmatch(request.model):
            told = f"The model {request.model[:200]!r} does not exist or you do not have access to it."
            raise NotFound(told, code="model_not_found")
        profile = call.profile
        most = room = 2**31 if profile is None else profile.max_output
        if profile is not None and request.max_output_tokens is None:
            # of a long prompt there may be less room than the model's maximum
            room = replace(call, counted=await call.count((profile.window - most) // 2)).room or room
        return AnthropicRequest(request, most=most, room=room).translation()


def _described(model: Mapping[str, Any]) -> dict[str, Any]:
    known = {"context_length": model.get("max_input_tokens"), "max_output_tokens": model.get("max_tokens")}
    limits = {name: value for name, value in known.items() if isinstance(value, int)}
    created = timestamp(model.get("created_at"))
    return {"id": model["id"], "object": "model", "created": created, "owned_by": "anthropic", **limits}


# --- answers, whole or as events, in OpenAI's exact form ---


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
        raise nonsense(Anthropic.server)
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
        self.rounds = [Blocks()]
        self._thoughts = self._calls = 0
        self._length = 0
        """Characters of text so far."""

    @property
    def content(self) -> list[Block]:
        """All blocks so far, as they go back to the model."""
        return [block for each in self.rounds for block in each.sent_back]

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
        try:
            for event in _events_of(part) if "content" in part else (part,):
                yield from self._added(event)
        except (KeyError, TypeError, AttributeError):
            raise nonsense(Anthropic.server) from None

    def _added(self, event: Mapping[str, Any]) -> Iterator[dict[str, Any] | None]:
        blocks, kind = self.rounds[-1], event["type"]
        blocks.feed(event)
        self.is_over = kind == "message_stop"
        if kind == "ping":
            yield None
        if not kind.startswith("content_block_"):
            return
        if event["index"] != len(blocks.content) - 1:
            raise nonsense(Anthropic.server)
        block = blocks.content[-1]
        match kind:
            case "content_block_start":
                yield from self._begin(block)
            case "content_block_delta":
                yield from self._more(block, event["delta"])
            case _:
                yield from self._end(block, has_arguments=any(blocks.arguments))

    def _begin(self, block: Block) -> Iterator[dict[str, Any]]:
        if not all(isinstance(block.get(name, ""), str) for name in ("type", "text", "thinking")):
            raise nonsense(Anthropic.server)
        match block["type"]:
            case "text" if block.get("text"):
                yield {"content": block["text"]}
            case "thinking" | "redacted_thinking" as kind:
                self._thoughts += 1
                text = {"reasoning_content": block["thinking"]} if block.get("thinking") else {}
                if text or block.get("signature") or kind == "redacted_thinking":
                    yield {**text, **self._thought(block)}
            case "tool_use":
                self._calls += 1
                yield self._call({"id": block["id"], "type": "function"}, {"name": block["name"], "arguments": ""})

    def _more(self, block: Block, delta: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        match delta["type"]:
            case "text_delta":
                yield {"content": delta["text"]}
            case "input_json_delta" if delta["partial_json"] and block["type"] == "tool_use":
                yield self._call({}, {"arguments": delta["partial_json"]})
            case "thinking_delta" if delta["thinking"]:
                thought = self._thought({"type": "thinking", "thinking": delta["thinking"]})
                yield {"reasoning_content": delta["thinking"], **thought}
            case "signature_delta":
                first = {} if block.get("thinking") else {"thinking": ""}
                yield self._thought({"type": "thinking", **first, "signature": delta["signature"]})

    def _end(self, block: Block, *, has_arguments: bool) -> Iterator[dict[str, Any]]:
        if block["type"] == "text":
            start, self._length = self._length, self._length + len(block["text"])
            if cited := [annotation(each, start, self._length) for each in block.get("citations") or ()]:
                yield {"annotations": cited}
        elif block["type"] == "tool_use" and not has_arguments:
            yield self._call({}, {"arguments": encode(block.get("input") or {}).decode()})

    def _thought(self, block: Block) -> dict[str, Any]:
        """Return the delta of a thinking block, with the index and type by which SDKs accumulate it."""
        return {"thinking_blocks": [{"index": self._thoughts - 1, **block}]}

    def _call(self, call: Mapping[str, Any], function: Mapping[str, Any]) -> dict[str, Any]:
        return {"tool_calls": [{"index": self._calls - 1, **call, "function": function}]}

    @property
    def finish_reason(self) -> str:
        return FINISH.get(str(self.rounds[-1].stop), "stop")

    def usage(self, facts: Facts) -> dict[str, Any]:
        """Return OpenAI's `usage` of all rounds, and note the figures."""
        used = spent(*(each.usage for each in self.rounds))
        counts = {**used, **used["prompt_tokens_details"]}
        facts |= {name: counts[name] for name in ("prompt_tokens", "completion_tokens", "cached_tokens")}
        if "cache_write_tokens" in counts:
            facts["written_tokens"] = counts["cache_write_tokens"]
        return used
