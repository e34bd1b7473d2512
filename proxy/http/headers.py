"""Headers: which ones are forwarded in each direction, request ids, and `retry-after`."""

import math
import re
import secrets
from collections.abc import Iterable, Mapping
from itertools import count

from proxy.text.tables import table

_TABLE: Mapping[str, list[str]] = table("headers")
HOP_BY_HOP = frozenset(_TABLE["hop_by_hop"])
"""Headers that concern one connection."""
NOT_RELAYED = frozenset(name.encode() for name in (*HOP_BY_HOP, *_TABLE["not_relayed"]))
"""Response headers that are not relayed."""
CREDENTIALS = frozenset(_TABLE["credentials"])
"""Request headers that hold a secret of the client's."""
WITHHELD = CREDENTIALS | set(_TABLE["account"])
"""Request headers that name the client's key or account. An upstream with the operator's key must not receive them."""
OF_ACCOUNT = tuple(name.encode() for name in _TABLE["account_beginnings"])
"""Prefixes of response headers that reveal the account behind the operator's key."""
_NOT_FORWARDED = HOP_BY_HOP | set(_TABLE["not_forwarded"])
_NOT_FORWARDED_FAMILIES = tuple(_TABLE["not_forwarded_beginnings"])
_OWN = tuple(name.encode() for name in _TABLE["own_beginnings"])

_REQUEST_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")
"""Pattern of a client's request id that is safe to echo and log."""

_process = secrets.token_hex(8)
_count = count()
"""A random prefix and a counter: unique ids without a system call per request. Ids are no secret."""

Headers = list[tuple[bytes, bytes]]


def forwarded(headers: Mapping[str, str]) -> dict[str, str]:
    """Return the client's headers for the upstream, its key among them.

    The answer is requested uncompressed, because it is read while it is relayed.
    """
    dropped = _NOT_FORWARDED
    named = headers.get("connection")
    if named is not None and named.lower() not in ("keep-alive", "close"):
        dropped = dropped | {name.strip().lower() for name in named.split(",")}
    passed = {
        name: value
        for name, value in headers.items()
        if name not in dropped and not name.startswith(_NOT_FORWARDED_FAMILIES)
    }
    passed["accept-encoding"] = "identity"
    return passed


def impersonal(headers: Mapping[str, str]) -> dict[str, str]:
    """Return the client's headers without key and account, for a server that the client did not choose."""
    return {name: headers[name] for name in _TABLE["impersonal"] if name in headers}


def without_credentials(headers: Mapping[str, str]) -> dict[str, str]:
    """Return the client's headers without its credentials."""
    return {name: value for name, value in headers.items() if name not in CREDENTIALS}


def relayed(upstream: Iterable[tuple[bytes, bytes]], *, stream: bool) -> Headers:
    """Return the headers of an answer: the upstream's, with its request id as `x-upstream-request-id`."""
    headers = [
        (b"x-upstream-request-id" if name == b"x-request-id" else name, value)
        for name, value in upstream
        if not name.startswith(_OWN) and not (stream and name in (b"cache-control", b"x-accel-buffering"))
    ]
    if stream:
        # a buffering proxy in front would turn the stream into one block
        headers += [(b"cache-control", b"no-cache"), (b"x-accel-buffering", b"no")]
    return headers


def request_id(sent: str | None) -> str:
    """Return the client's request id if it is safe to echo and log, else a new one."""
    return sent if sent is not None and _REQUEST_ID.fullmatch(sent) else f"req_{_process}{next(_count):08x}"


def retry_after(seconds: float) -> dict[str, str]:
    """Return the headers that tell a client when to retry: at least one millisecond from now."""
    milliseconds = max(1, math.ceil(seconds * 1000))
    return {"retry-after": str(math.ceil(milliseconds / 1000)), "retry-after-ms": str(milliseconds)}
