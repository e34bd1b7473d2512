"""Bounds that make a replay a test: `cost > 1.0`, `lost > 0`."""

import operator
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from proxy.chat.errors import ConfigError

_COMPARE: Mapping[str, Callable[[float, float], bool]] = {
    ">": operator.gt, ">=": operator.ge, "<": operator.lt, "<=": operator.le, "==": operator.eq, "!=": operator.ne,
}  # fmt: skip

_BOUND = re.compile(r"\s*([a-z0-9_]+)\s*(>=|<=|==|!=|>|<)\s*(-?[0-9]+(?:\.[0-9]+)?)\s*(%?)\s*")

NAMES: Mapping[str, tuple[str, ...]] = {
    "cost": ("cost", "own"),
    "cost_against": ("cost_against", "own"),
    "tokens": ("tokens", "ratio"),
    "survival": ("values", "survival"),
    "lost": ("values", "lost"),
    "hidden": ("values", "retrievable"),
    "gone": ("messages", "gone"),
    "breaks": ("breaks", "count"),
    "broken_tokens": ("breaks", "tokens"),
    "left_out": ("left_out",),
    "violations": ("violations", "requests"),
    "refused": ("refused",),
    "failed": ("failed_steps",),
    "ms_p50": ("milliseconds", "p50"),
    "ms_p99": ("milliseconds", "p99"),
}
"""Where each name stands in the totals of a report."""


class Bound(NamedTuple):
    """What must not be so."""

    name: str
    sign: str
    number: float
    text: str

    @classmethod
    def read(cls, text: str) -> "Bound":
        """Return the bound that a text says. Raise `ConfigError`."""
        found = _BOUND.fullmatch(text)
        if found is None or found[1] not in NAMES:
            told = f"--fail-if is NAME > NUMBER, or with >=, <, <=, ==, !=; names: {', '.join(NAMES)}"
            raise ConfigError(f"{text!r}: {told}")
        number = float(found[3]) / (100 if found[4] else 1)
        return cls(found[1], found[2], number, " ".join(text.split()))

    def broken_by(self, totals: Mapping[str, Any]) -> str | None:
        """Return what to say where the totals of a report are so; None where they are not. Raise `ConfigError`."""
        value: Any = totals
        for key in NAMES[self.name]:
            value = None if value is None else value.get(key)
        if value is None:
            raise ConfigError(f"--fail-if {self.text!r}: this replay has no {self.name}; cost_against needs --against")
        return f"{self.text}: it is {value:.6g}" if _COMPARE[self.sign](value, self.number) else None
