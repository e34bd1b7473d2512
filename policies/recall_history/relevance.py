"""Which passages of what left a conversation bear on a question: words and meaning ranked together. Pure.

A passage's score is the mean of two shares: its BM25 score of the best one's, and its cosine of the nearest one's.
What stands next to a relevant message gains, because an answer often stands beside what it answers. The user's own
words gain a little, because they are the first source of what a conversation is about. Long passages lose a little,
because the room is counted in tokens. A question of the user's brings its answer along where there is room behind all
that bears on the new question itself: alone it tells nothing.
"""

from typing import NamedTuple

from proxy.text import arrays
from proxy.text.arrays import Array

_NEAR = 0.5
"""The share of the better of its two neighbours' scores that a message gains."""
_USER = 1.2
_LENGTH = 0.25
"""The power of its length that a passage's score is divided by."""
_SHORT = 50
"""Tokens below which a passage is not favoured further."""
_CLOSE = 0.3
"""A cosine that the nearest passage is taken to have at least, so that chance likeness does not count in full."""
_APART = 0.2
"""The lead of the nearest passage over the middle one at which meaning counts in full: in a language that a model
does not know all passages are equally near to everything."""
_LEAD = 0.75
"""The part of the least score that a passage must have where cosines count from the middle one on."""
_HINT = 0.1
"""The least weight of meaning."""
_LEAST = 1e-9


class Candidates(NamedTuple):
    """Passages that may be chosen: arrays with a value for each, in the order of the conversation."""

    messages: Array
    """The place of its message in the conversation."""
    are_user: Array
    tokens: Array
    """Its size, the framing included."""
    ask: Array
    """True if the user asks something in it."""
    only_ask: Array
    """True if the user says nothing else in it."""


class Ranked(NamedTuple):
    """A candidate by its place, and its relevance as a share of the best one's."""

    place: int
    share: float
    bears: int
    """The candidate that bears on the question: itself, or the earlier question that it answers."""


def ranked(candidates: Candidates, words: Array, meaning: Array, least: float) -> list[Ranked]:
    """Return the candidates that bear on the question, the best first, and behind them the answers to questions.

    A mere question stands behind its answer, and both behind all else, unless it is the best. Candidates below `least`
    of the best's score are left out, and those that are near to the question only as most passages are: in a language
    that a model does not know, or in a conversation about one thing, all are.

    `words` are BM25 scores, `meaning` cosines, not a number where they are not known: then words alone decide. Empty
    where no passage shares a word with the question or is near it at all.
    """
    numpy = arrays.numpy()
    near = numpy.nan_to_num(meaning, nan=0.0)
    scores = _scores(words, meaning, near)
    if not scores.any():
        return []
    weighed = _weighed(candidates, scores)
    best = float(weighed.max())
    leads = _weighed(candidates, _scores(words, meaning, near - max(0.0, float(numpy.median(near)))))
    bear = (weighed >= max(least * best, _LEAST)) & (leads >= _LEAD * least * leads.max())
    order: list[int] = [place for place in numpy.argsort(-weighed, kind="stable").tolist() if bear[place]]
    chosen: dict[int, Ranked] = {}
    behind: list[Ranked] = []
    for place in order:
        own = Ranked(place, float(weighed[place]) / best, place)
        answer = _answer(candidates, weighed, int(candidates.messages[place]) + 1) if candidates.ask[place] else None
        brought = [] if answer is None else [own._replace(place=answer)]
        if not candidates.only_ask[place]:
            chosen.setdefault(place, own)
            behind += brought
        elif place == order[0]:
            chosen |= {each.place: each for each in (*brought, own)}
        else:
            behind += [*brought, own]
    for each in behind:
        chosen.setdefault(each.place, each)
    return [*chosen.values()]


def _answer(candidates: Candidates, weighed: Array, message: int) -> int | None:
    first, end = arrays.numpy().searchsorted(candidates.messages, (message, message + 1)).tolist()
    if first == end or candidates.are_user[first]:
        return None
    best = first + int(weighed[first:end].argmax())
    return best if weighed[best] > 0 else None


def _weighed(candidates: Candidates, scores: Array) -> Array:
    numpy = arrays.numpy()
    weighed = _spread(candidates.messages, scores) * numpy.where(candidates.are_user, _USER, 1.0)
    return weighed / numpy.maximum(candidates.tokens, _SHORT) ** _LENGTH


def _scores(words: Array, meaning: Array, known: Array) -> Array:
    numpy = arrays.numpy()
    top, nearest = words.max(initial=0.0), known.max(initial=0.0)
    if top <= 0 and nearest <= 0:
        return numpy.zeros(len(words))
    by_words = words / top if top > 0 else words
    if nearest > 0:
        apart = float(numpy.nanmax(meaning) - numpy.nanmedian(meaning)) / _APART
        known = min(1.0, max(apart, _HINT)) * known.clip(0.0) / max(nearest, _CLOSE)
    both = (by_words + known) / 2
    return numpy.where(numpy.isnan(meaning), by_words, both)


def _spread(messages: Array, scores: Array) -> Array:
    numpy = arrays.numpy()
    best = numpy.zeros(int(messages[-1]) + 3)  # by message, with an empty one at each end
    numpy.maximum.at(best, messages + 1, scores)
    return scores + _NEAR * numpy.maximum(best[messages], best[messages + 2])
