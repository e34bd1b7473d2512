"""The small model that writes summaries and gists: one call of an upstream, through no chain and no loop."""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import orjson

from proxy import gists, written
from proxy.chat import ChatRequest, JsonObject, Message
from proxy.context import Material
from proxy.errors import PenstockError
from proxy.routing import Route, Routes
from proxy.settings import WriterSettings
from proxy.telemetry.service_metrics import WriterMetrics
from proxy.upstream import Call, Upstream

_log = logging.getLogger("penstock.writer")

_CHARACTERS = 2.5
"""Of a transcript for each token of the writer's window: as dense as text of many identifiers."""
_LARGEST = 400_000
"""Characters of a transcript at most, whatever the window."""
_OVERHEAD = 600
"""Tokens of the instructions."""
_DENSE = 2
"""Bytes that a token of an answer has at least."""
_LARGEST_ANSWER = 2**20
"""Bytes of an answer that is read: many times what any summary needs."""
_WARN_EVERY = 60.0


class _Kind(NamedTuple):
    """How one kind of text is asked for: what is shown, what is told, and what of the answer may be used."""

    shown: Callable[[Sequence[Message], int], str]
    prompt: Callable[[str, str, int], list[Message]]
    checked: Callable[[str, str, int], str | None]


_KINDS = {
    "summary": _Kind(written.transcript, written.prompt, written.checked),
    "gist": _Kind(gists.shown, gists.prompt, gists.checked),
}


class Writer:
    """Writes summaries with the configured model. It never raises but for cancellation."""

    def __init__(
        self,
        settings: WriterSettings,
        routes: Routes,
        metrics: WriterMetrics,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.settings = settings
        self._routes = routes
        self._metrics = metrics
        self._clock = clock
        self._warned: dict[str, float] = {}

    def authorization(self, upstream: Upstream, headers: Mapping[str, str]) -> dict[str, str]:
        """What of a client's headers the writer's call may carry: its key, if it goes where that is sent anyway."""
        key = headers.get("authorization")
        return {"authorization": key} if key and self._route().upstream is upstream else {}

    async def write(self, material: Material, headers: Mapping[str, str]) -> str | None:
        """The summary of a material, or None where none came that may be used."""
        try:
            async with asyncio.timeout(self.settings.timeout):
                text, outcome = await self._written(material, headers)
        except TimeoutError:
            text, outcome = None, "timeout"
        except PenstockError:
            text, outcome = None, "failed"
        except Exception as error:  # whatever an upstream's code runs into, no request depends on it
            text, outcome = None, f"broken: {type(error).__name__}"
        self._metrics.ended(outcome.partition(":")[0])
        if text is None:
            self._warn(outcome)
        return text

    def _route(self) -> Route:
        return self._routes.of(self.settings.model)

    async def _written(self, material: Material, headers: Mapping[str, str]) -> tuple[str | None, str]:
        route, kind = self._route(), _KINDS[material.kind]
        profile = await route.upstream.profile(route.profile)
        most = max(64, min(self.settings.max_tokens, material.size // _DENSE, profile.window // 4))
        room = int((profile.window - most - _OVERHEAD) * _CHARACTERS)
        shown = await asyncio.to_thread(kind.shown, material.messages, min(_LARGEST, room) - len(material.before))
        request = _request(
            route.model, kind.prompt(material.before, shown, material.size), most, self.settings.temperature
        )
        sent = {"content-type": "application/json", "accept-encoding": "identity", **headers}
        reply = await route.upstream.send(
            Call("/chat/completions", route.model, request.encode(), sent, request=request, profile=profile)
        )
        if reply.chunks is not None:
            await reply.chunks.aclose()
            return None, "unusable"
        if reply.status != 200:
            return None, "failed"
        answer = self._answer(reply.body or b"")
        if answer is None:
            return None, "unusable"
        text = await asyncio.to_thread(kind.checked, answer, f"{material.before}\n{shown}", material.size)
        return text, "unusable" if text is None else "written"

    def _answer(self, body: bytes) -> str | None:
        """The text of a complete answer; None for a refusal, a call, one that was cut off, or one without end."""
        if len(body) > _LARGEST_ANSWER:
            return None
        try:
            said = orjson.loads(body)
            choice = said["choices"][0]
            message, usage = choice["message"], said.get("usage") or {}
            self._metrics.used(usage.get("prompt_tokens"), usage.get("completion_tokens"))
            whole = choice.get("finish_reason") == "stop" and not message.get("tool_calls")
            content = message.get("content")
        except (orjson.JSONDecodeError, KeyError, IndexError, TypeError, AttributeError):
            return None
        return content if whole and not message.get("refusal") and isinstance(content, str) else None

    def _warn(self, outcome: str) -> None:
        now = self._clock()
        if now - self._warned.get(outcome, float("-inf")) >= _WARN_EVERY:
            self._warned[outcome] = now
            _log.warning("no summary was written", extra={"fields": {"cause": outcome}})


def _request(model: str, messages: Sequence[Message], most: int, temperature: float) -> ChatRequest:
    rest = {"max_tokens": most, "temperature": temperature, "stream": False}
    return ChatRequest(model, tuple(messages), rest=JsonObject(rest))
