"""Content codings: the decompressors, and an answer that is decoded while it arrives."""

import asyncio
import sys
import zlib
from collections.abc import Awaitable, Callable
from typing import Any

_LARGEST_WINDOW = 23
"""The binary logarithm of the largest window of zstd: 8 MiB, as RFC 9659 has it for HTTP."""
_MOST = 2**18
"""Bytes that are decoded at once: a small answer may hold a large one."""
_OF_ANSWERS = {b"gzip": "gzip", b"x-gzip": "gzip", b"deflate": "deflate", b"zstd": "zstd"}


class InvalidAnswer(ConnectionError):
    """The server sent what is not HTTP, or not in the coding that it names."""


def coding_of_answer(header: bytes) -> str | None:
    """Return the coding in a `Content-Encoding`; None for none, and empty for one that cannot be decoded."""
    name = header.strip().lower()
    return None if name in (b"", b"identity") else _OF_ANSWERS.get(name, "")


def decompressor(coding: str, begins: bytes = b"") -> Any:
    """Return a new decompressor for one frame, such as `zlib.decompressobj`; a deflated frame `begins` so."""
    if coding == "zstd":
        return _zstd()
    if coding == "gzip":
        return zlib.decompressobj(zlib.MAX_WBITS | 16)
    # "deflate" is zlib's format (RFC 9110 §8.4.1.2), and some servers leave its envelope out
    return zlib.decompressobj(zlib.MAX_WBITS if begins[:1] and begins[0] & 15 == zlib.DEFLATED else -zlib.MAX_WBITS)


def _zstd() -> Any:
    if sys.version_info >= (3, 14):
        from compression import zstd
    else:
        from backports import zstd
    options = {int(zstd.DecompressionParameter.window_log_max): _LARGEST_WINDOW}
    return zstd.ZstdDecompressor(options=options)


class DecodedBody:
    """The body of an answer, decoded. What reads answers, guards too, would see nothing in it else."""

    def __init__(self, read: Callable[[], Awaitable[bytes]], coding: str) -> None:
        self._source, self._coding, self._frame, self._rest, self._holds = read, coding, None, b"", False

    async def __call__(self) -> bytes:
        """Return the next bytes, none at the end. Raise `InvalidAnswer` where they are not valid in their coding."""
        part = b""
        while not part:
            if self._rest or self._holds:
                await asyncio.sleep(0)
            elif not (rest := await self._source()):
                if self._frame is not None:
                    raise InvalidAnswer(f"its {self._coding} has no end")
                return b""
            else:
                self._rest = rest
            try:
                part = self._decode()
            except Exception:  # each library has errors of its own
                raise InvalidAnswer(f"its answer is not valid {self._coding}") from None
        return part

    def _decode(self) -> bytes:
        frame = self._frame = self._frame or decompressor(self._coding, self._rest)
        part: bytes = frame.decompress(self._rest, _MOST)
        self._rest = frame.unused_data or getattr(frame, "unconsumed_tail", b"")  # of zlib; zstd holds it
        self._holds = len(part) == _MOST and not frame.eof
        if frame.eof:
            self._frame = None
        return part
