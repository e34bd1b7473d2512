"""The sections `auth` and `limits` of `config.yaml`: who may use Penstock, and how much."""

import re
from datetime import UTC, date, datetime, time
from fnmatch import fnmatchcase
from typing import Annotated, Any, Literal

from pydantic import AwareDatetime, BeforeValidator, Field

from proxy.config.fields import Base, Globs, HttpUrl, Seconds

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

KEY_NAME = r"^[A-Za-z0-9][A-Za-z0-9._@-]{0,63}$"
"""The pattern of names of keys."""


def _with_zone(value: Any) -> Any:
    if isinstance(value, date) and not isinstance(value, datetime):
        return datetime.combine(value, time.min, UTC)
    if isinstance(value, datetime) and value.tzinfo is None:
        return value.replace(tzinfo=UTC)
    return value


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

    expires: Annotated[AwareDatetime, BeforeValidator(_with_zone)] | None = None
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
