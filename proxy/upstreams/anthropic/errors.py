"""Anthropic's refusals (`{"type": "error", "error": {"type", "message"}}`) in OpenAI's terms."""

from collections.abc import Iterable, Mapping
from typing import Any

import orjson

from proxy.chat.errors import PenstockError, Unanswered
from proxy.upstreams.base import Call
from proxy.upstreams.refusal import LONGEST_MESSAGE, Overflow, Refused, advice, answered_with, find_overflow, overflowed

OVERLOADED = 529
"""Anthropic's status for an overload of all; no client of OpenAI's knows it."""

STATUSES = {
    "api_error": 500,
    "authentication_error": 401,
    "billing_error": 403,
    "invalid_request_error": 400,
    "not_found_error": 404,
    "overloaded_error": OVERLOADED,
    "permission_error": 403,
    "rate_limit_error": 429,
    "request_too_large": 413,
    "timeout_error": 504,
}
"""The statuses of errors, for those that come in a stream."""

USUAL_WAIT = "2"
"""Seconds until another try, where an overloaded server does not say."""


def refusal(status: int, body: bytes, headers: Iterable[tuple[bytes, bytes]], call: Call) -> PenstockError:
    """Return the error for an answer with a status other than 200; `Unanswered` if it is no error either."""
    if status < 400:
        return Unanswered(f"the upstream answered with status {status}")
    try:
        error = orjson.loads(body)
    except orjson.JSONDecodeError:
        error = None
    return _explained(error if isinstance(error, dict) else {}, status, advice(headers), call)


def broken(event: Mapping[str, Any], call: Call) -> PenstockError:
    """Return the error of an error event."""
    kind = event["error"].get("type") if isinstance(event.get("error"), Mapping) else None
    return _explained(event, STATUSES.get(str(kind), 500), {}, call)


def _explained(event: Mapping[str, Any], status: int, again: dict[str, str], call: Call) -> Refused:
    error = event.get("error")
    message = error.get("message") if isinstance(error, Mapping) else None
    text = message.strip()[:LONGEST_MESSAGE] if isinstance(message, str) else ""
    overflow = find_overflow(text) if status in (400, 413) else None
    if overflow is not None or status == 413:
        return overflowed(text, overflow or Overflow(), call)
    if status == OVERLOADED:
        status, again = 503, {"retry-after": USUAL_WAIT, **again}
    return answered_with(status, text, call, is_own=message is not None, headers=again)
