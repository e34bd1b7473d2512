"""What a cosine, or a share of words, says of whether a memory helps with a question. Pure.

Models differ: that of one puts a memory that helps at 0.35, that of another at 0.8. Languages differ too: a model that
was trained on English finds any two Spanish texts alike. So a cosine counts by how far it lies above those of the
question to texts of no use for it, in whatever language is nearest; and shared words count beside it. The model is
measured on pairs of which it is known whether they belong together (`data/pairs.txt`), and a figure becomes a
score: the share of pairs with that figure which do, of as many that do as do not. So 0.7 and 0.5 mean the same,
whatever made the figure.
"""

from collections.abc import Sequence
from math import exp, sqrt
from statistics import fmean, pvariance
from typing import NamedTuple

from proxy.vectors.packing import similarities

_LEAST_GAP = 0.5
"""Standard deviations by which what helps must lie above what does not, or the figures say nothing."""


class ScoreCurve(NamedTuple):
    """A monotone map from figures to scores from 0 to 1: the logistic curve between two normal distributions."""

    middle: float
    """The figure that says as much for as against it: 0.5."""
    slope: float
    others: tuple[bytes, ...] = ()
    """Vectors of texts that a question is compared with, to see what its cosines are without any relation."""

    def figures(self, vector: bytes, cosines: Sequence[float], shares: Sequence[float]) -> list[float]:
        """The figures of memories by their cosines to a question, whose vector this is, and the words that they share.

        `shares` are the shares of the question's words that they have.
        """
        base = unrelated([each or 0.0 for each in similarities(vector, self.others)]) if self.others else 0.0
        return [figure(cosine, base, share) for cosine, share in zip(cosines, shares, strict=True)]

    def score(self, figure: float) -> float:
        return 1 / (1 + exp(-max(-40.0, min(40.0, self.slope * (figure - self.middle)))))


_WORDS = 0.7
"""What a memory with all words of a question gains on its cosine."""
_NEAREST = 10
"""The texts nearest to a question, of those that it has nothing to do with, by which its cosines are measured."""


def unrelated(cosines: Sequence[float]) -> float:
    """The cosine of a question to what it has nothing to do with, in the language where that is highest."""
    nearest = sorted(cosines, reverse=True)[:_NEAREST]
    return fmean(nearest) if nearest else 0.0


def figure(cosine: float, base: float, share: float) -> float:
    """What a memory's cosine to a question and the share of its words say together."""
    return cosine - base + _WORDS * share


WORDS = ScoreCurve(0.2, 6.0)
"""For the share of a question's words that a memory has (`proxy.text.bm25.Fits.shares`): 0.34 scores 0.7. By words
alone half of what helps is not found at all, so there is no curve that fits them better."""


def calibrated(helping: Sequence[float], *others: Sequence[float]) -> ScoreCurve | None:
    """The map that the figures of pairs make; each group of `others` counts the same.

    None where they do not tell what helps from what does not.
    """
    if min(len(helping), *map(len, others)) < 2:
        return None
    lows = [fmean(group) for group in others]
    high, low = fmean(helping), fmean(lows)
    # of a mixture: what the groups vary in themselves, and among each other
    varied = fmean(map(pvariance, others)) + pvariance(lows)
    spread = (pvariance(helping) + varied) / 2 + 1e-6
    if (high - low) / sqrt(spread) < _LEAST_GAP:
        return None
    return ScoreCurve((high + low) / 2, (high - low) / spread)
