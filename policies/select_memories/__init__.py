"""Give the model what is remembered of the user, where it bears on what the user asks now."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from hashlib import blake2b
from typing import ClassVar, NamedTuple

from pydantic import Field

from policies.select_memories.outdated import outdated, ways_to_say
from policies.select_memories.ranking import Bars, Ranking, ranked
from proxy.chat import ChatRequest, Message
from proxy.chat.arrivals import arrived
from proxy.chat.blocks import MEMORIES, injected, is_block, is_said, placed
from proxy.chat.provenance import of_client
from proxy.chat.remembered import RememberedItem, block
from proxy.context import Context
from proxy.economics import room, turns_to_pay
from proxy.policy import Count, Decision, Fact, Keep, Policy, Rewrite
from proxy.text.small_talk import is_small_talk

_QUERY = 500
"""Characters of a question that are read: half from its beginning, half from its end."""
_SHORT = 12
"""Characters below which a question gets the user's message before it in front."""
_SEARCHED = 50
_EARLIER = 8
"""Earlier user messages whose memories may still stand."""


class SelectMemories(Policy):
    """Put what is remembered of the user (`/v1/memories`) in front of the last user message, where it bears on that.

    A memory's score is its similarity to the message, calibrated so that it means the same for every embedding model,
    and something for what is recent and for what has to do with the user's preferences. The best that reach `threshold`
    are given; if none does, the best few above `fallback`. Of two that contradict each other the newer alone is given;
    none is given that contradicts what the user says in this conversation, or that stands in the request already.

    They stand as data in the user's role, and begin with `Relevant Context:`. What was chosen for a message stays the
    same while the model works on it. With the next user message it stays where leaving would cost more, under the
    provider's prompt cache, than carrying it on; what stands already is not given again. Put it behind the steps that
    shorten history.
    """

    may_grow: ClassVar[bool] = True
    gives_way: ClassVar[bool] = True
    prefix_breaks_per_turn: ClassVar[float] = 1.0
    needs_embedding: ClassVar[bool] = True
    needs_memories: ClassVar[bool] = True
    counted: ClassVar = {"memories_injected": Count("memories_selected", "Memories that were given to a question.")}

    top: int = Field(default=5, ge=1, le=50)
    """The most memories for one message."""

    threshold: float = Field(default=0.7, ge=0, le=1)
    """The score that they must reach."""

    fallback: float = Field(default=0.5, ge=0, le=1)
    """The score that is enough where none reaches the threshold."""

    fallback_top: int = Field(default=3, ge=0, le=50)
    """The most memories that are given then."""

    floor: float = Field(default=0.4, ge=0, le=1)
    """The similarity below which a memory stays out, whatever is added to it."""

    recent: float = Field(default=3600.0, ge=0)
    """Seconds for which a memory counts as recent."""

    recent_bonus: float = Field(default=0.1, ge=0, le=1)
    """What is added to the score of a recent memory."""

    preference_bonus: float = Field(default=0.15, ge=0, le=1)
    """What is added where a memory matches the user's preferences: it is one of them, or it shares two telling words
    with one, and that preference bears on the message itself (its similarity is at least `fallback`)."""

    max_age: float | None = Field(default=None, gt=0)
    """Seconds after which a memory that was not said again stays out; without it none is too old."""

    min_confidence: float = Field(default=0.3, ge=0, le=1)
    """The confidence below which a memory stays out."""

    share: float = Field(default=0.1, gt=0, le=0.8)
    """The share of the usable window that memories may take."""

    max_tokens: int = Field(default=1000, ge=50)
    """The most tokens that they may take, however large the window is."""

    ceiling: float = Field(default=0.8, gt=0, le=1)
    """The share of the usable window that the whole prompt may take with them."""

    turns: float = Field(default=10.0, ge=0)
    """For how many further requests the memories of an earlier message are expected to be carried, if they stay."""

    wait: float = Field(default=0.3, ge=0)
    """Seconds to wait for the vector of the message; without it memories are found by their words."""

    timeout: float = Field(default=2.0, gt=0)
    """Seconds after which the step is given up."""

    async def apply(self, request: ChatRequest, ctx: Context) -> Decision:
        """Choose, and place what fits."""
        total = 0 if ctx.memories is None else await ctx.memories.total()
        if not total:
            return Keep("no memories")
        sent = of_client(request.messages, ctx.incoming.messages)
        users = [place for place in sent if request.messages[place].get("role") == "user"]
        if not users:
            return Keep("no user message of the client's stands in the request")
        if injected(request.messages, sent, MEMORIES):
            return Keep("an earlier step has selected already")
        if any(is_block(each, MEMORIES) for each in request.messages[max(0, users[-1] - 2) : users[-1]]):
            return Keep("the client has sent the selection along")
        return await _Selection(self, request, ctx, sent, total).decision(users[-1], users[-_EARLIER - 1 : -1])

    @property
    def bars(self) -> Bars:
        """What memories must reach."""
        return Bars(
            top=self.top,
            threshold=self.threshold,
            fallback=self.fallback,
            fallback_top=self.fallback_top,
            floor=self.floor,
            recent=self.recent,
            recent_bonus=self.recent_bonus,
            preference_bonus=self.preference_bonus,
            max_age=self.max_age,
            min_confidence=self.min_confidence,
        )


class _Choice(NamedTuple):
    """What was chosen for a user message."""

    ids: tuple[str, ...]
    """The memories, the best first."""
    alone: bool
    """Whether the memories of earlier messages left with it."""

    @classmethod
    def read(cls, value: str) -> "_Choice":
        alone, ids = json.loads(value)
        return cls(tuple(map(str, ids)), bool(alone))

    def written(self) -> str:
        return json.dumps([int(self.alone), self.ids], separators=(",", ":"))


class _Block(NamedTuple):
    """Memories as they stand in front of a user message."""

    message: Message
    tokens: int
    ids: tuple[str, ...]


class _Selection:
    """The work on one request."""

    def __init__(
        self, policy: SelectMemories, request: ChatRequest, ctx: Context, sent: Mapping[int, int], total: int
    ) -> None:
        self._policy, self._request, self._ctx, self._sent, self._total = policy, request, ctx, sent, total
        self._keys: dict[int, str] = {}
        self._texts: dict[str, str | None] = {}

    async def decision(self, asked: int, before: Sequence[int]) -> Decision:
        """The request with the memories for the last user message, and those of earlier ones that stay."""
        self._keys = await self._keyed([*before, asked])
        sizes = await self._ctx.tokens.sizes(self._request.messages)
        usable = self._ctx.model.usable(self._request)
        total = (await self._ctx.tokens.count(self._request)).total
        free = min(await room(self._request, self._ctx), int(usable * self._policy.ceiling) - total)
        budget = min(int(usable * self._policy.share), self._policy.max_tokens)
        blocks = await self._earlier(before)
        choice, how, facts = await self._choice(asked, budget, blocks, sum(sizes[min(blocks, default=asked) : asked]))
        if choice.alone or sum(each.tokens for each in blocks.values()) > free:
            blocks = {}
        block = await self._block(choice.ids, min(budget, free - sum(each.tokens for each in blocks.values())))
        if block is not None:
            blocks[asked] = block
        incoming = self._ctx.incoming.messages
        is_new = block is not None and id(incoming[self._sent[asked]]) in arrived(incoming)
        facts = {
            "memories_total": self._total,
            "memories_injected": sum(len(each.ids) for each in blocks.values()),
            "memories_injected_new": len(block.ids) if block is not None and is_new else 0,
            **facts,
        }
        if not blocks:
            return Keep(how if not choice.ids else "no room for memories", facts)
        made = placed(self._request.messages, {place: [each.message] for place, each in blocks.items()})
        why = f"{facts['memories_injected']} of {self._total} memories, {how}"
        return Rewrite(self._request.with_messages(made), why, facts)

    async def _earlier(self, places: Sequence[int]) -> dict[int, _Block]:
        """The memories that stood in front of earlier user messages in the last request, by the messages' places."""
        blocks: dict[int, _Block] = {}
        if self._ctx.memo is None or not self._ctx.model.cache.ttl or not places:
            return blocks
        known = await self._ctx.memo.known([self._keys[at] for at in places])
        choices = {place: _Choice.read(value) for place, value in zip(places, known, strict=True) if value is not None}
        await self._read([id for choice in choices.values() for id in choice.ids])
        for place, choice in choices.items():
            if choice.alone:
                blocks.clear()
            block = await self._block(choice.ids, self._policy.max_tokens)
            if block is not None:
                blocks[place] = block
        return blocks

    async def _choice(
        self, asked: int, budget: int, earlier: dict[int, _Block], behind: int
    ) -> tuple[_Choice, str, dict[str, Fact]]:
        """What bears on a message, from memory where it was worked out before; and how it was found."""
        memo, key = self._ctx.memo, self._keys[asked]
        if memo is not None and (known := (await memo.known([key]))[0]) is not None:
            return _Choice.read(known), "as before", {}
        ranking, how = await self._ranked(asked)
        block = await self._block([item.id for item in ranking.chosen], budget)
        choice = self._chosen(() if block is None else block.ids, budget, earlier, behind)
        if memo is not None:
            choice = _Choice.read(await memo.settle(key, choice.written()))
        return choice, how, ranking.facts

    def _chosen(self, ids: tuple[str, ...], budget: int, earlier: dict[int, _Block], behind: int) -> _Choice:
        """The memories to add to those that stand, or to have instead; `behind` are the tokens behind the first."""
        carried = sum(block.tokens for block in earlier.values())
        there = {id for block in earlier.values() for id in block.ids}
        missing = tuple(id for id in ids if id not in there)
        serves = bool(ids) and not missing
        stays = serves or turns_to_pay(self._ctx.model.cache, carried, behind) > self._policy.turns
        return _Choice(missing, alone=False) if earlier and stays and carried <= budget else _Choice(ids, alone=True)

    async def _ranked(self, asked: int) -> tuple[Ranking, str]:
        """What bears on a message; on one that says too little by itself, with the user's message before it."""
        question, memories = _ends(self._request.messages[asked].text), self._ctx.memories
        if memories is None or is_small_talk(question):
            return Ranking((), {}), "nothing is asked"
        if len(question.strip()) < _SHORT:
            before = (m.text for m in reversed(self._request.messages[:asked]) if m.get("role") == "user")
            question = f"{_ends(next(before, ''))}\n{question}".strip()
        found = await memories.nearest(question, limit=_SEARCHED, wait=self._policy.wait)
        items, gone = await self._current(found.items, asked)
        ranking = ranked(items, self._policy.bars)
        chosen = self._unsaid(ranking.chosen)
        facts = {**ranking.facts, "left_superseded": gone, "left_said": len(ranking.chosen) - len(chosen)}
        told = f", {gone} superseded by newer ones" if gone else ""
        told += f", {facts['left_said']} stand in the request already" if facts["left_said"] else ""
        return Ranking(
            chosen, {name: each for name, each in facts.items() if each}
        ), f"by {found.how}{ranking.told}{told}"

    async def _current(self, items: Sequence[RememberedItem], asked: int) -> tuple[tuple[RememberedItem, ...], int]:
        """The memories that nothing newer contradicts, neither a memory nor what the user says here; and of how many
        something does. What takes the place of another is as near to the question as that was."""
        bars, order = self._policy.bars, sorted(items, key=lambda item: -item.age)
        near = [item for item in order if item.is_own and (item.similarity >= bars.floor or item.kind == "preference")]
        said = [_ends(m.text) for m in self._request.messages[: asked + 1] if m.get("role") == "user"]
        texts = (*(item.text for item in near), *said[-_EARLIER:])
        found = await self._ctx.once.of_key(
            ("outdated memories", texts), sum(map(len, texts)), partial(outdated, texts)
        )
        found = {older: newer for older, newer in found.items() if older < len(near) and _is_newer(near, older, newer)}
        gone = {near[older].id for older in found}
        nearest = {item.id: item.similarity for item in items}
        for older, newer in sorted(found.items()):
            if newer < len(near):
                nearest[near[newer].id] = max(nearest[near[newer].id], nearest[near[older].id])
        current = (replace(item, similarity=nearest[item.id]) for item in items if item.id not in gone)
        return tuple(current), len(gone)

    def _unsaid(self, items: Sequence[RememberedItem]) -> tuple[RememberedItem, ...]:
        """The memories that neither another block nor one before them says already."""
        there = [self._request.messages[place] for place in injected(self._request.messages, self._sent)]
        kept: list[RememberedItem] = []
        for item in items:
            blocks = [*there, block(one.text for one in kept)]
            if not any(is_said(text, blocks) for text in ways_to_say(item.text)):
                kept.append(item)
        return tuple(kept)

    async def _block(self, ids: Sequence[str], budget: int) -> _Block | None:
        """As many of the memories as fit, the best first; None where none does, or all were deleted."""
        await self._read(ids)
        there = [(id, text) for id in ids if (text := self._texts[id]) is not None]
        while there:
            about = block(text for _, text in there)
            (tokens,) = await self._ctx.tokens.sizes([about])
            if tokens <= budget:
                return _Block(about, tokens, tuple(id for id, _ in there))
            there = there[:-1]
        return None

    async def _read(self, ids: Sequence[str]) -> None:
        """Look up texts that were not looked up yet."""
        new = [id for id in dict.fromkeys(ids) if id not in self._texts]
        if self._ctx.memories is not None and new:
            self._texts.update(zip(new, await self._ctx.memories.texts(new), strict=True))

    async def _keyed(self, asked: Sequence[int]) -> dict[int, str]:
        """The memo's key of each of these messages: by the user, and by all that stands before it."""
        incoming, user = self._ctx.incoming.messages, self._ctx.identity.user
        wanted = {self._sent[place]: place for place in asked}
        policy = self._policy
        running = blake2b(f"{user} {policy.bars} {policy.share} {policy.max_tokens}".encode(), digest_size=16)
        keys: dict[int, str] = {}
        for at, digest in enumerate(await self._ctx.once.of_each(_digest, incoming)):
            running.update(digest)
            if at in wanted:
                keys[wanted[at]] = f"memories-{running.hexdigest()}"
        return keys


def _is_newer(items: Sequence[RememberedItem], older: int, newer: int) -> bool:
    return newer >= len(items) or items[newer].age < items[older].age


def _digest(message: Message) -> bytes:
    return blake2b(message.raw, digest_size=16).digest()


def _ends(text: str) -> str:
    return text if len(text) <= _QUERY else f"{text[: _QUERY // 2]}\n{text[-_QUERY // 2 :]}"
