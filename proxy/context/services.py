"""The services that a policy may reach: protocols, and what they give."""

from collections.abc import Callable, Collection, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol, TypeVar

from proxy.chat import ChatRequest, Message, Tool

Result = TypeVar("Result")

Pair = tuple[str, str]
"""Two texts, the second to be judged by the first."""

Question = Literal["contradicts", "replaces"]
"""What a judge is asked: whether the second text contradicts the first, or now holds in its place."""


class Unavailable(Exception):
    """The state cannot be read right now: nobody can tell what is in it."""


@dataclass(slots=True)
class Outage:
    """Whether the state failed to answer while one request was worked on.

    What is decided after that is decided without what is there. It must not be remembered, here or in the state: the
    next request decides again.
    """

    begun: bool = False


@dataclass(frozen=True, slots=True)
class TokenCount:
    """How many tokens a request has, by section."""

    system: int
    tools: int
    messages: int
    """The conversation: all that is neither system nor tools, the priming of the reply included."""
    exact: bool

    @property
    def total(self) -> int:
        """Tokens of the whole prompt."""
        return self.system + self.tools + self.messages


class Tokens(Protocol):
    """Counts tokens for one model. Counts are memoised by content; only new content costs time."""

    async def count(self, request: ChatRequest) -> TokenCount:
        """The tokens of a whole request."""

    async def sizes(self, messages: Sequence[Message]) -> tuple[int, ...]:
        """The tokens of each message, its framing included."""

    async def tool_sizes(self, tools: Sequence[Tool]) -> tuple[int, ...]:
        """The tokens of each tool definition."""


class Archive(Protocol):
    """Keeps what leaves the context, for one tenant and session. Content has one handle, whoever keeps it and when."""

    async def keep(self, content: str) -> str | None:
        """Store content durably and return its handle; None where it cannot be stored: then it must not leave."""

    async def fetch(self, handle: str) -> str | None:
        """The content of a handle; None for one that this tenant and session do not have, or no longer.

        Raises `Unavailable` where that cannot be told.
        """

    def handle(self, content: str) -> str:
        """The handle that content has or would have: a pure function of it."""

    async def handles(self, limit: int) -> tuple[str, ...]:
        """The handles of what was used last, the latest first."""

    async def touch(self, handles: Collection[str]) -> frozenset[str]:
        """Those of the handles whose content is there; it counts as used. Cheap for what was just kept or used."""


class Once(Protocol):
    """Work on content that is done once, for one tenant: forms, extracts and whatever else is a function of content."""

    async def of(self, function: Callable[[str], Result], text: str) -> Result:
        """The result of a pure function of a text; from memory where the text was seen before."""

    async def of_each(self, function: Callable[[Message], Result], messages: Sequence[Message]) -> list[Result]:
        """The results of a pure function of a message, for each of them."""

    async def of_key(self, key: Hashable, size: int, work: Callable[[], Result]) -> Result:
        """What work gives: a pure function of what `key` says. `size` is how many characters it reads, about."""

    def known(self, keys: Sequence[Hashable]) -> list[Any]:
        """What is remembered under each key; None where nothing is."""

    def remember(self, key: Hashable, result: object) -> None:
        """Remember what follows from what `key` says alone; for work that cannot be done in one call."""


class Memo(Protocol):
    """Remembers, for one tenant and session, what was decided once and must not change; every replica sees the same."""

    async def known(self, keys: Sequence[str]) -> Sequence[str | None]:
        """What is remembered under each key; None where nothing is, or no longer, or the store cannot be read."""

    async def settle(self, key: str, value: str) -> str:
        """What is remembered under a key: `value`, unless there was something already. It never raises."""


class Embedder(Protocol):
    """How near texts are to each other in meaning. Vectors are made in the background and remembered by content."""

    @property
    def name(self) -> str:
        """The model behind it, for people."""

    @property
    def is_behind(self) -> bool:
        """Whether vectors are on their way: its model loads, or texts wait. False where it fails: then none will come.

        What was decided without them is worth deciding again.
        """

    async def similarities(
        self, query: str, texts: Sequence[str], *, wait: float, order: Sequence[int] | None = None
    ) -> Sequence[float | None]:
        """The cosine of each text to a query, from -1 to 1; None for texts whose vectors are not there yet.

        What is missing is being made, in the order of the texts, or in this one of their places; after `wait` seconds
        the answer is what there is. It never raises: with a model that is still loading, or broken, all are None.
        """

    async def floor(self, query: str, *, wait: float) -> float | None:
        """The cosine of a query to the nearest phrase of small talk; None where there is no vector yet.

        It is the absolute floor of relevance: a text that is not nearer to the query than this is not about it. It is
        comparable for all models and languages, because it is measured with the query itself.
        """

    async def along(
        self, directions: Sequence[bytes], texts: Sequence[str], *, wait: float
    ) -> Sequence[Sequence[float | None]]:
        """For each text the cosines of its vector to packed vectors, such as the weights of a classifier.

        None where there is no vector after `wait` seconds, or one of another dimension.
        """

    def prepare(self, texts: Sequence[str]) -> None:
        """Begin to make the vectors of texts that will be asked for; returns at once."""


class Judge(Protocol):
    """What a model says about pairs of texts, for one tenant. Verdicts are remembered by content."""

    async def contradictions(self, pairs: Sequence[Pair], *, wait: float) -> Sequence[float | None]:
        """How sure the model is, from 0 to 1, that the second text of each pair contradicts the first.

        None where that is not known after `wait` seconds, or the model is broken. It never raises.
        """

    async def replacements(self, pairs: Sequence[Pair], *, wait: float) -> Sequence[float | None]:
        """How sure the model is, from 0 to 1, that the second text of each pair now holds in the place of the first.

        0 says that both hold. None as in `contradictions`; it never raises.
        """


@dataclass(frozen=True, slots=True)
class Material:
    """What a summary, or the gist of one text, is written of."""

    name: str
    """Stands for its content: the same on every replica."""
    before: str
    """The summary of what came before the messages, empty where nothing did; for a gist the form that stays."""
    messages: tuple[Message, ...]
    size: int
    """The most bytes that the summary may have."""
    kind: Literal["summary", "gist"] = "summary"
    """Which of them: what the model is told, and what of its answer may be used."""


class Drafts(Protocol):
    """Summaries that a small model writes in the background, for one tenant. Nothing here raises."""

    def prepare(self, material: Material) -> None:
        """Begin to write the summary that a cut will want; returns at once. It is written once, whoever asks."""

    async def settled(self, cut: str, draft: str) -> str:
        """The summary that a cut uses: the draft of that name if it was ready when the cut was first used.

        Else it is empty, and stays so: what a cut used once it keeps, on every replica. Both are names of content.
        """


class Correction(NamedTuple):
    """What was wrong with an answer of the model."""

    name: str
    """Stands for this one time that it was."""
    text: str
    """A sentence for the model, without content of the answer."""


class Corrections(Protocol):
    """Notes on what was wrong with the model's answers, for one tenant and session."""

    async def pending(self, kinds: Collection[str]) -> Sequence[Correction]:
        """Return those of these kinds that have not expired, at most one of each, by kind. Raise nothing."""


@dataclass(frozen=True, slots=True)
class RememberedItem:
    """A memory that fits a query."""

    id: str
    """Stands for the text: a hash of it."""
    text: str
    kind: str
    """`fact`, `preference`, `note`, `episode`, or what else the application calls it."""
    similarity: float
    """How well it fits, from 0 to 1: the share of pairs that are as near as these of which one helps with the other."""
    age: float
    """Seconds since it was last said."""
    confidence: float
    """How sure it is, from 0 to 1."""
    is_own: bool
    """Whether it is of the request's user, and not of the tenant as a whole."""


@dataclass(frozen=True, slots=True)
class Remembered:
    """The memories that fit a query best, the best first."""

    items: tuple[RememberedItem, ...]
    how: Literal["meaning", "words"]
    """What they were found by: words where there are no vectors, or not yet."""


class Memories(Protocol):
    """What is remembered of the request's user, and of the tenant as a whole. Nothing here raises."""

    async def total(self) -> int:
        """How many memories there are. Cheap."""

    async def nearest(self, query: str, *, limit: int, wait: float) -> Remembered:
        """Those that fit a query best, after at most `wait` seconds for the query's vector."""

    async def texts(self, ids: Sequence[str]) -> Sequence[str | None]:
        """The texts that these ids stand for; None for what was deleted."""


@dataclass(frozen=True, slots=True)
class Share:
    """What another agent has given to this one."""

    id: str
    sender: str
    """Who gave it, for people and models."""
    note: str
    """What it says about it; empty where it says nothing."""
    content: str


class Inbox(Protocol):
    """What other agents have given to the conversation, agent and task of a request."""

    async def received(self) -> Sequence[Share]:
        """All of it, in the order in which it came. Raises where the store cannot be read."""
