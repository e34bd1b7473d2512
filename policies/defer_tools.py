"""Leave tools out of the request until the model looks for them."""

from fnmatch import fnmatchcase
from typing import ClassVar

from pydantic import Field

from proxy.chat import ChatRequest, Tool
from proxy.context import Context
from proxy.deferral import OURS, deferrable, deferred
from proxy.policy import Decision, Keep, Policy, Rewrite

_BYTES = 4
"""Bytes that a token of a definition takes, about. A measure that does not depend on the model, or on how its counts
are corrected, moves no tool in or out while a conversation lasts."""


class DeferTools(Policy):
    """Offer two tools in place of many: `search_tools`, which finds the client's by what they do, and `call_tool`.

    Penstock runs the searches by itself; what one finds stands in the conversation, behind all that the provider has
    cached, and the tool block never changes. The client gets plain calls of its own tools. Arguments that do not fit a
    tool's schema are told to the model instead. Custom tools, and those that `tool_choice` names, are offered as they
    are. A client with a tool of its own that is named like one of the two gets neither. Put it behind the steps that
    shorten history.
    """

    may_grow: ClassVar[bool] = True
    internal_tools: ClassVar[frozenset[str]] = frozenset(tool.name for tool in OURS)
    needs_loop: ClassVar[bool] = True

    always: tuple[str, ...] = ()
    """Globs of the names of tools that are offered in every request: what nearly each turn needs."""

    tokens: int = Field(default=5000, ge=300)
    """Nothing is deferred where what could be has fewer tokens than this, at four bytes a token: each search is a
    request more. 5000, some 40 tools, pay for it even where a short conversation needs many different ones."""

    async def apply(self, request: ChatRequest, ctx: Context) -> Decision:
        """Leave out what may be; depends on the client's tools and `tool_choice` alone."""
        leaving = [tool for tool in deferrable(request, ctx.incoming.tools) if not self._is_pinned(tool)]
        size = sum(len(tool.raw) for tool in leaving) // _BYTES
        if size < self.tokens:
            return Keep(f"{len(leaving)} tools of about {size} tokens could be deferred")
        made = deferred(request, {tool.name for tool in leaving})
        why = f"deferred {len(leaving)} of {len(request.tools)} tools, about {size} tokens"
        return Rewrite(made, why, {"tools_deferred": len(leaving)})

    def _is_pinned(self, tool: Tool) -> bool:
        return any(fnmatchcase(tool.name, glob) for glob in self.always)
