"""Signed tokens of an identity provider (OpenID Connect) as keys: verified here, by the provider's published keys."""

import asyncio
import hashlib
import json
import logging
import re
import time
from collections.abc import Mapping, Sequence
from typing import Any

import jwt
from yarl import URL

from proxy.access.callers import Caller
from proxy.chat.errors import Unauthorized, UpstreamFailed
from proxy.config.settings import KEY_NAME, Allowance, KeysAuth, KeySettings, TokenIssuer
from proxy.http.client import Timeouts, Transport
from proxy.identity import tenant_named
from proxy.state.cache import Cache
from proxy.state.warnings import Warnings

_log = logging.getLogger("penstock.tokens")

_LARGEST = 1024 * 1024
_REFRESH = 3600.0
_PAUSE = 60.0
_REMEMBERED = 300.0
"""Seconds for which a verified token is known: so long a key counts that the provider has withdrawn."""
_DISCOVERY = "/.well-known/openid-configuration"
_REASONS: dict[type[jwt.PyJWTError], str] = {
    jwt.ExpiredSignatureError: "it has expired",
    jwt.ImmatureSignatureError: "it is not valid yet",
    jwt.InvalidAudienceError: "it is for another audience",
}
_KINDS = {"RS": "RSA", "PS": "RSA", "ES": "EC", "Ed": "OKP"}


class TokenVerifier:
    """The callers who send tokens. For use on one event loop."""

    def __init__(self, auth: KeysAuth) -> None:
        self._paths = auth.paths
        self._issuers = {each.issuer: _Issuer(each) for each in auth.tokens}
        self._known: Cache[str, tuple[Caller, float]] = Cache(10_000, age=_REMEMBERED)

    async def caller(self, token: str) -> Caller:
        """Return who sent a token. Raise `Unauthorized`, or `UpstreamFailed` if the provider's keys are not there."""
        digest = hashlib.sha256(token.encode()).hexdigest()
        known = self._known.get(digest)
        if known is None:
            known = await self._verified(token, digest)
            self._known.put(digest, known)
        caller, expires = known
        if expires <= time.time():
            raise _refused("it has expired")
        return caller

    async def _verified(self, token: str, digest: str) -> tuple[Caller, float]:
        try:
            header = jwt.get_unverified_header(token)
            claimed = jwt.decode(token, options={"verify_signature": False})
        except jwt.InvalidTokenError:
            raise _refused("it is no signed token") from None
        issuer = self._issuers.get(str(claimed.get("iss")))
        if issuer is None:
            raise _refused("its issuer is not known here")
        claims = await issuer.claims(token, header)
        key = issuer.key_of(claims, digest)
        return Caller(issuer.tenant_of(claims), key, self._paths, issuer.name), float(claims["exp"]) + issuer.leeway


class _Issuer:
    def __init__(self, settings: TokenIssuer) -> None:
        self.name, self.leeway = settings.name, settings.leeway
        self._settings = settings
        self._keys: Sequence[Mapping[str, Any]] | None = None
        self._read = self._tried = float("-inf")
        self._reading = asyncio.Lock()
        self._warnings = Warnings(_log, "keys of the identity provider not read")

    async def claims(self, token: str, header: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the claims of a token whose signature, issuer, audience and times are right."""
        algorithm, name = str(header.get("alg")), header.get("kid")
        if algorithm not in self._settings.algorithms:
            raise _refused("its algorithm is not allowed here")
        for key in await self._candidates(algorithm, name):
            try:
                claims: Mapping[str, Any] = jwt.decode(
                    token,
                    jwt.PyJWK(dict(key), algorithm).key,
                    [algorithm],
                    audience=self._settings.audience,
                    issuer=self._settings.issuer,
                    leeway=self.leeway,
                    options={"require": ["exp", "iss", "aud", self._settings.user_claim]},
                )
                return claims
            except jwt.InvalidSignatureError:
                continue
            except jwt.MissingRequiredClaimError as error:
                raise _refused(f"its claim {error.claim} is missing") from None
            except jwt.PyJWTError as error:
                raise _refused(_REASONS.get(type(error), "it is not valid")) from None
        raise _refused("no key of its issuer has signed it")

    def key_of(self, claims: Mapping[str, Any], digest: str) -> KeySettings:
        """Return what a token allows, as a key of Penstock's."""
        settings, user = self._settings, str(claims[self._settings.user_claim])
        name = user if re.fullmatch(KEY_NAME, user) else f"user-{hashlib.sha256(user.encode()).hexdigest()[:16]}"
        models = settings.models
        if settings.models_claim is not None:
            models = tuple(_listed(claims.get(settings.models_claim)))
        alike = (*Allowance.model_fields, "chains", "max_concurrent")
        values: dict[str, Any] = {field: getattr(settings, field) for field in alike}
        return KeySettings.model_construct(name=name, hash=digest, models=models, **values)

    def tenant_of(self, claims: Mapping[str, Any]) -> str:
        """Return the tenant of a token. No token can have that of another issuer's, or of a key's name."""
        settings = self._settings
        if settings.tenant is not None:
            return tenant_named(settings.tenant)
        owner = claims.get(settings.tenant_claim or settings.user_claim)
        if not isinstance(owner, str) or not owner:
            raise _refused(f"its claim {settings.tenant_claim} is missing")
        return tenant_named(f"{settings.issuer}\0{owner}")

    async def _candidates(self, algorithm: str, name: Any) -> list[Mapping[str, Any]]:
        """Return the keys that may have signed a token; they are read again where none has its key's name."""
        now = time.time()
        if self._keys is None or now - self._read > _REFRESH or not self._fitting(algorithm, name):
            async with self._reading:
                if time.time() - self._tried > _PAUSE:
                    await self._refresh()
        if self._keys is None:
            raise UpstreamFailed("the keys of the identity provider cannot be read now", status=503)
        return self._fitting(algorithm, name)

    def _fitting(self, algorithm: str, name: Any) -> list[Mapping[str, Any]]:
        return [
            key
            for key in self._keys or ()
            if key.get("kty") == _KINDS[algorithm[:2]]
            and key.get("use", "sig") == "sig"
            and key.get("alg", algorithm) == algorithm
            and (name is None or key.get("kid", name) == name)
        ]

    async def _refresh(self) -> None:
        self._tried = time.time()
        try:
            address = self._settings.keys_url
            if address is None:
                address = str((await _json(self._settings.issuer.rstrip("/") + _DISCOVERY))["jwks_uri"])
            self._keys = [dict(key) for key in (await _json(address))["keys"]]
            self._read = time.time()
        except (UpstreamFailed, TimeoutError, ValueError, TypeError, KeyError) as error:
            self._warnings.warn({"issuer": self.name}, cause=type(error).__name__)


async def _json(address: str) -> Any:
    transport = Transport("identity provider", Timeouts(connect=5.0, idle=5.0), largest=_LARGEST)
    try:
        response = await transport.request("GET", URL(address), {"accept": "application/json"})
        if response.status != 200:
            response.close()
            raise ValueError(f"status {response.status}")
        return json.loads(await response.read())
    finally:
        await transport.aclose()


def _listed(value: Any) -> list[str]:
    """Return a claim as a list: some providers write one as a text with spaces."""
    values = value.split() if isinstance(value, str) else value
    return [each for each in values if isinstance(each, str)] if isinstance(values, list) else []


def _refused(reason: str) -> Unauthorized:
    return Unauthorized(f"The token is refused: {reason}.", headers={"www-authenticate": "Bearer"})
