"""Tell the model which of the user's statements no longer hold.

A message is read once (`reading`) into statements (`statements`), which are made of clauses (`clauses`), their terms
(`terms`), the values in them (`values`, `categories`, `places`) and what they say of people and things (`relations`).
`comparison` says whether two of them clash, `dialogue` which pairs of a conversation do, `wording` what the model is
told. The words and patterns stand in `proxy/data/clashes`.
"""

import operator
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator

from policies.resolve_clashes.dialogue import Clash
from policies.resolve_clashes.reconciling import reconciled
from policies.resolve_clashes.search import found
from policies.resolve_clashes.settling import Settling
from policies.resolve_clashes.wording import is_brief, is_told, line, marked, removed
from proxy.chat import ChatRequest, Message
from proxy.chat.annotations import is_about_next, is_refuted, is_taken_out
from proxy.chat.arrivals import arrived
from proxy.chat.provenance import of_client
from proxy.context import Context
from proxy.economics import may_be_cached
from proxy.history.earlier import PreviousRequest, earlier
from proxy.policy import Count, Decision, Keep, Need, Policy, Rewrite
from proxy.text import counted


class ResolveClashes(Policy):
    """Where the user says something that contradicts what they said before, say that the later statement holds.

    It sees changed choices, preferences, amounts, dates, times and places, and what users deny of what they said of
    themselves, in English and Spanish, by words alone; it would rather miss one than invent one. Questions,
    suppositions, quotations and what others are said to think are no statements.

    As long as the prompt is too short for the provider's cache, or the model has none, the older statement is marked
    where it stands. Behind that, its bytes are cached and stay: one line in front of the message that changes it says
    what holds now and what it replaces, if both are short enough to be quoted. It stays there, so that each later
    prompt begins as the one before, until marking costs nothing: when an earlier step has changed what stands in front
    of the older statement, as a cut does, or after a pause longer than the provider's cache lasts. Two statements of
    one message, and two that are both uncertain, are counted and left as they are, unless `reconcile` has a model
    decide. What `check_facts` has found to be wrong is not said to hold.
    """

    may_grow: ClassVar[bool] = True
    gives_way: ClassVar[bool] = True
    prefix_breaks_per_turn: ClassVar[float] = 0.1  # marks, as long as nothing is cached
    counted: ClassVar = {
        "clashes_resolved": Count(
            "clashes_resolved", "Statements that one first seen replaces, in the same conversation."
        )
    }

    older: Literal["auto", "keep", "mark", "remove"] = "auto"
    """What happens to the older statement. `auto`: it is marked where that costs nothing, and stays as it is elsewhere.
    `keep`: it always stays as it is. `mark`: it is always marked, which costs the provider's cache of what stands
    behind it. `remove`: it leaves the message, which is archived first; where it cannot be archived it is marked."""

    reconcile: Literal["off", "open", "all"] = "off"
    """Which pairs the model of the section `judge` decides: none; those that rules leave open; or also those of which
    they say that the later statement holds. It prefers the later one, says that both hold, or leaves a pair as it is.
    What it decided about a pair stays for the conversation, and so does that it said nothing."""

    wait: float = Field(default=1.0, gt=0, le=10)
    """Seconds that a request with a pair that was never decided may wait for the judge. It must be less than
    `timeout`."""

    sure: float = Field(default=0.9, gt=0.5, lt=1)
    """How sure the judge must be, of either answer."""

    timeout: float = Field(default=2.0, gt=0)
    """Seconds after which the step is given up. Only the first request of a long conversation takes more than a few
    milliseconds."""

    @model_validator(mode="after")
    def _waits_within_its_time(self) -> Self:
        if self.reconcile != "off" and self.wait >= self.timeout:
            raise ValueError(f"timeout must be more than the {self.wait:g} seconds of wait")
        return self

    @property
    def needs(self) -> frozenset[Need]:
        return frozenset({"judge"} if self.reconcile != "off" else ())

    async def apply(self, request: ChatRequest, ctx: Context) -> Decision:
        """Find the pairs that clash, and say of each what holds."""
        sent = of_client(request, ctx.incoming)
        said = _said(request.messages, sent, ctx)
        if any(_is_told_now(*each) for each in zip(request.messages, said, strict=True)):
            return Keep("an earlier step has resolved clashes already")
        before = await self._earlier(request, ctx)
        clashes, of_judge = await self._decided(await found(said, ctx.once), said, ctx)
        solved = [clash for clash in clashes if clash.solvable]
        lately = arrived(ctx.incoming.messages)
        facts = {
            "clashes": len(clashes),
            "clashes_resolved": len(solved),
            "clashes_resolved_new": sum(id(said[clash.newer]) in lately for clash in solved),
            "irresolvable": len(clashes) - len(solved),
            **of_judge,
        }
        findings = _findings(clashes, sent)
        if not solved:
            return Keep(_why(facts), facts, findings)
        settling = None if before is None or ctx.memo is None else Settling(ctx.memo, before)
        writing = _Writing(self, request.messages, sent, settling, ctx)
        await writing.write(solved, await self._in_place(solved, request, ctx))
        if not writing.marked and not writing.lines:
            why = f"{counted(len(solved), 'superseded statement')}, none in so few words that a line pays"
            return Keep(why, facts, findings)
        facts |= {"marked_messages": writing.marked, "lines": writing.lines}
        return Rewrite(request.with_messages(writing.messages), _why(facts), facts, findings)

    async def _earlier(self, request: ChatRequest, ctx: Context) -> PreviousRequest | None:
        """What is known of the request before this one; None where nothing depends on it."""
        if self.older != "auto" or ctx.memo is None:
            return None
        total = (await ctx.tokens.count(request)).total
        return await earlier(ctx) if may_be_cached(ctx.model.cache, total) else None

    async def _decided(
        self, clashes: Sequence[Clash], said: Sequence[Message], ctx: Context
    ) -> tuple[Sequence[Clash], dict[str, int]]:
        """The pairs as they are with what a judge decided, and the facts about that."""
        if self.reconcile == "off" or ctx.judge is None:
            return clashes, {}
        made = await reconciled(clashes, said, ctx, which=self.reconcile, sure=self.sure, wait=self.wait)
        return made.clashes, {"judged": made.judged, "unanswered": made.unanswered, "compatible": made.compatible}

    async def _in_place(self, every: Sequence[Clash], request: ChatRequest, ctx: Context) -> frozenset[Clash]:
        """Those whose older statement is changed where it stands: none of the message that replaces it.

        By the size of the conversation up to the newer one: later requests find the same.
        """
        clashes = [clash for clash in every if clash.older != clash.newer]
        rules = ctx.model.cache
        if self.older == "keep":
            return frozenset()
        if self.older != "auto" or not rules.ttl:
            return frozenset(clashes)
        head = sum(await ctx.tokens.tool_sizes(request.tools))
        ends = list(accumulate(await ctx.tokens.sizes(request.messages), initial=head))
        return frozenset(each for each in clashes if not may_be_cached(rules, ends[each.newer + 1]))

    async def older_form(self, message: Message, said: Message, clashes: Sequence[Clash], ctx: Context) -> Message:
        """An older message, which was `said` so and stands as `message` now, as it is sent."""
        handle = None
        if self.older == "remove" and ctx.archive is not None and message is said:
            handle = await ctx.archive.keep(message.text)
        return marked(message, said, clashes) if handle is None else removed(said, clashes, handle)


class _Writing:
    """The messages of a request on their way to what is sent, one after the other.

    Whether one is marked depends on what is sent in front of it.
    """

    def __init__(
        self,
        policy: ResolveClashes,
        given: Sequence[Message],
        sent: Mapping[int, int],
        settling: Settling | None,
        ctx: Context,
    ) -> None:
        """`given` are the messages as they are now, `sent` says where each stands among the client's."""
        self.messages: list[Message] = []
        self.marked = self.lines = 0
        self._policy, self._given, self._sent, self._settling, self._ctx = policy, given, sent, settling, ctx
        self._said = _said(given, sent, ctx)
        self._changed = _first_changed(given, ctx.incoming.messages)

    async def write(self, clashes: Sequence[Clash], in_place: Collection[Clash]) -> None:
        """Tell of the clashes: of those `in_place` where the older statement stands, of others where that is free."""
        placed, told = set(in_place), {clash for clash in clashes if self._may_be_told(clash)}
        of_older, of_newer = defaultdict[int, list[Clash]](list), defaultdict[int, list[Clash]](list)
        for each in clashes:
            if each in told:
                of_newer[each.newer].append(each)
            if each.older != each.newer:
                of_older[each.older].append(each)
        done = 0
        for place in sorted({*of_older, *of_newer}):
            self._send(self._given[done:place])
            self._add_line([each for each in of_newer[place] if each not in placed and is_brief(each)])
            for each in of_older[place]:
                if each not in placed and await self._is_free(each):
                    placed.add(each)
            await self._add(self._given[place], [each for each in of_older[place] if each in told and each in placed])
            done = place + 1
        self._send(self._given[done:])

    async def _is_free(self, clash: Clash) -> bool:
        """Whether marking the message that is added next costs nothing, or did when that was settled."""
        if self._settling is None:
            return False
        older, newer, relaid = self._given[clash.older], self._sent[clash.newer], clash.older >= self._changed
        return await self._settling.is_marked(clash, older, self._said, newer=newer, relaid=relaid)

    def _add_line(self, clashes: Sequence[Clash]) -> None:
        if clashes:
            self._send([line(clashes)])
            self.lines += 1

    async def _add(self, message: Message, clashes: Sequence[Clash]) -> None:
        if clashes:
            message = await self._policy.older_form(message, self._said[clashes[0].older], clashes, self._ctx)
            self.marked += 1
        self._send([message])

    def _send(self, messages: Sequence[Message]) -> None:
        self.messages += messages
        if self._settling is not None:
            self._settling.add(messages)

    def _may_be_told(self, clash: Clash) -> bool:
        """Whether nothing that an earlier step has found wrong would be said to hold, or be brought back."""
        given, sent = self._given[clash.older], self._said[clash.older]
        if given is not sent and is_taken_out(sent.text[clash.older_start : clash.older_end], sent.text, given.text):
            return False
        given, sent = self._given[clash.newer], self._said[clash.newer]
        if given is not sent and is_refuted(sent.text[clash.newer_start : clash.newer_end], sent.text, given.text):
            return False
        # which of the statements of the last message contradict a fact is said in it on the next turn
        return (
            clash.newer == 0
            or self._said[clash.newer - 1] is not _SILENT
            or not any(map(is_about_next, self._in_front(clash.newer)))
        )

    def _in_front(self, place: int) -> Iterator[Message]:
        """What earlier steps have put right in front of a message."""
        while place > 0 and self._said[place - 1] is _SILENT:
            place -= 1
            yield self._given[place]


_SILENT = Message({"role": "system", "content": ""})


def _said(given: Sequence[Message], sent: Mapping[int, int], ctx: Context) -> list[Message]:
    """The messages as the client sent them. What is not the client's, such as a summary, an earlier step wrote."""
    return [ctx.incoming.messages[sent[place]] if place in sent else _SILENT for place in range(len(given))]


def _is_told_now(now: Message, sent: Message) -> bool:
    return now is not sent and is_told(now) and not is_told(sent)


def _first_changed(given: Sequence[Message], incoming: Sequence[Message]) -> int:
    """The place of the first message behind which not all is as the client sent it; system messages do not count."""
    if len(given) == len(incoming) and all(map(operator.is_, given, incoming)):
        return len(given)
    theirs = (message for message in incoming if not message.is_system)
    talk = ((place, message) for place, message in enumerate(given) if not message.is_system)
    return next((place for place, message in talk if message is not next(theirs, None)), len(given))


def _findings(clashes: Sequence[Clash], sent: Mapping[int, int]) -> list[str]:
    """Each pair by the places of its messages among the client's, and why the two clash."""
    told: list[str] = []
    for each in clashes:
        older, newer = f"messages[{sent[each.older]}]", f"messages[{sent[each.newer]}]"
        how = f"is superseded by {newer}" if each.solvable else f"and {newer} are both uncertain"
        told.append(f"{older} {how if older != newer else 'contradicts itself'}: {_REASONS[each.reason]}")
    return told


_REASONS = {
    "relation": "something else is said of the same thing",
    "replaced": "what was said is taken back",
    "value": "another value",
    "slot": "a value of the task is given anew",
    "never": "what was said to have happened never did",
    "attitude": "another attitude",
    "negation": "one denies the other",
}


def _why(facts: dict[str, int]) -> str:
    if not facts["clashes"]:
        return "no statement of the user's contradicts an earlier one"
    open_ones = f", {facts['irresolvable']} cannot be resolved" if facts["irresolvable"] else ""
    return f"{counted(facts['clashes_resolved'], 'statement')} superseded by later ones{open_ones}"
