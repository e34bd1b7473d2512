"""The names of models, and the rules by which their families render images, sound and tools (`data/families.json`).

OpenAI, Anthropic and Google publish theirs. Others are estimates: Ollama itself assumes 768 tokens an image.
Of an image only the first bytes are read, for its width and height. Nothing is decoded or fetched.
"""

import re
from base64 import b64decode
from functools import cache, lru_cache
from importlib.resources import files
from math import ceil, floor, sqrt

import msgspec

_REGION = re.compile(r"^(?:us|eu|apac|au|jp|ca|global|us-gov)\.")
_VENDOR = re.compile(r"^(?:anthropic|meta|mistral|amazon|cohere|ai21|qwen|openai|moonshotai|moonshot|minimax|google)\.")
_REVISION = re.compile(r"-v\d+:\d+(?::\w+)?$")


def canonical(name: str) -> str:
    """Return the bare name in lower case: `openrouter/anthropic/Claude-X` is `claude-x`, `qwen3:8b` is `qwen3-8b`."""
    text = name.strip().lower()
    if text.startswith("ft:"):
        text = text.split(":")[1]
    text = text.rsplit("/", 1)[-1].replace("@", "-")
    text = _VENDOR.sub("", _REGION.sub("", text))
    return _REVISION.sub("", text).replace("deepseek.", "deepseek-").replace(":", "-")


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
    found = _of_jpeg(decoded_head(text, JPEG_BYTES)) if head.startswith(b"\xff\xd8") else _of_others(head)
    return found if min(found) > 0 else None


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


def _of_others(head: bytes) -> Dimensions:
    """Return the dimensions that a PNG, GIF or WebP states; zeros for any other file."""

    def number(start: int, end: int) -> int:
        return int.from_bytes(head[start:end], "little")

    if len(head) < 30:
        return 0, 0
    if head.startswith(b"\x89PNG\r\n\x1a\n"):
        return int.from_bytes(head[16:20], "big"), int.from_bytes(head[20:24], "big")
    if head.startswith(b"GIF8"):
        return number(6, 8), number(8, 10)
    match head[:4] + head[8:16]:
        case b"RIFFWEBPVP8 ":
            return number(26, 28) & 0x3FFF, number(28, 30) & 0x3FFF
        case b"RIFFWEBPVP8L":
            return (number(21, 25) & 0x3FFF) + 1, (number(21, 25) >> 14 & 0x3FFF) + 1
        case b"RIFFWEBPVP8X":
            return number(24, 27) + 1, number(27, 30) + 1
    return 0, 0


_NO_FRAME = frozenset({0xC4, 0xC8, 0xCC})
"""Markers among 0xC0..0xCF that do not start a frame: Huffman tables, reserved, arithmetic coding."""


def _of_jpeg(data: bytes) -> Dimensions:
    at = 2
    while at + 9 <= len(data) and data[at] == 0xFF:
        marker = data[at + 1]
        if 0xC0 <= marker <= 0xCF and marker not in _NO_FRAME:
            return int.from_bytes(data[at + 7 : at + 9], "big"), int.from_bytes(data[at + 5 : at + 7], "big")
        at += 1 if marker == 0xFF else 2 + int.from_bytes(data[at + 2 : at + 4], "big")
    return 0, 0


USUAL: Dimensions = (1024, 1024)
"""The dimensions that an image is taken to have where its own are unknown, as for one behind a web address."""

_MOST_TILES = 64


class Tiles(msgspec.Struct, frozen=True, tag="tiles"):
    """A price for the image, which is that of low detail, and one for each of its tiles."""

    base: int = 0
    tile: int = 0
    side: int = 512
    fits: tuple[int, int] | None = None
    """The longest and the shortest side that an image is scaled down to; None for one that is cut as it is."""

    def tokens(self, dimensions: Dimensions | None, detail: str) -> int:
        if detail == "low" and self.base:
            return self.base
        width, height = dimensions or USUAL
        scale = 1.0
        if self.fits is not None:
            scale = min(1.0, self.fits[0] / max(width, height))
            scale *= min(1.0, self.fits[1] / (min(width, height) * scale))
        # rounding first: 768.0000001 would need a tile more than 768
        tiles = _cells(round(width * scale, 3), round(height * scale, 3), self.side)
        return self.base + self.tile * min(_MOST_TILES, tiles)


class Patches(msgspec.Struct, frozen=True, tag="patches"):
    """Small squares, scaled down to a budget, times a multiplier; low detail is assumed to be 512 pixels."""

    multiplier: float = 1.0
    budget: int = 1536
    original: int = 1536
    side: int = 32

    def tokens(self, dimensions: Dimensions | None, detail: str) -> int:
        most = {"low": 256, "original": self.original}.get(detail, self.budget)
        width, height = dimensions or USUAL
        if (cells := _cells(width, height, self.side)) <= most:
            return int(cells * self.multiplier)
        scale = self.side * sqrt(most / (width * height))
        across, down = width * scale / self.side, height * scale / self.side
        if min(across, down) >= 1:
            scale *= min(floor(across) / across, floor(down) / down)
        fitted = _cells(round(width * scale, 3), round(height * scale, 3), self.side)
        return int(min(most, fitted) * self.multiplier)


def _cells(width: float, height: float, side: int) -> int:
    return ceil(width / side) * ceil(height / side)


class Family(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The rules of one family; the first row whose pattern matches a model's name counts."""

    match: str
    vision: Tiles | Patches
    """The rule for images. `detail` is `low`, `high`, `auto` or `original`."""
    terse_tools: bool = False
    """Tools are rendered as type declarations, as OpenAI does; else as their JSON."""
    function_start: int = 0
    tools_frame: int = 100
    audio_rate: int = 10
    digits: bool = False
    """Each digit is a token; OpenAI's vocabularies have three in one."""
    scripts: bool = False
    """The vocabulary may be small, with fewer letters of other scripts than Latin in a token."""


@lru_cache(maxsize=1024)
def family(name: str) -> Family:
    """Return the family of a model's name, provider prefixes allowed."""
    short = canonical(name)
    return next(each for each in _families() if re.match(each.match, short))


@cache
def _families() -> tuple[Family, ...]:
    text = (files("proxy") / "data" / "families.json").read_bytes()
    return msgspec.json.decode(text, type=tuple[Family, ...])
