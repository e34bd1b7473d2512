"""Prompts as a provider's cache sees them: the prefix that it has read before, its price, and the break of a prefix.

A provider reads tools first, then messages. Unlike the estimate of a running proxy, which knows hashes, this compares
bytes: it sees the common part of two messages that differ.
"""

import json
import re
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from proxy.chat import CacheMarks, ChatRequest, Message, encode
from proxy.chat.cache_marks import FIELD, find_marks
from proxy.context import CacheRules, Tokens
from proxy.economics import UNCACHED, cached_tokens, prompt_cost

OWN = "own"
"""The name of the model's own rules."""

OTHERS: Mapping[str, CacheRules] = {
    "read 0.5": CacheRules(read=0.5, minimum=1024, ttl=600),
    "read 0.1": CacheRules(read=0.1, minimum=1024, ttl=600),
    "read 0.1 write 1.25": CacheRules(read=0.1, write=1.25, minimum=1024, ttl=600),
}
"""The rules of other providers that every replay is priced by. How they count is not known: the JSON is counted."""

_FRAME = {"role": "user", "content": ""}

_STEP = 128
"""Tokens by which cached prefixes grow where nobody marks them (OpenAI's documentation, prompt caching)."""

_REMEMBERED = 8
"""Prompts of a conversation that are compared with the next one."""

_SHOWN = 48
"""Bytes that are shown of each side of a break."""

_MARK = re.compile(rb',\s*"%b"\s*:\s*\{[^{}]*\}|"%b"\s*:\s*\{[^{}]*\}\s*,?' % (FIELD.encode(), FIELD.encode()))


class PromptPiece(NamedTuple):
    """A tool or a message."""

    raw: bytes
    tokens: int
    """As the model counts them."""
    wire: int
    """Of its JSON: what it comes to where nobody knows how a provider counts."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """A request as a provider reads it."""

    pieces: tuple[PromptPiece, ...]
    marks: tuple[int, ...]
    """The places of the pieces that are marked for the cache."""
    at: float

    def tokens(self, end: int | None = None, *, wire: bool = False) -> int:
        """Return the tokens of the first pieces, or of all."""
        return sum(piece.wire if wire else piece.tokens for piece in self.pieces[:end])


async def prompt_of(request: ChatRequest, tokens: Tokens, at: float) -> Prompt:
    """Return the prompt that a request is."""
    tools = await tokens.tool_sizes(request.tools)
    parts = (*request.tools, *request.messages)
    sizes = (*tools, *await tokens.sizes(request.messages))
    wires = (*tools, *await _wires(request.messages, tokens))
    marked = _places(request.cache_marks, len(request.tools))
    # clients and steps move marks from message to message, and no cache minds
    raws = [_MARK.sub(b"", part.raw) if FIELD.encode() in part.raw else part.raw for part in parts]
    marks = [place for place, part in enumerate(parts) if place in marked or raws[place] is not part.raw]
    return Prompt(tuple(map(PromptPiece, raws, sizes, wires)), tuple(marks), at)


async def _wires(messages: Sequence[Message], tokens: Tokens) -> list[int]:
    """Return the tokens of the JSON of each message; of one with images, as the model counts it."""
    frame, *sizes = await tokens.sizes([Message(_FRAME), *messages])
    texts = [Message({**_FRAME, "content": encode(message).decode(errors="replace")}) for message in messages]
    wires = await tokens.sizes(texts)
    plain = [all(part.get("type") == "text" for part in message.parts) for message in messages]
    return [wire - frame if is_plain else size for wire, size, is_plain in zip(wires, sizes, plain, strict=True)]


def _places(marks: CacheMarks | None, tools: int) -> frozenset[int]:
    if marks is None:
        return frozenset()
    return frozenset([*(tools + place for place in marks.messages), *([tools - 1] if marks.tools and tools else ())])


class Common(NamedTuple):
    """The prefix that two prompts have in common."""

    place: int
    """Of the first piece that differs."""
    share: float
    """The share of that piece that is the same."""
    at: int
    """Of the first byte that differs, in all pieces one behind the other."""

    def tokens(self, prompt: Prompt, *, wire: bool = False) -> int:
        """Return its tokens; those of the piece that differs are counted by its bytes."""
        whole = prompt.tokens(self.place, wire=wire)
        return whole + int(self.share * (prompt.tokens(self.place + 1, wire=wire) - whole))


def common(before: Prompt, after: Prompt) -> Common:
    """Return the common prefix of two prompts."""
    at = place = 0
    for old, new in zip(before.pieces, after.pieces, strict=False):
        one, other = (old.raw, new.raw) if old.raw == new.raw else (_as_read(old.raw), _as_read(new.raw))
        if one != other:
            most = range(min(len(one), len(other)))
            same = bisect_left(most, True, key=lambda end: one[: end + 1] != other[: end + 1])
            return Common(place, same / max(1, len(one)), at + same)
        at, place = at + len(new.raw), place + 1
    return Common(place, 0.0, at)


def _as_read(raw: bytes) -> bytes:
    """Return JSON in the one form in which spaces and escapes do not count."""
    return encode(json.loads(raw))


class Priced(NamedTuple):
    """The price of a prompt by some rules, in input tokens at full price."""

    cost: float
    cached: int


class PromptHistory:
    """The prompts of a conversation in one form: as the client sent them, or as a chain made them."""

    def __init__(self) -> None:
        self._past: deque[Prompt] = deque(maxlen=_REMEMBERED)

    @property
    def last(self) -> Prompt | None:
        """The prompt that was sent last."""
        return self._past[-1] if self._past else None

    def price(self, prompt: Prompt, own: CacheRules) -> dict[str, Priced]:
        """Return the price of a prompt behind those before it, by a model's own rules and by those of others."""
        shared = [(past, common(past, prompt)) for past in self._past]
        return {
            OWN: _priced(own, prompt, shared, wire=False),
            **{name: _priced(rules, prompt, shared, wire=True) for name, rules in OTHERS.items()},
        }

    def sent(self, prompt: Prompt) -> None:
        """Take a prompt as answered: from now on it is in the cache."""
        self._past.append(prompt)


def _priced(rules: CacheRules, prompt: Prompt, shared: Sequence[tuple[Prompt, Common]], *, wire: bool) -> Priced:
    fresh = [(past, same) for past, same in shared if prompt.at - past.at <= rules.ttl]
    if rules.marked:
        ends = (max((mark + 1 for mark in past.marks if mark < same.place), default=0) for past, same in fresh)
        read = max((prompt.tokens(end, wire=wire) for end in ends), default=0)
    else:
        read = max((same.tokens(past, wire=wire) for past, same in fresh), default=0)
        read -= read % min(_STEP, max(1, rules.minimum))
    read = cached_tokens(rules, read)
    return Priced(prompt_cost(rules, read, prompt.tokens(wire=wire)), read)


def rules_of(own: CacheRules, request: ChatRequest) -> CacheRules:
    """Return the model's own rules for a request: where only marked prefixes are cached, none without marks."""
    return UNCACHED if own.marked and not (request.cache_marks or find_marks(request)) else own


Mover = Callable[[bytes | None, bytes | None], str | None]
"""Tells by which step one piece stands where another stood in the prompt before."""


@dataclass(frozen=True, slots=True)
class Break:
    """A prompt that does not begin with the one before it, although the client's own does."""

    at: int
    """Of the first byte that differs, in tools and messages one behind the other."""
    lost: int
    """Tokens of the prompt before it that cannot be read from the cache for this reason."""
    step: str | None
    """The step that moved it."""
    before: str
    """The bytes at this place in the prompt before, and in this one."""
    after: str


def find_break(came: tuple[Prompt, Prompt], sent: tuple[Prompt, Prompt], mover: Mover) -> Break | None:
    """Return the break between two prompts of a conversation; None where the chain made none.

    Both pairs are the prompt before and this one, as the client sent them and as they went out.
    """
    ours, client = common(*sent), common(*came)
    lost = (sent[0].tokens() - ours.tokens(sent[0])) - (came[0].tokens() - client.tokens(came[0]))
    if lost <= 0:
        return None
    old, new = (prompt.pieces[ours.place].raw if ours.place < len(prompt.pieces) else None for prompt in sent)
    return Break(ours.at, lost, mover(old, new), *(_excerpt(prompt, ours) for prompt in sent))


def _excerpt(prompt: Prompt, where: Common) -> str:
    behind = sum(len(piece.raw) for piece in prompt.pieces[: where.place])
    raw = _as_read(prompt.pieces[where.place].raw) if where.place < len(prompt.pieces) else b""
    start = max(0, where.at - behind - _SHOWN // 8)
    return raw[start : start + _SHOWN].decode(errors="ignore")
