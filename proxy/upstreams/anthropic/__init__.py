"""Anthropic through its own API: prompts are cached as it does it, and signed thinking survives.

`/v1/chat/completions` is translated to `/v1/messages`; every other path goes to Anthropic's own `/v1` as it is.
"""

import re
from collections.abc import Mapping
from contextlib import aclosing
from dataclasses import replace
from typing import Any

from proxy.chat import ChatRequest, Message
from proxy.chat.errors import NotFound, Unauthorized
from proxy.config.settings import AnthropicUpstream
from proxy.http.client import Response
from proxy.http.headers import without_credentials
from proxy.text.json_values import json_object, json_objects
from proxy.upstreams.anthropic.answer import SERVER, AnthropicAnswer
from proxy.upstreams.anthropic.request import AnthropicRequest
from proxy.upstreams.base import Abilities, Call, Upstream
from proxy.upstreams.completion import Completion, Deltas, timestamp
from proxy.upstreams.keys import fitting
from proxy.upstreams.translated import TranslatedServer, Translation

VERSION = "2023-06-01"
"""The version of the API that is translated to."""

MOST_PAUSES = 8

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

    provider, server, path = "anthropic", SERVER, "/v1/messages"
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
            if not answer.paused or answer.pauses >= MOST_PAUSES:
                break
            body = {**body, "messages": [*asked, {"role": "assistant", "content": answer.content}]}
            answer.go_on()
            facts["pauses"] = answer.pauses
            response = await self._ask(call, body)
        # clients may not send it back as it was; one that was cut off is not kept, because nobody goes on with it
        message = answer.kept_message()
        if message is not None and call.keep is not None and not await call.keep(Message(message)):
            facts["unkept"] = "thinking_blocks"
        completion.usage = answer.usage(facts)
        if answer.service_tier is not None:
            completion.head["service_tier"] = answer.service_tier
        yield {"finish_reason": answer.finish_reason}

    async def _translated(self, call: Call, request: ChatRequest) -> Translation:
        if not _MODEL.fullmatch(request.model):
            told = f"The model {request.model[:200]!r} does not exist or you do not have access to it."
            raise NotFound(told, code="model_not_found")
        profile = call.profile
        most = room = 2**31 if profile is None else profile.max_output
        if profile is not None and request.max_output_tokens is None:
            if call.counted is None and call.tokens is not None and len(call.body) > (profile.window - most) // 2:
                # there may be less room than the model's maximum
                call = replace(call, counted=await call.tokens.count(request))
            room = call.room or room
        return AnthropicRequest(request, most=most, room=room).translation()


def _described(model: Mapping[str, Any]) -> dict[str, Any]:
    known = {"context_length": model.get("max_input_tokens"), "max_output_tokens": model.get("max_tokens")}
    limits = {name: value for name, value in known.items() if isinstance(value, int)}
    created = timestamp(model.get("created_at"))
    return {"id": model["id"], "object": "model", "created": created, "owned_by": "anthropic", **limits}
