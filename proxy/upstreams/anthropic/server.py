"""Anthropic's server over HTTP: its address, the key, and what it gets of a client's headers."""

from collections.abc import Mapping

from yarl import URL

from proxy.chat.errors import Unauthorized
from proxy.config.settings import AnthropicUpstream
from proxy.http.client import Response
from proxy.http.headers import without_credentials
from proxy.upstreams.base import Call, connect
from proxy.upstreams.credentials import fitting

PROVIDER = "anthropic"
VERSION = "2023-06-01"
"""The version of the API that is translated to."""

LISTING = "limit=1000"

_KEPT = frozenset({"accept-encoding", "traceparent", "tracestate", "user-agent"})
"""Headers of a translated request that go out, besides those that begin with `anthropic-`."""

_OAUTH = "sk-ant-oat"
"""The beginning of keys that go out as a bearer token."""


class AnthropicServer:
    """One server and the connections to it."""

    def __init__(self, name: str, settings: AnthropicUpstream) -> None:
        self._name = name
        self._base = settings.base_url
        self._key = None if settings.api_key is None else settings.api_key.get_secret_value()
        self._transport = connect(name, settings)

    async def ask(self, headers: Mapping[str, str], body: bytes, model: str) -> Response:
        """Send a translated request.

        Raise `Unauthorized` without a key, `BadRequest` for another vendor's, and `UpstreamFailed`.
        """
        kept = {key: value for key, value in headers.items() if key in _KEPT or key.startswith("anthropic-")}
        own = {"content-type": "application/json", **self._credentials(headers, model)}
        return await self.send("POST", "/messages", {"anthropic-version": VERSION, **kept, **own}, body)

    async def models(self, headers: Mapping[str, str]) -> Response:
        """Ask for the list of models. Raises as `ask` does."""
        own = {"anthropic-version": VERSION, **without_credentials(headers), **self._credentials(headers, "")}
        return await self.send("GET", "/models", own, None, LISTING)

    async def forward(self, call: Call) -> Response:
        """Send a request of Anthropic's own unchanged, but for the keys.

        Raise `BadRequest` for another vendor's key, and `UpstreamFailed`.
        """
        if self._key is not None:
            headers: Mapping[str, str] = {**without_credentials(call.headers), **self._credentials(call.headers, "")}
        else:
            headers = fitting(call.headers, self._name, PROVIDER, call.model)
        return await self.send(call.method, call.path, headers, call.body or None, call.query)

    async def send(
        self, method: str, path: str, headers: Mapping[str, str], body: bytes | None, query: str = ""
    ) -> Response:
        """Send a request and wait for the head of its answer; `path` is below `/v1`. Raise `UpstreamFailed`."""
        url = URL(f"{self._base}/v1{path}{'?' if query else ''}{query}", encoded=True)
        return await self._transport.request(method, url, headers, body)

    def _credentials(self, headers: Mapping[str, str], model: str) -> dict[str, str]:
        """Return the header of the operator's key, else of the client's. Raise `Unauthorized` if there is none."""
        key = self._key
        if key is None:
            headers = fitting(headers, self._name, PROVIDER, model)
            kind, _, bearer = headers.get("authorization", "").partition(" ")
            key = headers.get("x-api-key") or (bearer.strip() if kind.lower() == "bearer" else "")
        if not key:
            raise Unauthorized(f"no API key was given; upstream {self._name!r} needs one as a bearer token")
        return {"authorization": f"Bearer {key}"} if key.startswith(_OAUTH) else {"x-api-key": key}

    async def aclose(self) -> None:
        await self._transport.aclose()
