"""How good a text from outside is, by five measures that are cheap, and the same for the same text. Pure.

Each measure is from 0 to 1 and sees only what it is made for; where it can tell nothing there is none. What is true is
not among them: that takes trusted facts.
"""

from collections.abc import Mapping
from typing import NamedTuple

from policies.validate_content.accuracy import accuracy
from policies.validate_content.added import injected, passages, told
from policies.validate_content.age import HOUR, freshness, present, stated
from policies.validate_content.completeness import completeness
from policies.validate_content.consistency import consistency
from policies.validate_content.content import Content, Finding
from policies.validate_content.outside import Item, items, standing
from policies.validate_content.relevance import relevance
from proxy.compaction import unwrapped
from proxy.text.json_values import parsed

__all__ = [
    "HOUR",
    "MEASURES",
    "Content",
    "Finding",
    "Item",
    "Verdict",
    "freshness",
    "injected",
    "items",
    "judge",
    "passages",
    "present",
    "standing",
    "stated",
    "told",
]

MEASURES = ("relevance", "freshness", "accuracy", "completeness", "consistency")
"""The measures, in the order of a verdict."""

LARGEST = 2_000_000
"""Characters of a text that are looked at."""


class Verdict(NamedTuple):
    """What the measures say; None where one can tell nothing."""

    relevance: Finding | None
    freshness: Finding | None
    accuracy: Finding | None
    completeness: Finding | None
    consistency: Finding | None

    def below(self, least: Mapping[str, float]) -> list[tuple[str, Finding]]:
        """The measures whose scores are less than these, with what is wrong."""
        found = zip(MEASURES, self, strict=True)
        return [(name, each) for name, each in found if each is not None and each.score < least[name]]

    def overall(self, weights: Mapping[str, float]) -> float:
        """The mean of the scores that there are, by these weights; 1 where none has any."""
        told = [(weights[name], each.score) for name, each in zip(MEASURES, self, strict=True) if each is not None]
        whole = sum(weight for weight, _ in told)
        return sum(weight * score for weight, score in told) / whole if whole else 1.0


def judge(content: Content) -> Verdict:
    """Measure a text, all but its freshness, which depends on when it came. Some 0.3 ms a KB."""
    raw = content.text[:LARGEST]
    text = unwrapped(raw)
    value = parsed(text)
    return Verdict(
        relevance(text, content.query),
        None,
        accuracy(text, data=value is not None),
        completeness(raw, text, value, content.required),
        consistency(value, content.arguments),
    )
