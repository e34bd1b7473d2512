"""The classes behind `config.yaml`: their fields are its keys, their docstrings its documentation."""

import re
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, InstanceOf, SecretStr, WithJsonSchema

from proxy.config.access_settings import AuthSettings, LimitsSettings, PassThroughAuth
from proxy.config.embedding_settings import AutoEmbedding, EmbeddedVectors, EmbeddingSettings, VectorSettings
from proxy.config.fields import Base, Globs, HttpUrl, Key, Seconds
from proxy.config.state_settings import State, StateSettings
from proxy.config.upstream_settings import Connected, Guarded, Translated
from proxy.policy import Policy


class RecordsSettings(Base):
    """The records of requests for `/ui`, `/admin` and `/v1/explain`. In short `records: off`.

    They stand beside the state: in its directory, or on its Redis server. They never push out what requests need.
    """

    keep: bool = True
    """Record requests."""

    days: float = Field(default=7.0, gt=0)
    """Days after which a record goes."""

    max_mib: float = Field(default=64.0, ge=1)
    """MiB of all records, texts included. The oldest go first. 64 are some 25,000 requests."""

    per_second: float = Field(default=100.0, gt=0)
    """Requests that a process records in a second, twice as many in a burst. `penstock_records_skipped_total` counts
    the others."""

    text: bool = False
    """Keep the text of requests, as they came and as they were sent, and of answers: operators then read what users
    write."""


def _short(value: Any) -> Any:
    return {"keep": False} if value is False or value == "off" else value


Records = Annotated[
    RecordsSettings, BeforeValidator(_short, json_schema_input_type=RecordsSettings | Literal[False, "off"])
]
"""The records of requests."""


class SmallModelSettings(Base):
    """A small model that works for steps."""

    model: str = Field(min_length=1)
    """A name that `models` routes. It gets the client's key only if its upstream is that of the client's request; any
    other upstream needs a key of its own."""

    max_tokens: int
    timeout: Seconds


class JudgeSettings(SmallModelSettings):
    """A small chat model that answers with one word. Both texts are sent to it."""

    max_tokens: int = Field(default=16, ge=1)
    """One word is asked for; a model that reasons first needs more."""

    timeout: Seconds = 10.0
    """Seconds for one call. Requests wait only as long as their step says."""


class PilotSettings(Base):
    """The cache pilot, which spends a little to keep prompts in the provider's cache. It is off by default.

    It needs a chain that is not empty, and a model with known prices and cache rules.
    """

    max_usd_per_day: float = Field(default=0.0, ge=0)
    """US dollars that a process may spend on refreshes of idle conversations. They use the client's own key."""

    hold: float = Field(default=0.0, ge=0, le=10)
    """Seconds for which a request waits at most for the first answer to another one with the same tools and system
    messages, if these are not in the cache yet."""


class MemoriesSettings(Base):
    """Memories of applications about their users, by `/v1/memories`. They stay where `state` says."""

    max_per_user: int = Field(default=10_000, ge=1, le=100_000)
    """Memories of one user, and of a tenant's memories without a user. The least confident leave first, of these the
    oldest."""

    max_users: int = Field(default=10_000, ge=1, le=100_000)
    """Users of one tenant that have memories. The least recently used leaves."""

    max_characters: int = Field(default=2000, ge=100, le=16_000)
    """The longest text of one memory."""

    max_import: int = Field(default=10_000, ge=1)
    """Memories in one request."""

    merge_at: float = Field(default=0.92, gt=0, le=1)
    """The share of the longer text's words that two texts of one kind must have in common, in one order, to be one
    memory."""

    ttl: Seconds = 365 * 86400.0
    """Seconds for which a user's memories stay after their last use."""


class ServerSettings(Base):
    """The address that Penstock listens on, and the rights and bounds of clients."""

    host: str = "127.0.0.1"
    """The address; `0.0.0.0` for all."""

    port: int = Field(default=4000, ge=0, le=65535)
    """The port; 0 takes a free one."""

    max_body_mib: float = Field(default=32, gt=0)
    """The largest request body. Larger ones get a 413."""

    max_messages: int = Field(default=10_000, ge=1)
    """The most messages for a chain; also the most tools, and the most parts and calls in all. More get a 400. An empty
    chain reads nothing."""

    chain_deadline: Seconds = 5.0
    """Seconds for all steps of a chain together, except those without which the prompt does not fit. Time that a busy
    machine takes from a step does not count, up to four times as much."""

    patience: Seconds = 60.0
    """Seconds for a guard, and for a step without which the prompt does not fit. Keep it below the timeouts of clients
    and load balancers."""

    remember_mib: int = Field(default=64, ge=1, le=65536)
    """MiB of work that a process remembers between requests: short forms, passages, findings. Decisions, parsed
    requests and sent prompts take up to 2.5 times as much besides. With less, more work is repeated."""

    keep_alive: Seconds = 75.0
    """Seconds for which an idle client connection stays open. Set it longer than a load balancer's."""

    drain_delay: float = Field(default=0.0, ge=0)
    """Seconds after SIGTERM during which new connections are still taken, so that load balancers notice `/readyz`."""

    drain: Seconds = 30.0
    """Seconds that requests under way then have. The rest is cut, with an error as its last event."""

    watch: bool = True
    """Reload this file, and files that it names, when they change. Otherwise only on SIGHUP or `POST /admin/reload`."""

    warm: bool = False
    """Run each chain once before `/readyz` says ready, so that the first request is fast. It takes a second or two,
    with a large embedding model some ten."""

    stuck_after: Seconds = 60.0
    """Seconds after which a worker thread that is busy with one job counts as stuck, and `/healthz` is a 503."""

    hosts: Globs | tuple[()] = ()
    """Further names that clients reach Penstock by (globs), such as `llm.example.com`. Where clients need no key of
    Penstock, another `Host` with a dot that is no address is a 403, because a web page may be behind it.
    `host.docker.internal`, `host.containers.internal` and `gateway.docker.internal` are always allowed."""

    cors_origins: Globs | tuple[()] = ()
    """Origins whose web pages may send requests under `/v1` (globs), such as `https://chat.example.com` or `app://*`.
    By default none may."""

    admin_port: int | None = Field(default=None, ge=0, le=65535)
    """A separate port for `/metrics`, `/admin` and `/ui`, which then leave the main one; 0 takes a free one."""

    admin_host: str | None = None
    """The address of that port; by default `host`."""

    admin_key: Key = None
    """The bearer token for `/admin`, and for `/metrics` on `port`. Without it `/admin` and `/ui` are open on
    `admin_port`, or without that on loopback; if clients have keys of Penstock, only on `admin_port`, with
    `/metrics`."""

    may_bypass: bool = True
    """Allow `x-penstock-bypass: true`, which skips the chain except its guards; otherwise it is a 400."""

    may_choose_chain: bool = True
    """Allow `x-penstock-chain: NAME`; otherwise it is a 400."""


_SELF_SIGNED = frozenset(
    {"bedrock", "bedrock_converse", "oci", "sagemaker", "sagemaker_chat", "vertex_ai", "vertex_ai_beta"}
)
"""Providers whose requests are signed with the operator's account: a client's key has no place there."""
_CREDENTIAL = re.compile(r"key|token|secret|credential|password")
_CREDENTIAL_HEADER = re.compile(r"authorization|(?:x-)?api-key", re.IGNORECASE)


class EchoUpstream(Base):
    """Answers itself, with a report of the request that reached it. For demos and tests."""

    module: ClassVar[str] = "proxy.upstreams.echo"
    kind: Literal["echo"]

    has_own_key: ClassVar[bool] = True
    """It needs no key."""


class OpenAIUpstream(Connected):
    """Any server that speaks OpenAI's API. Bytes go through unchanged."""

    module: ClassVar[str] = "proxy.upstreams.openai"
    kind: Literal["openai"]

    base_url: HttpUrl = "https://api.openai.com/v1"
    """The address up to and including `/v1`."""

    api_key: Key = None
    """Without a key the client's is passed on; with one the client's never leaves Penstock."""

    keyless: bool = False
    """The server needs no key: it gets none, not even the client's."""

    headers: dict[str, SecretStr] = Field(default_factory=dict)
    """Headers to add to each request."""

    provider: str = "openai"
    """The name in telemetry (`gen_ai.provider.name`). The server gets no key that is known to be another vendor's."""

    wires: tuple[Literal["responses", "messages"], ...] = ("responses",)
    """The wires besides chat completions that the server speaks. Requests of another one become chat completions, and
    answers are written back."""

    ask_usage: bool = False
    """Ask for usage in streams whose client did not (`stream_options.include_usage`), and keep it from the client."""

    @property
    def has_own_key(self) -> bool:
        """True if the server needs no key of the client's."""
        return self.keyless or self.api_key is not None or any(map(_CREDENTIAL_HEADER.fullmatch, self.headers))


class OllamaUpstream(Connected, Translated):
    """An Ollama server, through its native API.

    Its OpenAI-compatible API ignores `num_ctx` and cuts prompts silently.
    """

    module: ClassVar[str] = "proxy.upstreams.ollama"
    kind: Literal["ollama"]

    base_url: HttpUrl = "http://127.0.0.1:11434"
    """The address, without `/v1` or `/api`."""

    api_key: Key = None
    """A bearer token, if a proxy in front of the server needs one."""

    keep_alive: Annotated[int | str | None, Field(union_mode="left_to_right")] = None
    """The time for which the model stays loaded after a request: `5m`, seconds, or -1 for ever."""

    has_own_key: ClassVar[bool] = True
    """It never gets the client's key."""


class AnthropicUpstream(Connected, Translated):
    """Anthropic, or a server with its API, with prompt cache and signed thinking."""

    module: ClassVar[str] = "proxy.upstreams.anthropic"
    kind: Literal["anthropic"]

    base_url: HttpUrl = "https://api.anthropic.com"
    """The address, without `/v1`."""

    api_key: Key = None
    """Without a key the client's is passed on; with one the client's never leaves Penstock."""

    @property
    def has_own_key(self) -> bool:
        return self.api_key is not None


class ForeignUpstream(Guarded, Translated):
    """Every other provider, through litellm: Bedrock, Gemini, Vertex, ...

    litellm runs in one process for all upstreams of this kind, because its streams cost ten times the CPU of other
    kinds.
    """

    module: ClassVar[str] = "proxy.upstreams.foreign"
    kind: Literal["foreign"]

    provider: str = Field(pattern=r"^[a-z0-9_]+$")
    """litellm's name of the provider: `bedrock`, `gemini`, `mistral`, ..."""

    api_key: Key = None
    """Without a key the client's is passed on, but never to bedrock, vertex, sagemaker or oci."""

    base_url: HttpUrl | None = None
    """The address, without `/v1`; by default the provider's own."""

    options: dict[str, SecretStr] = Field(default_factory=dict)
    """Further arguments for the provider, such as `aws_region_name` or `vertex_project`."""

    timeout: Seconds = 600.0
    """Seconds for a whole answer."""

    @property
    def has_own_key(self) -> bool:
        """True if requests go out with the operator's key or account, and never with the client's key."""
        own = self.api_key is not None or self.provider in _SELF_SIGNED
        return own or any(_CREDENTIAL.search(key) for key in self.options)


UpstreamSettings = Annotated[
    EchoUpstream | OpenAIUpstream | AnthropicUpstream | OllamaUpstream | ForeignUpstream, Field(discriminator="kind")
]


class PricesSettings(Base):
    """US dollars per million tokens."""

    input: float = Field(default=0.0, ge=0)
    """Tokens of prompts."""

    output: float = Field(default=0.0, ge=0)
    """Tokens of answers."""

    above: int = Field(default=0, ge=0)
    """Tokens of prompt above which the whole request costs `input_above` and `output_above`; 0 for one price."""

    input_above: float = Field(default=0.0, ge=0)
    """Tokens of such a prompt."""

    output_above: float = Field(default=0.0, ge=0)
    """Tokens of its answer."""


class CacheSettings(Base):
    """The prices of the provider's prompt cache, as multiples of the input price."""

    read: float = Field(default=1.0, ge=0, le=1)
    """Tokens of an unchanged, re-sent prefix: 0.1 is a tenth; 1 means there is no cache."""

    write: float = Field(default=1.0, ge=0, le=10)
    """Tokens that enter the cache."""

    minimum: int = Field(default=0, ge=0)
    """The shortest prefix that is cached, in tokens."""

    ttl: float = Field(default=0.0, ge=0)
    """Seconds for which an unused prefix stays."""

    marked: bool = False
    """Only prefixes are cached that a request marks with `cache_control`, as `mark_cache` does."""

    keyed: bool = False
    """Requests with the same `prompt_cache_key` reach the same cache: `mark_cache` sets one."""


class ModelSettings(Base):
    """The upstream and chain of a model, and facts that Penstock cannot know by itself."""

    match: Globs
    """Globs of the names that clients ask for: `gpt-*`."""

    upstream: str
    """A name from `upstreams`."""

    model: str | None = None
    """The upstream's name for the model, if it differs from the client's."""

    chain: str = "default"
    """A name from `chains`."""

    window: int | None = Field(default=None, gt=0)
    """Tokens of prompt and answer together."""

    max_output: int | None = Field(default=None, gt=0)
    """The most tokens of an answer."""

    reserve: int | None = Field(default=None, ge=0)
    """Tokens kept free for the answer. Fewer where the client allows fewer (`max_tokens`), up to an eighth of the
    window where it allows more."""

    tokenizer: str | None = None
    """A tiktoken encoding, the path of a `tokenizer.json`, or `chars` (four characters a token)."""

    factor: float | None = Field(default=None, gt=0, le=10)
    """Tokens of this model per token of `tokenizer`, if that is another model's."""

    num_ctx: int | None = Field(default=None, gt=0)
    """Ollama only: the context size. It is fixed, because a change would load the model anew."""

    fallbacks: tuple[str, ...] = ()
    """Models to ask, in this order, if the upstream fails before its answer begins: no connection, an open breaker, a
    429, or a status from 500 on."""

    may_repeat: bool = False
    """Ask `fallbacks` and let SDKs try again also where the upstream may have processed the request. You may pay
    twice."""

    larger: str | None = None
    """The model to ask if a request does not fit this one's window."""

    binds_reasoning: bool | None = None
    """The provider binds signed reasoning to everything before it, so that nothing there may change. By default true,
    unless the model is known to be older."""

    prices: PricesSettings | None = None
    """The prices of tokens."""

    cache: CacheSettings | None = None
    """The prices of the prompt cache."""


class TelemetrySettings(Base):
    """Traces and logs. Metrics are always on `/metrics`. None contains prompt text."""

    endpoint: HttpUrl | None = None
    """The OTLP endpoint; `OTEL_EXPORTER_OTLP_ENDPOINT` counts too. Without either there are no traces."""

    protocol: Literal["http", "grpc"] = "http"
    """The protocol of the endpoint."""

    console: bool = False
    """Print spans on standard error."""

    service_name: str = "penstock"
    """The service's name in traces."""

    trace_url: HttpUrl | None = None
    """The address of a trace in your viewer, with `{trace_id}` in it: the page links to it."""

    sample: float = Field(default=1.0, ge=0, le=1)
    """The share of requests that are traced, where the caller has not decided."""

    spans: Literal["all", "changes"] = "all"
    """`changes`: no spans of steps that kept the request or were skipped."""

    warn_at: float = Field(default=0.7, gt=0, le=1)
    """The share of the usable window from which a prompt is reported in the log, the span and
    `penstock_context_warnings_total`."""

    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """The lowest level of log lines."""

    log_format: Literal["json", "text"] = "json"
    """One JSON object a line, or text for people."""


class WriterSettings(SmallModelSettings):
    """The small model that writes summaries in the background, for steps that use it."""

    max_tokens: int = Field(default=1500, ge=64)
    """The longest summary."""

    timeout: Seconds = 60.0
    """Seconds for one call. A long conversation takes several."""


Chain = Annotated[tuple[tuple[str, InstanceOf[Policy]], ...], WithJsonSchema({"type": "array", "title": "Chain"})]
"""Policies with their names in YAML, in order."""


class Settings(Base):
    """The whole of `config.yaml`."""

    version: Literal[1] = 1
    """The version of this format."""

    server: ServerSettings = ServerSettings()
    """The address, and the rights and bounds of clients."""

    upstreams: dict[str, UpstreamSettings] = Field(min_length=1)
    """Servers and providers, by names of your choice."""

    default_upstream: str | None = None
    """The upstream for paths under `/v1` that name no model; by default the first one. A client's key of another vendor
    goes to the only server of that vendor instead."""

    models: tuple[ModelSettings, ...] = Field(min_length=1)
    """The upstream and chain of each model. The first entry that matches wins."""

    chains: dict[str, Chain] = Field(default={"default": ()})
    """The policies, in the order in which they run: a list of `- name: {settings}`."""

    auth: AuthSettings = PassThroughAuth(kind="pass-through")
    """The owner of clients' keys: the upstreams (`pass-through`) or Penstock (`keys`)."""

    limits: LimitsSettings = LimitsSettings()
    """The limits of clients."""

    state: State = StateSettings()
    """The store of originals, decisions, memories and counts."""

    writer: WriterSettings | None = None
    """The small model that writes summaries. Without it they are extracts."""

    embedding: EmbeddingSettings = AutoEmbedding(kind="auto")
    """The model that compares texts by meaning. Loaded only if a policy needs it."""

    vectors: VectorSettings = EmbeddedVectors(kind="embedded")
    """The index of vectors. In short: the address of a Qdrant server, `embedded` or `none`."""

    judge: JudgeSettings | None = None
    """A model that judges what rules cannot, for `check_facts` and `resolve_clashes`."""

    pilot: PilotSettings = PilotSettings()
    """Refreshes of the provider's cache."""

    memories: MemoriesSettings = MemoriesSettings()
    """Memories of applications about their users."""

    records: Records = RecordsSettings()
    """Records of requests for operators and clients. In short: `off`."""

    telemetry: TelemetrySettings = TelemetrySettings()
    """Traces and logs."""
