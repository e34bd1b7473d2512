"""Bring back what left the context, where it bears on what the user asks now."""

import json
from collections.abc import Sequence
from hashlib import blake2b
from typing import ClassVar, NamedTuple

from pydantic import Field

from proxy.chat import ChatRequest, Message
from proxy.context import Context
from proxy.departed import departed
from proxy.economics import turns_to_pay
from proxy.lexical import Counted, counted, relevance, terms
from proxy.passages import Passage, passages
from proxy.policy import Decision, Keep, Policy, Rewrite
from proxy.recalled import TAG, block
from proxy.relevance import Candidate, fitting, ranked

_NOTED = Message({"role": "assistant", "content": "Noted."})
_FRAME = 4
"""Tokens that the line around a passage takes."""
_ASKED = 3
"""Terms that a question has at least; to a shorter one the user's message before it is added."""
_QUERY = 1500
"""Characters of a question that are read: half from its beginning, half from its end."""
_LEVELS = 3
_EARLIER = 8
"""Earlier user messages whose passages may still stand."""

Chosen = tuple[tuple[int, int], ...]
"""Passages by message and part, the most relevant first."""


class RecallHistory(Policy):
    """Put the passages of what left the conversation that bear on the last user message in front of it.

    They are found by their words (BM25) and, with an embedding model, by their meaning; until that is loaded words do
    alone. They stand in the order of time, as data in the user's role. What was chosen for a message stays the same
    while the model works on it. With the next user message it leaves, unless so much stands behind it that leaving
    costs more, under the provider's prompt cache, than carrying it on. Put it behind the steps that shorten history.
    """

    may_grow: ClassVar[bool] = True
    prefix_breaks_per_turn: ClassVar[float] = 1.0
    needs_embedding: ClassVar[bool] = True

    share: float = Field(default=0.35, gt=0, le=0.8)
    """The share of the usable window that passages may take."""

    max_tokens: int = Field(default=12_000, ge=100)
    """The most tokens that passages may take, however large the window is."""

    ceiling: float = Field(default=0.90, gt=0, le=1)
    """The share of the usable window that the whole prompt may take with them. Where a growing tool loop comes near,
    they are halved, and halved again."""

    least: float = Field(default=0.2, ge=0, le=1)
    """Passages whose relevance is below this share of the best one's stay out."""

    turns: float = Field(default=10.0, ge=0)
    """For how many further requests the passages of an earlier message are expected to be carried, if they stay."""

    wait: float = Field(default=1.0, ge=0)
    """Seconds to wait for vectors that are not there yet; they are made in the background, and the next request has
    them."""

    timeout: float = Field(default=4.0, gt=0)
    """Seconds after which the step is given up."""

    async def apply(self, request: ChatRequest, ctx: Context) -> Decision:
        """Rank what left, and place what fits."""
        gone = departed(ctx.incoming.messages, request.messages)
        if not gone:
            return Keep("nothing left the context")
        sent = {id(message) for message in ctx.incoming.messages}
        if any(message.text.startswith(f"<{TAG}>") for message in request.messages if id(message) not in sent):
            return Keep("an earlier step has recalled already")
        users = [i for i, each in enumerate(request.messages) if each.get("role") == "user" and id(each) in sent]
        if not users:
            return Keep("no user message of the client's stands in the request")
        return await _Search(self, request, ctx, gone).decision(users[-1], users[-_EARLIER - 1 : -1])


class _Search:
    """The work on one request."""

    def __init__(self, policy: RecallHistory, request: ChatRequest, ctx: Context, gone: Sequence[Message]) -> None:
        self._policy, self._request, self._ctx, self._gone = policy, request, ctx, gone
        self._usable = ctx.model.usable(request)
        self._known = blake2b(digest_size=16)
        self._known.update(f"{policy.share} {policy.max_tokens} {policy.least} {self._usable}".encode())
        for message in gone:
            self._known.update(message.raw)

    async def decision(self, asked: int, before: Sequence[int]) -> Decision:
        """The request with the passages of the last user message, and those of earlier ones that stay."""
        request, ctx, policy = self._request, self._ctx, self._policy
        sizes = await ctx.tokens.sizes(request.messages)
        total = (await ctx.tokens.count(request)).total
        room = int(self._usable * policy.ceiling)
        earlier = await self._earlier(before, asked, sizes)
        if total + sum(tokens for _, tokens in earlier.values()) > room:
            earlier = {}
        total += sum(tokens for _, tokens in earlier.values())
        then = total - sum(sizes[asked + 1 :])
        budget = min(int(self._usable * policy.share), policy.max_tokens, room - then)
        chosen, how = await self._chosen(asked, budget)
        for level in range(_LEVELS):
            about, tokens = await self._block(chosen, budget >> level)
            if about is None:
                return self._kept("no passage bears on the question", earlier)
            if total + tokens <= room:
                return self._placed({**earlier, asked: (about, tokens)}, how)
        return self._kept("no room for passages", earlier)

    def _kept(self, why: str, earlier: dict[int, tuple[Message, int]]) -> Decision:
        return self._placed(earlier, why) if earlier else Keep(why)

    def _placed(self, blocks: dict[int, tuple[Message, int]], how: str) -> Rewrite:
        messages: list[Message] = []
        for place, message in enumerate(self._request.messages):
            if place in blocks:
                messages += [blocks[place][0], _NOTED]
            messages.append(message)
        tokens = sum(tokens for _, tokens in blocks.values())
        return Rewrite(
            self._request.with_messages(messages),
            why=f"recalled {tokens} tokens of {len(self._gone)} messages that left, {how}",
            facts={"recalled_tokens": tokens, "recalled_for": len(blocks)},
        )

    async def _earlier(self, places: Sequence[int], asked: int, sizes: Sequence[int]) -> dict[int, tuple[Message, int]]:
        """The passages of earlier user messages that are cheaper to carry than to take out, by the messages' places."""
        ctx = self._ctx
        if ctx.memo is None or not places:
            return {}
        known = await ctx.memo.known([self._key(place) for place in places])
        blocks: dict[int, tuple[Message, int]] = {}
        for place, value, end in zip(places, known, (*places[1:], asked), strict=True):
            about, tokens = await self._block(_read(value), self._policy.max_tokens)
            if about is None:
                continue
            rewritten = sum(sizes[place:end])
            if turns_to_pay(ctx.model.cache, tokens, rewritten) > self._policy.turns:
                blocks[place] = (about, tokens)
        return blocks

    def _key(self, asked: int) -> str:
        key = self._known.copy()
        key.update(self._request.messages[asked].raw)
        return f"recalled-{key.hexdigest()}"

    async def _chosen(self, asked: int, budget: int) -> tuple[Chosen, str]:
        """What bears on a message, from memory where it was worked out before; and how it was found."""
        memo, key = self._ctx.memo, self._key(asked)
        if memo is not None and (known := (await memo.known([key]))[0]) is not None:
            return _read(known), "as before"
        chosen, how = await self._ranked(asked, budget)
        if memo is not None:
            chosen = _read(await memo.settle(key, json.dumps(chosen, separators=(",", ":"))))
        return chosen, how

    async def _ranked(self, asked: int, budget: int) -> tuple[Chosen, str]:
        ctx, question = self._ctx, self._question(asked)
        sizes = await ctx.tokens.sizes(self._gone)
        found = [await self._entries(message) for message in self._gone]
        entries = [entry for each in found for entry in each]
        candidates = [
            Candidate(place, part, message.get("role") == "user", _FRAME + size * entry.chars // max(1, each[-1].total))
            for place, (message, size, each) in enumerate(zip(self._gone, sizes, found, strict=True))
            for part, entry in enumerate(each)
        ]
        words = relevance(question, [entry.counted for entry in entries])
        meaning: Sequence[float | None] = [None] * len(entries)
        if ctx.embedder is not None:
            # the user's words first, then what shares words: should the time not suffice, these have their vectors
            order = sorted(range(len(entries)), key=lambda i: (not candidates[i].is_user, -words[i]))
            texts = [self._text(candidates[i].message, candidates[i].part, found) for i in order]
            near = await ctx.embedder.similarities(question, texts, wait=self._policy.wait)
            by_place = dict(zip(order, near, strict=True))
            meaning = [by_place[i] for i in range(len(entries))]
        order = fitting(candidates, ranked(candidates, words, meaning, self._policy.least), budget)
        chosen = tuple((candidates[i].message, candidates[i].part) for i in order)
        return chosen, _how(meaning)

    def _text(self, message: int, part: int, found: "Sequence[tuple[_Entry, ...]]") -> str:
        return found[message][part].passage.of(self._gone[message].text)

    async def _entries(self, message: Message) -> "tuple[_Entry, ...]":
        return await self._ctx.once.of(_indexed, message.text)

    def _question(self, asked: int) -> str:
        text = _ends(self._request.messages[asked].text)
        if len(terms(text)) >= _ASKED:
            return text
        earlier = (m.text for m in reversed(self._request.messages[:asked]) if m.get("role") == "user")
        return f"{_ends(next(earlier, ''))}\n{text}"

    async def _block(self, chosen: Chosen, budget: int) -> tuple[Message | None, int]:
        """As many of the passages as fit, as a message, and its tokens."""
        while chosen:
            about = await self._written(chosen)
            tokens = sum(await self._ctx.tokens.sizes([about, _NOTED]))
            if tokens <= budget:
                return about, tokens
            chosen = chosen[: min(len(chosen) - 1, len(chosen) * max(budget, 0) // tokens)]
        return None, 0

    async def _written(self, chosen: Chosen) -> Message:
        wanted: dict[int, list[Passage]] = {}
        for message, part in sorted(chosen):
            if message < len(self._gone):
                entries = await self._entries(self._gone[message])
                wanted.setdefault(message, []).extend(entry.passage for entry in entries[part : part + 1])
        return Message({"role": "user", "content": block(self._gone, wanted)})


class _Entry(NamedTuple):
    """A passage of a message, ready to be ranked."""

    passage: Passage
    counted: Counted
    chars: int
    total: int
    """Characters of the whole message."""


def _indexed(text: str) -> tuple[_Entry, ...]:
    known: dict[str, list[str]] = {}
    parts = passages(text)
    return tuple(_Entry(part, counted(part.of(text), known), part.end - part.start, len(text)) for part in parts)


def _read(value: str | None) -> Chosen:
    return tuple((int(message), int(part)) for message, part in json.loads(value)) if value else ()


def _ends(text: str) -> str:
    return text if len(text) <= _QUERY else f"{text[: _QUERY // 2]}\n{text[-_QUERY // 2 :]}"


def _how(meaning: Sequence[float | None]) -> str:
    known = sum(cosine is not None for cosine in meaning)
    if not known:
        return "by their words"
    return "by words and meaning" + (
        "" if known == len(meaning) else f" ({known} of {len(meaning)} vectors were there)"
    )
