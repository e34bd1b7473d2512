"""Have the provider's prompt cache keep what the next request will send again."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from hashlib import sha256
from itertools import zip_longest
from typing import ClassVar, Literal, NamedTuple

from proxy.chat import CacheMarks, ChatRequest, Message, raws
from proxy.chat.blocks import injected
from proxy.chat.cache_marks import MOST, find_marks, markable
from proxy.chat.provenance import added
from proxy.context import CacheRules, Context
from proxy.economics import may_be_cached
from proxy.policy import Count, Decision, Keep, MarksCache, Policy, Rewrite, Stage

_TURNS = 2
"""So many requests in a row whose beginning is another: then it is no longer marked."""
_BACK = 8
"""Answers in front of which the request before may have ended: internal rounds and other replicas have some of them."""
_TAIL = 3
"""Messages by which a request is known again, whatever stands in front of them."""


class MarkCache(Policy, MarksCache):
    """Place `cache_control` for models that cache only what is marked, and `prompt_cache_key` for OpenAI.

    Marked are the end of the tools and the system prompt, the end of the last request, where the cache is read, and the
    end of this one, where it is written. A client's own marks win; with them there are four at most. Where the
    beginning changes in each request, as with the time in the system prompt, only what stands in front of the change is
    marked, and a finding names the place. OpenAI's models get a key per conversation, which sends its requests to the
    same machines. Put it last: later steps would move the marks.
    """

    stage: ClassVar = Stage.MARKS
    counted: ClassVar = {
        "unstable_prefix": Count(
            "unstable_prefixes", "Requests whose beginning changes each time, so that none is read."
        )
    }

    ttl: Literal["5m", "1h"] = "5m"
    """The time for which an unused prefix stays. Writing costs 1.25 times the input price for `5m`, twice for `1h`."""

    conversation: bool = True
    """Mark the conversation too. Without it only tools and system prompt are marked: for single requests that share
    nothing else."""

    def marked_cache(self, rules: CacheRules) -> CacheRules:
        """Five minutes as the model's rules say; an hour is twice the input price to write."""
        return rules if self.ttl == "5m" else replace(rules, write=2.0, ttl=3600.0)

    async def apply(self, request: ChatRequest, ctx: Context) -> Decision:
        rules = ctx.model.cache
        if rules.keyed and request.rest.get("prompt_cache_key") is None and ctx.identity.session:
            key = sha256(f"{ctx.identity.tenant}\0{ctx.identity.session}".encode()).hexdigest()[:32]
            return Rewrite(request.with_field("prompt_cache_key", key), "a key for this conversation's cache")
        if not rules.marked:
            return Keep("the model's cache needs no marks")
        total = (await ctx.tokens.count(request)).total
        if not may_be_cached(rules, total):
            return Keep(f"{total} tokens are too few to be cached")
        own = find_marks(request)
        if any(mark.get("ttl", "5m") != self.ttl for mark in own):
            return Keep("the client's own marks have another ttl")  # the longer one would have to come first
        begun = await _beginning(request, ctx, self._place(request, ctx, MOST))
        is_unstable = begun.turns >= _TURNS
        findings = [begun.finding] if is_unstable else []
        facts = {"unstable_prefix": 1} if is_unstable else {}
        marks = self._place(request, ctx, MOST - len(own), begun.same if is_unstable else "all")
        if request.cache_marks == marks or not (marks.messages or marks.tools):
            return Keep(
                "the beginning changes in each request" if findings else "nothing more to mark", facts, findings
            )
        count = len(marks.messages) + marks.tools
        made = request.with_cache_marks(marks)
        return Rewrite(made, f"{count} marks", facts={"marks": count, **facts}, findings=findings)

    def _place(self, request: ChatRequest, ctx: Context, free: int, stable: "Part" = "all") -> CacheMarks:
        """Return the marks: the places that save most come first, as far as there are any free, in what is `stable`."""
        messages = request.messages
        last = len(messages) - 1
        head = _head(request) if stable in ("head", "all") else None
        wanted: list[int | None] = [head]
        if self.conversation and stable == "all":
            answered = max((place for place, each in enumerate(messages) if each.role == "assistant"), default=0)
            blocks = injected(messages, added(request, ctx.incoming))
            block = next((place for place in blocks if place > answered), None)
            wanted = [last, answered - 1, head, None if block is None else block - 1]
        places: list[int] = []
        for place in wanted:
            while place is not None and place >= 0 and not markable(messages[place]):
                place -= 1
            if place is not None and place >= 0 and place not in places and len(places) < free:
                places.append(place)
        tools = bool(request.tools) and len(places) < free and stable != "nothing"
        return CacheMarks(tuple(sorted(places)), tools, self.ttl)


Part = Literal["nothing", "tools", "head", "all"]
"""The part of a request that begins like the one before it: up to the tools, the system prompt, or a mark."""


class _Beginning(NamedTuple):
    """The beginning of a request, to compare the next one with it."""

    tools: int
    head: int | None
    """A hash of all up to the end of the system prompt."""
    ends: frozenset[int]
    """Hashes of all up to each mark in the conversation."""
    same: Part = "all"
    """The part that was that of the request before it."""
    turns: int = 0
    """Requests in a row that had another beginning than the one before them."""
    client: tuple[bytes, ...] = ()
    """The client's own tools and system prompt, in the first of these."""
    finding: str = ""

    def same_as(self, before: "_Beginning", prefixes: frozenset[int]) -> Part:
        """Return the part that is that of the request before it, by the hashes of all its prefixes."""
        if self.tools != before.tools:
            return "nothing"
        if before.head is not None and before.head not in prefixes:
            return "tools"
        return "all" if not before.ends or before.ends & prefixes else "head"


async def _beginning(request: ChatRequest, ctx: Context, marks: CacheMarks) -> _Beginning:
    """Compare a request with the one before it, and remember it; without any that is remembered, all is the same.

    A changing system prompt changes what unnamed conversations are known by, so the one before is known by its last
    messages. This process remembers it for the tenant; losing it costs a few writes.
    """
    prefixes, head = _prefixes(request), _head(request)
    ends = frozenset(prefixes[place] for place in marks.messages if head is None or place > head)
    tools = hash(tuple(raws(request.tools)))
    here = _Beginning(tools, None if head is None else prefixes[head], ends)
    messages = ctx.incoming.messages
    answers = [place for place, each in enumerate(messages) if place and each.get("role") == "assistant"]
    keys = [key for end in reversed(answers[-_BACK:]) for key in _keys(messages[:end], ctx)]
    before: _Beginning | None = next((each for each in ctx.once.known(keys) if each is not None), None)
    if before is not None:
        same = here.same_as(before, frozenset(prefixes))
        turns = 0 if same == "all" else before.turns + 1
        own = tuple(raws([*ctx.incoming.tools, *messages[: (_head(ctx.incoming) or 0) + 1]]))
        here = here._replace(same=same, turns=turns, client=own if turns == 1 else (), finding=before.finding)
        if turns == _TURNS:
            here = here._replace(finding=_finding(before.client, own, len(ctx.incoming.tools), same))
    for key in _keys(messages, ctx):
        ctx.once.remember(key, here)
    return here


def _finding(before: Sequence[bytes], now: Sequence[bytes], tools: int, same: Part) -> str:
    effect = "so the prompt cache is not read, and nothing behind it is marked"
    if same == "head":
        return f"the messages behind the system prompt are others in each request, {effect}"
    pairs = enumerate(zip_longest(before, now, fillvalue=b""))
    place, one, other = next(((n, *pair) for n, pair in pairs if pair[0] != pair[1]), (None, b"", b""))
    if place is None:
        return f"a step of the chain changes the beginning in each request, {effect}"
    at = next((n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
    name = f"tools[{place}]" if place < tools else f"messages[{place - tools}]"
    return f"{name} changes in each request, from byte {at} of its JSON on, {effect}"


def _head(request: ChatRequest) -> int | None:
    return max((place for place, each in enumerate(request.messages) if each.is_system), default=None)


def _prefixes(request: ChatRequest) -> tuple[int, ...]:
    tools = hash(tuple(raws(request.tools)))

    def extend(before: tuple[int, ...], messages: Sequence[Message]) -> tuple[int, ...]:
        key, found = before[-1] if before else tools, list[int]()
        for raw in raws(messages):
            key = hash((key, raw))
            found.append(key)
        return (*before, *found)

    return request.form.fold(("mark_cache", tools), tuple[int, ...](), extend)


def _keys(messages: Sequence[Message], ctx: Context) -> Iterator[tuple[object, ...]]:
    """Yield the keys of a request that ends here: its last messages, with and without the newest one."""
    said = [each.raw for each in messages[-3 * _TAIL :] if not each.is_system]
    who = ctx.identity
    for tail in (said[-_TAIL:], said[-_TAIL - 1 : -1]):
        if tail:
            yield "mark_cache", ctx.model.name, who.agent, who.session if who.is_named else "", *map(hash, tail)
