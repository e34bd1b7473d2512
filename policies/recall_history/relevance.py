"""Which passages of what left a conversation bear on a question: words and meaning ranked together. Pure.

A passage's score is the mean of two shares: its BM25 score of the best one's, and its cosine of the nearest one's.
What stands next to a relevant message gains, because an answer often stands beside what it answers. The user's own
words gain a little, because they are the first source of what a conversation is about. Long passages lose a little,
because the room is counted in tokens. A question of the user's brings its answer along where there is room behind all
that bears on the new question itself: alone it tells nothing.
"""

from collections.abc import Mapping, Sequence, Set
from typing import NamedTuple

_NEAR = 0.5
"""What a message gains of the better of its two neighbours."""
_USER = 1.2
_LENGTH = 0.25
"""The power of its length that a passage's score is divided by."""
_SHORT = 50
"""Tokens below which a passage is not favoured further."""
_CLOSE = 0.3
"""A cosine that the nearest passage is taken to have at least, so that chance likeness does not count in full."""


class Candidate(NamedTuple):
    """A passage that may be chosen."""

    message: int
    """The place of its message in the conversation."""
    part: int
    """Its place in the message."""
    is_user: bool
    tokens: int
    """What it takes, its framing included."""
    asks: bool = False
    """Whether the user asks something in it."""


class Ranked(NamedTuple):
    """A candidate by its place, and its relevance as a share of the best one's."""

    place: int
    share: float
    bears: int
    """The candidate that bears on the question: itself, or the earlier question that it answers."""


def ranked(
    candidates: Sequence[Candidate], words: Sequence[float], meaning: Sequence[float | None], least: float
) -> list[Ranked]:
    """The candidates that bear on the question, the best first; those below `least` of the best's score are left out.
    Behind them the answers to such as are questions.

    `words` are BM25 scores, `meaning` cosines, None where they are not known: then words alone decide. Empty where no
    passage shares a word with the question or is near it at all.
    """
    nearest = max((cosine for cosine in meaning if cosine is not None), default=0.0)
    top = max(words, default=0.0)
    if top <= 0 and nearest <= 0:
        return []
    scores = _spread(
        candidates, [_score(word, cosine, top, nearest) for word, cosine in zip(words, meaning, strict=True)]
    )
    weighed = {
        place: score * (_USER if each.is_user else 1.0) / max(each.tokens, _SHORT) ** _LENGTH
        for place, (each, score) in enumerate(zip(candidates, scores, strict=True))
        if score
    }
    best = max(weighed.values())
    bar = max(least * best, 1e-9)
    order = sorted((place for place, weight in weighed.items() if weight >= bar), key=lambda at: (-weighed[at], at))
    chosen = {place: Ranked(place, weighed[place] / best, place) for place in order}
    asked = [place for place in order if candidates[place].asks]
    answers = _heaviest(candidates, weighed, {candidates[place].message + 1 for place in asked}) if asked else {}
    for place in asked:
        answer = answers.get(candidates[place].message + 1)
        if answer is not None:
            chosen.setdefault(answer, Ranked(answer, weighed[place] / best, place))
    return [*chosen.values()]


def _heaviest(candidates: Sequence[Candidate], weighed: Mapping[int, float], messages: Set[int]) -> dict[int, int]:
    """By message the place of its best passage, of those of these messages that are not the user's."""
    found: dict[int, int] = {}
    for place, weight in weighed.items():
        message = candidates[place].message
        is_theirs = message in messages and not candidates[place].is_user
        if is_theirs and (message not in found or weight > weighed[found[message]]):
            found[message] = place
    return found


def _score(word: float, cosine: float | None, top: float, nearest: float) -> float:
    by_words = word / top if top > 0 else 0.0
    if cosine is None:
        return by_words
    return (by_words + max(cosine, 0.0) / max(nearest, _CLOSE)) / 2


def _spread(candidates: Sequence[Candidate], scores: Sequence[float]) -> list[float]:
    """Scores with what the neighbouring messages add."""
    best: dict[int, float] = {}
    for candidate, score in zip(candidates, scores, strict=True):
        best[candidate.message] = max(score, best.get(candidate.message, 0.0))
    return [
        score + _NEAR * max(best.get(candidate.message - 1, 0.0), best.get(candidate.message + 1, 0.0))
        for candidate, score in zip(candidates, scores, strict=True)
    ]
