"""Bring back what left the context, where it bears on what the user asks now."""

from collections.abc import Collection, Mapping, Sequence
from typing import ClassVar, NamedTuple

from pydantic import Field

from policies.recall_history.search import Found, HistorySearch, Place, find_left, prepare
from proxy.chat import ChatRequest, Message
from proxy.chat.blocks import RECALLED, injected
from proxy.chat.provenance import added, of_client
from proxy.context import Context
from proxy.history.tail import EARLIER, Block, Choice, Tail, tokens_of
from proxy.policy import Decision, Keep, Need, Policy, Rewrite, Stage

_QUERY = 1500
"""Characters of a question that are read: half from its beginning, half from its end."""
_CORE = 0.5
"""The relevance, as a share of the best one's, of a passage that a question cannot do without, if it is about it."""
_TOGETHER = 1.5
"""The share of the budget of one message that it and the earlier ones may have together."""
_SPENT = 0.15
"""The part of what a cut saves in each request that passages may cost, where the provider has a prompt cache."""
_LEVELS = 3
_STAYS = 0.4
"""The share of the usable window that a cut leaves, about: what is older than that will leave with it."""


class RecallHistory(Policy):
    """Put the passages of what left the conversation that bear on the last user message in front of it.

    A message must have more in common with what left, in words (BM25) and meaning, than messages of any conversation
    have: small talk, "go on", commands and other questions get nothing. A code or a number with its word, `order
    50042`, brings what names it too. Where relevance is not clear, at most 150 tokens come back; 800 where the message
    is no question, or the words may stand together by chance. Else passages are added as long as the next one is
    `least` as relevant as the best. A question brings its answer, and does not come alone. Where the digest says the
    best, only what is at least half as relevant comes. Passages stand in the order of time, as data in the user's role.

    The choice for a message stays while the model works on it. With the next user message it stays if it holds at least
    half of what that one needs, or where leaving would cost more, under the prompt cache, than carrying it on. The
    first message behind a cut gets what fits; later ones, and agents, which can `recall`, get what is surely about
    them. Put it behind the steps that shorten history.
    """

    stage: ClassVar = Stage.RESTORES
    may_grow: ClassVar[bool] = True
    prefix_breaks_per_turn: ClassVar[float] = 1.0

    share: float = Field(default=0.42, gt=0, le=0.8)
    """The share of the usable window that passages and the message behind them may take."""

    max_tokens: int = Field(default=10_000, ge=100)
    """The most tokens that passages may take, however large the window is."""

    beside_tools: int = Field(default=400, ge=100)
    """The most tokens for one message where the model has tools, and with them `recall`; the best passage may be
    longer. With a prompt cache more are allowed up to 15 % of what the cut saves in each request."""

    ceiling: float = Field(default=0.79, gt=0, le=1)
    """The share of the usable window that the whole prompt may take with them: 80 %, less errors of counting."""

    least: float = Field(default=0.4, ge=0, le=1)
    """Passages whose relevance is below this share of the best one's stay out."""

    turns: float = Field(default=10.0, ge=0)
    """Expected further requests that carry earlier passages, if they stay."""

    wait: float = Field(default=1.0, ge=0)
    """Seconds to wait for vectors; they are made in the background, and the next request has them."""

    prepare_at: float = Field(default=0.70, gt=0, le=1)
    """The share of the usable window from which vectors of what will leave with the next cut are made. 1 means
    never."""

    timeout: float = Field(default=4.0, gt=0)
    """Seconds after which the step is given up."""

    @property
    def needs(self) -> frozenset[Need]:
        return frozenset({"embedding"})

    async def apply(self, request: ChatRequest, ctx: Context) -> Decision:
        gone = await find_left(request, ctx)
        if ctx.services.embedder is not None:
            await self._prepare(request, ctx)
        if not gone.places and not gone.stand:
            return Keep("nothing left the context")
        if injected(request.messages, added(request, ctx.incoming), RECALLED):
            return Keep("an earlier step has recalled already")
        sent = of_client(request, ctx.incoming)
        users = [
            place for place in request.form.places("users", lambda each: each.get("role") == "user") if place in sent
        ]
        if not users:
            return Keep("no user message of the client's stands in the request")
        if not gone.places:
            return Keep("what left stands in another form")
        recollection = _Recollection(self, request, ctx, sent, gone.places)
        return await recollection.decision(users[-1], users[-EARLIER - 1 : -1])

    async def _prepare(self, request: ChatRequest, ctx: Context) -> None:
        """Begin to make the vectors of what will leave with the next cut, once that is near."""
        usable = ctx.model.usable(request)
        total = (await ctx.tokens.count(request)).total
        if total < usable * self.prepare_at or self.prepare_at >= 1:
            return
        there = {id(message) for message in request.messages}
        talk = [message for message in ctx.incoming.messages if id(message) in there and not message.is_system]
        leaving, over = 0, total - usable * _STAYS
        for size in await ctx.tokens.sizes(talk):
            over -= size
            if over < 0:
                break
            leaving += 1
        await prepare(talk[: min(leaving, len(talk) - 1)], ctx)


class _Budget(NamedTuple):
    each: int
    """For one message."""
    free: int
    """The tokens that the window leaves at the time of the message."""

    def beside(self, blocks: Mapping[int, Block[Place]]) -> int:
        """Return what there is for a message beside the passages of earlier ones."""
        carried = tokens_of(blocks)
        together = int(self.each * _TOGETHER) if blocks else self.each
        return max(0, min(together - carried, self.each, self.free - carried))


class _Recollection(Tail[Place]):
    def __init__(
        self,
        policy: RecallHistory,
        request: ChatRequest,
        ctx: Context,
        sent: Mapping[int, int],
        gone: Mapping[int, Collection[int] | None],
    ) -> None:
        super().__init__(request, ctx, sent)
        self._policy, self._gone = policy, [*gone]
        made = [request.messages[place].text for place in added(request, ctx.incoming)]
        self._search = HistorySearch(self._gone, ctx, "\n".join(made), gone)
        self._usable = ctx.model.usable(request)
        self._blocks: dict[tuple[Place, ...], Block[Place]] = {}
        self._most = policy.max_tokens

    async def decision(self, asked: int, before: Sequence[int]) -> Decision:
        policy = self._policy
        settings = f"{policy.share} {policy.max_tokens} {policy.least} {self._usable}"
        await self.name("recalled", settings, [*before, asked], frozenset(self._gone))
        sizes = await self.ctx.tokens.sizes(self.request.messages)
        total = (await self.ctx.tokens.count(self.request)).total
        came = (await self.ctx.tokens.count(self.ctx.incoming)).total
        room = min(int(self._usable * policy.ceiling), came)
        self._most = min(self._most, room - total)
        share = int(self._usable * policy.share) - sizes[asked]  # what is new goes before what was
        each = min(share, policy.max_tokens, self._worth(came - total))
        budget = _Budget(each, room - total + sum(sizes[asked + 1 :]))
        blocks = await self.earlier(before, policy.max_tokens)
        choice, how = await self._choice(asked, budget, blocks, sizes)
        if choice.alone or total + tokens_of(blocks) > room:
            blocks = {}
        most = budget.beside(blocks)
        for level in range(_LEVELS):
            block = await self.block(choice.items, most >> level)
            if block is None:
                break
            if total + block.tokens + tokens_of(blocks) <= room:
                blocks[asked] = block
                break
        if not blocks:
            return Keep("no room for passages" if choice.items else how)
        tokens = tokens_of(blocks)
        why = f"recalled {tokens} tokens of {len(self._gone)} messages that left, {how}"
        return Rewrite(self.with_blocks(blocks), why, {"recalled_tokens": tokens, "recalled_for": len(blocks)})

    def _worth(self, gone: int) -> int:
        """Return how many new tokens cost a part of what it would cost to carry on, in the cache, what left."""
        rules = self.ctx.model.cache
        paid = int(gone * rules.read / max(rules.write, rules.read) * _SPENT) if rules.ttl else gone
        return max(paid, self._policy.beside_tools)

    async def _choice(
        self, asked: int, budget: _Budget, earlier: Mapping[int, Block[Place]], sizes: Sequence[int]
    ) -> tuple[Choice[Place], str]:
        """Return what bears on a message, from memory where it was worked out before; and how it was found."""
        if (known := await self.known(asked)) is not None:
            return known, "as before"
        question, policy = self.question(asked, _QUERY), self._policy
        passages, how, most = await self._search.find(question, least=policy.least, wait=policy.wait)
        if most is not None:
            budget = budget._replace(each=min(budget.each, most))
        # the answer before the message was never sent: it is new whatever stands in front of it
        end = asked - (self.request.messages[asked - 1].get("role") == "assistant")
        choice = self._chosen(passages, budget, earlier, sum(sizes[min(earlier, default=end) : end]))
        block = await self.block(choice.items, budget.beside({} if choice.alone else earlier))
        choice = choice._replace(items=block.items if block is not None else ())
        how = "no room for passages" if passages and not choice.items else how
        return await self.settled(asked, choice), how

    def _chosen(
        self, passages: Sequence[Found], budget: _Budget, earlier: Mapping[int, Block[Place]], behind: int
    ) -> Choice[Place]:
        """Return the passages to add to those that stand, or instead; `behind` are the tokens behind the first."""
        fresh = _fitting(passages, budget.beside({}))
        core = [each for each in fresh if each.share >= _CORE and each.is_about and not each.only_asks]
        if self.request.tools:
            core = _fitting(core, self._policy.beside_tools) or core[:1]
        if self.request.tools or earlier:
            fresh = core
        missing = self.missing([each.place for each in core], earlier)
        needed = sum(each.tokens for each in core)
        lacking = sum(each.tokens for each in core if each.place in missing)
        serves = 2 * lacking <= needed and lacking <= budget.beside(earlier)
        if earlier and (serves or self.stays(earlier, behind, self._policy.turns)):
            return Choice(missing, alone=False)
        return Choice(tuple(each.place for each in fresh), alone=True)

    async def block(self, items: tuple[Place, ...], budget: int) -> Block[Place] | None:
        while items:
            block = self._blocks.get(items)
            if block is None:
                about = await self._search.shown(items)
                (tokens,) = await self.ctx.tokens.sizes([about])
                block = self._blocks[items] = Block(about, tokens, items)
            # an attachment comes whole, and only the window bounds it
            (size,) = await self.ctx.tokens.sizes([Message({"role": "user", "content": block.message.text})])
            if size <= budget and block.tokens <= self._most:
                return block
            fitting = min(len(items) - 1, len(items) * max(budget, 0) // size)
            items = items[:fitting] if fitting else items[1:]
        return None


def _fitting(passages: Sequence[Found], tokens: int) -> list[Found]:
    """Return those that fit into so many tokens, taken in their order; one that is too long is passed over.

    A mere question comes only behind a passage of its answer.
    """
    fitting: list[Found] = []
    for each in passages:
        answer = each.place[0] + 1
        if each.tokens <= tokens and not (each.only_asks and all(one.place[0] != answer for one in fitting)):
            fitting.append(each)
            tokens -= each.tokens
    return fitting
