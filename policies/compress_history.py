"""Let the oldest messages leave a conversation that fills its window, and a summary take their place."""

from collections.abc import Sequence
from itertools import pairwise
from typing import ClassVar, Self

from pydantic import Field, model_validator

from proxy.chat import ChatRequest, Message, split_head
from proxy.context import Context
from proxy.extract import TAG, summary
from proxy.history import Cut, Marks, Room, as_sent, replay
from proxy.pins import compiled, pinned
from proxy.policy import Decision, Keep, Policy, Rewrite

_BYTES = 2.5
"""Bytes that a token of a summary takes at least: identifiers and numbers are dense."""
_SMALLEST = 200
_TOGETHER = 4
_FIRST = 5
"""Among so many messages behind the head the summary is: it may stand behind a carried one, or behind pins."""
_NOTED = Message({"role": "assistant", "content": "Noted."})


class CompressHistory(Policy):
    """Cut a conversation that outgrows its window, deep and rarely, and put a summary where its beginning was.

    Below `compress_at` nothing happens. Above it the oldest exchanges leave until `cut_to` of the usable window is
    taken, so that the next cut is far away and the provider's prompt cache holds until then. Where the cuts fall is
    worked out from the sizes of the messages in order, again in each request: nothing is stored, and every replica cuts
    alike. What leaves is archived first; where there is no archive, nothing leaves.

    The summary stands behind the system messages, in the user's role, as data. It is made of the conversation's own
    sentences and values: the goal, the user's constraints in their words, the open plan, decisions, open items, facts
    and identifiers. It ends in the handles of what left. A last user message that stands before the cut stays, whole.
    """

    prefix_breaks_per_turn: ClassVar[float] = 0.1

    warn_at: float = Field(default=0.70, gt=0, lt=1)
    """The share of the usable window from which on the step reports that a cut is near."""

    compress_at: float = Field(default=0.80, gt=0, lt=1)
    """The share of the usable window above which the conversation is cut."""

    critical_at: float = Field(default=0.90, gt=0, lt=1)
    """The share above which only the last exchanges stay, whatever `cut_to` would allow."""

    cut_to: float = Field(default=0.40, gt=0, lt=1)
    """The share of the usable window that a cut leaves, the summary included."""

    keep_last: int = Field(default=4, ge=1)
    """Exchanges that stay in any case, as long as they fit. A call with its results is one exchange."""

    summary_share: float = Field(default=0.08, gt=0, le=0.2)
    """The share of the usable window that the extracts may take."""

    pins_share: float = Field(default=0.08, ge=0, le=0.2)
    """The share of the usable window that the pinned texts may take. What does not fit is behind the handle."""

    pins: tuple[str, ...] = ()
    """Regular expressions: lines that match one survive word for word. A repeated repetition is refused."""

    @model_validator(mode="after")
    def _settings_fit(self) -> Self:
        if not self.cut_to < self.compress_at <= self.critical_at:
            raise ValueError("cut_to must be below compress_at, and compress_at not above critical_at")
        if self.warn_at > self.compress_at:
            raise ValueError("warn_at must not be above compress_at")
        for pattern in self.pins:
            compiled(pattern)
        return self

    async def apply(self, request: ChatRequest, ctx: Context) -> Decision:
        """Replay the cuts; keep where there is none."""
        head, talk = split_head(request.messages)
        if any(_is_ours(message, ctx) for message in talk[:_FIRST]):
            return Keep("the history was cut by an earlier step")
        count = await ctx.tokens.count(request)
        sizes = await ctx.tokens.sizes(talk)
        sent = as_sent(talk, ctx.incoming.messages)
        born = sizes if sent is talk else await ctx.tokens.sizes(sent)
        usable = ctx.model.usable(request)
        room = self._room(ctx, usable, count.total - sum(sizes))
        cuts = replay(talk, sizes, born, room, self.keep_last)
        share = f"context at {count.total / usable:.0%}"
        if not cuts:
            return Keep(
                f"{share}, no place to cut"
                if count.total > usable * self.compress_at
                else self._calm(share, count.total / usable)
            )
        handles = await _archived(sent, cuts, ctx)
        if handles is None:
            return Keep(f"{share}, but what would leave could not be archived")
        built = await self._built(request, head, talk, sent, cuts[-1], handles, room, ctx)
        if built is None:
            return Keep(f"{share}, but the summary would be longer than what it replaces")
        after, facts = built
        why = f"{cuts[-1].left} of {len(talk)} messages became a summary, cut {len(cuts)} of the conversation"
        return Rewrite(after, why=why, facts={"left_messages": cuts[-1].left, "cuts": len(cuts), **facts})

    def _calm(self, share: str, used: float) -> str:
        return f"{share}, near the {self.compress_at:.0%} mark" if used >= self.warn_at else share

    def _room(self, ctx: Context, usable: int, fixed: int) -> Room:
        both = self.summary_share + self.pins_share
        marks = Marks(self.compress_at, self.cut_to, self.critical_at, both)
        return Room.of(ctx.model.window, usable, fixed, marks)

    async def _built(
        self,
        request: ChatRequest,
        head: Sequence[Message],
        talk: Sequence[Message],
        sent: Sequence[Message],
        cut: Cut,
        handles: Sequence[str],
        room: Room,
        ctx: Context,
    ) -> tuple[ChatRequest, dict[str, int]] | None:
        """The request after a cut; the summary is made shorter where it outgrows its room or what it replaces."""
        gone = [message for index, message in enumerate(sent[: cut.start]) if index != cut.carried]
        carried = [] if cut.carried is None else [talk[cut.carried]]
        kept = talk[cut.start :]
        pins = pinned(gone, [*carried, *sent[cut.start : cut.at + 1]], [compiled(pattern) for pattern in self.pins])
        replaced = sum(await ctx.tokens.sizes([m for i, m in enumerate(talk[: cut.start]) if i != cut.carried]))
        size = max(_SMALLEST, int(room.summary * _BYTES))
        for part in (1.0, 0.5, 0.25, 0.0):
            share = self.pins_share / (self.pins_share + self.summary_share)
            fitting = pins.within(int(size * share * part))
            text = summary(gone, fitting, int(size * (1 - share) * part), handles, len(gone))
            placed = _placed(Message({"role": "user", "content": text}), carried, kept)
            taken = sum(await ctx.tokens.sizes([message for message in placed if message not in carried]))
            if taken < replaced and (taken <= max(room.summary, 1) or not part):
                after = request.with_messages([*head, *placed, *kept])
                dropped = len(pins.texts()) - len(fitting.texts())
                return after, {"pinned": len(fitting.texts()), "pins_too_long": dropped}
        return None


def _placed(about: Message, carried: Sequence[Message], kept: Sequence[Message]) -> list[Message]:
    """What stands before the kept messages: first the carried one, because it outlasts the summary in the cache.

    A word of the assistant parts two user messages: strict templates want the roles to alternate.
    """
    before = [*carried, _NOTED] if carried else []
    return [*before, about, _NOTED] if kept and kept[0].get("role") == "user" else [*before, about]


def _is_ours(message: Message, ctx: Context) -> bool:
    """Whether a summary was made in this request: one that the client sends is content like any other."""
    return message.text.startswith(f"<{TAG}>") and message not in ctx.incoming.messages


async def _archived(sent: Sequence[Message], cuts: Sequence[Cut], ctx: Context) -> list[str] | None:
    """The handles of what left, as JSON lines; None where something could not be kept.

    An entry holds what one cut removed, an older one what `_TOGETHER` cuts did, so that there are few handles.
    """
    whole = len(cuts) // _TOGETHER * _TOGETHER
    ends = [cut.start for place, cut in enumerate(cuts, 1) if place > whole or place % _TOGETHER == 0]
    handles: list[str] = []
    for start, end in pairwise((0, *ends)):
        lines = (message.raw.decode(errors="replace") for message in sent[start:end])
        handle = await ctx.archive.keep("\n".join(lines)) if ctx.archive else None
        if handle is None:
            return None
        handles.append(handle)
    return handles
