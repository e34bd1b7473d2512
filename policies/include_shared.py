"""Show the model what other agents have shared with it."""

from collections.abc import Sequence
from typing import ClassVar

from pydantic import Field

from proxy.chat import ChatRequest, Message
from proxy.chat.blocks import SHARED, injected, placed
from proxy.context import Archive, Context, Memo, Share
from proxy.given import block, digest, marks, place_of_new, standing
from proxy.lineage import of_client
from proxy.policy import Decision, Keep, Policy, Rewrite

_BYTES = 3
"""Bytes that a token takes at least, in nearly any language: a measure that does not depend on the model."""
_SHORTEST = 300
"""Bytes that are shown of a text for which there is no more room."""


class IncludeShared(Policy):
    """Show the model what other agents have given to it by `POST /v1/context/share`.

    Each text goes in front of the user message that was the last one when it came, or in a tool loop in front of the
    last exchange, and stays there word for word: so it breaks the prompt cache once, near the end. It stands in the
    user's role and says who gave it, and that it is data. When the messages around it leave, it moves up to the first
    that stays. A long text is shown by its beginning, and `recall` reads the rest. Only a conversation that the client
    names can be given anything. Put it behind the steps that shorten history.
    """

    may_grow: ClassVar[bool] = True
    gives_way: ClassVar[bool] = True
    prefix_breaks_per_turn: ClassVar[float] = 0.1

    max_tokens: int = Field(default=1000, ge=100)
    """The most tokens that are shown of one text, at three bytes a token."""

    share: float = Field(default=0.1, gt=0, le=0.5)
    """The share of the window that they may take together; behind that, 300 bytes are shown of each."""

    async def apply(self, request: ChatRequest, ctx: Context) -> Decision:
        """Put each text where it stood before, and a new one near the end."""
        if ctx.inbox is None or ctx.memo is None:
            return Keep("nothing can be shared with a conversation without a name")
        shares = await ctx.inbox.received()
        if not shares:
            return Keep("nothing was shared with it")
        sent = of_client(request.messages, ctx.incoming.messages)
        if injected(request.messages, sent, SHARED):
            return Keep("an earlier step has shown it already")
        places, moved = await _places(shares, request, ctx, ctx.memo)
        room = int(ctx.model.window * self.share) * _BYTES
        texts: dict[int, list[Message]] = {}
        shown = 0
        for each, place in zip(shares, places, strict=True):
            text = await self._block(each, room, ctx.archive)
            if text is not None:
                room -= len(text.raw)
                texts.setdefault(place, []).append(text)
                shown += 1
        made = request.with_messages(placed(request.messages, texts))
        facts = {"shared": shown, "shared_new": moved, "shared_left_out": len(shares) - shown}
        return Rewrite(made, f"showed {shown} of {len(shares)} shared texts, {moved} of them new", facts)

    async def _block(self, share: Share, room: int, archive: Archive | None) -> Message | None:
        """A text as it is shown; None for one that is too long and cannot be kept for `recall`."""
        content = share.content.encode(errors="replace")
        most = max(_SHORTEST, min(self.max_tokens * _BYTES, room))
        if len(content) <= most:
            return block(share.sender, share.note, share.content)
        handle = None if archive is None else await archive.keep(share.content)
        if handle is None:
            return None
        begins = content[:most].decode(errors="ignore")
        rest = len(content) - len(begins.encode())
        return block(share.sender, share.note, f'{begins}\n[{rest} more bytes: recall("{handle}")]')


async def _places(shares: Sequence[Share], request: ChatRequest, ctx: Context, memo: Memo) -> tuple[list[int], int]:
    """Where each text goes in the request, and how many of them are new."""
    incoming = ctx.incoming.messages
    named = marks(incoming, await ctx.once.of_each(digest, incoming))
    keys = [f"shared-{each.id}" for each in shares]
    known = list(await memo.known(keys))
    new = [place for place, mark in enumerate(known) if mark is None]
    for place in new:
        known[place] = await memo.settle(keys[place], named[place_of_new(incoming)])
    where = standing(incoming, request.messages)
    at = {mark: index for index, mark in enumerate(named)}
    first = min(where.values(), default=place_of_new(request.messages))
    return [where.get(at.get(mark or "", -1), first) for mark in known], len(new)
