"""What an image costs in tokens, by the rule of the model's family."""

from collections.abc import Callable
from math import ceil, floor, sqrt

from proxy.models.images import Dimensions

USUAL: Dimensions = (1024, 1024)
"""The dimensions that an image is taken to have where its own are unknown, as for one behind a web address."""

Vision = Callable[[Dimensions | None, str], int]
"""The tokens of an image, by its dimensions, None if unknown, and its detail: `low`, `high`, `auto` or `original`."""


def flat(each: int) -> Vision:
    """Return the same for every image."""
    return lambda dimensions, detail: each


def tiles(base: int, tile: int) -> Vision:
    """Squares of 512 pixels after scaling to 2,048 by 2,048 and to a short side of 768 (OpenAI, Images and vision);
    `base` alone for low detail."""

    def tokens(dimensions: Dimensions | None, detail: str) -> int:
        if detail == "low":
            return base
        width, height = dimensions or USUAL
        scale = min(1.0, 2048 / max(width, height))
        scale *= min(1.0, 768 / (min(width, height) * scale))
        # rounding first: 768.0000001 would need a tile more than 768
        return base + tile * _cells(round(width * scale, 3), round(height * scale, 3), 512)

    return tokens


def patches(multiplier: float = 1.0, budget: int = 1536, original: int = 1536, side: int = 32) -> Vision:
    """Small squares, scaled down until they fit a budget, times a multiplier (OpenAI, Images and vision).

    `original` is the budget for that detail. For low detail OpenAI documents no figure here; a 512-pixel square's worth
    is assumed.
    """

    def tokens(dimensions: Dimensions | None, detail: str) -> int:
        most = {"low": 256, "original": original}.get(detail, budget)
        width, height = dimensions or USUAL
        if (cells := _cells(width, height, side)) <= most:
            return int(cells * multiplier)
        scale = side * sqrt(most / (width * height))
        across, down = width * scale / side, height * scale / side
        if min(across, down) >= 1:
            scale *= min(floor(across) / across, floor(down) / down)
        return int(min(most, _cells(round(width * scale, 3), round(height * scale, 3), side)) * multiplier)

    return tokens


def gemini_tiles(dimensions: Dimensions | None, detail: str) -> int:
    """258 tokens for a small image, else as many for each square of 768 pixels (Gemini API, Understand tokens)."""
    width, height = dimensions or USUAL
    return 258 if max(width, height) <= 384 else 258 * min(64, _cells(width, height, 768))


def _cells(width: float, height: float, side: int) -> int:
    return ceil(width / side) * ceil(height / side)
