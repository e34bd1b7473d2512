"""Any server that speaks OpenAI's API: the client's bytes go out, the server's bytes come back."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote_plus

from yarl import URL

from proxy.config.settings import OpenAIUpstream
from proxy.context import ModelProfile
from proxy.http.client import Transport
from proxy.http.headers import without_credentials
from proxy.models import with_window
from proxy.text.json_values import json_object, json_objects
from proxy.upstreams.base import CHAT, Abilities, Call, Reply, Upstream, connect, relay
from proxy.upstreams.keys import fitting
from proxy.upstreams.refusal import openai_body, read_refusal, refusal_in

_SMALLEST, _MOST_WINDOWS = 256, 1024
"""Tokens of a window that is believed, and models whose window is remembered."""


def build(upstreams: Mapping[str, OpenAIUpstream], settings: object) -> dict[str, Upstream]:
    """Return the upstreams of this kind by name."""
    return {name: OpenAI(name, each) for name, each in upstreams.items()}


class OpenAI(Upstream):
    """An upstream that forwards bytes. Only the refusal of a prompt that does not fit is read and rewritten."""

    def __init__(self, name: str, settings: OpenAIUpstream, transport: Transport | None = None) -> None:
        self.name = name
        self.provider = settings.provider
        self.abilities = Abilities(
            translates=False,
            ask_usage=settings.ask_usage,
            speaks=frozenset({"chat", *settings.wires}),
            native_edits={"responses": frozenset({"compaction"})},
        )
        self.address = self._base = settings.base_url
        self._own_headers = {key.lower(): value.get_secret_value() for key, value in settings.headers.items()}
        if settings.api_key is not None:
            self._own_headers["authorization"] = f"Bearer {settings.api_key.get_secret_value()}"
        self._has_own_key = settings.has_own_key
        self._transport = transport or connect(name, settings)
        self._chat = URL(f"{self._base}{CHAT}")
        self._windows: dict[str, int] = {}
        """Windows from refusals that are smaller than known, by model."""

    async def send(self, call: Call) -> Reply:
        """Forward a call; an answer that is an event stream is relayed as it arrives, any other is read whole."""
        headers = without_credentials(call.headers) if self._has_own_key else fitting(call.headers, self, call.model)
        is_plain = call.path == CHAT and not call.query
        url = self._chat if is_plain else URL(f"{self._base}{call.target}", encoded=True)
        response = await self._transport.request(call.method, url, {**headers, **self._own_headers}, call.body or None)
        reply = await relay(response)
        return self._translated(call, reply) if reply.chunks is None else reply

    def _translated(self, call: Call, reply: Reply) -> Reply:
        """Return the answer. The refusal of a chat that does not fit gets the status and code that clients know."""
        if reply.status < 400 or call.path != CHAT:
            return reply
        overflow = read_refusal(reply.status, reply.body or b"")
        if overflow is None:
            return reply
        window, others = overflow.window or 0, (*call.headers.values(), unquote_plus(call.query))
        # where a server quotes a client, that one could set the window of all others
        if window >= _SMALLEST and len(self._windows) < _MOST_WINDOWS and not overflow.is_quoted(call.body, others):
            self._windows[call.model] = window
        return reply.as_json(openai_body(reply.body or b"", overflow), 400)

    async def profile(self, known: ModelProfile) -> ModelProfile:
        """Return the profile, with a smaller window if a refusal of the server named one."""
        window = self._windows.get(known.name)
        if window is None or window >= (known.max_input or known.window):
            return known
        return with_window(known, window, "upstream")

    async def models(self, headers: Mapping[str, str]) -> list[dict[str, Any]]:
        reply = await self.send(Call("/models", "", b"", headers, method="GET"))
        if reply.chunks is not None:
            await reply.chunks.aclose()
            return []
        if reply.status in (401, 403):
            raise refusal_in(reply)
        listed = json_objects(json_object(reply.body or b"").get("data"))
        return [model for model in listed if isinstance(model.get("id"), str)]

    async def aclose(self) -> None:
        await self._transport.aclose()
