"""Scores of a chain: its effect on each turn of a conversation, and the cost."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Any, NamedTuple

from proxy.chat import ChatRequest, Message
from proxy.chat.markers import named_handles
from proxy.chat.provenance import of_client
from proxy.chat.wire import damage
from proxy.compaction.identifiers import identifiers, is_identifier
from proxy.economics import UNCACHED, money
from proxy.server.replay.player import Explained, Player, sections
from proxy.server.replay.prompts import OWN, Break, PromptHistory, find_break, prompt_of, rules_of
from proxy.server.replay.reading import RecordedRequest, request_of
from proxy.step import Step

_NAMES = re.compile(r"'[^']*'")


@dataclass(slots=True)
class Values:
    """The values that answers needed."""

    needed: int = 0
    visible: int = 0
    """Values in the request that was sent."""
    retrievable: int = 0
    """Values that are only in an original whose handle the request names."""

    @property
    def lost(self) -> int:
        """Values that the model can no longer know."""
        return self.needed - self.visible - self.retrievable


@dataclass(slots=True)
class MessageCounts:
    """The client's messages that are not sent as they were."""

    all: int = 0
    removed: int = 0
    shortened: int = 0
    gone: int = 0
    """Removed messages that no handle leads to."""


@dataclass(slots=True)
class Reported:
    """Tokens that the upstream read from its cache, and our prediction."""

    tokens: int
    cached: int
    expected: int
    prompt: int
    """Tokens of the prompt, as we count them."""

    @property
    def is_met(self) -> bool:
        """True if the two differ by at most 5 % of the prompt, however each side counts."""
        return abs(self.cached / max(1, self.tokens) - self.expected / max(1, self.prompt)) <= 0.05


@dataclass(slots=True)
class ScoredRequest:
    """One request."""

    number: int
    chain: str = ""
    before: dict[str, int] = field(default_factory=dict)
    """Tokens of the sections of the client's request."""
    after: dict[str, int] = field(default_factory=dict)
    cost: dict[str, float] = field(default_factory=dict)
    """By the rules of a cache, what it costs in input tokens at full price."""
    unchanged: dict[str, float] = field(default_factory=dict)
    """The cost of the client's request."""
    cached: int = 0
    """Tokens that are read from the cache by the model's own rules."""
    cached_unchanged: int = 0
    usd: float | None = None
    usd_unchanged: float | None = None
    broken: Break | None = None
    values: Values = field(default_factory=Values)
    missing: tuple[str, ...] = ()
    """The values that are lost."""
    messages: MessageCounts = field(default_factory=MessageCounts)
    recalled: int = 0
    """Tokens that came back."""
    left_out: tuple[str, ...] = ()
    """The tools that were not offered and that the answer called."""
    internal_calls: int = 0
    """The calls of internal tools, of this and earlier turns, in what was sent at the time: they are not played."""
    violations: tuple[str, ...] = ()
    refused: str | None = None
    """The code of the refusal, where nothing would be sent."""
    steps: Sequence[Step] = ()
    seconds: float = 0.0
    reported: Reported | None = None
    usable: int = 0
    """The tokens of the window that the prompt may have."""

    @property
    def tokens_before(self) -> int:
        """Tokens of the client's request."""
        return sum(self.before.values())

    @property
    def tokens_after(self) -> int:
        """Tokens of what is sent."""
        return sum(self.after.values())


class Replayed(NamedTuple):
    """A conversation and the score of its turns."""

    name: str
    source: str
    turns: list[ScoredRequest]


class Scoring:
    """The scores of one conversation, turn by turn."""

    def __init__(self, player: Player) -> None:
        self._player = player
        self._came, self._sent, self._recorded = PromptHistory(), PromptHistory(), PromptHistory()
        self._before: Explained | None = None
        self._number = 0

    async def turn(
        self, played: Explained, point: RecordedRequest, at: float, *, is_last: bool = False
    ) -> ScoredRequest:
        """Return the score of a turn. Call it before the turn is committed."""
        self._number += 1
        outcome = played.outcome
        turn = ScoredRequest(
            self._number, played.chain, sections(outcome.before), steps=outcome.steps, seconds=played.seconds
        )
        turn.usable = played.usable
        turn.internal_calls = _internal_calls(point)
        needed = point.needed
        if needed is None:
            needed = needed_by(point.answer, played.incoming.messages) if point.answer else ()
        turn.values.needed = len(needed)
        if played.body is None:
            turn.refused = outcome.rejected.code if outcome.rejected is not None else "refused"
            turn.missing = tuple(needed)
            return turn
        turn.after = sections(outcome.after)
        await self._price(turn, played, at)
        await self._look_for(turn, played, needed, is_last=is_last)
        self._look_at_tools(turn, played, point)
        done = played.prepared.rewritten
        if done is not None:
            broken = damage(done.ctx.incoming, outcome.request, changes_last_user_message=True)
            turn.violations = tuple(sorted(_NAMES.sub("...", rule) for rule in broken))
        turn.recalled = sum(_count(step, "recalled_tokens") for step in outcome.steps)
        await self._compare(turn, played, point, at)
        self._before = played
        return turn

    async def _price(self, turn: ScoredRequest, played: Explained, at: float) -> None:
        tokens, request = self._player.counter(played.profile), played.outcome.request
        came, sent = await prompt_of(played.incoming, tokens, at), await prompt_of(request, tokens, at)
        before = (self._came.last, self._sent.last)
        own, table = played.profile.cache, played.route.profile.cache
        unchanged_rules = rules_of(table, played.incoming) if own.ttl or table.marked else UNCACHED
        unchanged = self._came.send(came, unchanged_rules)
        ours = self._sent.send(sent, rules_of(own, request))
        turn.unchanged = {name: each.cost for name, each in unchanged.items()}
        turn.cost = {name: each.cost for name, each in ours.items()}
        turn.cached, turn.cached_unchanged = ours[OWN].cached, unchanged[OWN].cached
        prices = played.profile.prices
        if prices.known:
            turn.usd = money(prices.at(sent.tokens), turn.cost[OWN])
            turn.usd_unchanged = money(prices.at(came.tokens), turn.unchanged[OWN])
        if before[0] is not None and before[1] is not None and self._before is not None:
            mover = partial(_mover, self._before, played)
            turn.broken = find_break((before[0], came), (before[1], sent), mover)

    async def _look_for(self, turn: ScoredRequest, played: Explained, needed: Sequence[str], *, is_last: bool) -> None:
        """Count the needed values that are visible, and the messages that are gone."""
        text = text_of(played.outcome.request.messages)
        hidden = [value for value in needed if not stands(value, text)]
        turn.values.visible = len(needed) - len(hidden)
        came, sent = played.incoming.messages, played.outcome.request.messages
        places = of_client(played.outcome.request, played.incoming)
        removed = [came[place].text for place in sorted({*range(len(came))} - {*places.values()})]
        shortened = sum(len(sent[after].raw) < len(came[before].raw) for after, before in places.items())
        turn.messages = MessageCounts(len(came), len(removed), shortened)
        if not hidden and not (is_last and removed):
            return
        originals = await self._player.originals(played, named_handles(played.body or b""))
        texts = [text for original in originals for text in _unpacked(original)]
        there = "\n".join(texts)
        turn.missing = tuple(value for value in hidden if not stands(value, there))
        turn.values.retrievable = len(hidden) - len(turn.missing)
        if is_last:
            turn.messages.gone = sum(text not in there for text in removed)

    def _look_at_tools(self, turn: ScoredRequest, played: Explained, point: RecordedRequest) -> None:
        if point.answer is None:
            return
        offered = {tool.name for tool in played.outcome.request.tools}
        known = {tool.name for tool in played.incoming.tools} - offered
        turn.left_out = tuple(name for name in Message(point.answer).called_tools if name in known)

    async def _compare(self, turn: ScoredRequest, played: Explained, point: RecordedRequest, at: float) -> None:
        """Compare the reported cache reads with those that our rules predict for the prompt that was sent then."""
        recorded = played.incoming if point.sent is None else request_of(point.sent)
        prompt = await prompt_of(recorded, self._player.counter(played.profile), at)
        expected = self._recorded.send(prompt, rules_of(played.route.profile.cache, recorded))[OWN].cached
        if point.usage is not None and point.usage.cached is not None and point.usage.input:
            turn.reported = Reported(point.usage.input, point.usage.cached, expected, prompt.tokens)


def _internal_calls(point: RecordedRequest) -> int:
    """Return the calls in what was sent that the client knows nothing of."""
    came, sent = (
        {call for each in (request_of(body).messages if body else ()) for call in each.call_ids}
        for body in (point.body, point.sent)
    )
    return len(sent - came)


def _count(step: Step, fact: str) -> int:
    found = step.facts.get(fact, 0)
    return found if isinstance(found, int) and step.verdict == "rewrite" and not step.observed else 0


def _mover(before: Explained, now: Explained, old: bytes | None, new: bytes | None) -> str | None:
    """Return the step by which one piece stands now where another stood in the prompt before."""
    if new is not None and new not in _raws(now.incoming):
        return next((name for name, left in now.outcome.stages if new in _raws(left)), None)
    if old is not None and old not in _raws(before.incoming):
        return next((name for name, left in before.outcome.stages if old in _raws(left)), None)
    moved = (name for name, left in now.outcome.stages if old is not None and old not in _raws(left))
    return next(moved, None)


def _raws(request: ChatRequest) -> frozenset[bytes]:
    return frozenset(part.raw for part in (*request.tools, *request.messages))


def _unpacked(original: str) -> Iterator[str]:
    """Yield a text of the archive, and the text of the messages in it, which a cut leaves there as JSON."""
    yield original
    messages = []
    for line in original.splitlines():
        try:
            record = json.loads(line)
        except ValueError:
            return
        if isinstance(record, dict):
            messages.append(Message(record))
    yield text_of(messages)


_LONGEST = 200


def text_of(messages: Iterable[Message]) -> str:
    """Return the readable text of messages: texts, and arguments of calls, as JSON and parsed."""
    return "\n".join(_readable(message) for message in messages)


def stands(value: str, text: str) -> bool:
    """Return whether a value stands in a text, and not as a part of a longer word."""
    place = text.find(value)
    while place >= 0:
        before, behind = text[place - 1 : place], text[place + len(value) : place + len(value) + 1]
        if not (before.isalnum() and value[0].isalnum()) and not (behind.isalnum() and value[-1].isalnum()):
            return True
        place = text.find(value, place + 1)
    return False


def needed_by(answer: Mapping[str, Any], messages: Sequence[Message]) -> tuple[str, ...]:
    """Return identifiers, numbers and paths in an answer that others than the model had written first."""
    said = Message(answer)
    words = [value.partition(" ")[0] for value, _ in identifiers(said.text)]
    words += [value for call in _arguments(said) for value in _leaves(call) if is_identifier(value)]
    texts = [(message.role, _readable(message)) for message in messages]
    return tuple(value for value in dict.fromkeys(words) if _LONGEST >= len(value) > 2 and _was_given(value, texts))


def _was_given(value: str, texts: Sequence[tuple[str, str]]) -> bool:
    first = next((role for role, text in texts if stands(value, text)), "assistant")
    return first != "assistant"


def _readable(message: Message) -> str:
    texts = [message.text]
    for arguments in _arguments(message):
        texts += (arguments, *_leaves(arguments))
    return "\n".join(texts)


def _arguments(message: Message) -> Iterator[str]:
    for call in message.get("tool_calls") or ():
        inner = call.get("function") or call.get("custom") or {}
        yield str(inner.get("arguments", inner.get("input", "")))


@lru_cache(20_000)
def _leaves(arguments: str) -> tuple[str, ...]:
    """Return the scalars in arguments, as text."""
    try:
        parsed = json.loads(arguments)
    except (ValueError, RecursionError):
        return ()

    def each(value: Any) -> Iterator[str]:
        if isinstance(value, dict):
            value = list(value.values())
        if isinstance(value, list):
            for item in value:
                yield from each(item)
        elif isinstance(value, str) or (isinstance(value, (int, float)) and not isinstance(value, bool)):
            yield str(value)

    return tuple(each(parsed))
