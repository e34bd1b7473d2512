"""A share of the window for each kind of content."""

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import ClassVar, Literal, Self

from pydantic import Field, field_validator, model_validator

from proxy.chat import ChatRequest
from proxy.chat.injected_data import InjectedData, blocks, leaving, without
from proxy.context import Context
from proxy.policy import Decision, Fact, Keep, Policy, Reject, Rewrite

Kind = Literal["system", "tools", "knowledge", "conversation", "output"]

_KINDS: tuple[Kind, ...] = ("system", "tools", "knowledge", "conversation", "output")
_REFUSED: Mapping[Kind, str] = {
    "system": "system messages take",
    "tools": "tools take",
    "conversation": "messages take",
}
_LINE = 40
"""The most tokens of the line that stands for a block."""


class FitBudget(Policy):
    """Give each kind of content a share of the model's window, and report what each one uses.

    The kinds are `system` (system and developer messages), `tools` (definitions), `knowledge` (blocks in
    `knowledge_tags` in user messages, results of `knowledge_tools`), `conversation` (all other messages) and `output`
    (what the client asks for, or the model's reserve). The step's facts have the tokens of each, its `why` the shares.

    Kinds in `enforce` are held to their share. A request that exceeds the share of system messages, tools or
    conversation is refused, so put the steps that shorten them in front. Of knowledge the oldest blocks leave, down to
    half the share; they are archived first, and their handle stays. Unread content and the last user message stay. A
    client's limit of the output is lowered to the share; none is set.
    """

    prefix_breaks_per_turn: ClassVar[float] = 0.2

    system: float = Field(default=0.10, ge=0, le=1)
    """System messages."""

    tools: float = Field(default=0.20, ge=0, le=1)
    """Tool definitions."""

    knowledge: float = Field(default=0.15, ge=0, le=1)
    """Injected data."""

    conversation: float = Field(default=0.45, ge=0, le=1)
    """All other messages."""

    output: float = Field(default=0.10, ge=0, le=1)
    """The answer."""

    enforce: tuple[Kind, ...] = ("knowledge",)
    """Kinds that are held to their share; use of the others is only reported."""

    knowledge_tags: tuple[str, ...] = (
        "recalled_context",
        "relevant_context",
        "context",
        "documents",
        "memories",
        "search_results",
    )
    """Tags that enclose data in user messages: `<context>...</context>`."""

    knowledge_tools: tuple[str, ...] = ()
    """Globs of the names of tools whose results are knowledge rather than conversation (`search_*`)."""

    @field_validator("knowledge_tags")
    @classmethod
    def _tags_are_names(cls, tags: tuple[str, ...]) -> tuple[str, ...]:
        for tag in tags:
            if not tag.replace("_", "").replace("-", "").isalnum():
                raise ValueError(f"tag {tag!r} must be a name without brackets, such as context")
        return tags

    @model_validator(mode="after")
    def _shares_fit(self) -> Self:
        total = sum(self._share(kind) for kind in _KINDS)
        if total > 1.0001:
            raise ValueError(f"the shares add up to {total:.0%} of the window; they must not exceed 100%")
        return self

    async def apply(self, request: ChatRequest, ctx: Context) -> Decision:
        window = ctx.model.window
        count = await ctx.tokens.count(request)
        sizes = await ctx.tokens.sizes(request.messages)
        found = blocks(request.messages, sizes, self.knowledge_tags, self._is_source)
        gone = await self._leaving(request, found, ctx)
        after = request.with_messages(without(request.messages, gone)) if gone else request
        after = after.with_shorter_answer(int(window * self.output)) if "output" in self.enforce else after
        wanted, known = after.max_output_tokens, sum(block.tokens for block in found)
        used: dict[str, int] = {
            "system": count.system,
            "tools": count.tools,
            "knowledge": known - sum(block.tokens for block, _ in gone),
            "conversation": count.messages - known,
            "output": ctx.model.reserve if wanted is None else min(wanted, ctx.model.max_output),
        }
        over = [kind for kind in _KINDS if used[kind] > window * self._share(kind)]
        for kind in over:
            if kind in self.enforce and kind in _REFUSED:
                return self._refusal(kind, used[kind], window)
        facts: Mapping[str, Fact] = {**used, "over": ",".join(over), "left_blocks": len(gone)}
        why = ", ".join(f"{kind} {used[kind] / window:.0%} of {self._share(kind):.0%}" for kind in _KINDS)
        return Keep(why, facts) if after is request else Rewrite(after, why, facts)

    async def _leaving(
        self, request: ChatRequest, blocks: Sequence[InjectedData], ctx: Context
    ) -> list[tuple[InjectedData, str]]:
        """Return the blocks that leave, each with its handle; what cannot be archived stays."""
        limit = int(ctx.model.window * self.knowledge)
        if ctx.archive is None or "knowledge" not in self.enforce or sum(block.tokens for block in blocks) <= limit:
            return []
        gone = [block for block in leaving(request.messages, blocks, limit) if block.tokens > _LINE]
        handles = [await ctx.archive.keep(block.content) for block in gone]
        return [(block, handle) for block, handle in zip(gone, handles, strict=True) if handle is not None]

    def _share(self, kind: Kind) -> float:
        share: float = getattr(self, kind)
        return share

    def _is_source(self, tool: str) -> bool:
        return any(fnmatchcase(tool, glob) for glob in self.knowledge_tools)

    def _refusal(self, kind: Kind, used: int, window: int) -> Reject:
        share = self._share(kind)
        return Reject(
            f"The {_REFUSED[kind]} {used} tokens; their share is {int(window * share)} ({share:.0%} of the model's "
            f"{window}).",
            code="budget_exceeded",
            param="tools" if kind == "tools" else "messages",
        )
