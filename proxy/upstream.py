"""What the gateway asks of an upstream, and what it gets back. Every kind of upstream answers in OpenAI's wire form."""

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from proxy.chat import ChatRequest
from proxy.context import ModelProfile


@dataclass(frozen=True, slots=True)
class Call:
    """One request to an upstream."""

    path: str
    """Below `/v1`: `/chat/completions`."""
    body: bytes
    """The body to forward, for upstreams that speak OpenAI's wire form."""
    headers: Mapping[str, str]
    """What of the client's headers may travel on, names in lower case; `authorization` is the client's own."""
    method: str = "POST"
    query: str = ""
    """The raw query string, without the question mark."""
    request: ChatRequest | None = None
    """The same request parsed, for upstreams that translate; its model is already the upstream's name."""
    profile: ModelProfile | None = None


@dataclass(slots=True)
class Reply:
    """An upstream's answer: either whole in `body`, or a stream in `chunks`."""

    status: int
    headers: list[tuple[str, str]] = field(default_factory=list)
    """Response headers, already without hop-by-hop ones."""
    body: bytes | None = None
    chunks: AsyncIterator[bytes] | None = None
    """The body as it arrives. Closing the iterator (`aclose`) drops the upstream request at once."""
    facts: Mapping[str, str | int | float | bool] = field(default_factory=dict)
    """What the upstream noticed, for spans and logs: `truncated`, `retries`."""


class Upstream(Protocol):
    """Where requests go. Built once from its settings; owns its connections."""

    name: str
    translates: bool
    """Whether it needs `Call.request`; false for those that forward the bytes."""
    provider: str
    """The value of `gen_ai.provider.name`."""

    async def send(self, call: Call) -> Reply:
        """Forward a call. Raises `UpstreamFailed` only before the first byte; cancelling it drops the request."""

    async def models(self) -> list[dict[str, Any]]:
        """The upstream's own list of models (`GET /v1/models` entries); empty where it has none."""

    async def aclose(self) -> None:
        """Close all connections."""
