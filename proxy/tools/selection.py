"""Which tools a conversation is offered, worked out again from its beginning: the same wherever it is, and steady.

The set is chosen at the first user message that wants something. It changes only if a tool is missing that a later one
clearly wants, and if what was saved so far pays for writing the prompt anew. Pure.
"""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import accumulate
from typing import NamedTuple

from proxy.chat import ChatRequest, Message, digest
from proxy.context import CacheRules
from proxy.economics import may_be_cached, prompt_cost
from proxy.text.small_talk import is_small_talk
from proxy.tools.ranking import NOTHING

_FADES = 0.8
"""The weight of an earlier message's wants at the next one."""
_URGENT = 3
_WANTED = 5
"""The best tools for a message, and for the conversation up to it, that should not be missing."""
_RENEWED = 3
"""The part of the most tools, one in so many, that goes to the likely ones where the choice changes: one change spares
the next ones."""
_SURE = 0.985
"""The likelihood that the tools which are offered hold together, where a score is as uncertain as the noise: few are
offered where some stand out, many where none does, as for requests in a language that the model does not know."""
_REQUESTS = 10
_GROWS = 150
"""For how many further requests a conversation is expected to go on, when it begins, and by how many tokens each."""
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


class Moment(NamedTuple):
    """A request at which the set may change: the first after a user message, or after a tool's first call."""

    end: int
    queries: tuple[str, ...]
    """The user's words, and short ones with the assistant's before them; none after a call."""
    prefix: bytes
    """Stands for these messages, the same in every process."""
    called: frozenset[str]
    """The names of the tools that were called in them."""
    is_idle: bool = False
    """True if it is small talk, and no answer to a question."""


class Want(NamedTuple):
    """The tools that a moment wants."""

    end: int
    scores: tuple[float, ...] | None
    """The score of each tool; None for small talk and calls, which want none."""
    settled: tuple[int, ...] | None = None
    """The tools that were chosen then, if that is known."""
    clear: tuple[float, ...] | None = None
    """The score that each surely has, where that is less; None where nothing is known but words."""
    floor: float = 0.0
    """The least score of a tool that is wanted."""


@dataclass(frozen=True, slots=True)
class OfferLimits:
    """The bounds of an offer, and its costs."""

    keep: int
    least: int
    """As many are offered even if fewer fit."""
    max_tokens: int
    sizes: tuple[int, ...]
    groups: tuple[str, ...]
    rules: CacheRules
    is_forced: bool = False
    """True if the set need not pay for itself: the provider takes no more tools than these, or changes are free."""
    idle_has_all: bool = False
    """True if all tools are offered until a message wants something."""
    called_must_stay: bool = True
    """True if tools that were called must be offered. Where they can be called without that, one that is offered only
    never leaves."""
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


class _RequestsSoFar(NamedTuple):
    """The requests up to a message."""

    end: int = 0
    prefix: bytes = b""
    answers: tuple[int, ...] = ()
    """The places of the answers, each of which followed a request."""
    moments: tuple[Moment, ...] = ()
    called: frozenset[str] = frozenset()
    words: tuple[str, ...] = ()
    last: str = ""
    """The assistant's words that came last."""

    def ended(self) -> "_RequestsSoFar":
        """Return the same with the end of a request here."""
        text, queries, is_idle = "\n".join(self.words), tuple[str, ...](), False
        if text:
            is_short = self.last and len(text) <= _SHORT
            queries = (text, f"{self.last[-_BEFORE:]}\n{text}") if is_short else (text,)
            is_idle = is_small_talk(text) and "?" not in self.last
        elif self.called == (self.moments[-1].called if self.moments else frozenset()):
            return self
        moment = Moment(self.end, queries, self.prefix, self.called, is_idle)
        return self._replace(moments=(*self.moments, moment), words=())


def moments(request: ChatRequest) -> Sequence[Moment]:
    """Return the requests that came with words of the user's, or with the result of a tool's first call."""
    return _so_far(request).ended().moments


def request_ends(request: ChatRequest) -> Sequence[int]:
    """Return how many messages each request had: every answer followed one, and the last has all."""
    return (*_so_far(request).answers, len(request.messages))


def _so_far(request: ChatRequest) -> _RequestsSoFar:
    return request.form.fold("requests", _RequestsSoFar(), _walked)


def _walked(before: _RequestsSoFar, messages: Sequence[Message]) -> _RequestsSoFar:
    here, answers = before, list(before.answers)
    for message in messages:
        role = message.get("role")
        if role == "assistant":
            if here.end:
                answers.append(here.end)
            here = here.ended() if here.end else here
            here = here._replace(called=here.called.union(message.called_tools), last=message.text or here.last)
        elif role == "user" and (text := message.text).strip():
            here = here._replace(words=(*here.words, text))
        prefix = blake2b(here.prefix + digest(message), digest_size=16).digest()
        here = here._replace(end=here.end + 1, prefix=prefix)
    return here._replace(answers=tuple(answers))


class Offer:
    """The set as it stands while a conversation is walked through."""

    def __init__(
        self, limits: OfferLimits, ends: Sequence[int], message_sizes: Sequence[int], pinned: Collection[int]
    ) -> None:
        """Begin a walk. `ends` are the counts of messages of the requests; `pinned` tools are always offered."""
        self._limits = limits
        self._ends = ends
        self._before = [0, *accumulate(message_sizes)]
        self._pinned = frozenset(pinned)
        self._all = sum(limits.sizes)
        self._wants = [0.0] * len(limits.sizes)
        self._measured: tuple[Collection[int] | None, int] = None, 0
        self._saved = 0.0
        """Input tokens that the requests so far cost less with their tools."""
        self._last: int | None = None
        self._has_begun = self._is_declined = False
        self.chosen: tuple[int, ...] | None = None
        """The tools, the most wanted first; None where all are offered."""

    def decide(self, want: Want, called: Collection[int]) -> None:
        """Choose, or change what was chosen, at a moment. `called` are the tools called before it."""
        self._count_until(want.end)
        scores = want.scores
        is_clear = scores is not None and max(scores, default=0.0) >= NOTHING
        if scores is not None and (is_clear or not self._has_begun):
            faded = [_FADES * then for then in self._wants]
            self._wants = [now if now > then else then for now, then in zip(scores, faded, strict=True)]
        new = self.chosen if want.settled == self.chosen else want.settled
        free = not self._limits.called_must_stay
        must = self._pinned | ({*called} & {*(self.chosen or ())} if free else {*called})
        if want.settled is None:
            new = self._proposed(want if is_clear or not self._has_begun else want._replace(scores=None), must, called)
            if new is not None and not self._is_paid_for(new, want.end, must):
                # few tools may be too short to be cached
                new = self._filled(must, [*new, *self._best()]) if self.chosen is None and scores is not None else None
                if new is None or not self._is_paid_for(new, want.end, must):
                    self._is_declined = self._is_declined or self.chosen is None
                    new = None
        self._pass(want.end, self.chosen if new is None else new)
        if new is not None:
            self.chosen = new
            self._has_begun = self._has_begun or scores is not None

    def _proposed(self, want: Want, must: Collection[int], called: Collection[int]) -> tuple[int, ...] | None:
        """Return the tools that a moment would have; None for those that there are."""
        scores = want.scores
        if self._is_declined or (scores is None and self.chosen is None and self._limits.idle_has_all):
            return None
        if not self._has_begun:
            return self._filled(must, () if scores is None else self._fitting())
        lacking = {*must} - {*(self.chosen or ())}
        if lacking:  # called, though it was not offered: who needs it needs its group
            groups = {self._limits.groups[place] for place in lacking} - {""}
            near = [place for place in self._best() if self._limits.groups[place] in groups]
            return self._filled(must, [*near, *self._fitting()])
        return None if scores is None else self._changed(want, must, called)

    def _changed(self, want: Want, must: Collection[int], called: Collection[int]) -> tuple[int, ...] | None:
        """Another set, if this one lacks a tool that is clearly wanted."""
        clear, lowest = want.clear or want.scores or (), max(NOTHING, want.floor)
        there = set(self.chosen or ())
        best = dict.fromkeys([*best_first(clear)[:_URGENT], *self._best()[:_WANTED]])
        missing = [place for place in best if place not in there and clear[place] >= lowest]
        if not missing:
            return None
        renewed = self._fitting()[: self._limits.keep // _RENEWED]
        stay = [place for place in self._best() if place in there]
        return self._filled(must, [*missing, *sorted({*called} - there), *renewed, *stay])

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

    def _is_paid_for(self, new: tuple[int, ...], end: int, must: Collection[int]) -> bool:
        """Return whether a change has been saved before; one that cannot be avoided is."""
        if self._limits.is_forced or (self.chosen is not None and not {*must} <= {*self.chosen}):
            return True
        if self.chosen is not None:
            return _SPENT * self._saved + self._gain(end, new) >= 0
        if self._block(new) > _WORTH * self._all:
            return False
        # what begins is expected to go on; a prompt that became too short to be cached would cost more each time
        talk = self._before[end]
        later = self._next(self._all + talk) - self._next(self._block(new) + talk)
        return len(new) <= len(self._pinned) or self._gain(end, new) + later >= 0

    def _next(self, tokens: int) -> float:
        """Return what the further requests of a conversation cost that begins with a prompt of so many tokens."""
        sizes = range(tokens, tokens + _REQUESTS * _GROWS, _GROWS)
        return sum([prompt_cost(self._limits.rules, size, size + _GROWS) for size in sizes])

    def _count_until(self, end: int) -> None:
        begin = 0 if self._last is None else bisect_right(self._ends, self._last)
        for each in self._ends[begin : bisect_left(self._ends, end)]:
            self._pass(each, self.chosen)

    def _pass(self, end: int, new: tuple[int, ...] | None) -> None:
        self._saved += self._gain(end, new)
        self._last = end

    def _gain(self, end: int, new: tuple[int, ...] | None) -> float:
        """Return how much less the next request costs with these tools than with all of them, in input tokens."""
        if new is None:
            return 0.0
        rules, talk, block = self._limits.rules, self._before[end], self._block(new)
        if self._last is None:
            return prompt_cost(rules, 0, self._all + talk) - prompt_cost(rules, 0, block + talk)
        read = self._before[self._last]
        if new is self.chosen and (not rules.ttl or block + read >= rules.minimum):  # as in most requests
            return (self._all - block) * (rules.read if rules.ttl else 1.0)
        shared = self._shared(range(len(self._wants)) if self.chosen is None else self.chosen, new, read)
        whole = prompt_cost(rules, self._all + read, self._all + talk)
        return whole - prompt_cost(rules, shared, block + talk)

    def _shared(self, before: Collection[int], after: Collection[int], talk: int) -> int:
        changed = None if before is after else min({*before} ^ {*after}, default=None)
        if changed is None:
            return self._block(after) + talk
        return self._tokens([place for place in after if place < changed])

    def _block(self, places: Collection[int]) -> int:
        if places is not self._measured[0]:  # the same set for most requests
            search = self._limits.search if len(places) < len(self._wants) else 0
            self._measured = places, self._tokens(places) + search
        return self._measured[1]

    def _tokens(self, places: Collection[int]) -> int:
        return sum(self._limits.sizes[place] for place in places)


class Standing:
    """The sections of the system prompt as they stand along a conversation: those that the last message wants.

    In a cached prompt they change only when one is missing, and then all but those of the turn before leave.
    """

    def __init__(
        self, limits: OfferLimits, ends: Sequence[int], message_sizes: Sequence[int], pinned: Collection[int]
    ) -> None:
        """As of `Offer`; the first `keep` of what is ranked are the sections."""
        self._count = limits.keep
        self._limits, self._rules = limits, limits.rules
        self._before = [*accumulate(message_sizes, initial=sum(limits.sizes))]
        self._last: tuple[int, ...] = ()
        self._has_begun = False
        self.chosen: tuple[int, ...] | None = None
        """The sections that stand; None for all of them."""

    def decide(self, want: Want, called: Collection[int]) -> None:
        """Choose at a moment: small talk wants none, and what fits nothing wants what the turn before it did."""
        fitting = () if want.scores is None else self._about(want.scores, want.floor)
        if want.settled is not None:
            self.chosen = want.settled
        elif not self._has_begun:
            # words alone that fit nothing may mean anything
            is_unknown = want.scores is not None and want.clear is None and max(want.scores) < NOTHING
            self.chosen = None if is_unknown and not fitting else fitting
        elif self.chosen is not None:
            wanted = fitting or (self._last if want.scores is not None else ())
            is_free = not may_be_cached(self._rules, self._before[want.end])
            if is_free or not {*wanted} <= {*self.chosen}:
                self.chosen = wanted if is_free else tuple(sorted({*wanted, *self._last}))
        self._has_begun = True
        self._last = fitting or self._last

    def _about(self, scores: Sequence[float], floor: float) -> tuple[int, ...]:
        """Return the sections that a message is about; behind them are the scores of what it may want besides."""
        lowest = max(_ABOUT, floor)
        likely = self._limits.likely(scores)
        return tuple(sorted([place for place in likely if place < self._count and scores[place] >= lowest]))


def best_first(scores: Sequence[float]) -> list[int]:
    """Return the places of scores, the highest first."""
    return sorted(range(len(scores)), key=scores.__getitem__, reverse=True)
