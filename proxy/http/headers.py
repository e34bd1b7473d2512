"""Which headers travel on, in both directions, and what says when to try again."""

import math
import re
import secrets
from collections.abc import Iterable, Mapping
from itertools import count

_OF_ONE_CONNECTION = {
    "connection",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
}
"""Hop-by-hop headers (RFC 9110 §7.6.1); those of answers are left out in `transport`."""

_NOT_FORWARDED = _OF_ONE_CONNECTION | {
    "accept-encoding",
    "baggage",
    "content-encoding",
    "content-length",
    "cookie",
    "expect",
    "forwarded",
    "host",
    "via",
    "x-real-ip",
    "x-request-id",
}
"""Request headers that name this server, carry state, would tell the upstream about the client, or are set anew."""

_NOT_FORWARDED_FAMILIES = ("x-penstock-", "x-forwarded-")

_NOT_RELAYED = (b"access-control-", b"x-penstock-")
"""How names of response headers begin that are Penstock's to send: what web pages may read, and its own."""

CREDENTIALS = frozenset({"authorization", "x-api-key", "api-key", "cookie", "proxy-authorization"})
"""Request headers that hold a secret of the client's."""

_IMPERSONAL = ("accept", "accept-encoding", "content-type", "traceparent", "tracestate", "user-agent")

_REQUEST_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")
"""What may be echoed and logged of a client's own request id."""

_process = secrets.token_hex(8)
_count = count()
"""Together unique without asking the system for randomness on each request; ids are no secret."""

Headers = list[tuple[bytes, bytes]]


def forwarded(headers: Mapping[str, str]) -> dict[str, str]:
    """The client's headers that go to the upstream; its key is among them.

    The answer is asked for uncompressed, because it is relayed and read as it passes.
    """
    dropped = _NOT_FORWARDED
    named = headers.get("connection")
    if named is not None and named.lower() not in ("keep-alive", "close"):
        dropped = dropped | {name.strip().lower() for name in named.split(",")}
    kept = {
        name: value
        for name, value in headers.items()
        if name not in dropped and not name.startswith(_NOT_FORWARDED_FAMILIES)
    }
    kept["accept-encoding"] = "identity"
    return kept


def impersonal(headers: Mapping[str, str]) -> dict[str, str]:
    """Of the client's headers those that hold no key and no account, for a server that it did not mean."""
    return {name: headers[name] for name in _IMPERSONAL if name in headers}


def without_credentials(headers: Mapping[str, str]) -> dict[str, str]:
    """The client's headers without its credentials."""
    return {name: value for name, value in headers.items() if name not in CREDENTIALS}


def relayed(upstream: Iterable[tuple[bytes, bytes]], *, stream: bool) -> Headers:
    """The headers of an answer: the upstream's, its request id under a name of its own."""
    headers = [
        (b"x-upstream-request-id" if name == b"x-request-id" else name, value)
        for name, value in upstream
        if not name.startswith(_NOT_RELAYED) and not (stream and name in (b"cache-control", b"x-accel-buffering"))
    ]
    if stream:
        # a buffering proxy in front would turn the stream into one block
        headers += [(b"cache-control", b"no-cache"), (b"x-accel-buffering", b"no")]
    return headers


def request_id(sent: str | None) -> str:
    """The client's own request id where it is harmless to echo and log, else a new one."""
    return sent if sent is not None and _REQUEST_ID.fullmatch(sent) else f"req_{_process}{next(_count):08x}"


def retry_after(seconds: float) -> dict[str, str]:
    """The headers that tell a client when to try again; at least a moment from now."""
    milliseconds = max(1, math.ceil(seconds * 1000))
    return {"retry-after": str(math.ceil(milliseconds / 1000)), "retry-after-ms": str(milliseconds)}
