"""The context of a policy: all that it may use besides the request, read-only and passed in."""

from collections.abc import Awaitable, Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from hashlib import blake2b
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Protocol, TypeVar

import msgspec
from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass as checked

from proxy.chat import ChatRequest, Message, Tool, raws
from proxy.chat.folds import Folds

Result = TypeVar("Result")

Pair = tuple[str, str]
"""Two texts, of which a judge compares the second with the first."""

Question = Literal["contradicts", "replaces"]
"""Question for a judge: does the second text contradict the first, or does it replace the first?"""


class Unavailable(Exception):
    """The state cannot be read right now."""


@dataclass(slots=True)
class Outage:
    """A failure of the state during one request.

    Decisions after it miss stored data. So they must not be stored or cached: the next request decides again.
    """

    begun: bool = False


class TokenCount(msgspec.Struct, frozen=True):
    """The tokens of a request, by section."""

    system: int
    tools: int
    messages: int
    """Tokens of everything that is neither system nor tools, including the priming of the reply."""
    exact: bool

    @property
    def total(self) -> int:
        """Tokens of the whole prompt."""
        return self.system + self.tools + self.messages

    def by_section(self) -> dict[str, int]:
        """Return the tokens by section, as JSON values."""
        return {"system": self.system, "tools": self.tools, "messages": self.messages}


class Tokens(Protocol):
    """A token counter for one model. Counts are memoised by content; only new content costs time."""

    async def count(self, request: ChatRequest) -> TokenCount:
        """Return the tokens of a whole request."""

    async def sizes(self, messages: Sequence[Message]) -> tuple[int, ...]:
        """Return the tokens of each message, including its framing."""

    async def tool_sizes(self, tools: Sequence[Tool]) -> tuple[int, ...]:
        """Return the tokens of each tool definition."""


class Archive(Protocol):
    """A content-addressed store for content that leaves the context, for one tenant and session."""

    async def keep(self, content: str) -> str | None:
        """Store content durably and return its handle. After None, which means a failure, it must not leave."""

    async def fetch(self, handle: str) -> str | None:
        """Return the content of a handle; None if this tenant and session do not have it, or no longer.

        Raise `Unavailable` if the store fails.
        """

    def handle(self, content: str) -> str:
        """Return the handle of content, stored or not: a pure function of the content."""

    async def handles(self, limit: int) -> tuple[str, ...]:
        """Return the handles that were used last, the latest first."""

    async def touch(self, handles: Collection[str]) -> frozenset[str]:
        """Return the handles whose content exists, and mark it as used. Cheap if it was stored or used just now."""


class Once(Protocol):
    """Memoisation of pure functions of content, for one tenant."""

    async def of(self, function: Callable[[str], Result], text: str) -> Result:
        """Return the result of a pure function of a text."""

    async def of_each(self, function: Callable[[Message], Result], messages: Sequence[Message]) -> list[Result]:
        """Return the result of a pure function for each message."""

    async def of_key(self, key: Hashable, size: int, work: Callable[[], Result]) -> Result:
        """Return the result of `work`, which depends on `key` alone and reads about `size` characters."""

    async def run(self, size: int, work: Callable[[], Result]) -> Result:
        """Return the result of `work` without memoising it; in a thread unless `size` is small."""

    def known(self, keys: Sequence[Hashable]) -> list[Any]:
        """Return the stored result of each key, or None."""

    def remember(self, key: Hashable, result: object) -> None:
        """Store a result that depends on `key` alone; for work that takes more than one call."""


class Memo(Protocol):
    """Decisions that must not change, for one tenant and session. All replicas share them."""

    async def known(self, keys: Sequence[str]) -> Sequence[str | None]:
        """Return the value of each key; None if there is none, if it has expired, or if the store fails."""

    async def settle(self, key: str, value: str) -> str:
        """Store a value unless the key has one (put-if-absent), and return the value of the key. Never raise."""


class Embedder(Protocol):
    """Similarity of texts in meaning. Vectors are computed in the background and cached by content."""

    @property
    def name(self) -> str:
        """Name of the embedding model, for people."""

    @property
    def is_behind(self) -> bool:
        """True if vectors will follow: the model loads, or texts wait. False for a model that fails.

        A decision that was made without these vectors is worth making again.
        """

    async def similarities(
        self, query: str, texts: Sequence[str], *, wait: float, order: Sequence[int] | None = None
    ) -> Sequence[float | None]:
        """Return the cosine of each text to a query, from -1 to 1; None for a text without a vector so far.

        Missing vectors are computed in the order of the texts, or of their places in `order`. The call returns after
        `wait` seconds at the latest. It never raises: with a broken model, or one that still loads, all are None.
        """

    async def floor(self, query: str, *, wait: float) -> float | None:
        """Return the cosine of a query to the nearest phrase of small talk; None without a vector so far.

        It is the absolute floor of relevance: a text with a lower cosine is not about the query. It holds for all
        models and languages, because it is measured with the query itself.
        """

    async def nearest(self, queries: Sequence[str], texts: Sequence[str], *, wait: float) -> Sequence[float | None]:
        """Return for each query the cosine of its nearest text; None where vectors are missing."""

    async def noise(self, texts: Sequence[str], *, wait: float) -> float | None:
        """Return the spread of the cosines of these texts to phrases of small talk, which are about none of them.

        Cosines to a query that differ by less mean nothing. None without vectors so far.
        """

    def prepare(self, texts: Sequence[str]) -> None:
        """Begin to compute the vectors of texts that will be needed, and return at once."""


class Judge(Protocol):
    """Verdicts of a model on pairs of texts, for one tenant. They are cached by content."""

    async def contradictions(self, pairs: Sequence[Pair], *, wait: float) -> Sequence[float | None]:
        """Return for each pair the confidence, from 0 to 1, that the second text contradicts the first.

        None where there is no verdict after `wait` seconds, or the model is broken. Never raise.
        """

    async def replacements(self, pairs: Sequence[Pair], *, wait: float) -> Sequence[float | None]:
        """Return for each pair the confidence, from 0 to 1, that the second text replaces the first.

        0 means that both hold. None as in `contradictions`. Never raise.
        """


@dataclass(frozen=True, slots=True)
class Material:
    """The source of a summary."""

    name: str
    """Content hash of the source: the same on every replica."""
    before: str
    """Summary of the messages before these, empty if there are none."""
    messages: tuple[Message, ...]
    size: int
    """Largest size of the summary in bytes."""


class Drafts(Protocol):
    """Summaries that a small model writes in the background, for one tenant. Nothing here raises."""

    def prepare(self, material: Material) -> None:
        """Begin to write the summary of a future cut, and return at once. Each summary is written once."""

    async def settled(self, cut: str, draft: str) -> str:
        """Return the summary of a cut: the draft if it was ready at the first use of the cut, else nothing.

        The first result stands for all later calls, on every replica. `cut` and `draft` are content hashes.
        """


class Correction(NamedTuple):
    """A note for the model on a fault in one of its answers."""

    name: str
    """Identifier of this one fault."""
    text: str
    """Sentence for the model, without content of the answer."""


class Corrections(Protocol):
    """Notes on faults in the model's answers, for one tenant and session."""

    async def pending(self, kinds: Collection[str]) -> Sequence[Correction]:
        """Return the notes of these kinds that have not expired, at most one of each, by kind. Never raise."""


@dataclass(frozen=True, slots=True)
class RememberedItem:
    """A memory that fits a query."""

    id: str
    """Hash of the text."""
    text: str
    kind: str
    """`fact`, `preference`, `note`, `episode`, or another name that the application uses."""
    similarity: float
    """Relevance, from 0 to 1: the share of pairs with this cosine of which one text helps with the other."""
    age: float
    """Seconds since it was last mentioned."""
    confidence: float
    """Confidence in its truth, from 0 to 1."""
    is_own: bool
    """True if it belongs to the request's user, False if it belongs to the whole tenant."""


@dataclass(frozen=True, slots=True)
class Remembered:
    """The memories that fit a query best, the best first."""

    items: tuple[RememberedItem, ...]
    how: Literal["meaning", "words"]
    """Kind of the search: by words if there are no vectors, or not yet."""


class Memories(Protocol):
    """Memories of the request's user, and of the whole tenant. Nothing here raises."""

    async def total(self) -> int:
        """Return the number of memories. Cheap."""

    async def nearest(self, query: str, *, limit: int, wait: float) -> Remembered:
        """Return the memories that fit a query best, after at most `wait` seconds for the query's vector."""

    async def texts(self, ids: Sequence[str]) -> Sequence[str | None]:
        """Return the texts of these ids; None for a deleted one."""


@dataclass(frozen=True, slots=True)
class Share:
    """Content that another agent shared with this one."""

    id: str
    sender: str
    """Name of the sender, for people and models."""
    note: str
    """Remark of the sender, or empty."""
    content: str


class Inbox(Protocol):
    """Content that other agents shared with the conversation, agent and task of a request."""

    async def received(self) -> Sequence[Share]:
        """Return everything in the order of arrival. Raise if the store cannot be read."""


_Price = Annotated[float, Field(ge=0)]
_SETTING = ConfigDict(extra="forbid", use_attribute_docstrings=True, hide_input_in_errors=True, allow_inf_nan=False)


@checked(frozen=True, slots=True, config=_SETTING)
class Prices:
    """US dollars per million tokens."""

    input: _Price = 0.0
    """Tokens of prompts."""
    output: _Price = 0.0
    """Tokens of answers."""
    above: Annotated[int, Field(ge=0)] = 0
    """Tokens of prompt above which the whole request costs `input_above` and `output_above`; 0 for one price."""
    input_above: _Price = 0.0
    """Tokens of such a prompt."""
    output_above: _Price = 0.0
    """Tokens of its answer."""

    def at(self, prompt: int) -> "Prices":
        """Return the prices of a request whose prompt has so many tokens."""
        return Prices(self.input_above, self.output_above) if 0 < self.above < prompt else self

    def usd(self, prompt: int, cost: float, output: int = 0) -> float:
        """Return US dollars for a prompt of so many tokens, whose cost is in input tokens, and for an answer."""
        at = self.at(prompt)
        return (cost * at.input + output * at.output) / 1e6

    @property
    def known(self) -> bool:
        """True if there are any prices; a free model has none."""
        return self.input > 0 or self.output > 0


@checked(frozen=True, slots=True, config=_SETTING)
class CacheRules:
    """The prices of the provider's prompt cache, as multiples of the input price."""

    read: Annotated[float, Field(ge=0, le=1)] = 1.0
    """Tokens of an unchanged, re-sent prefix: 0.1 is a tenth; 1 means there is no cache."""
    write: Annotated[float, Field(ge=0, le=10)] = 1.0
    """Tokens that enter the cache."""
    minimum: Annotated[int, Field(ge=0)] = 0
    """The shortest prefix that is cached, in tokens."""
    ttl: Annotated[float, Field(ge=0)] = 0.0
    """Seconds for which an unused prefix stays."""
    marked: bool = False
    """Only prefixes are cached that a request marks with `cache_control`, as `mark_cache` does."""
    keyed: bool = False
    """Requests with the same `prompt_cache_key` reach the same cache: `mark_cache` sets one."""

    def cached_tokens(self, shared: int) -> int:
        """Return the tokens of a shared prefix that are read from the cache: none below the provider's minimum."""
        return shared if self.ttl and shared >= self.minimum else 0

    def prompt_cost(self, shared: int, total: int) -> float:
        """Return the cost in input tokens of a prompt of `total` tokens whose first `shared` the last one had."""
        read = self.cached_tokens(shared)
        # a prompt that is too short to be cached is not written either
        rest = self.write if self.ttl and total >= self.minimum else 1.0
        return read * self.read + (total - read) * rest

    def reported_cost(self, tokens: int, cached: int, written: int) -> float:
        """Return the cost of a prompt in input tokens, from those reported as read from and written to the cache."""
        return max(0, tokens - cached - written) + cached * self.read + written * self.write


_LONG_ANSWER = 8
"""Divisor of the window: one eighth of it is reserved for a long answer."""


@dataclass(frozen=True, slots=True)
class ModelProfile:
    """The properties of a model. An unknown model has defaults, and `source` is `default`."""

    name: str
    """Name of the model at its upstream."""
    window: int
    """Tokens of prompt and answer together."""
    max_output: int
    """Most tokens of an answer."""
    reserve: int
    """Tokens that an ordinary answer needs."""
    encoding: str = "o200k_base"
    """Name of a tiktoken encoding, path of a `tokenizer.json`, or `chars` for four characters a token."""
    factor: float = 1.0
    """Tokens of this model per token of `encoding`; 1.0 if the encoding is the model's own."""
    exact: bool = False
    """True if counts are exact; otherwise they are estimates and are reported as such."""
    names_tokenizer: bool = False
    """True if the configuration names the tokenizer: then counts get no margin for the family of the model."""
    prices: Prices = field(default_factory=Prices)
    cache: CacheRules = field(default_factory=CacheRules)
    max_input: int | None = None
    """Most tokens of a prompt, if fewer than the window: 272,000 of GPT-5's 400,000."""
    binds_reasoning: bool = True
    """True if the model's signed reasoning may be bound to the messages before it; False only if known not to be."""
    source: str = "default"
    """Source of the figures: `config`, `litellm`, `table`, `upstream` or `default`."""

    def usable(self, request: ChatRequest) -> int:
        """Return the most tokens of this request's prompt: the window less the reserve for its answer.

        The client's limit of the answer is a maximum, not a need: beyond an ordinary answer it counts up to an eighth
        of the window. The sizes of earlier answers do not count, so that they move no cut.
        """
        wanted = request.max_output_tokens
        needed = self.reserve if wanted is None else min(wanted, max(self.reserve, self.window // _LONG_ANSWER))
        return max(1, min(self.max_input or self.window, self.window - min(needed, self.max_output)))


class Uncached:
    """A `Once` that memoises nothing."""

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


class Identity(msgspec.Struct, frozen=True):
    """The tenant, conversation, user, agent and task of a request. All stored data is keyed by the tenant first."""

    tenant: str
    """Hash of the client's key; never the key."""
    session: str = ""
    """Conversation within the tenant: a hash of the client's name for it, or of its first messages."""
    user: str = ""
    """Hash of the client's name for its user; empty without one."""
    agent: str = ""
    """Hash of the client's name for the agent; empty without one."""
    task: str = ""
    """Hash of the client's name for the task; empty without one."""

    NAMED: ClassVar[str] = "named-"
    """Prefix of the session of a conversation that the client has named."""

    @property
    def scope(self) -> str:
        """Key, behind the tenant, of the data of this conversation, agent and task."""
        return "/".join(filter(None, (self.session, self.agent, self.task)))

    @property
    def is_named(self) -> bool:
        """True if the client has named the conversation.

        Unnamed conversations share nothing: another one may have begun with the same messages.
        """
        return self.session.startswith(self.NAMED)


class ContextServices(msgspec.Struct, frozen=True):
    """The services that not every configuration has; None without. A step has those that its `needs` name."""

    embedder: Embedder | None = None
    """Similarity in meaning; without it texts are compared by words."""
    drafts: Drafts | None = None
    """Summaries that a model writes; without it summaries are extracts."""
    judge: Judge | None = None
    """Comparison of texts by a model."""
    memories: Memories | None = None
    """Memories of the user and the tenant."""
    corrections: Corrections | None = None
    """Notes on faults in the last answers of this conversation."""
    inbox: Inbox | None = None
    """Content shared by other agents."""


class Conditions(msgspec.Struct, frozen=True):
    """The time, bounds and permissions of a request."""

    deadline: float = float("inf")
    """Seconds of work (`work_time`) after which a step of the chain does not begin, or is given up."""
    patience: float = 60.0
    """Timeout in seconds of a step without which the prompt does not fit."""
    headers: Mapping[str, str] = {}
    """Request headers of the client, names in lower case, without credentials."""
    now: float | None = None
    """Time of the request in seconds since 1970, to the minute. Settle a decision that depends on it in the memo at
    once, so that later requests of the conversation decide the same."""
    runs_tools: bool = True
    """True if Penstock runs the internal tools that a step offers. It runs none for `/v1/compress`, nor for a request
    for several answers (`n`): then nothing may depend on a call of them."""
    on_hold: Mapping[str, str] = {}
    """Reasons of the vendor by the names of steps whose edits cost this conversation its reasoning: they do not run."""
    native_edits: frozenset[str] = frozenset()
    """Edits that the upstream makes itself, by the provider's names."""
    may_choose_model: bool = False
    """True if a policy may send the request to another model."""


class Context(msgspec.Struct, frozen=True):
    """The environment of a policy for one request."""

    incoming: ChatRequest
    """Request as the client sent it, before any policy."""
    model: ModelProfile
    identity: Identity
    tokens: Tokens
    archive: Archive | None = None
    """Store for content that leaves the context; without one (None), no content may leave."""
    once: Once = msgspec.field(default_factory=Uncached)
    """Memoisation of functions of content."""
    memo: Memo | None = None
    """Decisions of earlier requests; None if nothing is stored between requests."""
    services: ContextServices = msgspec.field(default_factory=ContextServices)
    conditions: Conditions = msgspec.field(default_factory=Conditions)
    frozen: int = 0
    """Number of messages at the beginning that may not change, nor may the tools, because signed reasoning is bound to
    them. Messages behind them are edited when they are first sent, and keep that form."""
    secret: bytes = b""
    """Random key of the conversation, for placeholders that nobody can reverse; only in a chain with a guard."""
    outage: Outage = msgspec.field(default_factory=Outage)
    """Failure of the state: once it has begun, no further decision may be stored."""


Verdict = Literal["yes", "no", "open"]


async def settled_verdicts(
    name: str,
    ask: Callable[..., Awaitable[Sequence[float | None]]],
    pairs: Sequence[Pair],
    memo: Memo | None,
    *,
    sure: float,
    wait: float,
    most: int,
) -> tuple[Mapping[Pair, Verdict], dict[str, int]]:
    """Return the verdict of a judge on each pair, which stays for the conversation, and the counts of this request.

    `ask` is a method of `Judge`. Of new pairs the latest `most` are asked about. A verdict is open without an answer
    that is `sure`.
    """
    digests = [blake2b("\0".join(pair).encode(errors="surrogatepass"), digest_size=16).hexdigest() for pair in pairs]
    key_of = {pair: f"{name}/{digest}" for pair, digest in zip(pairs, digests, strict=True)}
    settled = await memo.known([*key_of.values()]) if memo is not None else [None] * len(key_of)
    verdicts: dict[Pair, Any] = dict(zip(key_of, settled, strict=True))
    new = [pair for pair, verdict in verdicts.items() if verdict is None]
    asked = new[-most:]
    answers = dict(zip(asked, await ask(asked, wait=wait), strict=True)) if asked else {}
    for pair in new:
        answer = answers.get(pair)
        verdict = "open" if answer is None or 1 - sure < answer < sure else "yes" if answer >= sure else "no"
        verdicts[pair] = await memo.settle(key_of[pair], verdict) if memo is not None else verdict
    return verdicts, {"judged": len(asked), "unanswered": sum(answer is None for answer in answers.values())}


Finding = TypeVar("Finding")


async def find_in_each(
    folds: Folds,
    once: Once,
    name: Hashable,
    work: Callable[[Message], Finding | tuple[()]],
    messages: tuple[Message, ...],
) -> dict[int, Finding]:
    """Return the results of a pure function for each message, by place; a message without any (`()`) has no entry.

    Each message is read once, so a further turn reads only new messages. `name` identifies the function and everything
    that it depends on besides the message.
    """
    form, fold = folds.of(messages), ("found", name)
    known: dict[int, Finding] | None = form.known(fold)
    if known is not None:
        return {**known}
    count, before = form.resume(fold, dict[int, Finding]())
    findings, new = {**before}, messages[count:]
    keys = [(name, hash(raw), len(raw)) for raw in raws(new)]
    for place, (message, key, one) in enumerate(zip(new, keys, once.known(keys), strict=True), count):
        if one is None:
            one = await once.of_key(key, key[2], partial(work, message))
        if one:
            findings[place] = one
    form.settle(fold, {place: one for place, one in findings.items() if place < form.settled})
    return {**form.keep(fold, findings)}
