"""The caller of a request: the owner of a key of Penstock, or in pass-through mode of an upstream's key."""

import re
import time
from collections.abc import Callable, Collection, Mapping
from fnmatch import fnmatchcase
from urllib.parse import unquote_plus

from msgspec import Struct

from proxy.chat import with_fields
from proxy.chat.errors import BadRequest, NotFound, Unauthorized, UpstreamFailed
from proxy.config.keys_file import hash_of
from proxy.config.settings import PLAIN_PATH, AuthSettings, KeysAuth, KeySettings
from proxy.http.headers import OF_ACCOUNT, WITHHELD
from proxy.identity import tenant_named, tenant_of
from proxy.upstreams.base import Reply

_BEARER = re.compile(r"bearer +(\S+) *", re.IGNORECASE)
_TOKEN = re.compile(r"[\w-]+\.[\w-]+\.[\w-]+")
_SECRET_PARAMETER = re.compile(r"(?i)(?:api[-_]?key|key|access[-_]?token|token|authorization|sig)(?:=|$)")


class Caller(Struct, frozen=True):
    """The sender of a request, with its permissions."""

    tenant: str
    """Owner of the data that the caller may see: a hash that reveals neither key nor name."""
    key: KeySettings | None = None
    """Key of Penstock; None in pass-through mode, where the upstream grants permissions."""
    paths: tuple[str, ...] = ("*",)
    """Globs of the paths below `/v1` that are forwarded besides chat and models."""
    issuer: str | None = None
    """Name of the identity provider, where the key is a token of its."""

    @property
    def account(self) -> str:
        """Name under which use is counted: the tenant, with the name of the key if there is one."""
        return self.tenant if self.key is None else f"{self.tenant}/{self.key.name}"

    def may_use(self, model: str) -> bool:
        """Return whether the caller may use a model. To the caller, a forbidden model does not exist."""
        return self.key is None or any(fnmatchcase(model, glob) for glob in self.key.models)

    def may_choose(self, chain: str) -> bool:
        """Return whether the caller may choose a chain by name; `bypass` stands for no chain."""
        return self.key is None or self.key.chains is None or chain in self.key.chains

    def may_pass(self, method: str, path: str) -> bool:
        plain = method == "POST" and PLAIN_PATH.fullmatch(path) is not None
        return self.key is None or (plain and any(fnmatchcase(path, glob) for glob in self.paths))

    def check_path(self, method: str, path: str) -> None:
        """Raise `NotFound` for a path that may not be forwarded: others share the operator's key at the provider."""
        if not self.may_pass(method, path):
            advice = "; allow it under auth.paths" if method == "POST" and PLAIN_PATH.fullmatch(path) else ""
            raise NotFound(f"keys of Penstock may not {method} this path{advice}")

    def check_unnamed(self) -> None:
        """Raise `BadRequest` if the caller must name a model."""
        if self.key is not None:
            raise BadRequest("the body must name a model", param="model", code="invalid_type")

    def check_form(self) -> None:
        """Raise `BadRequest` where a key is for some models: two readers of a form may find different ones in it."""
        if self.key is not None and "*" not in self.key.models:
            raise BadRequest(
                "this key may use some models only, so its requests must be JSON", code="unsupported_content_type"
            )

    def check_key(self, status: int) -> None:
        """Raise `UpstreamFailed` if the status means that the upstream refused the operator's key."""
        if self.key is not None and status == 401:
            message = "the upstream refused the key that Penstock has for it"
            raise UpstreamFailed(message, code="upstream_unauthorized", headers={"x-should-retry": "false"}) from None

    async def shown(self, reply: Reply, own: Collection[bytes]) -> Reply:
        """Return an answer without `own` and the account's headers. Raise `UpstreamFailed` if the key was refused."""
        try:
            self.check_key(reply.status)
        except UpstreamFailed:
            if reply.chunks is not None:
                await reply.chunks.aclose()
            raise
        hidden = OF_ACCOUNT if self.key is not None else ()
        headers = [pair for pair in reply.headers if pair[0] not in own and not pair[0].startswith(hidden)]
        # the same `facts`, which a stream fills until its end
        return reply if len(headers) == len(reply.headers) else with_fields(reply, headers=headers)


class Callers:
    """The callers by their keys."""

    def __init__(self, settings: AuthSettings, *, clock: Callable[[], float] = time.time) -> None:
        """Index the keys of the settings; `clock` returns seconds since 1970."""
        self._clock = clock
        self._keys: dict[str, Caller] | None = None
        if isinstance(settings, KeysAuth):
            self._keys = {
                key.hash: Caller(tenant_named(key.tenant or key.name), key, settings.paths) for key in settings.keys
            }

    def token_of(self, headers: Mapping[str, str]) -> str | None:
        """Return what may be a token of an identity provider in these headers, because it is no key."""
        presented = _presented(headers)
        is_token = presented is not None and _TOKEN.fullmatch(presented) is not None
        return presented if is_token and hash_of(presented or "") not in (self._keys or ()) else None

    def of(self, headers: Mapping[str, str]) -> Caller:
        """Return the caller who sent these headers (names in lower case). Raise `Unauthorized` without a valid key."""
        if self._keys is None:
            return Caller(tenant_of(headers))
        presented = _presented(headers)
        if presented is None:
            raise _unauthorized("No API key was given: send one of Penstock's as `Authorization: Bearer KEY`.")
        caller = self._keys.get(hash_of(presented))
        if caller is None or caller.key is None:
            raise _unauthorized("Incorrect API key provided.")
        expires = caller.key.expires
        if expires is not None and expires.timestamp() <= self._clock():
            raise _unauthorized("This API key has expired.")
        return caller


def without_account(headers: Mapping[str, str]) -> dict[str, str]:
    """Return the headers of a request without those that name a key or an account."""
    return {name: value for name, value in headers.items() if name not in WITHHELD}


def without_secrets(query: str) -> str:
    """Return a query string without the parameters that contain a key."""
    return "&".join(part for part in query.split("&") if not _SECRET_PARAMETER.match(unquote_plus(part)))


def _presented(headers: Mapping[str, str]) -> str | None:
    authorization = headers.get("authorization")
    if authorization:
        bearer = _BEARER.fullmatch(authorization)
        return bearer[1] if bearer else authorization
    return headers.get("api-key") or headers.get("x-api-key") or None


def _unauthorized(message: str) -> Unauthorized:
    return Unauthorized(message, headers={"www-authenticate": "Bearer"})
