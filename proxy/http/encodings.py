"""Decode compressed request bodies within a bound."""

import sys
import zlib
from collections.abc import Callable
from typing import Any

from proxy.chat.errors import BadRequest

ENCODINGS = ("gzip", "deflate", "br", "zstd")
"""The content codings that are decoded."""

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
    make = {"gzip": _gzip, "deflate": _deflate, "br": _brotli, "zstd": _zstd}[coding](raw)
    parts: list[bytes] = []
    size, rest = 0, raw
    try:
        while rest or not parts:
            part, rest = make(rest, most + 1 - size)
            parts.append(part)
            size += len(part)
            if size > most:
                return None
    except Exception:  # each library has errors of its own
        raise BadRequest(f"the body is not valid {coding}", code="invalid_content_encoding") from None
    return b"".join(parts)


_Frame = Callable[[bytes, int], tuple[bytes, bytes]]
"""A decoder of the first frame: takes the bytes and the most bytes to return; returns those and the undecoded rest."""


def _whole(make: Callable[[], Any]) -> _Frame:
    def frame(raw: bytes, most: int) -> tuple[bytes, bytes]:
        decoder = make()
        part = decoder.decompress(raw, most)
        if len(part) < most and not decoder.eof:
            raise EOFError
        return part, decoder.unused_data

    return frame


def _gzip(raw: bytes) -> _Frame:
    return _whole(lambda: zlib.decompressobj(zlib.MAX_WBITS | 16))


def _deflate(raw: bytes) -> _Frame:
    # RFC 9110 asks for zlib's format; some clients send raw deflate
    has_header = len(raw) > 1 and raw[0] & 15 == 8 and int.from_bytes(raw[:2]) % 31 == 0
    return _whole(lambda: zlib.decompressobj(zlib.MAX_WBITS if has_header else -zlib.MAX_WBITS))


def _zstd(raw: bytes) -> _Frame:
    if sys.version_info >= (3, 14):
        from compression import zstd
    else:
        from backports import zstd
    options = {int(zstd.DecompressionParameter.window_log_max): _LARGEST_WINDOW}
    return _whole(lambda: zstd.ZstdDecompressor(options=options))


def _brotli(raw: bytes) -> _Frame:
    import brotli

    def frame(raw: bytes, most: int) -> tuple[bytes, bytes]:
        decoder, parts, size = brotli.Decompressor(), [], 0
        while not decoder.is_finished() and size < most:
            part = decoder.process(raw, output_buffer_limit=most - size)
            if not part and not raw:
                raise EOFError
            parts.append(part)
            size, raw = size + len(part), b""
        return b"".join(parts), b""

    return frame
