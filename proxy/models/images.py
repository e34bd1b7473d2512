"""The width and height of an image in a `data:` URL, from its file's first bytes. Nothing is decoded or fetched."""

from base64 import b64decode
from collections.abc import Callable

Dimensions = tuple[int, int]

FIRST_BYTES = 96
"""Bytes in which PNG, GIF and WebP state their size."""

JPEG_BYTES = 256 * 1024
"""Bytes in which a JPEG's size is looked for: it stands behind the camera's data and colour profile."""


def data_url_dimensions(url: str) -> Dimensions | None:
    """Return the dimensions of the image in a base64 `data:` URL; None for any other or damaged URL."""
    if url[:5].lower() != "data:":
        return None
    comma = url.find(",", 0, 256)
    if comma < 0 or "base64" not in url[:comma].lower():
        return None
    return base64_dimensions(url[comma + 1 : comma + 1 + JPEG_BYTES * 4 // 3])


def base64_dimensions(text: str) -> Dimensions | None:
    """Return the dimensions of an image given as base64; its beginning is enough."""
    head = decoded_head(text, FIRST_BYTES)
    if head.startswith(b"\xff\xd8"):
        return _jpeg(decoded_head(text, JPEG_BYTES))
    for magic, read in _READERS.items():
        if head.startswith(magic) and len(head) >= 30:
            found = read(head)
            return found if found and min(found) > 0 else None
    return None


def base64_bytes(text: str) -> int:
    """Return the size of a base64 text's content in bytes, give or take a line break."""
    return len(text) * 3 // 4


def decoded_head(text: str, size: int) -> bytes:
    """Return the first `size` bytes of a base64 text; empty where it is not base64."""
    head = text[: -(-size // 3) * 4].replace("\n", "")
    try:
        return b64decode(head[: len(head) // 4 * 4])
    except ValueError:
        return b""


def _png(head: bytes) -> Dimensions | None:
    return int.from_bytes(head[16:20], "big"), int.from_bytes(head[20:24], "big")


def _gif(head: bytes) -> Dimensions | None:
    return int.from_bytes(head[6:8], "little"), int.from_bytes(head[8:10], "little")


def _webp(head: bytes) -> Dimensions | None:
    if head[8:16] == b"WEBPVP8 ":
        return int.from_bytes(head[26:28], "little") & 0x3FFF, int.from_bytes(head[28:30], "little") & 0x3FFF
    if head[8:16] == b"WEBPVP8L":
        bits = int.from_bytes(head[21:25], "little")
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    if head[8:16] == b"WEBPVP8X":
        return int.from_bytes(head[24:27], "little") + 1, int.from_bytes(head[27:30], "little") + 1
    return None


_READERS: dict[bytes, Callable[[bytes], Dimensions | None]] = {
    b"\x89PNG\r\n\x1a\n": _png,
    b"GIF8": _gif,
    b"RIFF": _webp,
}
_NO_FRAME = frozenset({0xC4, 0xC8, 0xCC})
"""Markers among 0xC0..0xCF that do not start a frame: Huffman tables, reserved, arithmetic coding."""


def _jpeg(data: bytes) -> Dimensions | None:
    at = 2
    while at + 9 <= len(data) and data[at] == 0xFF:
        marker = data[at + 1]
        if 0xC0 <= marker <= 0xCF and marker not in _NO_FRAME:
            height, width = int.from_bytes(data[at + 5 : at + 7], "big"), int.from_bytes(data[at + 7 : at + 9], "big")
            return (width, height) if width and height else None
        at += 1 if marker == 0xFF else 2 + int.from_bytes(data[at + 2 : at + 4], "big")
    return None
