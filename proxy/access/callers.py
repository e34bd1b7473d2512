"""Who makes a request: a key of Penstock, or in pass-through mode whoever has a key of the upstream's."""

import hmac
import re
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from urllib.parse import unquote_plus

from proxy.chat.errors import BadRequest, NotFound, Unauthorized, UpstreamFailed
from proxy.config.access_settings import PLAIN_PATH, AuthSettings, KeysAuth, KeySettings
from proxy.config.keys import hash_of
from proxy.http.headers import CREDENTIALS
from proxy.identity import tenant_named, tenant_of
from proxy.upstreams.base import Reply

_BEARER = re.compile(r"bearer +(\S+) *", re.IGNORECASE)
_WITHHELD = CREDENTIALS | {"openai-organization", "openai-project"}
"""What says who the client is, to an account that is not the client's."""
_OF_ACCOUNT = (b"openai-organization", b"openai-project")
_SECRET_PARAMETER = re.compile(r"(?i)(?:api[-_]?key|key|access[-_]?token|token|authorization|sig)(?:=|$)")


@dataclass(frozen=True, slots=True)
class Caller:
    """Who makes a request, and what they may ask for."""

    tenant: str
    """Whose data it may see: a hash, from which neither key nor name can be told."""
    key: KeySettings | None = None
    """The key of Penstock; None in pass-through mode, where the upstream decides what a client may."""
    paths: tuple[str, ...] = ("*",)
    """Globs of the paths below `/v1` that are passed on for it besides chat and models."""

    @property
    def account(self) -> str:
        """What its use is counted under: its key's, or else the tenant."""
        return self.tenant if self.key is None else f"{self.tenant}/{self.key.name}"

    def may_use(self, model: str) -> bool:
        """Whether a model exists for it."""
        return self.key is None or any(fnmatchcase(model, glob) for glob in self.key.models)

    def may_choose(self, chain: str) -> bool:
        """Whether it may choose a chain by name; `bypass` is none at all."""
        return self.key is None or self.key.chains is None or chain in self.key.chains

    def check_path(self, method: str, path: str) -> None:
        """Raises `NotFound` unless requests to this path below `/v1` may be passed on.

        With a provider's key that all share, only what names a model and depends on nothing stored: of the rest one
        tenant could read another's.
        """
        if self.key is None:
            return
        plain = method == "POST" and PLAIN_PATH.fullmatch(path) is not None
        if not plain or not any(fnmatchcase(path, glob) for glob in self.paths):
            raise NotFound(f"there is no {method} of this path for keys of Penstock", code="not_found")

    def check_unnamed(self) -> None:
        """Raises `BadRequest` unless a request may name no model."""
        if self.key is not None:
            raise BadRequest("the body must name a model", param="model", code="invalid_type")

    def check_form(self) -> None:
        """Raises `BadRequest` unless a request may come as a form: an upstream may read another model in it."""
        if self.key is not None and "*" not in self.key.models:
            raise BadRequest(
                "this key may use some models only, so its requests must be JSON", code="unsupported_content_type"
            )

    async def shown(self, reply: Reply, own: Collection[bytes]) -> Reply:
        """An answer without what is not the caller's: the operator's account, and limits that are not its own.

        `own` are the names of headers that Penstock adds. Raises `UpstreamFailed` where the operator's key is refused.
        """
        if self.key is not None and reply.status == 401:
            if reply.chunks is not None:
                await reply.chunks.aclose()
            told = "the upstream did not take the key that Penstock has for it"
            raise UpstreamFailed(told, code="upstream_unauthorized", headers={"x-should-retry": "false"})
        hidden = (b"x-ratelimit-", *_OF_ACCOUNT) if self.key is not None else ()
        kept = [pair for pair in reply.headers if pair[0] not in own and not pair[0].startswith(hidden)]
        # its facts are filled until its end
        return Reply(reply.status, kept, reply.body, reply.chunks, reply.facts)


class Callers:
    """Tells callers by the headers of their requests."""

    def __init__(self, settings: AuthSettings, *, clock: Callable[[], float] = time.time) -> None:
        """`clock` gives seconds since 1970."""
        self._clock = clock
        self._keys: dict[str, Caller] | None = None
        if isinstance(settings, KeysAuth):
            self._keys = {
                key.hash: Caller(tenant_named(key.tenant or key.name), key, settings.paths) for key in settings.keys
            }

    def of(self, headers: Mapping[str, str]) -> Caller:
        """Who sent these headers, names in lower case. Raises `Unauthorized`."""
        if self._keys is None:
            return Caller(tenant_of(headers))
        presented = _presented(headers)
        if presented is None:
            raise _unauthorized("No API key was given: send one of Penstock's as `Authorization: Bearer KEY`.")
        digest = hash_of(presented)
        caller = self._keys.get(digest)
        if caller is None or caller.key is None or not hmac.compare_digest(caller.key.hash, digest):
            raise _unauthorized("Incorrect API key provided.")
        expires = caller.key.expires
        if expires is not None and expires.timestamp() <= self._clock():
            raise _unauthorized("This API key has expired.")
        return caller


def without_account(headers: Mapping[str, str]) -> dict[str, str]:
    """The headers of a request without its key, and without what says whose account it is."""
    return {name: value for name, value in headers.items() if name not in _WITHHELD}


def without_secrets(query: str) -> str:
    """A query string without the parameters that name a key."""
    return (
        "&".join(part for part in query.split("&") if not _SECRET_PARAMETER.match(unquote_plus(part)))
        if query
        else query
    )


def _presented(headers: Mapping[str, str]) -> str | None:
    """The key that a request presents: as OpenAI's SDKs send it, or as those of its neighbours do."""
    authorization = headers.get("authorization")
    if authorization:
        found = _BEARER.fullmatch(authorization)
        return found[1] if found else authorization
    return headers.get("api-key") or headers.get("x-api-key") or None


def _unauthorized(message: str) -> Unauthorized:
    return Unauthorized(message, headers={"www-authenticate": "Bearer"})
