"""Scores of a chain: its effect on each turn of a conversation, and the cost by the rules of providers' caches.

A provider reads tools first, then messages. Unlike the estimate of a running proxy, which knows hashes, this compares
bytes: it sees the common part of two messages that differ.
"""

import json
import re
from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import accumulate
from typing import Any, NamedTuple

from proxy.chat import ChatRequest, Message, encode
from proxy.chat.cache_marks import FIELD, find_marks
from proxy.chat.markers import named_handles
from proxy.chat.provenance import of_client
from proxy.chat.wire import damage
from proxy.compaction.calls import arguments_of
from proxy.compaction.identifiers import identifiers, is_identifier
from proxy.context import CacheRules, Tokens
from proxy.economics import UNCACHED
from proxy.server.replay.player import Explained, Player
from proxy.server.replay.reading import Conversation, RecordedRequest, request_of
from proxy.step import Step
from proxy.text.arrays import numpy

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

_MARK = re.compile(rb',\s*"%b"\s*:\s*\{[^{}]*\}|"%b"\s*:\s*\{[^{}]*\}\s*,?' % (FIELD.encode(), FIELD.encode()))


class Prompt(NamedTuple):
    """A request as a provider reads it: the JSON of its tools and messages, one after the other."""

    text: bytes
    offsets: Sequence[int]
    """The beginning of each tool and message, and the end of the last."""
    ends: Mapping[bool, Sequence[int]]
    """The tokens in front of each offset, as the model counts them, and (True) of the JSON; of messages with images
    always as the model counts them."""
    marks: Sequence[int]
    """The numbers of the offsets up to which the provider is told to cache it."""
    at: float

    def shared(self, later: "Prompt") -> int:
        """Return the number of bytes that a later prompt has in common with this one from the beginning on."""
        sizes = range(min(len(self.text), len(later.text)))
        return bisect_left(sizes, True, key=lambda size: self.text[: size + 1] != later.text[: size + 1])


async def read_prompt(request: ChatRequest, tokens: Tokens, at: float) -> Prompt:
    """Return the prompt that a request is. Spaces and escapes of its JSON, and marks for the cache, do not count."""
    messages, of_tools, tools = request.messages, await tokens.tool_sizes(request.tools), len(request.tools)
    frame, *sizes = await tokens.sizes([Message(_FRAME), *messages])
    texts = [Message({**_FRAME, "content": encode(message).decode(errors="replace")}) for message in messages]
    wires = [
        wire - frame if all(part.get("type") == "text" for part in message.parts) else size
        for message, wire, size in zip(messages, await tokens.sizes(texts), sizes, strict=True)
    ]
    ends = {is_wire: [*accumulate((*of_tools, *each), initial=0)] for is_wire, each in ((False, sizes), (True, wires))}
    raws, own = [part.raw for part in (*request.tools, *messages)], request.cache_marks
    # clients and steps move marks from message to message, and no cache minds
    bare = [_MARK.sub(b"", raw) if FIELD.encode() in raw else raw for raw in raws]
    marks = [place for place, raw in enumerate(raws, 1) if bare[place - 1] != raw]
    if own is not None:
        marks += [*(tools + place + 1 for place in own.messages), *([tools] if own.tools else [])]
    pieces = [encode(json.loads(raw)) for raw in bare]
    return Prompt(b"".join(pieces), [*accumulate(map(len, pieces), initial=0)], ends, marks, at)


class Priced(NamedTuple):
    """The price of a prompt by some rules, in input tokens at full price."""

    cost: float
    cached: int


class PromptHistory(deque[Prompt]):
    """The last prompts of a conversation in one form: as the client sent them, or as a chain made them."""

    def send(self, prompt: Prompt, own: CacheRules) -> dict[str, Priced]:
        """Return the price of a prompt by a model's own rules and by others', and put it into the cache."""
        shared = [(past, past.shared(prompt)) for past in self]
        self.append(prompt)
        return {name: _priced(rules, prompt, shared, name != OWN) for name, rules in {OWN: own, **OTHERS}.items()}


def _priced(rules: CacheRules, prompt: Prompt, shared: Sequence[tuple[Prompt, int]], is_wire: bool) -> Priced:
    read = 0
    for past, same in shared:
        ends, offsets = past.ends[is_wire], past.offsets
        if prompt.at - past.at <= rules.ttl and rules.marked:
            read = max([read, *(ends[mark] for mark in past.marks if offsets[mark] <= same)])
        elif prompt.at - past.at <= rules.ttl:
            read = max(read, int(numpy().interp(same, offsets, ends)))
    read = rules.cached_tokens(read if rules.marked else read - read % min(_STEP, max(1, rules.minimum)))
    return Priced(rules.prompt_cost(read, prompt.ends[is_wire][-1]), read)


def rules_of(own: CacheRules, request: ChatRequest) -> CacheRules:
    """Return the model's own rules for a request: where only marked prefixes are cached, none without marks."""
    return UNCACHED if own.marked and not (request.cache_marks or find_marks(request)) else own


_NAMES = re.compile(r"'[^']*'")

Turn = dict[str, Any]
"""The score of a request, as JSON values."""

_UNSENT: Turn = {
    "after": {},  # tokens by section, as in `before`
    "cost": {},  # by the rules of each cache, in input tokens at full price
    "unchanged": {},  # the same of the client's request
    "cached": 0,  # tokens that are read from the cache by the model's own rules
    "cached_unchanged": 0,
    "usd": None,
    "usd_unchanged": None,
    "broken": None,
    "messages": {"all": 0, "removed": 0, "shortened": 0, "gone": 0},  # no handle leads to those that are gone
    "recalled": 0,  # tokens that came back
    "left_out": [],  # tools that were not offered and that the answer called
    "violations": [],
    "refused": None,
    "reported": None,
}
"""The part of a score that a refused request does not have."""


@dataclass(slots=True)
class Replayed:
    """A conversation and the score of its turns."""

    conversation: Conversation
    turns: list[Turn] = field(default_factory=list)
    error: str | None = None
    """The reason why the rest of it was not played."""
    _came: PromptHistory = field(default_factory=lambda: PromptHistory(maxlen=_REMEMBERED))
    _sent: PromptHistory = field(default_factory=lambda: PromptHistory(maxlen=_REMEMBERED))
    _recorded: PromptHistory = field(default_factory=lambda: PromptHistory(maxlen=_REMEMBERED))

    async def score(self, player: Player, played: Explained, point: RecordedRequest, at: float) -> None:
        """Add the score of a turn. Call it before the turn is committed."""
        outcome, answer = played.done.outcome, Message(point.answer or {})
        needed = needed_by(answer, played.done.sent.messages)
        turn = _UNSENT | {
            "number": len(self.turns) + 1,
            "chain": played.chain,
            "before": played.before.by_section(),
            "steps": [step.shown() for step in outcome.steps],
            "milliseconds": round(played.seconds * 1000, 3),
            "usable": played.usable,
            "internal_calls": len(_calls(point.sent) - _calls(point.body)),  # the client knows nothing of them
        }
        if played.body is None:
            refused = outcome.rejected.code if outcome.rejected is not None else "refused"
            turn |= _values(needed, needed, needed) | {"refused": refused}
        else:
            change = played.estimate and played.estimate.changed(len(outcome.request.tools))
            broken = damage(played.done.ctx.incoming, outcome.request, changes_last_user_message=True)
            offered, came = ({tool.name for tool in each.tools} for each in (outcome.request, played.done.sent))
            turn |= {
                "after": played.after.by_section(),
                "broken": change if change and change["step"] else None,  # where the chain changed the prompt before it
                "recalled": sum(_recalled(step) for step in outcome.steps),
                "left_out": [name for name in answer.called_tools if name in came - offered],
                "violations": sorted(_NAMES.sub("...", rule) for rule in broken),
                **await self._price(player, played, point, at),
                **await _seen(player, played, needed, is_last=point is self.conversation.points[-1]),
            }
        self.turns.append(turn)

    async def _price(self, player: Player, played: Explained, point: RecordedRequest, at: float) -> Turn:
        """Return the cost of what is sent, and of the client's request; and what was reported of the one sent then."""
        model, done, table = played.done.ctx.model, played.done, played.prepared.route.profile.cache
        tokens, prices, request = player.counter(model), model.prices, done.outcome.request
        unchanged_rules = rules_of(table, done.sent) if model.cache.ttl or table.marked else UNCACHED
        came, sent = await read_prompt(done.sent, tokens, at), await read_prompt(request, tokens, at)
        unchanged, ours = self._came.send(came, unchanged_rules), self._sent.send(sent, rules_of(model.cache, request))
        recorded = done.sent if point.sent is None else request_of(point.sent)
        prompt, usage = await read_prompt(recorded, tokens, at), point.usage
        expected = self._recorded.send(prompt, rules_of(table, recorded))[OWN].cached
        reported = None
        if usage is not None and usage.cached is not None and usage.input:
            counted = prompt.ends[False][-1]
            reported = {"tokens": usage.input, "cached": usage.cached, "expected": expected, "prompt": counted}
        return {
            "cost": {name: each.cost for name, each in ours.items()},
            "unchanged": {name: each.cost for name, each in unchanged.items()},
            "cached": ours[OWN].cached,
            "cached_unchanged": unchanged[OWN].cached,
            "usd": prices.usd(sent.ends[False][-1], ours[OWN].cost) if prices.known else None,
            "usd_unchanged": prices.usd(came.ends[False][-1], unchanged[OWN].cost) if prices.known else None,
            "reported": reported,
        }


async def _seen(player: Player, played: Explained, needed: Sequence[str], *, is_last: bool) -> Turn:
    """Return counts of the needed values that are visible, and of the messages that are not sent as they were."""
    came, sent = played.done.sent.messages, played.done.outcome.request.messages
    text = text_of(sent)
    hidden = [value for value in needed if not stands(value, text)]
    places = of_client(played.done.outcome.request, played.done.sent)
    removed = [came[place].text for place in sorted({*range(len(came))} - {*places.values()})]
    shortened = sum(len(sent[after].raw) < len(came[before].raw) for after, before in places.items())
    missing, gone = hidden, 0
    if hidden or (is_last and removed):
        originals = await player.originals(played, named_handles(played.body or b""))
        there = "\n".join(text for original in originals for text in _unpacked(original))
        missing = [value for value in hidden if not stands(value, there)]
        gone = sum(text not in there for text in removed) if is_last else 0
    messages = {"all": len(came), "removed": len(removed), "shortened": shortened, "gone": gone}
    return {**_values(needed, hidden, missing), "messages": messages}


def _values(needed: Sequence[str], hidden: Sequence[str], missing: Sequence[str]) -> Turn:
    """Return the counts of needed values that are in the request, and of those that only a handle in it leads to."""
    counts = {"needed": len(needed), "visible": len(needed) - len(hidden), "retrievable": len(hidden) - len(missing)}
    return {"values": counts, "missing": [*missing]}


def _recalled(step: Step) -> int:
    tokens = step.facts.get("recalled_tokens", 0)
    return tokens if isinstance(tokens, int) and step.verdict == "rewrite" and not step.observed else 0


def _calls(body: Mapping[str, Any] | None) -> set[str]:
    return {call for each in (request_of(body).messages if body else ()) for call in each.call_ids}


def _unpacked(original: str) -> Iterator[str]:
    """Yield a text of the archive, and the text of the messages in it, which a cut leaves there as JSON."""
    yield original
    try:
        records = [json.loads(line) for line in original.splitlines()]
    except ValueError:
        return
    yield text_of([Message(record) for record in records if isinstance(record, dict)])


_LONGEST = 200


def text_of(messages: Iterable[Message]) -> str:
    """Return the readable text of messages: texts, and arguments of calls, as JSON and parsed."""
    return "\n".join(map(_readable, messages))


def stands(value: str, text: str) -> bool:
    """Return whether a value stands in a text, and not as a part of a longer word."""
    before, behind = (edge if value[end].isalnum() else "" for edge, end in ((r"(?<![^\W_])", 0), (r"(?![^\W_])", -1)))
    return re.search(f"{before}{re.escape(value)}{behind}", text) is not None


def needed_by(answer: Message, messages: Sequence[Message]) -> tuple[str, ...]:
    """Return identifiers, numbers and paths in an answer that others than the model had written first."""
    words = [*identifiers(answer.text)]
    words += [value for arguments in _arguments(answer) for value in _leaves(arguments) if is_identifier(value)]
    texts = [(message.role, _readable(message)) for message in messages] if words else []

    def is_of_others(value: str) -> bool:
        return next((role for role, text in texts if stands(value, text)), "assistant") != "assistant"

    return tuple(value for value in dict.fromkeys(words) if _LONGEST >= len(value) > 2 and is_of_others(value))


def _readable(message: Message) -> str:
    calls = ([arguments, *_leaves(arguments)] for arguments in _arguments(message))
    return "\n".join([message.text, *(text for each in calls for text in each)])


def _arguments(message: Message) -> list[str]:
    return [str(arguments_of(call) or "") for call in message.get("tool_calls") or ()]


@lru_cache(20_000)
def _leaves(arguments: str) -> tuple[str, ...]:
    try:
        return tuple(_scalars(json.loads(arguments)))
    except (ValueError, RecursionError):
        return ()


def _scalars(value: Any) -> Iterator[str]:
    if isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _scalars(each)
    elif value is not None and not isinstance(value, bool):
        yield str(value)
