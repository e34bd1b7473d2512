"""Abilities that a policy may have beside its decision: it derives from the class of each as well.

The runner asks for them by `isinstance`, so a policy without them knows nothing of them.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

from proxy.chat import ChatRequest, Tool
from proxy.chat.answer import Answer
from proxy.context import CacheRules, Context

Fact = str | int | float | bool


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


class BringsTools(ABC):
    """A policy that offers internal tools."""

    internal_tools: ClassVar[tuple[type[InternalTool], ...]]
    """The tools that it offers to the model and that Penstock runs."""

    def build_tools(self, surroundings: ToolContext) -> Sequence[InternalTool]:
        """Return the tools for one answer; override it where one needs more than the arguments of a call."""
        return [kind() for kind in self.internal_tools]


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
