"""The distance of a message from chance, by the words and meaning that it shares with the messages that left.

Rare words and near vectors turn up by accident, and more of them the longer a conversation is. So the best score of a
message is compared with the best scores that messages have which ask for nothing (`data/anybody.txt`), over the same
passages: whatever the language, the embedding model, or the length of the conversation.
"""

from collections.abc import Sequence
from functools import cache, partial

from proxy.context import Context
from proxy.text import arrays
from proxy.text.bm25 import Fits, Index
from proxy.text.tables import lines

_WORDS, _MEANING = 1.0, 0.03
"""The least spread of the best scores."""
_HIGHEST = 4
_NEARER = 4.0
"""The weight of being nearer to a passage than to small talk."""
_WAIT = 0.5

Spread = tuple[float, float]
"""Of the best scores of messages that ask for nothing: the mean of the highest, for few of the messages are in the
language of a conversation, and the deviation of all."""


def spread(values: Sequence[float], least: float) -> Spread:
    """Return the spread of some values, with a deviation of at least `least`."""
    numpy = arrays.numpy()
    highest = sorted(values, reverse=True)[:_HIGHEST]
    return float(numpy.mean(highest)), max(float(numpy.std(values)), least)


def _above(value: float, spread: Spread) -> float:
    """Return how many deviations a value is above the highest; mostly it is below them."""
    top, deviation = spread
    return (value - top) / deviation


async def above_chance(
    words: Fits,
    nearest: float | None,
    floor: float | None,
    texts: tuple[str, ...],
    terms: Sequence[Index],
    ctx: Context,
) -> float:
    """Return how far a message is above chance, by its words and its meaning; without vectors by its words alone.

    `texts` are the passages that are searched, `terms` their words. `nearest` is the cosine of the nearest passage,
    `floor` that of the nearest phrase of small talk.
    """
    passages, size = (len(texts), hash(texts)), sum(map(len, texts))
    by_words = await ctx.once.of_key(("chance by words", passages), size, partial(_by_words, terms))
    # common words and short numbers point to nothing
    above = _above(float(words.scores.max(initial=0.0)) if words.telling.any() else 0.0, by_words)
    if nearest is None or floor is None or ctx.services.embedder is None:
        return 2 * above
    key = ("chance by meaning", ctx.services.embedder.name, passages)
    by_meaning: Spread | None = ctx.once.known([key])[0]
    if by_meaning is None:
        near = [each for each in await ctx.services.embedder.nearest(_anybody(), texts, wait=_WAIT) if each is not None]
        by_meaning = spread(near or [floor], _MEANING)
        if near:
            ctx.once.remember(key, by_meaning)
    return above + _above(nearest, by_meaning) + _NEARER * (nearest - floor)


@cache
def _anybody() -> tuple[str, ...]:
    return tuple(lines("anybody"))


def _by_words(terms: Sequence[Index]) -> Spread:
    return spread([float(Fits(each, terms).scores.max(initial=0.0)) for each in _anybody()], _WORDS)
