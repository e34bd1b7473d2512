"""One call of a small model: of an upstream, through no chain and no loop. What asks it goes on without an answer."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeVar

import orjson

from proxy.chat import ChatRequest, Fields, Message
from proxy.chat.errors import PenstockError
from proxy.config.settings import JudgeSettings, WriterSettings
from proxy.context import ModelProfile
from proxy.state.warnings import Warnings
from proxy.telemetry.series import Counts
from proxy.upstreams.base import Call, Reply, Upstream
from proxy.upstreams.routing import Route, Routes

Made = TypeVar("Made")

_LARGEST_ANSWER = 2**20
"""Bytes of an answer that is read: many times what anything needs that is asked of it."""
_OF_THE_TEXT = frozenset({400, 413, 422})
"""Statuses that are about what was asked, such as a filter's, and not about the server."""


class SmallModel:
    """Asks the configured model, for one purpose."""

    def __init__(
        self,
        settings: WriterSettings | JudgeSettings,
        routes: Routes,
        tokens: Counts,
        log: logging.Logger,
        lost: str,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`tokens` counts those that the upstream reports; `lost` is what the log says where nothing came of it."""
        self._settings = settings
        self._routes = routes
        self._tokens = tokens
        self._warnings = Warnings(log, lost, clock)
        self._refused: set[str] = set()
        """Fields that the model has refused: of OpenAI, those that reason take no `max_tokens` and no temperature."""

    def authorization(self, upstream: Upstream, headers: Mapping[str, str]) -> dict[str, str]:
        """What of a client's headers a call may carry: its key, if it goes where that is sent anyway."""
        key = headers.get("authorization")
        return {"authorization": key} if key and self._route().upstream is upstream else {}

    async def run(self, work: Awaitable[tuple[Made | None, str]]) -> tuple[Made | None, str]:
        """What comes of a call, and how it went: `work` says that, or `timeout`, `failed` or `broken`.

        It never raises but for cancellation. Where nothing came of it the log says so.
        """
        cause = ""
        try:
            async with asyncio.timeout(self._settings.timeout):
                made, outcome = await work
        except TimeoutError:
            made, outcome = None, "timeout"
        except PenstockError:
            made, outcome = None, "failed"
        except Exception as error:  # whatever an upstream's code runs into, no request depends on it
            made, outcome, cause = None, "broken", f": {type(error).__name__}"
        if made is None:
            self._warnings.warn(cause=outcome + cause)
        return made, outcome

    async def profile(self) -> ModelProfile:
        route = self._route()
        return await route.upstream.profile(route.profile)

    async def ask(
        self, messages: Sequence[Message], most: int, profile: ModelProfile, headers: Mapping[str, str]
    ) -> tuple[str | None, str]:
        """The text of a complete answer of at most so many tokens; or None, and `failed` or `unusable`."""
        fields = self._fields(most)
        reply = await self._send(messages, fields, profile, headers)
        while (field := _refused_field(reply)) in fields:
            self._refused.add(field)
            fields = self._fields(most)
            reply = await self._send(messages, fields, profile, headers)
        if reply.chunks is not None:
            await reply.chunks.aclose()
            return None, "unusable"
        if reply.status != 200:
            return None, "unusable" if reply.status in _OF_THE_TEXT else "failed"
        answer = self._answer(reply.body or b"")
        return answer, "answered" if answer is not None else "unusable"

    async def _send(
        self,
        messages: Sequence[Message],
        fields: Mapping[str, float],
        profile: ModelProfile,
        headers: Mapping[str, str],
    ) -> Reply:
        route = self._route()
        request = _request(route.model, messages, fields)
        sent = {"content-type": "application/json", "accept-encoding": "identity", **headers}
        return await route.upstream.send(
            Call("/chat/completions", route.model, request.encode(), sent, request=request, profile=profile)
        )

    def _fields(self, most: int) -> dict[str, float]:
        limit = "max_completion_tokens" if "max_tokens" in self._refused else "max_tokens"
        fields = {limit: most, "temperature": self._settings.temperature}
        return {name: value for name, value in fields.items() if name not in self._refused}

    def _route(self) -> Route:
        return self._routes.of(self._settings.model)

    def _answer(self, body: bytes) -> str | None:
        """The text of a complete answer; None for a refusal, a call, one that was cut off, or one without end."""
        if len(body) > _LARGEST_ANSWER:
            return None
        try:
            said = orjson.loads(body)
            choice = said["choices"][0]
            message, usage = choice["message"], said.get("usage") or {}
            for kind, tokens in (("input", usage.get("prompt_tokens")), ("output", usage.get("completion_tokens"))):
                if isinstance(tokens, int) and tokens > 0:
                    self._tokens.of(kind).inc(tokens)
            whole = choice.get("finish_reason") == "stop" and not message.get("tool_calls")
            content = message.get("content")
        except (orjson.JSONDecodeError, KeyError, IndexError, TypeError, AttributeError):
            return None
        return content if whole and not message.get("refusal") and isinstance(content, str) else None


def _request(model: str, messages: Sequence[Message], fields: Mapping[str, float]) -> ChatRequest:
    messages = [message.with_changes(content=_sound(message.text)) for message in messages]
    return ChatRequest(model, tuple(messages), rest=Fields({**fields, "stream": False}))


def _refused_field(reply: Reply) -> str:
    """The field that a model does not take, or not with this value; empty for any other answer."""
    try:
        error = orjson.loads(reply.body or b"")["error"] if reply.status == 400 else {}
        return str(error["param"]) if str(error["code"]).startswith("unsupported_") else ""
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return ""


def _sound(text: str) -> str:
    """A text as UTF-8 can hold it: clients that cut emoji in half send lone surrogates, and no upstream takes them."""
    return text.encode(errors="replace").decode()
