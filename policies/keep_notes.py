"""Let the model take notes that outlast what leaves its context."""

from collections.abc import Sequence
from typing import ClassVar

from pydantic import Field

from proxy.chat import ChatRequest, split_head
from proxy.chat.blocks import SUMMARY, escaped, is_block, placed
from proxy.context import Context
from proxy.economics import may_be_cached
from proxy.history.tail import standing_statements
from proxy.policy import NOTES_READ, BringsTools, Decision, Keep, Policy, Rewrite, Stage
from proxy.text.same import statements
from proxy.tools.note import DEFINITION, Notes, block, is_taken, left, within

_BYTES = 3
"""Bytes that a token of a note takes at least, in nearly any language. A measure that does not depend on the model, or
on how its counts are corrected, moves no byte between two cuts."""


class KeepNotes(Policy, BringsTools):
    """Offer the tool `note`, which Penstock runs by itself, and put back the notes that left.

    The client never sees a call of it. While a call stands in the conversation nothing is added. The notes whose calls
    left go word for word into one message behind the system messages, as data in the user's role; it changes only when
    more leaves. A note that the system messages or the summary behind it say already is left out. The tool is there
    from the first request that a provider's prompt cache may keep, so the cache never breaks for it. A plain chat
    without tools gets none; a client's own tool of that name stays the client's. Put it behind the steps that shorten
    history, and in front of `include_shared` and `select_memories`: of two blocks that say the same the first stands.
    """

    stage: ClassVar = Stage.RESTORES
    may_grow: ClassVar[bool] = True
    prefix_breaks_per_turn: ClassVar[float] = 0.1
    internal_tools: ClassVar = (Notes,)
    counted: ClassVar = {"notes": NOTES_READ}

    tokens: int = Field(default=200, ge=200, le=4000)
    """The most tokens that notes which left may take, at three bytes a token; one note takes 168. The newest stay."""

    async def apply(self, request: ChatRequest, ctx: Context) -> Decision:
        """Add the tool behind the client's own, and the notes behind the head."""
        if not request.tools:
            return Keep("a chat without tools")
        if any(tool.name == DEFINITION.name and tool != DEFINITION for tool in request.tools):
            return Keep(f"the client has a tool {DEFINITION.name!r} of its own")
        gone = left(ctx.incoming.messages, request.messages)
        unsaid = await _unsaid(gone, request, ctx)
        back = within(unsaid, self.tokens * _BYTES)
        noted = _with_notes(request, back)
        if DEFINITION not in request.tools and await _is_offered(request, ctx):
            noted = noted.with_tools([*request.tools, DEFINITION])
        if noted is request:
            return Keep("the notes that left are back already" if back else "nothing to put back, and no tool to offer")
        why = f"offered {DEFINITION.name!r}, {len(back)} of {len(gone)} notes that left are back"
        why += f", {len(gone) - len(unsaid)} stand in the summary" if len(unsaid) < len(gone) else ""
        return Rewrite(noted, why, {"notes": len(back), "notes_left_out": len(gone) - len(back)})


async def _unsaid(notes: Sequence[str], request: ChatRequest, ctx: Context) -> list[str]:
    """Return the notes, the newest first, that neither the head or its summary nor a newer note says.

    No other message is compared: what stands at the head must not change with what comes behind it.
    """
    if not notes:
        return []
    head, talk = split_head(request.messages)
    summaries = [each for each in talk if is_block(each, SUMMARY)]
    known = await standing_statements([*head, *summaries], ctx)
    unsaid: list[str] = []
    for note in notes:
        if not known.says(note) and not any(escaped(note) in each.text for each in summaries):
            unsaid.append(note)
            known.add(statements(note), own=False)
    return unsaid


async def _is_offered(request: ChatRequest, ctx: Context) -> bool:
    """Return whether the tool is there: always where nothing is cached, for notes are taken early."""
    rules = ctx.model.cache
    if not rules.ttl or is_taken(ctx.incoming.messages):
        return True
    return may_be_cached(rules, (await ctx.tokens.count(request)).total)


def _with_notes(request: ChatRequest, texts: list[str]) -> ChatRequest:
    """Return the request with notes; the same where there are none, or where they are back already."""
    about = block(texts)
    if not texts or about in request.messages:
        return request
    return request.with_messages(placed(request.messages, {len(split_head(request.messages)[0]): [about]}))
