"""The contract of a policy: all that an author has to read.

A policy is one frozen class whose fields are its YAML, with one method from a request to a decision (`Policy`). It may
have abilities beside that: it derives from the class of each as well, and the runner asks by `isinstance`. One that
redacts or refuses, and fails closed, is a `Guard`.
"""

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
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Literal

from msgspec import Struct
from pydantic import BaseModel, ConfigDict, Field

from proxy.chat import ChatRequest, JsonObject, Message, Tool
from proxy.chat.answer import Answer
from proxy.chat.placeholders import Placeholders, StandIn, kind_of
from proxy.chat.strings import Change, changed, names_twice, unknown_field, with_strings
from proxy.context import CacheRules, Context

Fact = str | int | float | bool


class Keep(Struct, frozen=True):
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


@dataclass(frozen=True, slots=True)
class Count:
    """A series of `/metrics` made of a fact of a policy's steps, or of the calls of its internal tool.

    Clients send the whole conversation with each request, so what a step finds in it, it finds again in the next one. A
    step that can tell how much of `x` is new says so in a second fact, `x_new`, and that is what counts.
    """

    series: str
    """The name behind `penstock_`; several policies may share one."""
    text: str
    """The help text of the series."""
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

Need = Literal["embedding", "judge", "memories", "writer"]


class Policy(BaseModel, ABC):
    """One step of a chain.

    Subclass it in `policies/<name>.py`; the file's name is the name in YAML, the fields are the settings, their
    docstrings the documentation. Every field needs a default. `apply` is its only obligatory method; class variables
    declare what the runner has to know, and the classes behind this one are the optional abilities.
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

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "decide" not in vars(cls) and "apply" in vars(cls):
            cls.decide = cls.apply if iscoroutinefunction(cls.apply) else Policy.decide  # type: ignore[method-assign]

    async def decide(self, request: ChatRequest, ctx: Context) -> Decision:
        """Return the decision of `apply`, without a thread where it is an `async def`."""
        decision = await ctx.once.run(request.size, partial(self.apply, request, ctx))
        return await decision if isinstance(decision, Awaitable) else decision


def _has_header(condition: str, headers: Mapping[str, str]) -> bool:
    name, _, value = condition.partition(":")
    sent = headers.get(name.strip().lower())
    return sent is not None and (not value.strip() or sent == value.strip())


# --- abilities ---


@dataclass(frozen=True, slots=True)
class ToolContext:
    """The surroundings of the internal tools of one answer."""

    ctx: Context
    """`incoming` is the client's request after the guards."""
    request: ChatRequest
    """The request as it is sent, after the chain."""
    free: int
    """The tokens of the usable window that the prompt leaves."""
    threads: Executor | None = None
    """Threads for work of more than a millisecond; None for the event loop's default."""


class InternalTool(ABC):
    """A tool that Penstock runs itself: the client sees no call of it."""

    definition: Tool
    """The tool as the model sees it. It is sent with every request, so it is short and always the same."""
    counted: ClassVar[Count | None] = None
    """A series that its calls are added to, beside `penstock_internal_calls_total`."""

    @property
    def name(self) -> str:
        """The name that the model calls it by."""
        return self.definition.name

    @abstractmethod
    async def run(self, arguments: str) -> str:
        """Return the result for the model, or a sentence that says how the call is wrong.

        `arguments` is a JSON object.
        """

    async def handed(self, call: Mapping[str, Any], *, strict: bool) -> Mapping[str, Any] | None:
        """Return a call that is the client's in another form, as the client gets it; None for one to `run`.

        With `strict`, the model can be told its flaw.
        """
        return None

    def instead(self, messages: Sequence[Message], offered: Sequence[Tool]) -> Sequence[Tool]:
        """Return the client's tools to offer once this one is gone, beside those that are `offered`."""
        return ()


class BringsTools(ABC):
    """A policy that offers internal tools."""

    internal_tools: ClassVar[tuple[type[InternalTool], ...]]
    """The tools that it offers to the model and that Penstock runs."""

    def build_tools(self, surroundings: ToolContext) -> Sequence[InternalTool]:
        """Return the tools for one answer; override it where one needs more than the arguments of a call."""
        return [kind() for kind in self.internal_tools]


@dataclass(frozen=True, slots=True)
class AnswerObserver:
    """A look at answers. It delays nothing: it runs in a thread, once the client has the answer."""

    find: Callable[[ChatRequest, Answer], Mapping[str, str]]
    """Return sentences for the model by their kind. Pure; later requests of the conversation find them in
    `Context.corrections`."""
    cooldown: float
    """Seconds after a sentence within which no other of its kind is kept."""
    expiry: float
    """Seconds for which it is kept."""


class ObservesAnswers(ABC):
    """A policy that looks at the answers to the requests of its chain."""

    @property
    @abstractmethod
    def observer(self) -> AnswerObserver:
        """The look at each answer."""


class MarksCache(ABC):
    """A policy that marks bytes for the provider's cache."""

    @abstractmethod
    def marked_cache(self, rules: CacheRules) -> CacheRules:
        """Return how the provider charges for a prompt that this step has marked."""


class ActsNatively(ABC):
    """A policy that can have the provider make its edit, where signed reasoning forbids its own."""

    native_edit: ClassVar[str]
    """The provider's edit, as `Context.native_edits` names it."""

    @abstractmethod
    def native_fields(self, request: ChatRequest, ctx: Context) -> Mapping[str, Any]:
        """Return the fields by which the provider makes the edit; none where the client has sent such fields itself."""


class CutsHistory(ABC):
    """A policy that lets the beginning of a long conversation leave."""

    @property
    @abstractmethod
    def cuts_over(self) -> float:
        """The share of the usable window above which it cuts.

        A conversation with signed reasoning is then begun anew with the next user message.
        """


class ReadsFiles(ABC):
    """A policy whose settings name files."""

    @property
    @abstractmethod
    def files(self) -> tuple[Path, ...]:
        """The files that were read with the settings: they are part of the configuration."""


class RefusesContent(ABC):
    """A policy that may refuse content: `penstock check` warns where a fault would let it pass."""

    @property
    @abstractmethod
    def refuses(self) -> bool:
        """True where its settings make it refuse."""


# --- guards ---


class Guard(Policy, RefusesContent):
    """A policy that redacts or refuses: what it takes out must not go upstream.

    Override `redact`. It is given every string of the request, and those of the headers and the query that would be
    forwarded. Override `apply` as well only to decide by more than that; `with_strings` is the walk.

    It fails closed: a fault refuses the request. Later steps take what it leaves for what the client sent, so none can
    bring back, archive or summarise what it took out. No header of a client skips it.
    """

    is_guard: ClassVar[bool] = True
    changes_last_user_message: ClassVar[bool] = True
    may_grow: ClassVar[bool] = True

    on_error: Literal["skip", "reject"] = "reject"
    """`reject` answers 500 after a fault; `skip` sends the request on as if there were no guard."""

    unknown_fields: Literal["refuse", "read"] = "refuse"
    """Text in a field that no known request has: `refuse` answers 400, `read` treats it as any other text."""

    restore: bool = True
    """Put the secrets back into the answer's texts and arguments of calls."""

    @property
    def refuses(self) -> bool:
        return True

    @abstractmethod
    def redact(self, text: str, stand_in: StandIn) -> str:
        """Return a text without what must not go upstream. Pure, and run in a thread where the request is large.

        `stand_in(kind, secret)` makes a placeholder: always the same for a secret in this conversation.
        """

    def holds(self, text: str) -> bool:
        """Return True where a text has anything to take out."""
        return self.redact(text, lambda kind, secret: "") != text

    def apply(self, request: ChatRequest, ctx: Context) -> Decision | Awaitable[Decision]:
        """Take out of each string what `redact` takes out of it; a message is read once, however often it is sent."""
        stand_in = Placeholders(ctx.secret)
        about = type(self), self.model_dump_json(), ctx.secret

        def redacted(item: JsonObject) -> tuple[JsonObject, Mapping[str, str]]:
            own = Placeholders(ctx.secret)
            return with_strings(item, partial(self.redact, stand_in=own)), own.secrets

        def each(item: JsonObject) -> JsonObject:
            new, secrets = item.derive(about, lambda: redacted(item))
            stand_in.secrets.update(secrets)
            return new

        redacted_request = self._walked(request, partial(self.redact, stand_in=stand_in), each)
        if isinstance(redacted_request, Reject):
            return redacted_request
        if redacted_request is request:
            return Keep("nothing to take out")
        kinds = Counter(map(kind_of, stand_in.secrets))
        facts: dict[str, Fact] = {"redacted": kinds.total(), **{f"redacted_{kind}": n for kind, n in kinds.items()}}
        why = ", ".join(f"{n} {kind}" for kind, n in sorted(kinds.items()))
        return Rewrite(
            redacted_request,
            f"took out {why}" if why else "took out what it guards",
            facts,
            restores=stand_in.secrets if self.restore else {},
        )

    def with_strings(self, request: ChatRequest, change: Change) -> ChatRequest | Reject:
        """Return the request with every string changed, or the refusal of one that it cannot read.

        JSON in a string, as in arguments, stays JSON; base64 is left alone. What is equal stays equal, such as the ids
        of calls and results.
        """

        def each(item: JsonObject) -> JsonObject:
            return with_strings(item, change)

        return self._walked(request, change, each)

    def _walked(
        self, request: ChatRequest, change: Change, each: Callable[[JsonObject], JsonObject]
    ) -> ChatRequest | Reject:
        if self.unknown_fields == "refuse" and (place := _unknown_place(request)) is not None:
            return Reject(
                "the field in param is unknown to the guards; leave it out, or ask for `unknown_fields: read`",
                code="unguarded_field",
                param=place,
            )
        if (place := _ambiguous_place(request)) is not None:
            told = "the object in param has a name twice; write each name once, for guards read the last one alone"
            return Reject(told, code="unguarded_field", param=place)
        if any(change(name) != name for name in (request.model, *request.rest)):
            return Reject("the model or the name of a field has what a guard takes out", code="unguarded_field")
        result = request
        for name, value in request.rest.items():
            if (new := changed(value, change)) is not value:
                result = result.with_field(name, new)
        return result.with_each(each)


def _unknown_place(request: ChatRequest) -> str | None:
    for name, items in request.own.items():
        for index, item in enumerate(items):
            if (place := item.derive("unknown field", partial(unknown_field, item, request.wire))) is not None:
                return f"{name}[{index}].{place}"
    return unknown_field(request.rest, request.wire)


def _ambiguous_place(request: ChatRequest) -> str | None:
    for name, items in request.own.items():
        for index, item in enumerate(items):
            if item.derive("names twice", partial(names_twice, item.raw)):
                return f"{name}[{index}]"
    return next((name for name in request.rest if names_twice(request.rest.raw(name))), None)
