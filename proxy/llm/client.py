"""The client of a small model at an upstream, without a chain. Callers must be able to go on without an answer."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

from proxy.chat import ChatRequest, Fields, Message
from proxy.chat.answer import Answer
from proxy.chat.errors import PenstockError
from proxy.config.settings import SmallModelSettings
from proxy.context import ModelProfile
from proxy.http.headers import CREDENTIALS
from proxy.models.usage import read_usage
from proxy.state.warnings import Warnings
from proxy.text.json_values import json_object, json_objects
from proxy.upstreams.base import CHAT, Call, Reply, Upstream
from proxy.upstreams.routing import Route, Routes

Made = TypeVar("Made")

_KEYS = CREDENTIALS - {"cookie", "proxy-authorization"}
_LARGEST_ANSWER = 2**20
"""Size of the largest answer in bytes, many times larger than any useful one."""
_OF_THE_TEXT = frozenset({400, 413, 422})
"""Statuses that blame the request, such as those of a content filter, and not the server."""


class SmallModel:
    """A client of the model that is configured for one purpose."""

    def __init__(
        self,
        settings: SmallModelSettings,
        routes: Routes,
        tokens: Callable[[str], Any],
        log: logging.Logger,
        lost: str,
    ) -> None:
        """Set up the client; `tokens` returns the counter of a kind of tokens; `lost` is the event of a failed call."""
        self._settings = settings
        self._routes = routes
        self._tokens = tokens
        self._warnings = Warnings(log, lost)
        self._refused: set[str] = set()
        """Fields that the model has refused: OpenAI's reasoning models accept no `max_tokens` and no temperature."""

    def authorization(self, upstream: Upstream, headers: Mapping[str, str]) -> dict[str, str]:
        """Return the client's key, in its header, if the small model is at the upstream that receives it anyway."""
        keys = {name: headers[name] for name in _KEYS & headers.keys()}
        return keys if keys and self._route().upstream is upstream else {}

    async def run(self, work: Awaitable[tuple[Made | None, str]]) -> tuple[Made | None, str]:
        """Return result and outcome of `work`, or None and `timeout`, `failed` or `broken`.

        It raises nothing but cancellation. A call without a result is logged.
        """
        cause = ""
        try:
            async with asyncio.timeout(self._settings.timeout):
                result, outcome = await work
        except TimeoutError:
            result, outcome = None, "timeout"
        except PenstockError:
            result, outcome = None, "failed"
        except Exception as error:  # a fault in an upstream's code must not fail a request
            result, outcome, cause = None, "broken", f": {type(error).__name__}"
        if result is None:
            self._warnings.warn(cause=outcome + cause)
        return result, outcome

    async def profile(self) -> ModelProfile:
        route = self._route()
        return await route.upstream.profile(route.profile)

    async def ask(
        self, messages: Sequence[Message], most: int, profile: ModelProfile, headers: Mapping[str, str]
    ) -> tuple[str | None, str]:
        """Return the text of a complete answer of at most `most` tokens, or None with `failed` or `unusable`."""
        route = self._route()
        # without lone surrogates, which clients make by cutting emoji in half and upstreams reject
        texts = (message.text.encode(errors="replace").decode() for message in messages)
        sound = tuple(message.with_changes(content=text) for message, text in zip(messages, texts, strict=True))
        sent = {"content-type": "application/json", "accept-encoding": "identity", **headers}
        while True:
            fields = self._fields(most)
            request = ChatRequest(route.model, sound, rest=Fields({**fields, "stream": False}))
            reply = await route.upstream.send(
                Call(CHAT, route.model, request.encode(), sent, request=request, profile=profile)
            )
            if (field := _refused_field(reply)) not in fields:
                break
            self._refused.add(field)
        if reply.chunks is not None:
            await reply.chunks.aclose()
            return None, "unusable"
        if reply.status != 200:
            return None, "unusable" if reply.status in _OF_THE_TEXT else "failed"
        answer = self._answer(reply.body or b"")
        return answer, "answered" if answer is not None else "unusable"

    def _fields(self, most: int) -> dict[str, float]:
        limit = "max_completion_tokens" if "max_tokens" in self._refused else "max_tokens"
        fields = {limit: most, "temperature": 0.0}
        return {name: value for name, value in fields.items() if name not in self._refused}

    def _route(self) -> Route:
        return self._routes.of(self._settings.model)

    def _answer(self, body: bytes) -> str | None:
        """Return the text of a complete answer; None for a refusal, a tool call, or an answer that was cut off."""
        if len(body) > _LARGEST_ANSWER:
            return None
        answer = json_object(body)
        used = read_usage(answer.get("usage"))
        for kind, tokens in (("input", used.input), ("output", used.output)):
            if tokens:
                self._tokens(kind).inc(tokens)
        choice = next(iter(json_objects(answer.get("choices"))), {})
        message = choice.get("message")
        read = Answer.of(message if isinstance(message, dict) else {}, choice.get("finish_reason"))
        is_whole = read.finish == "stop" and not (read.calls or read.refusal or read.other)
        return read.text or None if is_whole else None


def _refused_field(reply: Reply) -> str:
    """Return the field that the model does not support, or not with this value; empty for any other answer."""
    error = json_object(reply.body or b"").get("error") if reply.status == 400 else None
    if not isinstance(error, dict) or not str(error.get("code")).startswith("unsupported_"):
        return ""
    return str(error.get("param"))
