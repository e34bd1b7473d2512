"""The contract of an upstream. Every kind of upstream answers in OpenAI's wire form."""

from abc import abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from proxy.chat import ChatRequest, Message, with_fields
from proxy.chat.sse import ByteStream
from proxy.config.settings import Connected
from proxy.context import ModelProfile, TokenCount, Tokens
from proxy.http.client import Response, Timeouts, Transport

CHAT = "/chat/completions"
"""The path below `/v1` of all calls that a chain has seen."""

MARGIN = 1.1
"""The factor by which a prompt may be longer than counted, where the tokenizer is not published."""


class Counter(Tokens, Protocol):
    """The counter of tokens, which learns from usage that upstreams report."""

    def observe(self, request: ChatRequest, counted: TokenCount, reported: int) -> None:
        """Compare a count with the prompt tokens that an upstream reported for the same request."""

    def refused(self, counted: TokenCount, least: int) -> None:
        """Learn that a request which was refused as too long had at `least` so many tokens."""


@dataclass
class Call:
    """One request to an upstream."""

    path: str
    """Below `/v1`: `/chat/completions`."""
    model: str
    """The upstream's name for the model; empty where the request names none."""
    body: bytes
    """The body to forward, for upstreams that speak OpenAI's wire form."""
    headers: Mapping[str, str]
    """The client's headers that may travel on, names in lower case; `authorization` is the client's own."""
    method: str = "POST"
    query: str = ""
    """The raw query string, without the question mark."""
    request: ChatRequest | None = None
    """The same request parsed, for upstreams that translate; its model is already the upstream's name."""
    profile: ModelProfile | None = None
    hide_usage: bool = False
    """Usage was asked for by Penstock alone, and must not reach the client."""
    counted: TokenCount | None = None
    """The tokens of `request`, where they were counted."""
    tokens: "Counter | None" = None
    """Counts tokens of `request`, for upstreams that report or check them."""
    keep: "Callable[[Message], Awaitable[bool]] | None" = None
    """Remembers an answer with signed reasoning, before the client has its end; whether that worked."""
    restores: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Texts that replace placeholders in the client's answer. Nobody else gets them."""

    @property
    def target(self) -> str:
        """The path with the query."""
        return f"{self.path}?{self.query}" if self.query else self.path

    @property
    def room(self) -> int | None:
        """Tokens that the window leaves for the answer, at least the usual reserve; None where that is not known."""
        used, profile = self.counted, self.profile
        if used is None or profile is None:
            return None
        return max(profile.window - int(used.total * (1 if used.exact else MARGIN)), profile.reserve)

    async def count(self, least: float) -> TokenCount | None:
        """Return our count of the prompt. It is made here, if need be, for a body of more than `least` bytes."""
        if self.counted is None and self.tokens is not None and self.request is not None and len(self.body) > least:
            return await self.tokens.count(self.request)
        return self.counted

    def fitted(self) -> "Call":
        """Return the call with its limits of the answer lowered to its room.

        The call itself, if they are lower or if the window is only a guess.
        """
        request, room = self.request, self.room
        if request is None or room is None or self.profile is None or self.profile.source == "default":
            return self
        shorter = request.with_shorter_answer(room)
        return self if shorter is request else with_fields(self, request=shorter, body=shorter.encode())


OF_BODY = frozenset({b"content-type", b"content-encoding"})
"""Headers that go with a body that is replaced."""


@dataclass
class Reply:
    """An upstream's answer: either whole in `body`, or a stream in `chunks`."""

    status: int
    headers: list[tuple[bytes, bytes]] = field(default_factory=list)
    """Response headers, names in lower case, without hop-by-hop ones, cookies and the length."""
    body: bytes | None = None
    chunks: ByteStream | None = None
    """The body as it arrives; closing it drops the upstream request at once."""
    facts: Mapping[str, str | int | float | bool] = field(default_factory=dict)
    """Observations for spans and logs: `truncated`, `ignored` fields, the `cpu_seconds` of a process that worked on it,
    and where the bytes do not show them, `prompt_tokens`, `completion_tokens` and `cached_tokens`. They may be filled
    until the body ends."""

    def as_json(self, body: bytes, status: int | None = None) -> "Reply":
        """Return the reply with JSON in place of its body or stream."""
        headers = [(name, value) for name, value in self.headers if name not in OF_BODY]
        headers.append((b"content-type", b"application/json"))
        return Reply(status or self.status, headers, body, facts=self.facts)


@dataclass(frozen=True, slots=True)
class Abilities:
    """Features of an upstream that the gateway depends on."""

    translates: bool = True
    """It needs `Call.request`; false for those that forward the bytes."""
    signs: bool = False
    """It signs reasoning, and has it remembered for clients that do not send it back (`Call.keep`)."""
    limits_answers: bool = True
    """It refuses a request whose prompt and longest answer together exceed the window."""
    speaks: frozenset[str] = frozenset({"chat"})
    """Names of the wires that it is asked in as the client speaks them."""
    native_edits: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Edits that it makes itself, by the wire of the request: the provider's names."""
    ask_usage: bool = False
    """It is asked for usage in streams whose client did not ask."""


class Upstream(Protocol):
    """A server or provider that requests go to. It is built once from its settings, and owns its connections."""

    name: str
    """Its name in the configuration."""
    address: str | None = None
    """Its base URL, for telemetry."""
    provider: str
    """The value of `gen_ai.provider.name`."""
    abilities: Abilities = Abilities()

    @abstractmethod
    async def send(self, call: Call) -> Reply:
        """Forward a call. Raise `UpstreamFailed` only before the first byte; cancelling it drops the request."""

    async def ignored(self, call: Call) -> tuple[str, ...]:
        """Return the fields of a call that the upstream does not support, unsent. Raise `BadRequest` as `send` does."""
        return ()

    async def profile(self, known: ModelProfile) -> ModelProfile:
        """Return the profile of a model, completed by the server's own report. Never raise."""
        return known

    async def models(self, headers: Mapping[str, str]) -> list[dict[str, Any]]:
        """Return the upstream's own list of models (`GET /v1/models` entries); empty if it has none.

        Raise `PenstockError` if it refuses the key (401 or 403), or if the key is another vendor's.
        """
        return []

    async def aclose(self) -> None:
        """Close all connections."""
        return


def connect(name: str, settings: Connected) -> Transport:
    """Return the connections to an upstream's server; nothing is connected yet."""
    timeouts = Timeouts(settings.connect_timeout, settings.idle_timeout)
    return Transport(name, timeouts, largest=int(settings.max_answer_mib * 2**20))


async def relay(response: Response) -> Reply:
    """Return a server's answer as it is: text and JSON whole, events and all else as it arrives."""
    if response.is_stream:
        return Reply(response.status, response.headers, chunks=response)
    return Reply(response.status, response.headers, body=await response.read())
