"""Everything that can go wrong, as OpenAI's SDKs expect to read it."""

import json
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import ClassVar, NoReturn

OVERFLOW = "context_length_exceeded"
"""OpenAI's code for a prompt that does not fit."""


class PenstockError(Exception):
    """An error with the status, type, code and parameter of OpenAI's error body."""

    status = 500
    type = "server_error"
    code: str | None = None
    own_headers: ClassVar[Mapping[str, str]] = {}
    """Headers of each answer with this error."""

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


class BadRequest(PenstockError):
    """The client sent something that no upstream could make sense of."""

    status = 400
    type = "invalid_request_error"


def wrong(place: str, must: str) -> NoReturn:
    """Refuse the value at a place of a request. Raise `BadRequest`."""
    raise BadRequest(f"{place} {must}", param=place, code="invalid_type")


class NotFound(PenstockError):
    """There is no such path or model."""

    status = 404
    type = "invalid_request_error"


class Unauthorized(PenstockError):
    """The client has no key, or none that counts."""

    status = 401
    type = "invalid_request_error"
    code = "invalid_api_key"


class RateLimited(PenstockError):
    """The client has used what its key may use. `type` says of what: `requests`, `tokens` or `insufficient_quota`."""

    status = 429
    code = "rate_limit_exceeded"


class Overloaded(PenstockError):
    """There is more to do than this process takes at once."""

    status = 503
    type = "service_unavailable_error"
    code = "server_is_overloaded"


class NotInTime(Overloaded):
    """A prompt does not fit because a step that shortens it was not done in time. It goes on: another try may pass."""


class NotKept(PenstockError):
    """The state cannot be read or written now. Clients are told when to try again."""

    status = 503
    type = "service_unavailable_error"
    code = "state_unavailable"
    own_headers: ClassVar = {"retry-after": "5", "retry-after-ms": "5000"}


class Rejected(PenstockError):
    """A policy refused the request. SDKs are told not to try again: the same request would meet the same answer."""

    status = 400
    type = "invalid_request_error"
    own_headers: ClassVar = {"x-should-retry": "false"}


class UpstreamFailed(PenstockError):
    """The upstream could not be asked."""

    cause = ""
    """The server's address and what went wrong, for operators alone."""
    status = 502
    code = "upstream_unreachable"


class UpstreamUnavailable(UpstreamFailed):
    """The upstream is not asked for now: it has failed too often, or has as many requests as it may."""

    status = 503
    type = "service_unavailable_error"
    code = "upstream_unavailable"


class Unanswered(UpstreamFailed):
    """The upstream was asked and gave no whole answer. It may have processed the request, and charge for it.

    SDKs are told not to send the request again by themselves.
    """

    code = "upstream_broke_off"
    own_headers: ClassVar = {"x-should-retry": "false"}


class UpstreamTimeout(Unanswered):
    """The upstream did not answer in time."""

    status = 504
    code = "upstream_timeout"


class ConfigError(Exception):
    """The configuration is wrong. The message names file, line and what would be right."""

    files: Mapping[Path, str] = MappingProxyType({})
    """The files that were read until then, and the hash of each; a change of one may put it right."""


def error_body(message: str, type_: str, param: str | None = None, code: str | None = None) -> bytes:
    """OpenAI's error body as compact JSON; pure ASCII, so that any text may be quoted in it."""
    error = {"message": message, "type": type_, "param": param, "code": code}
    return json.dumps({"error": error}, separators=(",", ":")).encode()
