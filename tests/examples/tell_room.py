"""Let the model ask how much room its context has left."""

from collections.abc import Sequence
from typing import ClassVar

from proxy.chat import ChatRequest, Tool
from proxy.context import Context
from proxy.policy import BringsTools, Decision, InternalTool, Keep, Policy, Rewrite, ToolContext


class ContextRoom(InternalTool):
    """Tells how many tokens are free."""

    definition = Tool.function(
        "context_room", "Tells how many tokens this conversation may still grow by. Ask before you read much."
    )

    def __init__(self, free: int) -> None:
        self._free = free

    async def run(self, arguments: str) -> str:
        """Return the number of free tokens."""
        return f"{max(0, self._free)} tokens are free."


class TellRoom(Policy, BringsTools):
    """Offer the tool `context_room` in conversations that have tools."""

    may_grow: ClassVar[bool] = True
    internal_tools: ClassVar = (ContextRoom,)

    async def apply(self, request: ChatRequest, ctx: Context) -> Decision:
        """Add the tool behind the client's own."""
        offered = ContextRoom.definition
        if not request.tools or any(tool.name == offered.name for tool in request.tools):
            return Keep("no tools, or one of this name")
        if not ctx.conditions.runs_tools:
            return Keep("no internal tool is run for this request")
        return Rewrite(request.with_tools([*request.tools, offered]), f"offered {offered.name!r}")

    def build_tools(self, surroundings: ToolContext) -> Sequence[InternalTool]:
        """Return the tool, which knows the free tokens of this request."""
        return [ContextRoom(surroundings.free)]
