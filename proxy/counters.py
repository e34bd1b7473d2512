"""Counts that several processes or machines share."""

from collections.abc import Mapping
from typing import Protocol


class Counters(Protocol):
    """Counts that all who share the state share: for rates and budgets."""

    async def add(self, amounts: Mapping[str, float], *, ttl: float) -> Mapping[str, float]:
        """Add to several counts at once and return what they then are; a count is forgotten `ttl` seconds after it was
        last added to. Raises `StoreError`.
        """
