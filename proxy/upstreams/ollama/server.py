"""An Ollama server over HTTP: what it is sent of a client's headers, and questions about itself."""

from collections.abc import Mapping
from typing import Any

from yarl import URL

from proxy.chat import encode
from proxy.chat.errors import PenstockError
from proxy.config.settings import OllamaUpstream
from proxy.http.client import Response
from proxy.upstreams.base import connect
from proxy.upstreams.completion import parsed

FORWARDED = ("accept", "content-type", "traceparent", "tracestate")
"""Headers that Ollama gets of a request. The client's credentials are not among them."""


class OllamaServer:
    """One server and the connections to it."""

    def __init__(self, name: str, settings: OllamaUpstream) -> None:
        self._base = settings.base_url
        self._headers = {"accept-encoding": "identity"}
        if settings.api_key is not None:
            self._headers["authorization"] = f"Bearer {settings.api_key.get_secret_value()}"
        self._transport = connect(name, settings)

    async def request(self, method: str, path: str, headers: Mapping[str, str], body: bytes | None) -> Response:
        """Send a request and wait for the head of its answer; `path` is encoded. Raise `UpstreamFailed`."""
        kept = {name: headers[name] for name in FORWARDED if name in headers}
        if path.startswith("/api/"):
            kept["content-type"] = "application/json"
        url = URL(f"{self._base}{path}", encoded=True)
        return await self._transport.request(method, url, {**kept, **self._headers}, body)

    async def ask(self, method: str, path: str, body: Any = None) -> Mapping[str, Any] | None:
        """Return the JSON answer to a question about the server; None if it has none. Never raise."""
        try:
            response = await self.request(method, path, {}, None if body is None else encode(body))
            answer = await response.read()
            return parsed(answer, "Ollama") if response.status == 200 else None
        except PenstockError:
            return None

    async def aclose(self) -> None:
        await self._transport.aclose()
