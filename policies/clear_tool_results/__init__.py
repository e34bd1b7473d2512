"""Clear old tool results in batches: one line each, with the handle of the original."""

from collections.abc import Mapping
from functools import partial
from typing import Any, ClassVar

from pydantic import Field

from policies.clear_tool_results.clearing import Batches, cleared, line
from proxy.chat import ChatRequest, Message, split_head
from proxy.compaction import callers
from proxy.compaction.references import with_standing
from proxy.context import Context
from proxy.economics import turns_to_pay
from proxy.history.cuts import Marks, Room, as_sent
from proxy.policy import SHORTER_HISTORY, ActsNatively, CutsHistory, Decision, Keep, Policy, Rewrite, Stage
from proxy.tools.recall import DEFINITION as RECALL
from proxy.tools.search_tools import DEFINITION as SEARCH_TOOLS

_CALL = 60
"""Characters of the call that the line of a cleared result names."""


class ClearToolResults(Policy, CutsHistory, ActsNatively):
    """Replace old tool results by one line that names the tool, what the result held, and its handle; many at once.

    A batch is cleared when the conversation fills the window to `clear_at`, when the model's provider has no prompt
    cache that it would break, or where it pays for itself within the further requests that can be expected. Of the old
    results it takes those from a place on, the place where it costs least of the cache for what it frees. Which these
    are is worked out from the conversation, again in each request: nothing is stored, and what was cleared once stays
    cleared. A result is archived first; where it cannot be, all stay. The newest results stay, those that the last
    calls drew on, and what the model recalled or searched for.

    Behind signed reasoning nothing may change. There Anthropic clears them itself (`clear_tool_uses`, in Messages), at
    the same mark and in batches as large; the model cannot read those again. A client's own `context_management` stays.
    """

    stage: ClassVar = Stage.SHORTENS
    prefix_breaks_per_turn: ClassVar[float] = 0.1
    counted: ClassVar = {"cleared_results": SHORTER_HISTORY}

    clear_at: float = Field(default=0.75, gt=0, lt=1)
    """The share of the usable window above which a batch is cleared."""

    keep_last: int = Field(default=2, ge=0)
    """Results that stay in any case, the newest ones."""

    stride: float = Field(default=0.4, gt=0, lt=1)
    """The share of the usable window that a batch must free: smaller batches cost more of the cache than they save."""

    turns_ahead: int = Field(default=0, ge=0)
    """The most further requests to expect of a conversation, a quarter of those that it had; a batch that pays for
    itself within so many is cleared below the mark too, whatever it frees. With 0, only the window counts, and where
    there is no prompt cache, the stride."""

    native_edit: ClassVar = "clear_tool_uses_20250919"

    def native_fields(self, request: ChatRequest, ctx: Context) -> Mapping[str, Any]:
        if not request.rest.keys().isdisjoint(("context_management", "compaction")):
            return {}
        usable = ctx.model.usable(request)
        edit = {
            "type": self.native_edit,
            "trigger": {"type": "input_tokens", "value": int(usable * self.clear_at)},
            "keep": {"type": "tool_uses", "value": self.keep_last},
            "clear_at_least": {"type": "input_tokens", "value": max(1, int(usable * self.stride))},
            "exclude_tools": [RECALL.name, SEARCH_TOOLS.name],
        }
        return {"context_management": {"edits": [edit]}}

    @property
    def cuts_over(self) -> float:
        return self.clear_at

    async def apply(self, request: ChatRequest, ctx: Context) -> Decision:
        """Replay the batches; keep where there is none."""
        head, talk = split_head(request.messages)
        if sum(message.get("role") == "tool" for message in talk) <= self.keep_last:
            return Keep("no old tool results")
        count = await ctx.tokens.count(request)
        sizes = (await ctx.tokens.sizes(request.messages))[len(head) :]
        sent = as_sent(request, len(head), ctx.incoming) or talk
        born = sizes if sent is talk else await ctx.tokens.sizes(sent)
        room = Room.of(ctx.model.window, ctx.model.usable(request), count.total - sum(sizes), Marks(self.clear_at))
        chosen = cleared(talk, sizes, born, self._batches(room, ctx))
        if not chosen:
            return Keep(f"context at {count.total / ctx.model.usable(request):.0%}, no batch to clear")
        messages: list[Message] = list(talk)
        calls = callers(sent, _CALL)
        for index in chosen:
            handle = await ctx.archive.keep(sent[index].text) if ctx.archive else None
            if handle is None:
                return Keep(f"{len(chosen)} tool results to clear, but they could not be archived")
            messages[index] = line(sent[index], handle, calls.get(index, ""))
        return Rewrite(
            request.with_messages([*head, *with_standing(messages)]),
            why=f"cleared {len(chosen)} old tool results",
            facts={"cleared_results": len(chosen)},
        )

    def _batches(self, room: Room, ctx: Context) -> Batches:
        return Batches(
            mark=room.high,
            stride=max(1, int(room.usable * self.stride)),
            keep=self.keep_last,
            due=partial(turns_to_pay, ctx.model.cache),
            ahead=self.turns_ahead,
            spared=frozenset({RECALL.name, SEARCH_TOOLS.name}),
        )
