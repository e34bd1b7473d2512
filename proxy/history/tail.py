"""Blocks that a step puts in front of the last user messages, and carries along: chosen once for each of them.

A choice is settled in the memo. It stays while the model works, and then as long as that costs less than taking it out.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from hashlib import blake2b
from typing import Any, Generic, NamedTuple, TypeVar

from proxy.chat import ChatRequest, Message, digest
from proxy.chat.blocks import placed, stated
from proxy.context import Context
from proxy.economics import turns_to_pay
from proxy.text.bm25 import ends
from proxy.text.same import KnownStatements

Item = TypeVar("Item")

EARLIER = 8


class Choice(NamedTuple, Generic[Item]):
    """The choice for a user message."""

    items: tuple[Item, ...]
    alone: bool
    """True if the blocks of earlier messages left with it."""


class Block(NamedTuple, Generic[Item]):
    """Items as they stand in front of a user message."""

    message: Message
    tokens: int
    items: tuple[Item, ...]


class Tail(ABC, Generic[Item]):
    """The work on one request. Messages are named by their places in it."""

    def __init__(self, request: ChatRequest, ctx: Context, sent: Mapping[int, int]) -> None:
        """`sent` are the places of the client's messages, each with that in what the client sent."""
        self.request, self.ctx, self.sent = request, ctx, sent
        self.keys: dict[int, str] = {}
        """The key of each user message in the memo, see `name`."""
        self._known: dict[str, Choice[Item] | None] = {}
        """The choices that the memo has under these keys, once they are read."""

    @abstractmethod
    async def block(self, items: tuple[Item, ...], budget: int) -> Block[Item] | None:
        """Return as many of the items as fit into so many tokens; None where none does."""

    async def load(self, items: Sequence[Item]) -> None:
        """Look up together what the blocks of these items need."""

    async def name(self, kind: str, settings: str, asked: Sequence[int], before: Collection[int]) -> None:
        """Give each of these messages its key, by the client's messages of the places `before` in front of it."""
        incoming, wanted = self.ctx.incoming.messages, {self.sent[place]: place for place in asked}
        read = sorted({*before, *wanted})
        running = blake2b(settings.encode(), digest_size=16)
        digests = await self.ctx.once.of_each(digest, [incoming[place] for place in read])
        for place, one in zip(read, digests, strict=True):
            if place in wanted:
                key = running.copy()
                key.update(b"%d " % place + one)  # the same words may be said twice
                self.keys[wanted[place]] = f"{kind}-{key.hexdigest()}"
            if place in before:
                running.update(one)

    async def earlier(self, places: Sequence[int], most: int) -> dict[int, Block[Item]]:
        """Return the blocks that stood in front of earlier user messages in the last request, of `most` tokens each."""
        blocks: dict[int, Block[Item]] = {}
        if self.ctx.memo is None or not self.ctx.model.cache.ttl or not places:
            return blocks
        known = {place: await self.known(place) for place in places}
        choices = {place: choice for place, choice in known.items() if choice is not None}
        await self.load([item for choice in choices.values() for item in choice.items])
        for place, choice in choices.items():
            if choice.alone:
                blocks.clear()
            if (block := await self.block(choice.items, most)) is not None:
                blocks[place] = block
        return blocks

    async def known(self, asked: int) -> Choice[Item] | None:
        """Return what was chosen for a message before, if anything; all of the conversation are read with the first."""
        if self.keys[asked] not in self._known and self.ctx.memo is not None:
            keys = [*self.keys.values()]
            values = zip(keys, await self.ctx.memo.known(keys), strict=True)
            self._known = {key: None if value is None else self._read(value) for key, value in values}
        return self._known.get(self.keys[asked])

    async def settled(self, asked: int, choice: Choice[Item]) -> Choice[Item]:
        """Return what is chosen for a message from now on: this, unless another replica was first."""
        if self.ctx.memo is None:
            return choice
        written = json.dumps([int(choice.alone), choice.items], separators=(",", ":"))
        return self._read(await self.ctx.memo.settle(self.keys[asked], written))

    def stays(self, blocks: Mapping[int, Block[Item]], behind: int, turns: float) -> bool:
        """Return True if carrying blocks for `turns` further requests costs less than rewriting the `behind` tokens."""
        return turns_to_pay(self.ctx.model.cache, tokens_of(blocks), behind) > turns

    def missing(self, items: Sequence[Item], blocks: Mapping[int, Block[Item]]) -> tuple[Item, ...]:
        there = {item for block in blocks.values() for item in block.items}
        return tuple(item for item in items if item not in there)

    def question(self, asked: int, most: int, *, longer: bool = False) -> str:
        """Return the ends of a user message; if `longer`, behind those of the user message before it."""
        question = ends(self.request.messages[asked].text, most)
        if not longer:
            return question
        before = (m.text for m in reversed(self.request.messages[:asked]) if m.get("role") == "user")
        return f"{ends(next(before, ''), most)}\n{question}"

    def with_blocks(self, blocks: Mapping[int, Block[Item]]) -> ChatRequest:
        shown = {place: [block.message] for place, block in blocks.items()}
        return self.request.with_messages(placed(self.request.messages, shown))

    def _read(self, value: str) -> Choice[Item]:
        alone, items = json.loads(value)
        read: list[Any] = [tuple(item) if isinstance(item, list) else item for item in items]
        return Choice(tuple(read), bool(alone))


async def standing_statements(messages: Sequence[Message], ctx: Context) -> KnownStatements:
    """Return what messages state: an item that they state already is not put into the request once more."""
    known = KnownStatements()
    for each in await ctx.once.of_each(stated, messages):
        known.add(each.statements, own=each.is_own)
    return known


def tokens_of(blocks: Mapping[int, Block[Any]]) -> int:
    """Return the tokens that blocks take together."""
    return sum(block.tokens for block in blocks.values())
