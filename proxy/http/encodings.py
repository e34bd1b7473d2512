"""Decode compressed request bodies within a bound."""

import sys
import zlib
from typing import Any

from proxy.chat.errors import BadRequest

ENCODINGS = ("gzip", "zstd")
"""The content codings that are decoded: those in which clients send requests."""

_LARGEST_WINDOW = 23
"""The binary logarithm of the largest window of zstd: 8 MiB, as RFC 9659 has it for HTTP."""


def coding_of(header: str) -> str | None:
    """Return the coding in a `Content-Encoding`, or None. Raise `BadRequest` (415) for an unknown or second coding."""
    names = [name for name in (each.strip().lower() for each in header.split(",")) if name not in ("", "identity")]
    if not names:
        return None
    name = names[0].removeprefix("x-")
    if len(names) > 1 or name not in ENCODINGS:
        known = ", ".join(ENCODINGS)
        raise BadRequest(
            f"Content-Encoding must be one of: {known}, identity",
            code="unsupported_content_encoding",
            status=415,
            headers={"accept-encoding": known, "connection": "close"},
        )
    return name


def decoded(raw: bytes, coding: str, most: int) -> bytes | None:
    """Return a decoded body, or None as soon as it has more than `most` bytes.

    Raise `BadRequest` if the body is damaged or incomplete.
    """
    parts: list[bytes] = []
    size, rest = 0, raw
    try:
        while rest or not parts:
            frame = zlib.decompressobj(zlib.MAX_WBITS | 16) if coding == "gzip" else _zstd()
            part = frame.decompress(rest, most + 1 - size)
            parts.append(part)
            size, rest = size + len(part), frame.unused_data
            if size > most:
                return None
            if not frame.eof:
                raise EOFError
    except Exception:  # each library has errors of its own
        raise BadRequest(f"the body is not valid {coding}", code="invalid_content_encoding") from None
    return b"".join(parts)


def _zstd() -> Any:
    if sys.version_info >= (3, 14):
        from compression import zstd
    else:
        from backports import zstd
    options = {int(zstd.DecompressionParameter.window_log_max): _LARGEST_WINDOW}
    return zstd.ZstdDecompressor(options=options)
