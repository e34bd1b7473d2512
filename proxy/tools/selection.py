"""Which tools a conversation is offered, worked out again from its beginning: the same wherever it is, and steady.

The set is chosen at the first user message that wants something. It changes only if a tool is missing that a later one
clearly wants, and if what was saved so far pays for writing the prompt anew. Pure.
"""

import math
from bisect import bisect_left
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import accumulate
from typing import Any, NamedTuple

from proxy.chat import ChatRequest, Message, digest
from proxy.context import CacheRules
from proxy.economics import cost_ahead, may_be_cached
from proxy.text.small_talk import is_small_talk
from proxy.tools.ranking import NOTHING

_FADES = 0.8
"""The weight of an earlier message's wants at the next one."""
_WANTED = 5
"""The best tools for a message, which should not be missing."""
_RENEWED = 3
"""The part of the most tools, one in so many, that goes to the likely ones where the choice changes: one change spares
the next ones."""
_SURE = 0.985
"""The likelihood that the tools which are offered hold together, where a score is as uncertain as the noise: few are
offered where some stand out, many where none does, as for requests in a language that the model does not know."""
_REQUESTS, _GROWTH = 11, 150
"""For how many requests a conversation is expected to go on, when it begins, and by how many tokens each."""
_SPENT = 7 / 8
"""The part of what was saved that a change may cost: counts are estimates, and a conversation may end right behind."""
_WORTH = 0.9
"""The part of the definitions that is left at most where tools are left out: less is not worth a search."""
_ABOUT = 0.25
"""A message with a lower score is not about a section."""
_SHORT = 200
"""Characters of a user message that may mean anything by itself: `yes, the second one`."""
_BEFORE = 300
"""Characters of the assistant's words before it that are read with it."""


State = tuple[Any, ...]
"""The choice of an `Offer` or a `Standing` at a moment, followed by its private values."""


class Moment(NamedTuple):
    """A request at which the set may change: the first after words of the user's."""

    end: int
    queries: tuple[str, ...]
    """The user's words, and short ones with the assistant's before them."""
    prefix: bytes
    """Stands for these messages, the same in every process."""
    called: frozenset[str]
    """The names of the tools that were called in them."""
    requests: int
    """The number of requests before it."""
    sent: int
    """The number of messages that the last of them had."""
    is_idle: bool = False
    """True if it is small talk, and no answer to a question."""


class Want(NamedTuple):
    """The tools that a moment wants."""

    scores: tuple[float, ...] | None = None
    """The score of each tool; None for small talk, which wants none."""
    clear: tuple[float, ...] | None = None
    """The score that each surely has, where that is less; None where nothing is known but words."""
    floor: float = 0.0
    """The least score of a tool that is wanted."""
    is_complete: bool = True
    """True if every vector was there."""


@dataclass(frozen=True, slots=True)
class OfferLimits:
    """The bounds of an offer, and its costs."""

    keep: int
    least: int
    """As many are offered even if fewer fit."""
    max_tokens: int
    sizes: tuple[int, ...]
    rules: CacheRules
    is_forced: bool = False
    """True if the set need not pay for itself: the provider takes no more tools than these, or changes are free."""
    idle_has_all: bool = False
    """True if all tools are offered until a message wants something."""
    search: int = 0
    """The tokens of what finds the tools that are left out."""
    noise: float = math.inf
    """The spread of the scores of tools that a message does not want; infinite where that is not known."""

    def likely(self, scores: Sequence[float]) -> list[int]:
        """Return the places of the fewest tools that hold `_SURE` of the likelihood, the best first."""
        best = best_first(scores)
        if not best or math.isinf(self.noise):
            return best
        likelihoods = [*accumulate(math.exp((scores[place] - scores[best[0]]) / self.noise) for place in best)]
        return best[: bisect_left(likelihoods, _SURE * likelihoods[-1]) + 1]


class _SoFar(NamedTuple):
    """The requests up to a message."""

    end: int = 0
    prefix: bytes = b""
    requests: int = 0
    """The number of answers, each of which followed a request."""
    sent: int = 0
    """The number of messages that the last of these requests had."""
    moments: tuple[Moment, ...] = ()
    called: frozenset[str] = frozenset()
    words: tuple[str, ...] = ()
    last: str = ""
    """The assistant's words that came last."""

    def ended(self) -> "_SoFar":
        """Return the same with the end of a request here."""
        if not self.words:
            return self
        text = "\n".join(self.words)
        is_short = self.last and len(text) <= _SHORT
        queries = (text, f"{self.last[-_BEFORE:]}\n{text}") if is_short else (text,)
        is_idle = is_small_talk(text) and "?" not in self.last
        moment = Moment(self.end, queries, self.prefix, self.called, self.requests, self.sent, is_idle)
        return self._replace(moments=(*self.moments, moment), words=())


def moments(request: ChatRequest) -> Sequence[Moment]:
    """Return the requests that came with words of the user's."""
    return request.form.fold("requests", _SoFar(), _walked).ended().moments


def _walked(here: _SoFar, messages: Sequence[Message]) -> _SoFar:
    for message in messages:
        role = message.get("role")
        if role == "assistant":
            here = here.ended()
            here = here._replace(called=here.called.union(message.called_tools), last=message.text or here.last)
            here = here._replace(requests=here.requests + 1, sent=here.end) if here.end else here
        elif role == "user" and (text := message.text).strip():
            here = here._replace(words=(*here.words, text))
        prefix = blake2b(here.prefix + digest(message), digest_size=16).digest()
        here = here._replace(end=here.end + 1, prefix=prefix)
    return here


class Offer:
    """The set as it stands while a conversation is walked through."""

    def __init__(
        self, limits: OfferLimits, message_sizes: Sequence[int], pinned: Collection[int], state: State | None = None
    ) -> None:
        """Begin a walk, or go on from the `state` of another; `pinned` tools are always offered."""
        self._limits = limits
        self._talk = [*accumulate(message_sizes, initial=0)]
        self._pinned = frozenset(pinned)
        self._all = sum(limits.sizes)
        self.chosen: tuple[int, ...] | None
        """The tools, the most wanted first; None where all are offered."""
        self._wants: tuple[float, ...]
        self._saved: float
        begin = (None, (0.0,) * len(limits.sizes), 0.0, 0, False, False)
        self.chosen, self._wants, self._saved, self._requests, self._has_begun, self._is_declined = state or begin

    @property
    def state(self) -> State:
        """The set, and what led to it."""
        return self.chosen, self._wants, self._saved, self._requests, self._has_begun, self._is_declined

    def decide(
        self, moment: Moment, want: Want, called: Callable[[], Collection[int]], settled: tuple[int, ...] | None
    ) -> None:
        """Choose, or change what was chosen, at a moment.

        `called` returns the tools that were called before it, `settled` are those that were chosen then, if known.
        """
        sent = self._talk[moment.sent]  # as large as the requests since the last moment, about
        self._saved += (moment.requests - self._requests) * self._gain(self.chosen, sent, sent)
        is_clear = want.scores is not None and max(want.scores, default=0.0) >= NOTHING
        if want.scores is not None and (is_clear or not self._has_begun):
            self._wants = tuple(map(max, want.scores, map(_FADES.__mul__, self._wants)))
        if settled is None and self._has_begun:
            settled = self._changed(moment, want, called) if is_clear else self.chosen
        elif settled is None and not self._is_declined:
            settled = self._begun(moment, want)
            self._is_declined = settled is None and not (want.scores is None and self._limits.idle_has_all)
        if settled is not None and settled != self.chosen:
            self._has_begun = self._has_begun or want.scores is not None
        self._saved += self._gain(settled, sent, self._talk[moment.end])
        self._requests, self.chosen = moment.requests + 1, settled

    def _begun(self, moment: Moment, want: Want) -> tuple[int, ...] | None:
        """Return the first set of a conversation; that of small talk may have gone before. None for all."""
        if want.scores is None:
            idle = self._filled(self._pinned, ())
            return self.chosen if self._limits.idle_has_all or not self._is_paid_for(idle, moment) else idle
        few = self._filled(self._pinned, self._fitting())
        # few tools may be too short to be cached
        for each in (few, self._filled(self._pinned, [*few, *self._best()])):
            if self._is_paid_for(each, moment):
                return each
        return self.chosen

    def _changed(self, moment: Moment, want: Want, called: Callable[[], Collection[int]]) -> tuple[int, ...] | None:
        """Return another set, if this one lacks a tool that is clearly wanted; tools that were called stay."""
        clear, lowest = want.clear or want.scores or (), max(NOTHING, want.floor)
        there = {*(self.chosen or ())}
        missing = [place for place in best_first(clear)[:_WANTED] if place not in there and clear[place] >= lowest]
        if not missing:
            return self.chosen
        renewed = self._fitting()[: self._limits.keep // _RENEWED]
        stay = [place for place in self._best() if place in there]
        new = self._filled(self._pinned | (there & {*called()}), [*missing, *renewed, *stay])
        return new if self._is_paid_for(new, moment) else self.chosen

    def _best(self) -> list[int]:
        return best_first(self._wants)

    def _fitting(self) -> list[int]:
        return self._best()[: max(self._limits.least, len(self._limits.likely(self._wants)))]

    def _filled(self, must: Collection[int], others: Sequence[int]) -> tuple[int, ...]:
        """Return what must be offered, and of the others, in their order, what fits; the most wanted first."""
        chosen = dict.fromkeys(sorted(must))
        tokens = self._tokens(chosen)
        for place in others:
            if len(chosen) >= self._limits.keep:
                break
            if place not in chosen and tokens + self._limits.sizes[place] <= self._limits.max_tokens:
                chosen[place] = None
                tokens += self._limits.sizes[place]
        return tuple(sorted(chosen, key=lambda place: (place not in must, -self._wants[place], place)))

    def _is_paid_for(self, new: tuple[int, ...], moment: Moment) -> bool:
        """Return whether a change was saved before; of the first choice, whether the requests ahead will save it."""
        sent, talk = self._talk[moment.sent], self._talk[moment.end]
        if self._limits.is_forced:
            return True
        if self.chosen is not None:
            return _SPENT * self._saved + self._gain(new, sent, talk) >= 0
        if self._block(new) > _WORTH * self._all:
            return False
        return len(new) <= len(self._pinned) or self._gain(new, sent, talk, _REQUESTS) >= 0

    def _gain(self, tools: tuple[int, ...] | None, sent: int, talk: int, requests: int = 1) -> float:
        """Return how much less a request and those behind it cost with these tools than with all, in input tokens.

        The request before it had `sent` tokens of messages. Behind other tools they must be written anew.
        """
        if tools is None:
            return 0.0
        rules, block = self._limits.rules, self._block(tools)
        whole = cost_ahead(rules, self._all + sent if sent else 0, self._all + talk, requests, _GROWTH)
        return whole - cost_ahead(rules, block + sent if tools == self.chosen else 0, block + talk, requests, _GROWTH)

    def _block(self, places: tuple[int, ...]) -> int:
        return self._tokens(places) + (self._limits.search if len(places) < len(self._wants) else 0)

    def _tokens(self, places: Collection[int]) -> int:
        return sum(map(self._limits.sizes.__getitem__, places))


class Standing:
    """The sections of the system prompt as they stand along a conversation: those that the last message wants.

    In a cached prompt they change only when one is missing, and then all but those of the turn before leave.
    """

    def __init__(
        self, limits: OfferLimits, message_sizes: Sequence[int], pinned: Collection[int], state: State | None = None
    ) -> None:
        """As of `Offer`; the first `keep` of what is ranked are the sections."""
        self._limits = limits
        self._before = [*accumulate(message_sizes, initial=sum(limits.sizes))]
        self.chosen: tuple[int, ...] | None
        """The sections that stand; None for all of them."""
        self._last: tuple[int, ...]
        self.chosen, self._last, self._has_begun = state or (None, (), False)

    @property
    def state(self) -> State:
        """The sections, and what led to them."""
        return self.chosen, self._last, self._has_begun

    def decide(
        self, moment: Moment, want: Want, called: Callable[[], Collection[int]], settled: tuple[int, ...] | None
    ) -> None:
        """Choose at a moment: small talk wants none, and what fits nothing wants what the turn before it did."""
        fitting = () if want.scores is None else self._about(want.scores, want.floor)
        if settled is not None:
            self.chosen = settled
        elif not self._has_begun:
            # words alone that fit nothing may mean anything
            is_unknown = want.scores is not None and want.clear is None and max(want.scores) < NOTHING
            self.chosen = None if is_unknown and not fitting else fitting
        elif self.chosen is not None:
            wanted = fitting or (self._last if want.scores is not None else ())
            is_free = not may_be_cached(self._limits.rules, self._before[moment.end])
            if is_free or not {*wanted} <= {*self.chosen}:
                self.chosen = wanted if is_free else tuple(sorted({*wanted, *self._last}))
        self._has_begun = True
        self._last = fitting or self._last

    def _about(self, scores: Sequence[float], floor: float) -> tuple[int, ...]:
        """Return the sections that a message is about; behind them are the scores of what it may want besides."""
        lowest = max(_ABOUT, floor)
        likely = self._limits.likely(scores)
        return tuple(sorted([place for place in likely if place < self._limits.keep and scores[place] >= lowest]))


def best_first(scores: Sequence[float]) -> list[int]:
    """Return the places of scores, the highest first."""
    return sorted(range(len(scores)), key=scores.__getitem__, reverse=True)
