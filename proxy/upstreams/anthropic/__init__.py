"""Anthropic through its own API: prompts are cached as it does it, and signed thinking survives.

`/v1/chat/completions` is translated to `/v1/messages`; every other path goes to Anthropic's own `/v1` as it is.
"""

import re
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import replace
from typing import Any

import orjson

from proxy.chat import ChatRequest, Message
from proxy.chat.errors import BadRequest, NotFound, Unanswered
from proxy.chat.sse import split_lines
from proxy.config.settings import AnthropicUpstream
from proxy.http.client import Response
from proxy.upstreams.anthropic.answer import SERVER, AnthropicAnswer, Facts
from proxy.upstreams.anthropic.errors import broken, refusal
from proxy.upstreams.anthropic.request import AnthropicRequest, translate
from proxy.upstreams.anthropic.server import PROVIDER, AnthropicServer
from proxy.upstreams.base import CHAT, Abilities, Call, Reply, Translator, Upstream, relay
from proxy.upstreams.completion import JSON_HEADERS, STREAM_HEADERS, encoded, hold_back, parsed, timestamp, wants_usage
from proxy.upstreams.images import Images
from proxy.upstreams.request_fields import check_fields, ignored_fact

PAUSES = 8
"""The most times that an answer which pauses is asked to go on."""

_MODEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@-]*", re.ASCII)

PING = b": ping\n\n"

RELAYED = (b"request-id", b"anthropic-")
"""The beginnings of headers that clients of Anthropic read: its request id and the remaining rates."""


def build(upstreams: Mapping[str, AnthropicUpstream], settings: object) -> dict[str, Upstream]:
    """Return the upstreams of this kind by name."""
    return {name: Anthropic(name, each) for name, each in upstreams.items()}


class Anthropic(Translator):
    """An upstream that translates chat requests to Messages and the answers back."""

    provider = PROVIDER
    abilities = Abilities(
        signs=True,
        speaks=frozenset({"chat", "messages"}),
        native_edits={"messages": frozenset({"clear_tool_uses_20250919", "defer_loading"})},
    )

    def __init__(self, name: str, settings: AnthropicUpstream) -> None:
        self.name = name
        self.address = settings.base_url
        self._strict = settings.strict_params
        self._server = AnthropicServer(name, settings)
        self._images = Images(settings, ["http"])

    async def send(self, call: Call) -> Reply:
        """Ask the model. A stream is held back until there is something to say, so that errors keep their status.

        Raise `BadRequest` for what cannot be translated, and Anthropic's refusals as errors of OpenAI's kind. Facts,
        which for a stream are complete at its end: `prompt_tokens`, `completion_tokens`, `cached_tokens` and
        `written_tokens` as the server counted them, `ignored` (a list of fields with commas), `pauses`, `error`.
        """
        if call.request is None or call.path != CHAT:
            return await self._pass(call)
        translation = await _translated(call, await self._images.inlined(call.request))
        facts: Facts = ignored_fact(translation.ignored, strict=self._strict)
        response = await self._ask(call, translation.body)
        answer = AnthropicAnswer(call.model, facts, show_usage=wants_usage(call.request.rest) and not call.hide_usage)
        headers = [(name, value) for name, value in response.headers if name.startswith(RELAYED)]
        if translation.body.get("stream"):
            events = await hold_back(self._spoken(response, answer, call, translation), facts)
            return Reply(200, [*STREAM_HEADERS, *headers], chunks=events, facts=facts)
        answer.read(parsed(await response.read(), SERVER))
        while self._goes_on(answer, translation):
            answer.read(parsed(await (await self._ask(call, translation.body)).read(), SERVER))
        await self._keep(answer, call)
        return Reply(200, [*JSON_HEADERS, *headers], body=answer.whole(), facts=facts)

    async def ignored(self, call: Call) -> tuple[str, ...]:
        return () if call.request is None or call.path != CHAT else (await _translated(call, call.request)).ignored

    async def _ask(self, call: Call, body: Mapping[str, Any]) -> Response:
        """Return the answer to a request. Raise Anthropic's refusal."""
        response = await self._server.ask(call.headers, encoded(body), call.model)
        if response.status != 200:
            raise refusal(response.status, await response.read(), response.headers, call)
        return response

    def _goes_on(self, answer: AnthropicAnswer, translation: AnthropicRequest) -> bool:
        """Return whether an answer has paused. If so, append it to the request, so that the model goes on with it."""
        pauses = int(answer.facts.get("pauses", 0))
        if not answer.paused or pauses >= PAUSES:
            return False
        answer.facts["pauses"] = pauses + 1
        messages = translation.body["messages"]
        if pauses:
            messages.pop()
        messages.append({"role": "assistant", "content": list(answer.content)})
        answer.go_on()
        return True

    async def _keep(self, answer: AnthropicAnswer, call: Call) -> None:
        """Have an answer remembered that clients may not send back as it was.

        Not an answer that was cut off: a client drops its calls, and nobody goes on with it.
        """
        message = answer.kept()
        if message is not None and call.keep is not None and not await call.keep(Message(message)):
            answer.facts["unkept"] = "thinking_blocks"

    async def models(self, headers: Mapping[str, str]) -> list[dict[str, Any]]:
        response = await self._server.models(headers)
        body = await response.read()
        if response.status in (401, 403):
            raise refusal(response.status, body, response.headers, Call("/models", "", b"", headers))
        try:
            listed = orjson.loads(body)["data"] if response.status == 200 else []
            return [_described(model) for model in listed if isinstance(model["id"], str)]
        except (orjson.JSONDecodeError, KeyError, TypeError):
            return []

    async def aclose(self) -> None:
        await self._server.aclose()
        await self._images.aclose()

    async def _pass(self, call: Call) -> Reply:
        """Forward a call to Anthropic's own API, and relay its answer as it is."""
        return await relay(await self._server.forward(call))

    async def _spoken(
        self, response: Response, answer: AnthropicAnswer, call: Call, translation: AnthropicRequest
    ) -> AsyncGenerator[bytes, None]:
        """Yield the client's events of a stream, and of the streams that go on with it. Raise the error of an event."""
        while True:
            async with aclosing(split_lines(response.chunks())) as lines:
                async for line in lines:
                    if not line.startswith(b"data:"):
                        continue
                    event = parsed(line[5:], SERVER)
                    kind = event.get("type")
                    if kind == "error":
                        raise broken(event, call)
                    if events := PING if kind == "ping" else answer.events(event):
                        yield events
            if not answer.done:
                raise Unanswered(f"the upstream {self.name!r} broke off its answer; it may have processed the request")
            if not self._goes_on(answer, translation):
                break
            response = await self._ask(call, translation.body)
        await self._keep(answer, call)
        yield answer.end()


async def _translated(call: Call, request: ChatRequest) -> AnthropicRequest:
    if not _MODEL.fullmatch(request.model):
        told = f"The model {request.model[:200]!r} does not exist or you do not have access to it."
        raise NotFound(told, code="model_not_found")
    check_fields(request.rest)
    profile = call.profile
    most = room = 2**31 if profile is None else profile.max_output
    if profile is not None and request.max_output_tokens is None:
        if call.counted is None and call.tokens is not None and len(call.body) > (profile.window - most) // 2:
            # there may be less room than the model's maximum
            call = replace(call, counted=await call.tokens.count(request))
        room = call.room or room
    try:
        return translate(request, most=most, room=room)
    except RecursionError:
        raise BadRequest("the body is nested too deeply", code="invalid_json") from None


def _described(model: Mapping[str, Any]) -> dict[str, Any]:
    known = {"context_length": model.get("max_input_tokens"), "max_output_tokens": model.get("max_tokens")}
    limits = {name: value for name, value in known.items() if isinstance(value, int)}
    return {
        "id": model["id"],
        "object": "model",
        "created": timestamp(model.get("created_at")),
        "owned_by": "anthropic",
        **limits,
    }
