"""What an image costs in tokens, by the rule of the model's family."""

from dataclasses import dataclass
from math import ceil, floor, sqrt
from typing import Protocol

from proxy.models.images import Dimensions

USUAL: Dimensions = (1024, 1024)
"""The dimensions that an image is taken to have where its own are unknown, as for one behind a web address."""


class Vision(Protocol):
    """A rule for the tokens of an image."""

    def tokens(self, dimensions: Dimensions | None, detail: str) -> int:
        """The tokens of an image; `detail` is `low`, `high`, `auto` or `original`, dimensions are None if unknown."""


@dataclass(frozen=True, slots=True)
class Flat:
    """The same for every image."""

    each: int

    def tokens(self, dimensions: Dimensions | None, detail: str) -> int:
        return self.each


@dataclass(frozen=True, slots=True)
class Tiles:
    """Squares of 512 pixels after scaling to 2,048 by 2,048 and to a short side of 768 (OpenAI, Images and vision)."""

    base: int
    tile: int

    def tokens(self, dimensions: Dimensions | None, detail: str) -> int:
        """The tokens of an image: `base` alone for low detail."""
        if detail == "low":
            return self.base
        width, height = dimensions or USUAL
        scale = min(1.0, 2048 / max(width, height))
        scale *= min(1.0, 768 / (min(width, height) * scale))
        # rounding first: 768.0000001 would need a tile more than 768
        return self.base + self.tile * _cells(round(width * scale, 3), round(height * scale, 3), 512)


@dataclass(frozen=True, slots=True)
class Patches:
    """Small squares, scaled down until they fit a budget, times a multiplier (OpenAI, Images and vision).

    For low detail OpenAI documents no figure here; a 512-pixel square's worth is assumed.
    """

    multiplier: float = 1.0
    budget: int = 1536
    original: int = 1536
    """The budget for the detail `original`."""
    side: int = 32

    def tokens(self, dimensions: Dimensions | None, detail: str) -> int:
        budget = {"low": 256, "original": self.original}.get(detail, self.budget)
        return int(self._patches(dimensions or USUAL, budget) * self.multiplier)

    def _patches(self, dimensions: Dimensions, budget: int) -> int:
        width, height = dimensions
        if _cells(width, height, self.side) <= budget:
            return _cells(width, height, self.side)
        scale = self.side * sqrt(budget / (width * height))
        across, down = width * scale / self.side, height * scale / self.side
        if min(across, down) >= 1:
            scale *= min(floor(across) / across, floor(down) / down)
        return min(budget, _cells(round(width * scale, 3), round(height * scale, 3), self.side))


@dataclass(frozen=True, slots=True)
class GeminiTiles:
    """258 tokens for a small image, else as many for each square of 768 pixels (Gemini API, Understand tokens)."""

    def tokens(self, dimensions: Dimensions | None, detail: str) -> int:
        width, height = dimensions or USUAL
        return 258 if max(width, height) <= 384 else 258 * min(64, _cells(width, height, 768))


def _cells(width: float, height: float, side: int) -> int:
    return ceil(width / side) * ceil(height / side)
