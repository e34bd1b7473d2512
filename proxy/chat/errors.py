"""Everything that can go wrong, as OpenAI's SDKs expect to read it."""

import json
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import ClassVar, NoReturn

OVERFLOW = "context_length_exceeded"
"""OpenAI's code for a prompt that does not fit."""

_INVALID, _BUSY = "invalid_request_error", "service_unavailable_error"
_NEVER = {"x-should-retry": "false"}
"""Tells SDKs not to send a request again by themselves."""


class PenstockError(Exception):
    """An error with the status, type, code and parameter of OpenAI's error body."""

    status = 500
    type = "server_error"
    code: str | None = None
    own_headers: ClassVar[Mapping[str, str]] = {}
    """Headers of each answer with this error."""

    def __init_subclass__(
        cls, status: int = 0, kind: str = "", code: str | None = None, headers: Mapping[str, str] | None = None
    ) -> None:
        """Take the status, type, code and headers of errors of this class; those of its base where there are none."""
        cls.status, cls.type, cls.code = status or cls.status, kind or cls.type, code or cls.code
        cls.own_headers = cls.own_headers if headers is None else headers

    def __init__(
        self,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        status: int | None = None,
        headers: Mapping[str, str] | None = None,
        kind: str | None = None,
    ) -> None:
        """Take the code, status and type of the class where there are none; `kind` is the type."""
        super().__init__(message)
        self.message, self.type = message, kind or type(self).type
        self.param = param
        self.status = status or type(self).status
        self.code = code or type(self).code
        self.headers = {**self.own_headers, **(headers or {})}

    def body(self) -> bytes:
        """Return the JSON body: `{"error": {"message", "type", "param", "code"}}`, all four keys present."""
        return error_body(self.message, self.type, self.param, self.code)


class BadRequest(PenstockError, status=400, kind=_INVALID):
    """The client sent something that no upstream could make sense of."""


def wrong(place: str, must: str) -> NoReturn:
    """Refuse the value at a place of a request. Raise `BadRequest`."""
    raise BadRequest(f"{place} {must}", param=place, code="invalid_type")


class NotFound(PenstockError, status=404, kind=_INVALID, code="not_found"):
    """There is no such path or model."""


class Unauthorized(PenstockError, status=401, kind=_INVALID, code="invalid_api_key"):
    """The client has no key, or none that counts."""


class RateLimited(PenstockError, status=429, code="rate_limit_exceeded"):
    """The client has used what its key may use. `type` says of what: `requests`, `tokens` or `insufficient_quota`."""


class Overloaded(PenstockError, status=503, kind=_BUSY, code="server_is_overloaded"):
    """There is more to do than this process takes at once."""


class NotInTime(Overloaded):
    """A prompt does not fit because a step that shortens it was not done in time. It goes on: another try may pass."""


_LATER = {"retry-after": "5", "retry-after-ms": "5000"}


class NotKept(PenstockError, status=503, kind=_BUSY, code="state_unavailable", headers=_LATER):
    """The state cannot be read or written now. Clients are told when to try again."""


class Rejected(PenstockError, status=400, kind=_INVALID, headers=_NEVER):
    """A policy refused the request: the same one would meet the same answer."""


class UpstreamFailed(PenstockError, status=502, code="upstream_unreachable"):
    """The upstream could not be asked."""

    cause = ""
    """The server's address and what went wrong, for operators alone."""
    is_down = True
    """False if the server works: only its answer to this request cannot be passed on."""


class UpstreamUnavailable(UpstreamFailed, status=503, kind=_BUSY, code="upstream_unavailable"):
    """The upstream is not asked for now: it has failed too often, or has as many requests as it may."""


class Unanswered(UpstreamFailed, code="upstream_broke_off", headers=_NEVER):
    """The upstream was asked and gave no whole answer. It may have processed the request, and charge for it."""


class UpstreamTimeout(Unanswered, status=504, code="upstream_timeout"):
    """The upstream did not answer in time."""


class ConfigError(Exception):
    """The configuration is wrong. The message names file, line and what would be right."""

    files: Mapping[Path, str] = MappingProxyType({})
    """The files that were read until then, and the hash of each; a change of one may put it right."""


def error_body(message: str, type_: str, param: str | None = None, code: str | None = None) -> bytes:
    """OpenAI's error body as compact JSON; pure ASCII, so that any text may be quoted in it."""
    error = {"message": message, "type": type_, "param": param, "code": code}
    return json.dumps({"error": error}, separators=(",", ":")).encode()
