"""Find the passages of messages that bear on a question, by their words and by their meaning."""

import unicodedata
from collections.abc import Sequence
from typing import NamedTuple

from policies.recall_history.relevance import Candidate, ranked
from proxy.chat import Message, digest
from proxy.chat.blocks import passages_block
from proxy.chat.passages import Passage, passages
from proxy.context import Context
from proxy.text.bm25 import Fit, Index, fits, index, joined
from proxy.text.small_talk import asks_nothing

_FRAME = 1
"""Tokens that the line around a passage takes beyond what a message's own frame does."""

_FARTHEST = -0.1
"""How much nearer to small talk than to any passage a question may be that shares words with one."""
_COVERED = 0.2
"""The part of a question that a passage must have to be about it, if it has `_TERMS` of its terms; rare terms count
more."""
_TERMS = 2
_FIRST = 16
"""Passages with the best words, whose vectors are made first."""
_MOST = 1 / 3
"""The part of its terms that is enough in any case, however common they are."""

Place = tuple[int, int]
"""A passage: its message, and its place in the message."""


class Found(NamedTuple):
    """A passage that bears on a question."""

    place: Place
    share: float
    """Its relevance, as a share of the best one's."""
    tokens: int
    """What it takes, its framing included, about."""
    is_about: bool
    """Whether it is about the question, and not only the best there is."""


class SearchResult(NamedTuple):
    """What a search gave."""

    found: Sequence[Found]
    """The passages, the best first; none where the question does not ask for what left."""
    how: str
    """How they were found, or why there are none."""
    may_refer: bool = False
    """Whether the question may mean something that was named before it."""


class HistorySearch:
    """A search in the messages that left a conversation."""

    def __init__(self, gone: Sequence[Message], ctx: Context, there: str = "") -> None:
        """`there` is what a summary says of them: what stands in it word for word is not found."""
        self._gone, self._ctx, self._there = tuple(gone), ctx, there

    async def find(self, question: str, *, least: float, wait: float) -> SearchResult:
        """The passages that a question asks for.

        `least` is the relevance, as a share of the best one's, that a passage must have; `wait` the seconds for which
        missing vectors are waited for.
        """
        if asks_nothing(question):
            return SearchResult((), "nothing is asked")
        sizes = await self._ctx.tokens.sizes(self._gone)
        parts, terms = await self._read()
        entries = [entry for each in parts for entry in each]
        candidates = [
            Candidate(place, part, is_user, _FRAME + size * entry.chars // entry.total, is_user and entry.asks)
            for place, (message, size, each) in enumerate(zip(self._gone, sizes, parts, strict=True))
            for is_user in [message.get("role") == "user"]
            for part, entry in enumerate(each)
        ]
        words = fits(question, [terms])
        meaning = await self._meaning(question, candidates, entries, words, wait)
        known = [cosine for cosine in meaning if cosine is not None]
        floor = await self._ctx.embedder.floor(question, wait=wait) if self._ctx.embedder and known else None
        nearest = None if floor is None else max(known) - floor
        is_question = _asks(question)
        is_whole = is_question and any(0 < word.wanted == word.terms for word in words)
        unseen = any(cosine is None and _is_covering(word) for word, cosine in zip(words, meaning, strict=True))
        if not is_whole and not _is_asked(words, nearest, is_question=is_question, is_partial=unseen):
            may_refer = is_question if nearest is None else nearest >= _FARTHEST
            return SearchResult((), "nothing of what left is asked for", may_refer)
        order = ranked(candidates, [word.score for word in words], meaning, least)
        found = [
            Found((each.message, each.part), share, each.tokens, _is_about(words[bears], meaning[bears], floor))
            for place, share, bears in order
            for each in [candidates[place]]
            if entries[place].passage.of(self._gone[each.message].text) not in self._there
        ]
        return SearchResult(found, _how(meaning) if found or not order else "the summary says it")

    async def _read(self) -> "_SearchedMessages":
        """The passages of all messages, and where their terms stand; only messages that have left since are added."""
        form, name = self._ctx.incoming.folds.of(self._gone), "passages"
        known: _SearchedMessages | None = form.known(name)
        if known is None:
            count, before = form.resume(name, _SearchedMessages())
            new = await self._ctx.once.of_each(_indexed, self._gone[count:])
            settled = before.behind(new[: form.settled - count])
            form.settle(name, settled)
            known = form.keep(name, settled.behind(new[form.settled - count :]))
        return known

    async def shown(self, places: Sequence[Place]) -> Message:
        """Passages as a message, in the order of time; those that are not there are left out."""
        wanted: dict[int, list[Passage]] = {}
        for message, part in sorted(place for place in places if place[0] < len(self._gone)):
            (read,) = await self._ctx.once.of_each(_indexed, [self._gone[message]])
            wanted.setdefault(message, []).extend(entry.passage for entry in read.entries[part : part + 1])
        return passages_block(self._gone, wanted)

    async def _meaning(
        self,
        question: str,
        candidates: Sequence[Candidate],
        entries: "Sequence[_SearchedPassage]",
        words: Sequence[Fit],
        wait: float,
    ) -> Sequence[float | None]:
        if self._ctx.embedder is None or not entries:
            return [None] * len(entries)
        # should the time not suffice, what shares most words and what the user said have their vectors
        best = set(sorted(range(len(entries)), key=lambda i: -words[i].score)[:_FIRST])
        order = sorted(range(len(entries)), key=lambda i: (i not in best, not candidates[i].is_user, -words[i].score))
        texts = [entries[i].passage.of(self._gone[candidates[i].message].text) for i in order]
        near = await self._ctx.embedder.similarities(question, texts, wait=wait)
        by_place = dict(zip(order, near, strict=True))
        return [by_place[i] for i in range(len(entries))]


async def prepare(messages: Sequence[Message], ctx: Context) -> None:
    """Begin to make the vectors of the passages of messages that will be searched; those of each message once."""
    if ctx.embedder is None:
        return
    digests = await ctx.once.of_each(digest, messages)
    keys = [("passages prepared", ctx.embedder.name, digest) for digest in digests]
    new = [place for place, known in enumerate(ctx.once.known(keys)) if known is None]
    parts = await ctx.once.of_each(_indexed, [messages[place] for place in new])
    texts = [
        entry.passage.of(messages[place].text) for place, each in zip(new, parts, strict=True) for entry in each.entries
    ]
    if texts:
        ctx.embedder.prepare(texts)
    for place in new:
        ctx.once.remember(keys[place], True)


class _SearchedPassage(NamedTuple):
    """A passage of a message."""

    passage: Passage
    chars: int
    total: int
    """Characters of the whole message."""
    asks: bool


class _Indexed(NamedTuple):
    """A message, ready to be searched."""

    entries: tuple[_SearchedPassage, ...]
    terms: Index
    """Of the texts of the entries."""


class _SearchedMessages(NamedTuple):
    """Messages, ready to be searched."""

    parts: tuple[tuple[_SearchedPassage, ...], ...] = ()
    terms: Index = Index((), {})

    def behind(self, messages: Sequence[_Indexed]) -> "_SearchedMessages":
        """These and further messages."""
        if not messages:
            return self
        parts = (*self.parts, *(each.entries for each in messages))
        return _SearchedMessages(parts, joined(self.terms, [each.terms for each in messages]))


def _indexed(message: Message) -> _Indexed:
    text = message.text
    parts = passages(text)
    entries = tuple(_SearchedPassage(part, part.end - part.start, len(text), _asks(part.of(text))) for part in parts)
    return _Indexed(entries, index(part.of(text) for part in parts))


def _asks(text: str) -> bool:
    return "?" in unicodedata.normalize("NFKC", text)


def _is_asked(words: Sequence[Fit], nearest: float | None, *, is_question: bool, is_partial: bool) -> bool:
    """Whether a message asks for what left.

    It does if its meaning is nearer to a passage than to small talk; `nearest` is the difference, None without vectors.
    A question also does if a passage has its rare words, unless its meaning is far from all passages. `is_partial`: a
    passage with its words has no vector yet. Without any vectors rare words decide alone.
    """
    if nearest is not None and nearest > 0:
        return True
    if nearest is not None and not (is_question and (is_partial or nearest >= _FARTHEST)):
        return False
    return any(_is_covering(word) and word.telling for word in words)


def _is_about(words: Fit, cosine: float | None, floor: float | None) -> bool:
    return _is_covering(words) or (cosine is not None and floor is not None and cosine > floor)


def _is_covering(words: Fit) -> bool:
    return (words.terms >= _TERMS and words.share >= _COVERED) or (
        words.terms > 0 and words.terms >= _MOST * words.wanted
    )


def _how(meaning: Sequence[float | None]) -> str:
    known = sum(cosine is not None for cosine in meaning)
    if not known:
        return "by their words"
    return "by words and meaning" + (
        "" if known == len(meaning) else f" ({known} of {len(meaning)} vectors were there)"
    )
