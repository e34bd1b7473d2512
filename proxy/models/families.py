"""The rules by which the families of models render images, sound and tools, from `proxy/data/families.json`.

OpenAI, Anthropic and Google publish theirs. Others are estimates: Ollama itself assumes 768 tokens an image.
"""

import re
from functools import cache, lru_cache
from importlib.resources import files
from math import ceil, floor, sqrt

import msgspec

from proxy.models.images import Dimensions
from proxy.models.names import canonical

USUAL: Dimensions = (1024, 1024)
"""The dimensions that an image is taken to have where its own are unknown, as for one behind a web address."""


class Flat(msgspec.Struct, frozen=True, tag="flat"):
    """The same number of tokens for every image."""

    each: int

    def tokens(self, dimensions: Dimensions | None, detail: str) -> int:
        return self.each


class Tiles(msgspec.Struct, frozen=True, tag="tiles"):
    """Squares of 512 pixels, scaled to 2,048 by 2,048 and a short side of 768; the base alone for low detail."""

    base: int
    tile: int

    def tokens(self, dimensions: Dimensions | None, detail: str) -> int:
        if detail == "low":
            return self.base
        width, height = dimensions or USUAL
        scale = min(1.0, 2048 / max(width, height))
        scale *= min(1.0, 768 / (min(width, height) * scale))
        # rounding first: 768.0000001 would need a tile more than 768
        return self.base + self.tile * _cells(round(width * scale, 3), round(height * scale, 3), 512)


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


class GeminiTiles(msgspec.Struct, frozen=True, tag="gemini"):
    """258 tokens for a small image, else as many for each square of 768 pixels."""

    def tokens(self, dimensions: Dimensions | None, detail: str) -> int:
        width, height = dimensions or USUAL
        return 258 if max(width, height) <= 384 else 258 * min(64, _cells(width, height, 768))


def _cells(width: float, height: float, side: int) -> int:
    return ceil(width / side) * ceil(height / side)


class Family(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The rules of one family; the first row whose pattern matches a model's name counts."""

    match: str
    vision: Flat | Tiles | Patches | GeminiTiles
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
