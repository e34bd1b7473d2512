"""Say tool results in less, and leave out of a large one only what need not be carried."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext, suppress
from types import MappingProxyType
from typing import ClassVar, Literal, NamedTuple

from pydantic import Field

from policies.compact_tool_results.exchange import Before, SentExchange, ShortenedExchange, ShorteningRules
from proxy.chat import ChatRequest, Message, listed
from proxy.compaction.form import plain, rows, weight
from proxy.context import Context
from proxy.policy import Decision, Keep, Policy, Rewrite, Stage
from proxy.text import counted
from proxy.tools.recall import is_readable, tokens_to_offer
from proxy.work_time import current_work

_IN_TIME = 0.8
"""The part of the step's time after which new results are sent as they came."""
_SPARE = 0.1
"""Seconds before the chain's deadline at which they are, too."""


class CompactToolResults(Policy):
    """Send tool results in fewer tokens without loss, and leave parts out of large ones that were read.

    A new result loses nothing: MCP's envelope around a text and a terminal's colours go; like records of JSON become
    rows below their keys; repeated lines are counted; lines that an earlier result still shows become a note. A file
    that a call names stays byte for byte, except for what an earlier reading shows: an edit needs its exact text.

    Once the model has read it, a result of more than `over` characters may keep only the lines that tell most, with
    marked gaps and the handle of the whole: never a file, and only where that pays within `turns` further requests, the
    tool that reads the first handle included. Without an archive nothing is left out.
    """

    stage: ClassVar = Stage.SHORTENS
    edits_at_birth: ClassVar[bool] = True
    prefix_breaks_per_turn: ClassVar[float] = (
        1.0  # a large result that was just read: only the answer to it stands behind
    )

    over: int = Field(default=8000, ge=200)
    """Results of at most this many characters lose nothing."""

    arguments_over: int = Field(default=4000, ge=200)
    """Strings of at most this many characters in the model's own calls stay whole. What a call writes to a file stays
    in any case."""

    turns: int = Field(default=8, ge=1)
    """The expected further requests of a conversation, within which a short form must pay for itself."""

    read_again: float = Field(default=0.2, ge=0, le=1)
    """The probability that the model asks for an omitted text, for the price of a request and of the whole text."""

    tables: Literal["rows", "json"] = "rows"
    """`rows`: like records of JSON are sent as rows below their keys. `json`: JSON stays JSON, without white space."""

    async def apply(self, request: ChatRequest, ctx: Context) -> Decision:
        """Walk the conversation exchange by exchange; the form of each depends on what stands before it alone."""
        if not request.form.any("tools used", _uses_tools):
            return Keep("no tool results")
        size = listed(request.tools).derive("weight", lambda: sum(weight(each.raw.decode()) for each in request.tools))
        terms = self._terms(request, ctx)
        start = _Walked(hash((terms, ctx.model.cache, size, bool(ctx.frozen))), before=Before(size, size))
        form, name = request.form, ("compact_tool_results", start.hash)
        _, walked = form.resume(name, start)
        if not await _are_there(walked.before.handles, ctx):
            walked = start
        known_end, messages = len(walked.messages), list[Message]()
        counts, before = Counter(walked.counts), walked.before
        groups = list(_groups(request.messages[known_end:]))
        keys = list(_keys(groups, walked, self.over))
        known = [*map(_of_plain, groups, await _known(keys, ctx))]
        with suppress(TimeoutError):  # what was settled is sent so, whatever the clock says
            async with self._limit(ctx) if None in known else nullcontext():
                lasts = True
                for group, key, sent in zip(groups, keys, known, strict=True):
                    if sent is None:
                        exchange = ShortenedExchange(
                            group, before, terms, ctx, key, is_read=key.is_read and not ctx.frozen
                        )
                        sent = await exchange.sent()
                        lasts = lasts and exchange.lasts and not ctx.outage.begun
                        if lasts:
                            ctx.once.remember(key, sent)
                    messages += sent.of(group)
                    before = before.behind(sent, is_answer=group[0].get("role") == "assistant")
                    counts.update(dict(sent.counts))
                    if known_end + len(messages) == form.settled and lasts and not ctx.outage.begun:
                        settled = (*walked.messages, *messages)
                        form.settle(name, _Walked(key.hash, key.size, before, dict(counts), settled))
        messages += request.messages[known_end + len(messages) :]  # work that has begun goes on, for the next request
        done = {kind: count for kind, count in counts.items() if count}
        if not done:
            results = sum(message.get("role") == "tool" for message in request.messages)
            return Keep(f"nothing to shorten in {counted(results, 'tool result')}" if results else "no tool results")
        return Rewrite(
            request.with_messages((*walked.messages, *messages)),
            ", ".join(f"{n} {what}" for what, n in done.items()),
            done,
        )

    def _limit(self, ctx: Context) -> AbstractAsyncContextManager[None]:
        """Return a block that ends in time for what was settled to be sent."""
        work_time, conditions = current_work(), ctx.conditions
        until = min(conditions.deadline - _SPARE, work_time.used() + _IN_TIME * self.timeout)
        return work_time.limit(until, conditions.patience)

    def _terms(self, request: ChatRequest, ctx: Context) -> ShorteningRules:
        return ShorteningRules(
            over=self.over,
            arguments_over=self.arguments_over,
            turns=self.turns,
            read_again=self.read_again,
            layout=rows if self.tables == "rows" else plain,
            leaves_out=ctx.archive is not None and is_readable(request, ctx),
            tool_tokens=tokens_to_offer(request),
        )


def _uses_tools(message: Message) -> bool:
    return message.get("role") == "tool" or bool(message.get("tool_calls"))


def _of_plain(group: Sequence[Message], known: SentExchange | None) -> SentExchange | None:
    """Return what is known of a group; one without calls and results is sent as it came."""
    if known is not None or any(map(_uses_tools, group)):
        return known
    return SentExchange((), sum(weight(message.raw.decode()) for message in group), (), (), ())


def _groups(messages: Sequence[Message]) -> Iterator[list[Message]]:
    """Divide the messages before each of the assistant's, and behind results: each new question ends like no other."""
    group: list[Message] = []
    for message in messages:
        role = message.get("role")
        if group and (role == "assistant" or (role != "tool" and group[-1].get("role") == "tool")):
            yield group
            group = []
        group.append(message)
    yield group


class _Key(NamedTuple):
    """All that a group's form depends on, by hashes of this process."""

    step: str
    hash: int
    size: int
    """The bytes up to its end."""
    is_read: bool


class _Walked(NamedTuple):
    hash: int
    bytes: int = 0
    before: Before = Before()
    counts: Mapping[str, int] = MappingProxyType({})
    messages: tuple[Message, ...] = ()
    """As they are sent."""


def _keys(groups: Sequence[Sequence[Message]], walked: _Walked, over: int) -> Iterator[_Key]:
    """Yield a key for each group that no earlier request settled: the same, read or not, for one without large texts.

    No text is sent in a longer form than it came in.
    """
    before, size = walked.hash, walked.bytes
    last = max([place for place, group in enumerate(groups) if group[0].get("role") == "assistant"], default=0)
    for place, group in enumerate(groups):
        raws = [message.raw for message in group]
        size += sum(map(len, raws))
        before = hash((before, *map(hash, raws)))
        yield _Key("compact_tool_results", before, size, place < last and max(map(len, raws)) > over)


async def _known(keys: Sequence[_Key], ctx: Context) -> list[SentExchange | None]:
    """Return what earlier requests made of the groups; nothing where an original is no longer in the archive."""
    known: list[SentExchange | None] = ctx.once.known(keys) if ctx.archive is not None else [None] * len(keys)
    handles = frozenset(handle for sent in known if sent is not None for handle in sent.handles)
    return known if await _are_there(handles, ctx) else [None] * len(keys)


async def _are_there(handles: frozenset[str], ctx: Context) -> bool:
    """Return True if all these originals are in the archive; then they count as used."""
    return not handles or (ctx.archive is not None and handles <= await ctx.archive.touch(handles))
