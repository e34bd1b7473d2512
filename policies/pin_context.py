"""See that what must survive stands in the request, word for word."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import ClassVar

from pydantic import Field

from proxy.chat import ChatRequest, Message, head_of, split_head
from proxy.chat.blocks import PINNED, entries_block, entry
from proxy.chat.provenance import of_client, raws, standing
from proxy.chat.texts import arguments
from proxy.context import Context
from proxy.history.pins import Pattern, earlier_copies, marked, open_plan, plan_of, system_messages
from proxy.policy import Decision, Keep, Policy, Rewrite, Stage
from proxy.text import counted

_ABOUT = "Said earlier in this conversation, word for word, with who said it."
_FULL = 0.80
"""The share of the usable window that the prompt may take with what is put back."""


class PinContext(Policy):
    """Put back what the steps before it removed and must not be lost.

    Pinned are the newest task plan while it is open (what the assistant wrote with boxes, the arguments of its todo
    tool, or a system message), system messages from mid-conversation, and lines that `patterns` name. Missing ones go
    into one message behind the system messages, in the user's role, each with the role of who said it. Put it behind
    the steps that shorten history.

    Where a client sends its plan anew in each turn, as a system message under the same first line, the newest copy
    stays. Each earlier one is archived and becomes a reference, where that pays under the prompt cache.
    """

    stage: ClassVar = Stage.RESTORES
    may_grow: ClassVar[bool] = True

    prefix_breaks_per_turn: ClassVar[float] = 0.1

    patterns: tuple[Pattern, ...] = ()
    """Regular expressions: lines that match one are pinned. A repeated repetition is refused."""

    share: float = Field(default=0.05, gt=0, le=0.5)
    """The share of the usable window that may be put back, as long as the prompt stays below 80 % of it."""

    async def apply(self, request: ChatRequest, ctx: Context) -> Decision:
        copies = await earlier_copies(request, ctx)
        if not copies:
            return await self._put_back(request, ctx)
        short = request.with_messages([copies.get(place, each) for place, each in enumerate(request.messages)])
        decision = await self._put_back(short, ctx)
        why = f"{len(copies)} earlier copies of a plan became references"
        if isinstance(decision, Rewrite):
            return replace(decision, why=f"{why}; {decision.why}")
        return Rewrite(short, why=why, facts={"plan_copies": len(copies)})

    async def _put_back(self, request: ChatRequest, ctx: Context) -> Keep | Rewrite:
        came = ctx.incoming.messages
        if request.messages is came:
            return Keep("nothing left the context")
        places = ctx.incoming.form.places(("pinned", self.patterns), partial(_may_be_pinned, self.patterns))
        first = len(head_of(came))
        still = standing(request, ctx.incoming) if places and places[-1] >= first else frozenset[int]()
        left = [place for place in places if place >= first and place not in still]
        if not left:
            return Keep("nothing that must stay has left")
        texts, in_any_form = raws(request), frozenset(of_client(request, ctx.incoming).values())
        staying, gone = list[Message](), list[Message]()
        for place in places:
            message = came[place]
            stays = place < first or place in still or message.raw in texts
            (staying if stays or (message.is_system and place in in_any_form) else gone).append(message)
        missing = _missing(request, gone, staying, self.patterns)
        if not missing:
            return Keep("nothing that must stay has left")
        spare = int(ctx.model.usable(request) * _FULL) - (await ctx.tokens.count(request)).total
        # three bytes a token: texts of any language stay below the share
        room = max(0, min(int(ctx.model.usable(request) * self.share), spare)) * 3
        fitting: list[str] = []
        for each in missing:
            needed = len(each.encode(errors="surrogatepass"))
            if needed <= room:
                fitting.append(each)
                room -= needed
        lost = len(missing) - len(fitting)
        if not fitting:
            return Keep(f"no room for {counted(lost, 'pinned text')} in {self.share:.0%} of the window")
        head, talk = split_head(request.messages)
        return Rewrite(
            request.with_messages([*head, entries_block(PINNED, _ABOUT, fitting), *talk]),
            why=f"put back {counted(len(fitting), 'pinned text')}, no room for {lost}",
            facts={"pinned": len(fitting), "pins_too_long": lost},
        )


def _may_be_pinned(patterns: Sequence[str], message: Message) -> bool:
    return message.is_system or plan_of(message) is not None or bool(marked([message], patterns))


def _missing(
    request: ChatRequest, gone: Sequence[Message], staying: Sequence[Message], patterns: Sequence[str]
) -> list[str]:
    """Return the lines that must stay of messages that left, and stand nowhere in the request."""
    plan, pinned = open_plan(gone, staying), [*system_messages(gone), *marked(gone, patterns)]
    if plan is None and not pinned:
        return []
    shown = _bare("".join(text for message in request.messages for text in (message.text, *arguments(message))))
    missing = [entry(line.role, line.text) for line in pinned if _bare(line.text) not in shown]
    if plan is not None and not all(_bare(step) in shown for step in plan.steps):
        missing.append(entry("assistant", plan.text))
    return missing


def _bare(text: str) -> str:
    """Return a text without white space and escapes: the same in whatever layout it stands."""
    return "".join(text.split()).replace("\\n", "").replace("\\", "")
