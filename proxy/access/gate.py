"""Admission of a request before its body is read: identify the caller, and take a concurrency slot."""

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING

from proxy.access.callers import Caller, Callers, without_account, without_secrets
from proxy.access.exchange import Exchange
from proxy.access.limits import Admission, KeyLimits, Terms
from proxy.access.metering import ALL, Meter
from proxy.chat.errors import ConfigError, Overloaded, RateLimited
from proxy.config.settings import AuthSettings, KeysAuth, Settings
from proxy.http.headers import retry_after

if TYPE_CHECKING:
    from proxy.access.tokens import TokenVerifier

_SOON = retry_after(1.0)
"""Guess of the time until a slot is free."""

Handler = Callable[[Exchange], Awaitable[None]]


class Gate:
    """Admission of requests up to the limits of their callers."""

    def __init__(self, settings: Settings, limits: KeyLimits, slots: Counter[str], meter: Meter) -> None:
        """`meter` records use. `slots` counts requests under way by account, and under `ALL`, across reloads."""
        self._callers, self._tokens = Callers(settings.auth), _tokens(settings.auth)
        self._limits, self._slots, self._meter = limits, slots, meter
        self._most = settings.limits.max_concurrent

    async def serve(self, handler: Handler, http: Exchange, *, spends: bool = True) -> None:
        """Admit and handle a request, or raise; with `spends=False` even if the limit of the day is used up."""
        caller, seen = await self._caller(http.headers), http.seen
        http.caller = caller
        seen.called_by(caller.tenant, caller.key.name if caller.key is not None else None, caller.issuer)
        if caller.key is not None:
            # the key is no longer needed, so nothing after this can forward it
            http.headers, http.query = without_account(http.headers), without_secrets(http.query)
        admission = http.admission = Admission(self._limits, caller)
        try:
            # free the slot before counting the use: the client may send its next request as soon as it has its answer
            account = self._take_slot(caller, admission.terms)
            try:
                await admission.begin(http.own_headers, spends=spends)
                await handler(http)
            finally:
                self._free_slot(account)
        finally:
            if caller.key is not None and seen.answers:
                self._meter.note(caller.account, seen.entry, seen.answers, seen.usd)
            await admission.settle()

    async def _caller(self, headers: Mapping[str, str]) -> Caller:
        token = None if self._tokens is None else self._callers.token_of(headers)
        return self._callers.of(headers) if self._tokens is None or token is None else await self._tokens.caller(token)

    def _take_slot(self, caller: Caller, terms: Terms) -> str:
        """Count a request, and return the account for `_free_slot`. Raise if there are too many under way."""
        if self._most is not None and self._slots[ALL] >= self._most:
            self._limits.metrics.of("limited_requests", "overload").inc()
            raise Overloaded("Penstock has too many requests under way. Try again soon.", headers=_SOON)
        account, most = caller.account, terms.max_concurrent
        if most is not None and self._slots[account] >= most:
            self._limits.metrics.of("limited_requests", "concurrency").inc()
            message = f"Rate limit reached for requests at the same time: limit {most:,}."
            raise RateLimited(message, kind="requests", headers=_SOON)
        self._slots[ALL] += 1
        self._slots[account] = self._slots.get(account, 0) + 1
        return account

    def _free_slot(self, account: str) -> None:
        self._slots[ALL] -= 1
        if left := self._slots.pop(account) - 1:
            self._slots[account] = left


def _tokens(auth: AuthSettings) -> "TokenVerifier | None":
    if not isinstance(auth, KeysAuth) or not auth.tokens:
        return None
    try:
        from proxy.access.tokens import TokenVerifier
    except ImportError:
        raise ConfigError("auth.tokens needs PyJWT: pip install 'penstock[oidc]'") from None
    return TokenVerifier(auth)
