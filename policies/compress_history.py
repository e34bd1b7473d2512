"""Let the oldest messages leave a conversation that fills its window, and a digest take their place."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice, pairwise
from typing import Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from proxy.chat import CONTROL, ChatRequest, Message, head_of, legal_cuts, split_head
from proxy.chat.markers import shortened
from proxy.chat.texts import texts_of, with_text
from proxy.compaction.envelopes import unwrapped
from proxy.compaction.lines import condensed
from proxy.compaction.references import is_referring, lines_of_results, make_standing
from proxy.context import Archive, Context
from proxy.history.cuts import Cut, Marks, Room, as_sent, foresee
from proxy.history.handover import asks_for_summary
from proxy.history.pins import Pattern
from proxy.history.summaries import (
    BYTES,
    Leaving,
    SummarySize,
    Written,
    archived,
    is_summarised,
    prepare,
    read_ahead,
    settled,
    summarised,
)
from proxy.policy import SHORTER_HISTORY, ActsNatively, CutsHistory, Decision, Keep, Need, Policy, Rewrite, Stage

_A_MESSAGE = 4
"""To look for cuts takes so many times as long for a message as to read a character does."""


class CompressHistory(Policy, CutsHistory, ActsNatively):
    """Cut a conversation that outgrows its window, deep and rarely, and put a digest where its beginning was.

    Above `compress_at` the oldest exchanges leave until `cut_to` of the usable window is taken and at most `keep_turns`
    turns stand word for word. Where a large exchange left, short forms of the newest fill that room. Cuts depend on the
    sizes of the messages, so every replica cuts alike. Without a prompt cache the next cut comes half-way to
    `compress_at`. What leaves is archived first; without an archive nothing leaves.

    The digest stands behind the system messages, as data in the user's role: the user's messages, word for word and
    numbered by turns; under each the answers; the open plan; with tools the handles of what left. When room is short,
    questions and small talk leave first. The last user message stays whole. A client that asks for a summary of the
    conversation itself, as agents do before they delete it, gets all of it to the model while it fits.
    """

    stage: ClassVar = Stage.SHORTENS
    prefix_breaks_per_turn: ClassVar[float] = 0.2
    counted: ClassVar = {"left_messages": SHORTER_HISTORY}
    native_edit: ClassVar = "compaction"

    warn_at: float = Field(default=0.70, gt=0, lt=1)
    """The share of the usable window from which the step reports that a cut is near."""

    compress_at: float = Field(default=0.80, gt=0, lt=1)
    """The share of the usable window above which the conversation is cut."""

    critical_at: float = Field(default=0.90, gt=0, lt=1)
    """The share above which only the last exchanges stay, whatever `cut_to` would allow."""

    cut_to: float = Field(default=0.30, gt=0, lt=1)
    """The share of the usable window that a cut leaves, the digest included."""

    keep_last: int = Field(default=4, ge=1)
    """Exchanges that stay in any case, as long as they fit. A call with its results is one exchange."""

    keep_turns: int = Field(default=10, ge=1)
    """The most turns that a cut leaves word for word. What comes until the next cut stays beside them."""

    summary_share: float = Field(default=0.12, gt=0, le=0.4)
    """The share of the usable window that the digest may take."""

    timeout: float = Field(default=4.0, gt=0)
    """Seconds after which the step is given up."""

    summary: Literal["digest", "written"] = "digest"
    """The source of the lines about answers. `digest`: the first sentence, list items, codes and numbers of each
    answer, word for word. `written`: the model of `writer` sums them up in the background from `warn_at` on; the digest
    replaces what is late or was never said."""

    native: bool = False
    """Behind signed reasoning, have OpenAI compact the conversation at `compress_at` (`context_management` of
    Responses). The client must send back the `compaction` item that it gets. Its own `context_management` stays."""

    pins: tuple[Pattern, ...] = ()
    """Regular expressions: lines that match one survive word for word. A repeated repetition is refused."""

    @model_validator(mode="after")
    def _settings_fit(self) -> Self:
        if not self.cut_to < self.compress_at <= self.critical_at:
            raise ValueError("cut_to must be below compress_at, and compress_at not above critical_at")
        if self.warn_at > self.compress_at:
            raise ValueError("warn_at must not be above compress_at")
        return self

    @property
    def cuts_over(self) -> float:
        return self.compress_at

    def native_fields(self, request: ChatRequest, ctx: Context) -> Mapping[str, Any]:
        if not self.native or "context_management" in request.rest:
            return {}
        threshold = int(ctx.model.usable(request) * self.compress_at)
        return {"context_management": [{"type": self.native_edit, "compact_threshold": threshold}]}

    @property
    def needs(self) -> frozenset[Need]:
        return frozenset({"writer"} if self.summary == "written" else ())

    async def apply(self, request: ChatRequest, ctx: Context) -> Decision:
        is_first = request.messages is ctx.incoming.messages
        if not is_first and is_summarised(islice(request.messages, len(head_of(request.messages)), None), ctx):
            return Keep("the history was cut by an earlier step")
        count, came = await ctx.tokens.count(request), await ctx.tokens.count(ctx.incoming)
        usable = ctx.model.usable(request)
        share = f"context at {count.total / usable:.0%}"
        fits = count.total + came.total <= usable * self.warn_at / 2  # even if each message had its larger form
        if fits or (count.total <= usable and asks_for_summary(ctx.incoming)):
            return Keep(share if fits else f"{share}, whole because a summary of it is asked for")
        head, talk = split_head(request.messages)
        sizes = (await ctx.tokens.sizes(request.messages))[len(head) :]
        sent = as_sent(request, len(head), ctx.incoming) or talk
        born = sizes if sent is talk else (await ctx.tokens.sizes(ctx.incoming.messages))[-len(sent) :]
        await read_ahead(sent, ctx, 2 * count.total / (usable * self.warn_at) - 1)
        room = self._room(request, ctx, usable, count.total - sum(sizes))
        cuts, ahead = await ctx.once.run(
            max(_A_MESSAGE * len(talk), sum(sizes)),
            lambda: foresee(talk, sizes, born, room, self.keep_last, lines_of_results(talk)),
        )
        measure = SummarySize(room.summary, self.pins)
        if not cuts:
            if ahead is not None and self.summary == "written":
                await prepare(sent[: ahead.start], sent[: ahead.start], (), measure, ctx)
            near = f", near the {self.compress_at:.0%} mark" if count.total / usable >= self.warn_at else ""
            return Keep(f"{share}, no place to cut" if count.total > usable * self.compress_at else share + near)
        last = cuts[-1]
        leaving = Leaving(talk, sent, tuple(cut.start for cut in cuts), last.at, last.carried)
        handles = await archived(leaving, ctx)
        if handles is None:
            return Keep(f"{share}, but what would leave could not be archived")
        written = await settled(leaving, last.foreseen, measure, ctx) if self.summary == "written" else None
        summary = await _replacement(leaving, last, handles if request.tools else (), measure, ctx, written)
        if summary is None:
            return Keep(f"{share}, but the summary would be longer than what it replaces")
        if ahead is not None and self.summary == "written":
            await prepare(sent[: ahead.start], leaving.since(ahead.start), summary, measure, ctx)
        standing = await make_standing(talk[leaving.start :], ctx)
        after = request.with_messages([*head, *leaving.controls, *summary, *standing])
        return await self._shorter(request, after, leaving, len(cuts), share, ctx)

    async def _shorter(
        self, request: ChatRequest, after: ChatRequest, leaving: Leaving, cuts: int, share: str, ctx: Context
    ) -> Decision:
        """Return the cut request, or keep the whole one where lines that later results refer to make it longer."""
        if (await ctx.tokens.count(after)).total > (await ctx.tokens.count(request)).total:
            return Keep(f"{share}, but later results refer to longer lines of what would leave")
        why = f"{leaving.count} of {len(leaving.talk)} messages became a summary, cut {cuts} of the conversation"
        return Rewrite(after, why=why, facts={"left_messages": leaving.count, "cuts": cuts})

    def _room(self, request: ChatRequest, ctx: Context, usable: int, fixed: int) -> Room:
        # without a prompt cache a cut costs nothing, but what fits easily stays all the same
        again = self.compress_at if ctx.model.cache.ttl else (self.compress_at + self.cut_to) / 2
        marks = Marks(self.compress_at, self.cut_to, self.critical_at, self.summary_share, self.warn_at, again)
        return Room.of(ctx.model.window, usable, fixed, marks, self.keep_turns)


_PARTS = (8, 6, 4, 3, 2, 1)
"""A text that the model got may take these parts of the room: the largest that leaves out no more of them."""

_STEP = 50
"""A text's characters are a multiple of this: those of a form stay the same where a token more or less was counted."""


async def _replacement(
    leaving: Leaving,
    cut: Cut,
    handles: tuple[str, ...],
    measure: SummarySize,
    ctx: Context,
    written: Written | None,
) -> list[Message] | None:
    """Return the digest of what leaves and, in the room that there is, the newest exchanges in short forms.

    In a tight cut they have half of the digest's room.
    """
    size = replace(measure, tokens=measure.tokens // 2) if cut.is_tight else measure
    summary = await summarised(leaving, handles, size, ctx, written)
    if summary is None or not (cut.is_tight or cut.forms):
        return summary
    short = await newest(leaving, summary, measure.tokens + cut.forms, ctx)
    if not short:
        return summary
    # what stands in short forms needs no line: others have its room
    return [*(await summarised(leaving, handles, size, ctx, written, shown=len(short)) or summary), *short]


async def newest(leaving: Leaving, before: Sequence[Message], tokens: int, ctx: Context) -> list[Message]:
    """Return the newest exchanges that leave, as far as so many tokens allow together with the summary before them.

    They begin with the assistant, whose words stay whole; the texts of others are short.
    """
    if ctx.archive is None:
        return []
    room = tokens - sum(await ctx.tokens.sizes(before[leaving.carried is not None :]))
    best: list[Message] = []
    for part in _PARTS:
        most = int(room * BYTES) // part // _STEP * _STEP
        forms = await _fitting(leaving, room, most, ctx.archive, ctx)
        if len(forms) < len(best):
            break
        best = forms
    return best


async def _fitting(leaving: Leaving, room: int, most: int, archive: Archive, ctx: Context) -> list[Message]:
    """Return as many of the newest exchanges as fit into the room; a text of one has at most so many characters."""
    cuts = [place for place in sorted(legal_cuts(leaving.talk)) if place <= leaving.start]
    newest: list[Message] = []
    waiting: list[Message] = []
    for start, end in reversed([*pairwise(cuts)]):
        if leaving.carried is not None and start <= leaving.carried:
            break
        places = [place for place in range(start, end) if leaving.talk[place].role != CONTROL]
        exchange = [await _short(leaving, place, most, archive, ctx) for place in places]
        room -= sum(await ctx.tokens.sizes(exchange))
        if room < 0:
            break
        waiting = [*exchange, *waiting]
        if exchange and exchange[0].get("role") == "assistant":
            newest, waiting = [*waiting, *newest], []
    return newest


def _condensed(text: str, most: int) -> str:
    return condensed(unwrapped(text), most)


async def _short(leaving: Leaving, place: int, most: int, archive: Archive, ctx: Context) -> Message:
    """Return a message that leaves; a user's or tool's text has at most about so many characters.

    A text that refers to lines of earlier ones, which leave, is made of what the client sent.
    """
    message, sent = leaving.talk[place], leaving.sent[place]
    is_short = len(message.text) <= most and not is_referring(message.text)
    if message.get("role") not in ("user", "tool") or is_short:
        return message
    changed = []
    for text in texts_of(place, sent, str(sent.get("role"))):
        if len(text.original) > most and (handle := await archive.keep(text.original)) is not None:
            key = ("newest", hash(text.original), len(text.original), most)
            form = await ctx.once.of_key(key, len(text.original), partial(_condensed, text.original, most))
            text.sent = shortened(form, len(text.original), handle)
            changed.append(text)
    return with_text(sent, *changed)
