"""A policy: one frozen class whose fields are its YAML, with one method from a request to a decision."""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from fnmatch import fnmatchcase
from functools import cache, partial
from inspect import iscoroutinefunction
from types import MappingProxyType
from typing import Annotated, ClassVar, Literal, NamedTuple, cast

from pydantic import BaseModel, ConfigDict, Field

from proxy.chat import ChatRequest
from proxy.context import Context
from proxy.policy.interfaces import Count, Fact


class Keep(NamedTuple):
    """The request stays as it is."""

    why: str
    """A lower-case clause for people, with figures and without content: `12 turns`."""
    facts: Mapping[str, Fact] = MappingProxyType({})
    """The same for machines."""
    findings: Sequence[str] = ()
    """Places (`messages[3]` of the client's request) with the reason and without their text, for `explain` and the
    client."""


@dataclass(frozen=True, slots=True)
class Rewrite:
    """Another request goes on."""

    request: ChatRequest
    why: str
    """As in `Keep`: `dropped 10 of 47 turns`."""
    facts: Mapping[str, Fact] = field(default_factory=dict)
    """The same for machines."""
    findings: Sequence[str] = ()
    """As in `Keep`."""
    restores: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Secrets by placeholder: the answer has them again in its texts. Only the client sees them."""


@dataclass(frozen=True, slots=True)
class Reject:
    """The request goes nowhere; the client gets an error."""

    why: str
    """The message that the client reads."""
    code: str = "request_rejected"
    status: int = 400
    param: str | None = None
    facts: Mapping[str, Fact] = field(default_factory=dict)
    """The same for machines, as in `Keep`."""
    findings: Sequence[str] = ()
    """As in `Keep`."""


@dataclass(frozen=True, slots=True)
class Choose:
    """The request goes to another model, as the client sent it: the chain of that model begins anew.

    A request is sent on once. It stays with its model where that is chosen already, where the caller may not use the
    other one, and where signed reasoning binds the conversation to its model.
    """

    model: str
    """A name as clients use it."""
    why: str
    """As in `Keep`: `short question`."""
    facts: Mapping[str, Fact] = field(default_factory=dict)
    """The same for machines."""
    findings: Sequence[str] = ()
    """As in `Keep`."""


Decision = Keep | Rewrite | Reject | Choose

SETTINGS = ConfigDict(
    frozen=True, extra="forbid", use_attribute_docstrings=True, hide_input_in_errors=True, allow_inf_nan=False
)
"""Rules of every class that is written in YAML: read-only, no unknown keys, documented by its docstrings."""


class When(BaseModel):
    """Conditions for a step to run. All that are set must hold."""

    model_config = SETTINGS

    context_over: Annotated[float, Field(gt=0, le=2)] | None = None
    """The prompt takes more than this share of the usable window (0.7 is 70 %)."""

    context_under: Annotated[float, Field(gt=0, le=2)] | None = None
    """The prompt takes less than this share."""

    models: tuple[str, ...] = ()
    """The client's name for the model matches one of these globs (`gpt-*`)."""

    header: str | None = None
    """The request has this header (`x-team`), or has it with this value (`x-team: search`)."""

    has_tools: bool | None = None
    """The request has tools (true), or has none (false)."""

    def unmet(self, request: ChatRequest, ctx: Context, share: float) -> str | None:
        """Return why the step does not run, or None where it does. `share` is the part of the usable window in use."""
        if self.models and not any(fnmatchcase(ctx.incoming.model, glob) for glob in self.models):
            return f"model is none of {', '.join(self.models)}"
        if self.header is not None and not _has_header(self.header, ctx.conditions.headers):
            return f"no header {self.header!r}"
        if self.has_tools is not None and self.has_tools != bool(request.tools):
            return "no tools" if self.has_tools else "has tools"
        if self.context_over is not None and share <= self.context_over:
            return f"context at {share:.0%}, not over {self.context_over:.0%}"
        if self.context_under is not None and share >= self.context_under:
            return f"context at {share:.0%}, not under {self.context_under:.0%}"
        return None


class Stage(IntEnum):
    """The purpose of a step whose place matters, in the order in which such steps stand in a chain."""

    SHORTENS = 1
    """It makes the conversation shorter. Behind one that restores, it would take out again what that brought back."""
    RESTORES = 2
    """It puts back, or in, what bears on the question."""
    BOUNDS = 3
    """It refuses what does not fit, as the steps before it left it."""
    MARKS = 4
    """It marks bytes for the provider's cache, which no later step may move."""


Need = Literal["embedding", "judge", "memories", "writer"]


class Policy(BaseModel, ABC):
    """One step of a chain.

    Subclass it in `policies/<name>.py`; the file's name is the name in YAML, the fields are the settings, their
    docstrings the documentation. Every field needs a default. `apply` is its only obligatory method; class variables
    declare what the runner has to know, and `proxy.policy.interfaces` are the optional abilities.
    """

    model_config = SETTINGS

    is_guard: ClassVar[bool] = False
    """True for a `Guard`."""

    may_grow: ClassVar[bool] = False
    """A rewrite may have more tokens than the request before it."""

    changes_last_user_message: ClassVar[bool] = False
    """A rewrite may change the last user message, by `with_changes`. None may drop it."""

    gives_way: ClassVar[bool] = False
    """Its additions are worth less than the room they take: a rewrite that would fill the window is dropped."""

    prefix_breaks_per_turn: ClassVar[float] = 0.0
    """The share of turns of a growing conversation that may change bytes of an earlier one, with default settings; 0 is
    never. The provider's prompt cache is lost at each."""

    edits_at_birth: ClassVar[bool] = False
    """The form of each new message depends on it and on the messages before it alone, so later requests repeat it.
    Where signed reasoning binds the messages before (`Context.frozen`), only such steps run, and those that never break
    the prefix."""

    defines_conversation: ClassVar[bool] = False
    """Messages that it leaves out were never part of this conversation: later steps see its result as the client's
    request (`Context.incoming`). Such a step stands before all others."""

    stage: ClassVar[Stage | None] = None
    """Its purpose, where its place matters: `penstock check` warns of a step behind one of a later stage."""

    counted: ClassVar[Mapping[str, Count]] = {}
    """Facts of its steps that are series of `/metrics`."""

    when: When | None = None
    """By default always."""

    timeout: float = Field(default=1.0, gt=0)
    """Seconds after which the step is given up; `server.patience` for a guard and where the prompt does not fit without
    it."""

    on_error: Literal["skip", "reject"] = "skip"
    """After a fault, `skip` leaves the request as it was, `reject` answers 500. A verdict is not a fault."""

    mode: Literal["enforce", "observe"] = "enforce"
    """`observe` only reports what the step would do."""

    @property
    def needs(self) -> frozenset[Need]:
        """Services that it works with, by its settings; its context has no others.

        The configuration must name a writer or a judge; the embedding model and the index of memories are loaded at
        start, in the background.
        """
        return frozenset()

    @abstractmethod
    def apply(self, request: ChatRequest, ctx: Context) -> Decision | Awaitable[Decision]:
        """Decide about a request. Pure: the same request and context give the same decision.

        A plain `def` runs in a thread where the request is large, so it may read all texts. An `async def` runs on the
        event loop: it may await the services of the context, and gives long work to `ctx.once`.
        """

    def decide(self, request: ChatRequest, ctx: Context) -> Awaitable[Decision]:
        """Return the decision of `apply`."""
        if _is_async(type(self).apply):
            return cast(Awaitable[Decision], self.apply(request, ctx))
        return self._in_thread(request, ctx)

    async def _in_thread(self, request: ChatRequest, ctx: Context) -> Decision:
        decision = await ctx.once.run(request.size, partial(self.apply, request, ctx))
        return await decision if isinstance(decision, Awaitable) else decision


_is_async = cache(iscoroutinefunction)


def _has_header(condition: str, headers: Mapping[str, str]) -> bool:
    name, _, value = condition.partition(":")
    sent = headers.get(name.strip().lower())
    return sent is not None and (not value.strip() or sent == value.strip())
