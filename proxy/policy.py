"""The contract of a policy: one frozen class whose fields are its YAML, one method from a request to a decision."""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from enum import IntEnum
from fnmatch import fnmatchcase
from functools import partial
from inspect import iscoroutinefunction
from pathlib import Path
from typing import Annotated, ClassVar, Literal, Protocol

from pydantic import BaseModel, ConfigDict, Field

from proxy.chat import ChatRequest, Tool
from proxy.chat.answer import Answer
from proxy.chat.placeholders import Placeholders, StandIn, kind_of
from proxy.chat.strings import Change, Item, changed, unknown_field, with_strings
from proxy.context import CacheRules, Context

Fact = str | int | float | bool

MOST_FINDINGS = 20
"""Findings of one step that are told; of more, how many there are."""


@dataclass(frozen=True, slots=True)
class Keep:
    """The request stays as it is."""

    why: str
    """A lower-case clause for people, with figures and without content: `12 turns`."""
    facts: Mapping[str, Fact] = field(default_factory=dict)
    """The same for machines."""
    findings: Sequence[str] = ()
    """What was found, each with its place (`messages[3]` of the client's) and the reason, without its text: told by
    `explain` and to the client."""


@dataclass(frozen=True, slots=True)
class Rewrite:
    """Another request goes on."""

    request: ChatRequest
    why: str
    """What was done, as in `Keep.why`: `dropped 10 of 47 turns`."""
    facts: Mapping[str, Fact] = field(default_factory=dict)
    """The same for machines."""
    findings: Sequence[str] = ()
    """As in `Keep`."""
    restores: Mapping[str, str] = field(default_factory=dict, repr=False)
    """What the answer's texts have again in place of placeholders, by placeholder. It is told to the client alone."""


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


Decision = Keep | Rewrite | Reject

SETTINGS = ConfigDict(
    frozen=True, extra="forbid", use_attribute_docstrings=True, hide_input_in_errors=True, allow_inf_nan=False
)
"""How every class behaves that is written in YAML: read-only, no unknown keys, documented by its docstrings."""


class When(BaseModel):
    """When a step runs. All conditions that are given must hold."""

    model_config = SETTINGS

    context_over: Annotated[float, Field(gt=0, le=2)] | None = None
    """Runs when the prompt takes more than this share of the usable window (0.7 is 70 %)."""

    context_under: Annotated[float, Field(gt=0, le=2)] | None = None
    """Runs when the prompt takes less than this share of the usable window."""

    models: tuple[str, ...] = ()
    """Runs for models whose name matches one of these globs (`gpt-*`); the client's name for the model counts."""

    header: str | None = None
    """Runs when the request has this header (`x-team`), or has it with this value (`x-team: search`)."""

    has_tools: bool | None = None
    """Runs only with tools in the request (true) or only without (false)."""

    @property
    def needs_tokens(self) -> bool:
        """Whether the answer depends on a count."""
        return self.context_over is not None or self.context_under is not None

    def unmet(self, request: ChatRequest, ctx: Context, share: float | None) -> str | None:
        """Why the step does not run, or None where it does. `share` is the part of the usable window in use."""
        if self.models and not any(fnmatchcase(ctx.incoming.model, glob) for glob in self.models):
            return f"model is none of {', '.join(self.models)}"
        if self.header is not None and not _has_header(self.header, ctx.headers):
            return f"no header {self.header!r}"
        if self.has_tools is not None and self.has_tools != bool(request.tools):
            return "no tools" if self.has_tools else "has tools"
        if share is not None and self.context_over is not None and share <= self.context_over:
            return f"context at {share:.0%}, not over {self.context_over:.0%}"
        if share is not None and self.context_under is not None and share >= self.context_under:
            return f"context at {share:.0%}, not under {self.context_under:.0%}"
        return None


@dataclass(frozen=True, slots=True)
class AnswerObserver:
    """What a policy wants to see of answers. It delays nothing: it runs in a thread, once the client has the answer."""

    find: Callable[[ChatRequest, Answer], Mapping[str, str]]
    """Return what later requests of the conversation are to know: a sentence for the model by its kind. Pure; they find
    it in `Context.corrections`."""
    cooldown: float
    """Seconds after a sentence within which no other of its kind is kept."""
    expiry: float
    """Seconds for which it is kept."""


@dataclass(frozen=True, slots=True)
class Count:
    """How a fact of a policy's steps, or the calls of its internal tool, are a series of `/metrics`.

    Clients send the whole conversation with each request, so what a step finds in it, it finds again in the next one. A
    step that can tell how much of `x` is new says so in a second fact, `x_new`, and that is what counts.
    """

    series: str
    """The name behind `penstock_`; several policies may share one."""
    text: str
    """What it counts, for people."""
    kind: Literal["amount", "requests", "score"] = "amount"
    """`amount` adds the fact to a counter, `requests` adds one for a rewrite whose fact is above zero, and `score`
    observes a share from 0 to 1 in a histogram."""
    label: tuple[str, str] | None = None
    """The label of the series and its value; without, it is `policy` and the policy's name."""


SHORTER_HISTORY = Count("distraction_mitigations", "Requests whose history was made shorter.", "requests")
NOTES_READ, ORIGINALS_READ = (
    Count("scratchpad_reads", "Notes put back into requests, and originals asked for.", label=("kind", kind))
    for kind in ("note", "original")
)
NOTES_WRITTEN, ORIGINALS_WRITTEN = (
    Count("scratchpad_writes", "Notes taken, and originals that left a context.", label=("kind", kind))
    for kind in ("note", "original")
)


@dataclass(frozen=True, slots=True)
class ToolContext:
    """What the internal tools of one answer may reach."""

    ctx: Context
    """`incoming` is the request as the client sent it, less what a guard took out."""
    request: ChatRequest
    """As the chain made it, and as it is sent."""
    free: int
    """The tokens of the usable window that the prompt leaves."""
    threads: Executor | None = None
    """Where work runs that takes more than a millisecond; None for the event loop's default."""


class InternalTool(ABC):
    """A tool that Penstock runs itself: the client sees no call of it."""

    definition: Tool
    """What the model is offered. It is sent with every request, so it is short and always the same."""
    counted: ClassVar[Count | None] = None
    """A series that its calls are added to, beside `penstock_internal_calls_total`."""

    @property
    def name(self) -> str:
        """The name that the model calls it by."""
        return self.definition.name

    @abstractmethod
    async def run(self, arguments: str) -> str:
        """Return the result for the model; where the call is wrong, say in words how. `arguments` is a JSON object."""


class Stage(IntEnum):
    """What a step is for, where its place among others matters, in the order in which such steps stand in a chain."""

    SHORTENS = 1
    """It makes the conversation shorter. Behind one that restores, it would take out again what that brought back."""
    RESTORES = 2
    """It puts back, or in, what bears on the question."""
    BOUNDS = 3
    """It refuses what does not fit, as the steps before it left it."""
    MARKS = 4
    """It marks bytes for the provider's cache, which no later step may move."""


class Policy(BaseModel, ABC):
    """One step of a chain.

    Subclass it in `policies/<name>.py`; the file's name is the name in YAML, the fields are the settings, their
    docstrings the documentation. Every field needs a default.
    """

    model_config = SETTINGS

    may_grow: ClassVar[bool] = False
    """Whether a rewrite may have more tokens than it was given."""

    changes_last_user_message: ClassVar[bool] = False
    """Whether a rewrite may change the last user message, by `with_changes`. No rewrite may drop it."""

    gives_way: ClassVar[bool] = False
    """Whether what it adds is worth less than the room that it takes: a rewrite of a request that fitted and would
    fill the window is dropped."""

    prefix_breaks_per_turn: ClassVar[float] = 0.0
    """How often a turn of a growing conversation may change bytes that an earlier one sent, with default settings; 0 is
    never. The provider's prompt cache is lost at each."""

    edits_at_birth: ClassVar[bool] = False
    """Whether, where messages are held (`Context.held`), it gives each of the others a form that depends on it and on
    what stands before it alone, so that it stays the same in later requests. Behind messages that are held, only such a
    step runs, and one whose `prefix_breaks_per_turn` is 0."""

    defines_conversation: ClassVar[bool] = False
    """Whether what it leaves out was never part of this conversation: later steps take what it leaves for what the
    client sent (`Context.incoming`). Such a step stands before all others."""

    stage: ClassVar[Stage | None] = None
    """What it is for, if its place in a chain matters: `penstock check` warns of a step behind one of a later stage."""

    internal_tools: ClassVar[tuple[type[InternalTool], ...]] = ()
    """The tools that it offers to the model and that Penstock runs."""

    counted: ClassVar[Mapping[str, Count]] = {}
    """Facts of its steps that are series of `/metrics`."""

    needs_embedding: ClassVar[bool] = False
    """Whether it compares texts by meaning: then the model is loaded at start, in the background."""

    needs_memories: ClassVar[bool] = False
    """Whether it searches memories: then the vector index is loaded at start, in the background."""

    @property
    def cuts_over(self) -> float | None:
        """The share of the usable window above which it lets the beginning of a conversation leave; None for never.

        A conversation with signed reasoning is then begun anew with the next user message."""
        return None

    when: When | None = None
    """When the step runs; always, if not given."""

    timeout: float = Field(default=1.0, gt=0)
    """Seconds after which the step is given up; `server.patience` for a guard and where the prompt does not fit without
    it."""

    on_error: Literal["skip", "reject"] = "skip"
    """What a fault does: `skip` leaves the request as it was, `reject` answers 500. A verdict is not a fault."""

    mode: Literal["enforce", "observe"] = "enforce"
    """`observe` runs the step and reports what it would do, without doing it."""

    @property
    def needs_writer(self) -> bool:
        """Whether its settings ask for summaries of the small model that `writer` names."""
        return False

    @property
    def refuses(self) -> bool:
        """Whether its settings make it refuse content: `penstock check` warns where a fault would let it pass."""
        return False

    def build_tools(self, made: ToolContext) -> Sequence[InternalTool]:
        """Return its internal tools for one answer; override it where one needs more than the arguments of a call."""
        return [kind() for kind in self.internal_tools]

    @property
    def needs_judge(self) -> bool:
        """Whether its settings ask for the model that `judge` names."""
        return False

    def marked_cache(self, rules: CacheRules) -> CacheRules | None:
        """How the provider charges for what this step marks for its cache; None for a step that marks nothing."""
        return None

    @property
    def files(self) -> tuple[Path, ...]:
        """The files that its settings name and that were read with them: they are part of the configuration."""
        return ()

    @property
    def observer(self) -> AnswerObserver | None:
        """What looks at the answers to the requests that its chain makes; None for nothing."""
        return None

    @abstractmethod
    def apply(self, request: ChatRequest, ctx: Context) -> Decision | Awaitable[Decision]:
        """Decide about a request. Pure: the same request and context give the same decision.

        A plain `def` runs in a thread where the request is large, so it may read all texts. An `async def` runs on the
        event loop: it may await the services of the context, and gives long work to `ctx.once`.
        """

    async def decide(self, request: ChatRequest, ctx: Context) -> Decision:
        """Return the decision of `apply`."""
        work = partial(self.apply, request, ctx)
        made = work() if iscoroutinefunction(self.apply) else await ctx.once.run(request.size, work)
        return await made if isinstance(made, Awaitable) else made


class Guard(Policy):
    """A policy that redacts or refuses: what it takes out must not go upstream.

    Override `redact`. It is given every string of the request, and those of the headers and the query that would be
    forwarded. Override `apply` as well only to decide by more than that; `with_strings` is the walk.

    It fails closed: a fault refuses the request. Later steps take what it leaves for what the client sent, so none can
    bring back, archive or summarise what it took out. No header of a client skips it.
    """

    changes_last_user_message: ClassVar[bool] = True
    may_grow: ClassVar[bool] = True

    on_error: Literal["skip", "reject"] = "reject"
    """What a fault does: `reject` answers 500; `skip` sends the request on as if there were no guard."""

    unknown_fields: Literal["refuse", "read"] = "refuse"
    """What happens to text in a field that no known request has: `refuse` answers 400, `read` treats it as any other
    text."""

    restore: bool = True
    """Whether the answer has again what a placeholder stands for, in texts and in arguments of calls."""

    @property
    def refuses(self) -> bool:
        return True

    @abstractmethod
    def redact(self, text: str, stand_in: StandIn) -> str:
        """Return a text without what must not go upstream. Pure, and run in a thread where the request is large.

        `stand_in(kind, secret)` makes a placeholder: always the same for a secret in this conversation.
        """

    def holds(self, text: str) -> bool:
        """Return whether a text has anything to take out."""
        return self.redact(text, lambda kind, secret: "") != text

    def apply(self, request: ChatRequest, ctx: Context) -> Decision | Awaitable[Decision]:
        """Take out of each string what `redact` takes out of it; a message is read once, however often it is sent."""
        stand_in = Placeholders(ctx.secret)
        about = type(self), self.model_dump_json(), ctx.secret

        def redacted(item: Item) -> tuple[Item, Mapping[str, str]]:
            own = Placeholders(ctx.secret)
            return with_strings(item, partial(self.redact, stand_in=own)), own.secrets

        def each(item: Item) -> Item:
            new, secrets = item.derive(about, lambda: redacted(item))
            stand_in.secrets.update(secrets)
            return new

        made = self._walked(request, partial(self.redact, stand_in=stand_in), each)
        if isinstance(made, Reject):
            return made
        if made is request:
            return Keep("nothing to take out")
        kinds = Counter(map(kind_of, stand_in.secrets))
        facts: dict[str, Fact] = {"redacted": kinds.total(), **{f"redacted_{kind}": n for kind, n in kinds.items()}}
        why = ", ".join(f"{n} {kind}" for kind, n in sorted(kinds.items()))
        return Rewrite(
            made, f"took out {why}" if why else "took out what it guards", facts, (), self._restored(stand_in)
        )

    def with_strings(self, request: ChatRequest, change: Change) -> ChatRequest | Reject:
        """Return the request with every string changed, or the refusal of one that it cannot read.

        JSON in a string, as in arguments, stays JSON; base64 is left alone. What is equal stays equal, such as the ids
        of calls and results.
        """

        def each(item: Item) -> Item:
            return with_strings(item, change)

        return self._walked(request, change, each)

    def _walked(self, request: ChatRequest, change: Change, each: "_Each") -> ChatRequest | Reject:
        if self.unknown_fields == "refuse" and (place := _unknown_place(request)) is not None:
            told = "param names a field that no guard knows; leave it out, or have `unknown_fields: read` configured"
            return Reject(told, code="unguarded_field", param=place)
        if any(change(name) != name for name in (request.model, *request.rest)):
            return Reject("the model or the name of a field has what a guard takes out", code="unguarded_field")
        made = request
        for name, value in request.rest.items():
            if (new := changed(value, change)) is not value:
                made = made.with_field(name, new)
        tools, messages = [*map(each, request.tools)], [*map(each, request.messages)]
        if any(new is not old for new, old in zip(tools, request.tools, strict=True)):
            made = made.with_tools(tools)
        if any(new is not old for new, old in zip(messages, request.messages, strict=True)):
            made = made.with_messages(messages)
        return made

    def _restored(self, stand_in: Placeholders) -> Mapping[str, str]:
        return stand_in.secrets if self.restore else {}


class _Each(Protocol):
    def __call__(self, item: Item) -> Item:
        """Return a message or a tool as it is to be sent."""


def _unknown_place(request: ChatRequest) -> str | None:
    """The place of text in a field that no known request has."""
    for name, items in (("messages", request.messages), ("tools", request.tools)):
        for index, item in enumerate(items):
            if (place := item.derive("unknown field", partial(unknown_field, item))) is not None:
                return f"{name}[{index}].{place}"
    return unknown_field(request.rest)


def _has_header(condition: str, headers: Mapping[str, str]) -> bool:
    name, _, value = condition.partition(":")
    sent = headers.get(name.strip().lower())
    return sent is not None and (not value.strip() or sent == value.strip())
