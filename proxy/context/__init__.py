"""What a policy may reach besides the request it is given: all of it read-only, all of it passed in."""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeVar

from proxy.chat import ChatRequest, Message
from proxy.context.services import (
    Archive,
    Correction,
    Corrections,
    Drafts,
    Embedder,
    Inbox,
    Judge,
    Material,
    Memo,
    Memories,
    Once,
    Outage,
    Remembered,
    RememberedItem,
    Share,
    TokenCount,
    Tokens,
    Unavailable,
)

__all__ = [
    "Archive", "CacheRules", "Context", "Correction", "Corrections", "Drafts", "Embedder", "Identity", "Inbox",
    "Judge", "Material", "Memo", "Memories", "ModelProfile", "Once", "Outage", "Prices", "Remembered",
    "RememberedItem", "Share", "TokenCount", "Tokens", "Unavailable", "Uncached",
]  # fmt: skip

Result = TypeVar("Result")


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
    """Output tokens kept free where the client does not say how many it wants."""
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
        """The tokens that this request's prompt may have: the window less what its answer needs."""
        wanted = request.max_output_tokens
        reserved = self.reserve if wanted is None else min(wanted, self.max_output)
        return max(1, min(self.max_input or self.window, self.window - reserved))


class Uncached:
    """A `Once` that remembers nothing."""

    async def of(self, function: Callable[[str], Result], text: str) -> Result:
        return function(text)

    async def of_each(self, function: Callable[[Message], Result], messages: Sequence[Message]) -> list[Result]:
        return list(map(function, messages))

    async def of_key(self, key: Hashable, size: int, work: Callable[[], Result]) -> Result:
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
    runs_tools: bool = True
    """Whether Penstock runs the tools of its own that a step offers. It does not for `/v1/compress`, nor where several
    answers are asked for (`n`): then nothing may depend on a call of them."""
    judge: Judge | None = None
    """Tells whether texts contradict each other; None where no model is configured for it."""
    now: float | None = None
    """When the request came, in seconds since 1970, to the minute. What is made of it must be settled in the memo at
    once, so that no later request of the conversation decides otherwise."""
    corrections: "Corrections | None" = None
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
