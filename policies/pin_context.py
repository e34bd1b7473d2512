"""See that what must survive stands in the request, word for word."""

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

from pydantic import Field, field_validator

from proxy.chat import ChatRequest, Message, split_head
from proxy.chat.departed import raws
from proxy.chat.provenance import identities, standing_users
from proxy.context import Context
from proxy.history.pins import arguments, block, compiled
from proxy.history.plans import earlier_copies
from proxy.history.selection import noteworthy, select
from proxy.history.summaries import is_summarised
from proxy.policy import Decision, Keep, Policy, Rewrite, Stage
from proxy.text import counted

_FULL = 0.80
"""The share of the usable window that the prompt may take with what is put back."""


class PinContext(Policy):
    """Put back what the steps before it removed and must not be lost.

    Pinned are what the user laid down (constraints, facts about the user, goals, decisions, deadlines), the newest task
    plan while it is open, system messages from mid-conversation, and lines that `patterns` name. Missing ones go into
    one message behind the system messages, in the user's role. Where `compress_history` has put a summary, it has
    chosen the user's statements already; then only plan, system messages and `patterns` are looked at. Put it behind
    the steps that shorten history.

    A client that sends its plan anew in each turn, as a system message under the same first line, forwards the newest
    copy at its place. Each earlier one is archived and becomes a reference, where that pays back under the provider's
    prompt cache within as many turns as there were so far.
    """

    stage: ClassVar = Stage.RESTORES
    may_grow: ClassVar[bool] = True

    prefix_breaks_per_turn: ClassVar[float] = 0.1

    patterns: tuple[str, ...] = ()
    """Regular expressions: lines that match one are pinned. A repeated repetition is refused."""

    share: float = Field(default=0.05, gt=0, le=0.5)
    """The share of the usable window that may be put back, as long as the prompt stays below 80 % of it."""

    wait: float = Field(default=1.5, ge=0)
    """Seconds to wait for the vectors of the user's sentences; without them their form and words decide."""

    timeout: float = Field(default=4.0, gt=0)
    """Seconds after which the step is given up."""

    @field_validator("patterns")
    @classmethod
    def _patterns_are_sound(cls, patterns: tuple[str, ...]) -> tuple[str, ...]:
        for pattern in patterns:
            compiled(pattern)
        return patterns

    async def apply(self, request: ChatRequest, ctx: Context) -> Decision:
        """Compare what was sent with what remains of it."""
        copies = await earlier_copies(request, ctx)
        if not copies:
            return await self._put_back(request, ctx)
        short = request.with_messages([copies.get(place, each) for place, each in enumerate(request.messages)])
        decision = await self._put_back(short, ctx, replaced=[request.messages[place] for place in copies])
        why = f"{len(copies)} earlier copies of a plan became references"
        if isinstance(decision, Rewrite):
            return replace(decision, why=f"{why}; {decision.why}")
        return Rewrite(short, why=why, facts={"plan_copies": len(copies)})

    async def _put_back(self, request: ChatRequest, ctx: Context, replaced: Sequence[Message] = ()) -> Keep | Rewrite:
        came = ctx.incoming.messages
        if request.messages is came:
            return Keep("nothing left the context")
        texts = raws(request)
        there = {*identities(request), *standing_users(request, ctx.incoming, fitted=True), *map(id, replaced)}
        if identities(ctx.incoming).keys() <= there:
            return Keep("nothing left the context")
        places = range(len(came)) if self.patterns else sorted(await noteworthy(ctx.incoming, ctx))
        stays = [id(came[place]) in there or came[place].raw in texts for place in places]
        gone = [came[place] for place, stay in zip(places, stays, strict=True) if not stay]
        stayed = [came[place] for place, stay in zip(places, stays, strict=True) if stay]
        if not gone:
            return Keep("nothing that must stay has left")
        head, talk = split_head(request.messages)
        usable = ctx.model.usable(request)
        spare = int(usable * _FULL) - (await ctx.tokens.count(request)).total
        # three bytes a token: texts of any language stay below the share
        room = max(0, min(int(usable * self.share), spare)) * 3
        # behind a summary, what the user laid down was chosen when it was made
        size = 0 if is_summarised(talk, ctx) else room
        pins = await select(split_head(gone)[1], stayed, self.patterns, size, ctx, wait=self.wait)
        if not pins.texts():
            return Keep("nothing that must stay has left")
        shown = "\n".join(text for message in request.messages for text in (message.text, *arguments(message)))
        missing = pins.without(shown)
        if not missing.texts():
            return Keep("all that must stay stands in the request")
        fitting = missing.within(room)
        lost = len(missing.texts()) - len(fitting.texts())
        if not fitting.texts():
            return Keep(f"no room for {counted(lost, 'pinned text')} in {self.share:.0%} of the window")
        return Rewrite(
            request.with_messages([*head, block(fitting), *talk]),
            why=f"put back {counted(len(fitting.texts()), 'pinned text')}, no room for {lost}",
            facts={"pinned": len(fitting.texts()), "pins_too_long": lost},
        )
