"""What a policy may reach besides the request it is given: all of it read-only, all of it passed in."""

from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, Literal, NamedTuple, Protocol, TypeVar

from proxy.chat import ChatRequest, Message, Tool, raws
from proxy.chat.folds import Folds

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

    async def run(self, size: int, work: Callable[[], Result]) -> Result:
        """What work gives that reads so many characters, in a thread unless these are few. Nothing is remembered."""

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

    async def nearest(self, queries: Sequence[str], texts: Sequence[str], *, wait: float) -> Sequence[float | None]:
        """For each query the cosine of the text that is nearest to it; None where vectors are missing."""

    async def noise(self, texts: Sequence[str], *, wait: float) -> float | None:
        """The spread that the cosines of these texts have to phrases of small talk, which are about none of them; None
        where there are no vectors yet. Texts whose cosines to a query differ by less cannot be told apart.
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
    """What a summary is written of."""

    name: str
    """Stands for its content: the same on every replica."""
    before: str
    """The summary of what came before the messages, empty where nothing did."""
    messages: tuple[Message, ...]
    size: int
    """The most bytes that the summary may have."""


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


@dataclass(frozen=True, slots=True)
class Prices:
    """US dollars per million tokens."""

    input: float = 0.0
    output: float = 0.0
    above: int = 0
    """The prompt's tokens above which the whole request costs the prices below; 0 where there is no such step."""
    input_above: float = 0.0
    output_above: float = 0.0

    def at(self, prompt: int) -> "Prices":
        """The prices of a request with so many tokens of prompt."""
        return Prices(self.input_above, self.output_above) if 0 < self.above < prompt else self

    @property
    def known(self) -> bool:
        """Whether there are any; a model that is free has none to report."""
        return self.input > 0 or self.output > 0


@dataclass(frozen=True, slots=True)
class CacheRules:
    """How a provider's prompt cache charges, as multiples of the input price."""

    read: float = 1.0
    """What a re-sent, unchanged prefix costs; 1.0 where the provider has no cache."""
    write: float = 1.0
    """What tokens cost that enter the cache."""
    minimum: int = 0
    """The shortest prefix that is cached, in tokens."""
    ttl: float = 0.0
    """Seconds for which an unused prefix stays; 0 where nothing is cached."""
    marked: bool = False
    """Whether only prefixes are cached that a request marks with `cache_control`."""
    keyed: bool = False
    """Whether requests with the same `prompt_cache_key` reach the same cache."""


_LONG_ANSWER = 8
"""The part of the window that is kept free for a long answer."""


@dataclass(frozen=True, slots=True)
class ModelProfile:
    """What is known about a model. Unknown models get defaults, and `source` says so."""

    name: str
    """The upstream's name for it."""
    window: int
    """Tokens of prompt and answer together."""
    max_output: int
    """The most tokens that an answer may have."""
    reserve: int
    """Tokens that an ordinary answer needs."""
    encoding: str = "o200k_base"
    """A tiktoken encoding, the path of a `tokenizer.json`, or `chars` for four characters a token."""
    factor: float = 1.0
    """Tokens of this model per token of `encoding`; 1.0 where the encoding is the model's own."""
    exact: bool = False
    """Whether counts are the model's own; otherwise they are estimates and are reported as such."""
    names_tokenizer: bool = False
    """Whether the configuration names the tokenizer: then nothing is added for what its family might count."""
    prices: Prices = field(default_factory=Prices)
    cache: CacheRules = field(default_factory=CacheRules)
    max_input: int | None = None
    """The most tokens that a prompt may have, where that is less than the window: 272,000 of GPT-5's 400,000."""
    binds_reasoning: bool = True
    """Whether signed reasoning of it may be bound to what stood before it; False only where it is known not to be."""
    source: str = "default"
    """Where the figures come from: `config`, `litellm`, `table`, `upstream` or `default`."""

    def usable(self, request: ChatRequest) -> int:
        """The tokens that this request's prompt may have: the window less what its answer needs.

        A client's limit of the answer is a maximum, not a need: what it allows beyond an ordinary answer counts up to
        an eighth of the window. What answers took so far does not count, so that no cut moves by it.
        """
        wanted = request.max_output_tokens
        needed = self.reserve if wanted is None else min(wanted, max(self.reserve, self.window // _LONG_ANSWER))
        return max(1, min(self.max_input or self.window, self.window - min(needed, self.max_output)))


class Uncached:
    """A `Once` that remembers nothing."""

    async def of(self, function: Callable[[str], Result], text: str) -> Result:
        return function(text)

    async def of_each(self, function: Callable[[Message], Result], messages: Sequence[Message]) -> list[Result]:
        return list(map(function, messages))

    async def of_key(self, key: Hashable, size: int, work: Callable[[], Result]) -> Result:
        return work()

    async def run(self, size: int, work: Callable[[], Result]) -> Result:
        return work()

    def known(self, keys: Sequence[Hashable]) -> list[Any]:
        return [None] * len(keys)

    def remember(self, key: Hashable, result: object) -> None:
        """Forget it."""


@dataclass(frozen=True, slots=True)
class Identity:
    """Whose request this is. Everything that is kept is keyed by the tenant first."""

    tenant: str
    """A hash of the client's key; never the key."""
    session: str = ""
    """The conversation: the name that the client gives it, or what is made of its opening. Only within the tenant."""
    user: str = ""
    """A hash of the name that the client gives its user; empty without one."""
    agent: str = ""
    """The same of the agent that asks."""
    task: str = ""
    """The same of the task that it works on."""

    NAMED: ClassVar[str] = "named-"
    """How the session begins of a conversation that the client has named."""

    @property
    def scope(self) -> str:
        """What is kept for this conversation, agent and task is kept under this, behind the tenant."""
        return "/".join(filter(None, (self.session, self.agent, self.task)))

    @property
    def is_named(self) -> bool:
        """Whether the client has named the conversation. Of one that it has not nothing is shared: another may have
        begun with the same words."""
        return self.session.startswith(self.NAMED)


@dataclass(frozen=True, slots=True)
class Context:
    """What a policy may reach."""

    incoming: ChatRequest
    """The request as the client sent it, before any policy."""
    model: ModelProfile
    identity: Identity
    tokens: Tokens
    deadline: float
    """When the chain must be done, on the event loop's monotonic clock, in seconds."""
    patience: float = 60.0
    """Seconds that a step may take without which the prompt does not fit."""
    archive: Archive | None = None
    """Where content goes that leaves the context; None where there is no archive: then nothing may leave."""
    once: Once = field(default_factory=Uncached)
    """Remembers what was worked out of texts."""
    memo: Memo | None = None
    """Remembers what was decided; None where nothing is kept between requests."""
    drafts: Drafts | None = None
    """Has summaries written; None where no model is configured for it: then they are extracts."""
    embedder: Embedder | None = None
    """Tells how near texts are in meaning; None where there is none: then words have to do."""
    headers: Mapping[str, str] = field(default_factory=dict)
    """The client's request headers, names in lower case, credentials left out."""
    secret: bytes = b""
    """A random key of the conversation, for placeholders that nobody can guess back; only where there is a guard."""
    runs_tools: bool = True
    """Whether Penstock runs the tools of its own that a step offers. It does not for `/v1/compress`, nor where several
    answers are asked for (`n`): then nothing may depend on a call of them."""
    judge: Judge | None = None
    """Tells whether texts contradict each other; None where no model is configured for it."""
    now: float | None = None
    """When the request came, in seconds since 1970, to the minute. What is made of it must be settled in the memo at
    once, so that no later request of the conversation decides otherwise."""
    corrections: Corrections | None = None
    """What was wrong with the last answers of this conversation; None where nobody looks."""
    memories: Memories | None = None
    """What is remembered of the user; None where nothing is."""
    inbox: Inbox | None = None
    """What other agents have given to this one; None where nothing can be."""
    outage: Outage = field(default_factory=Outage)
    """Whether the state failed to answer: then nothing that is decided from here on may be remembered."""
    held: int = 0
    """How many messages at the beginning may not change, and with them the tools, because signed reasoning is bound to
    them; 0 where there is none. What stands behind them is edited when it is first sent, and keeps that form."""


Finding = TypeVar("Finding")


async def found_in_each(
    folds: Folds,
    once: Once,
    name: Hashable,
    work: Callable[[Message], Finding | tuple[()]],
    messages: tuple[Message, ...],
) -> dict[int, Finding]:
    """Return the findings of a pure function in messages, by place; a message without any (`()`) has no entry.

    Each message is read once, so a further turn reads only what is new. `name` stands for the function and all it
    depends on besides the message.
    """
    form, key = folds.of(messages), ("found", name)
    findings: dict[int, Finding] | None = form.known(key)
    if findings is None:
        count, before = form.resume(key, dict[int, Finding]())
        findings = {**before, **await _one_by_one(once, name, work, messages[count:], count)}
        form.settle(key, {place: one for place, one in findings.items() if place < form.settled})
        form.keep(key, findings)
    return {**findings}


async def _one_by_one(
    once: Once, name: Hashable, work: Callable[[Message], Finding | tuple[()]], messages: Sequence[Message], start: int
) -> dict[int, Finding]:
    keys = [(name, hash(raw), len(raw)) for raw in raws(messages)]
    findings: dict[int, Finding] = {}
    known: list[Any] = once.known(keys)
    for place, (message, key, one) in enumerate(zip(messages, keys, known, strict=True), start):
        if one is None:
            one = await once.of_key(key, key[2], partial(work, message))
        if one:
            findings[place] = one
    return findings
