"""Say tool results in less, and leave out of a large one only what need not be carried."""

import asyncio
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import groupby
from types import MappingProxyType
from typing import ClassVar, Literal, NamedTuple

from pydantic import Field

from proxy.chat import ChatRequest, Message
from proxy.chat.markers import MARKER_TOKENS, is_shortened, marked_handle, reference, shortened
from proxy.chat.texts import Text, texts_of, with_text
from proxy.compaction import minified, payloads, weight, with_payloads
from proxy.compaction.edited_files import edits_files, names_file, reads_file
from proxy.compaction.fitting import is_ours
from proxy.compaction.form import ShortForm, as_file, form_of, plain, rows
from proxy.compaction.references import BESIDE, FEWEST, Shown, is_referring, shown, with_references
from proxy.context import Context
from proxy.economics import cost_ahead
from proxy.policy import Decision, Keep, Policy, Rewrite, Stage
from proxy.text import counted
from proxy.tools.recall import DEFINITION as RECALL
from proxy.tools.search_tools import DEFINITION as SEARCH_TOOLS

_IN_TIME = 0.8
"""The part of the step's time after which new results are sent as they came."""
_SPARE = 0.1
"""Seconds before the chain's deadline at which they are, too."""
_REPEAT = 300
"""Below this many characters a reference is hardly shorter than what it stands for."""
_IN_FULL = frozenset({RECALL.name, SEARCH_TOOLS.name})
_ANSWER = 500
"""Input tokens that the call costs by which a model asks for what it was not shown."""
_RECALL = weight(RECALL.raw.decode())


class CompactToolResults(Policy):
    """Send tool results in a layout that takes fewer tokens, and leave out of a large one what need not be carried.

    A new result loses nothing: the envelope that MCP clients put around a text goes, and a terminal's colours; like
    records of JSON become rows below their keys; lines that repeat are counted; lines that an earlier result still
    shows become a note that says where. A file that was read stays byte for byte where a tool can edit it, but for
    what an earlier reading shows; a result that repeats an earlier one word for word becomes a reference to it.

    Once the model has read it, a result of more than `over` characters may keep only those whole lines that tell most,
    with marked gaps and the handle of the whole: never a file, only where the prompt takes `from_share` of the window
    or the model has no prompt cache, and only where that pays within `turns` further requests, the risk that it is
    read again included. That is decided once, by what stands before, so the provider's prompt cache keeps hitting.
    Without an archive nothing is left out.
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
    in any case where a tool can edit it."""

    from_share: float = Field(default=0.25, ge=0, le=1)
    """The share of the window that the prompt must take before anything is left out; it does not count for a model
    without a prompt cache."""

    turns: int = Field(default=8, ge=1)
    """How many further requests a conversation is expected to have, for what is left out to pay for itself in."""

    read_again: float = Field(default=0.2, ge=0, le=1)
    """How likely the model asks for what was left out: that costs a request, and the whole text at full price."""

    tables: Literal["rows", "json"] = "rows"
    """`rows`: like records of JSON are sent as rows below their keys. `json`: JSON stays JSON, without white space."""

    async def apply(self, request: ChatRequest, ctx: Context) -> Decision:
        """Walk the conversation exchange by exchange; the form of each depends on what stands before it alone."""
        if not request.form.any("tools used", _uses_tools):
            return Keep("no tool results")
        walk = _CompactingWalk(self, ctx, edits=any(map(edits_files, request.tools)))
        walk.pass_by(tool.raw.decode() for tool in request.tools)
        walk.fixed = walk.size
        settings = self.over, self.arguments_over, self.from_share, self.turns, self.read_again, self.tables
        start = *settings, walk.edits, walk.rules, ctx.model.window, walk.size, bool(ctx.frozen)
        form, name = request.form, ("compact_tool_results", start)
        _, before = form.resume(name, _SettledGroups(hash(start)))
        if not await _are_there(before.handles, ctx):
            before = _SettledGroups(hash(start))
        walk.go_on(before)
        messages, end = list(before.messages), len(before.messages)
        groups = list(_groups(request.messages[end:]))
        keys = list(_keys(groups, before))
        known = await _known(keys, ctx)
        with suppress(TimeoutError):  # what was settled is sent so, whatever the clock says
            async with asyncio.timeout_at(ctx.deadline - _SPARE), asyncio.timeout(_IN_TIME * self.timeout):
                for place, group in enumerate(groups):
                    sent = known[place]
                    if sent is None:
                        sent = await walk.forwarded(group, keys[place], is_held=bool(ctx.frozen))
                        if walk.lasts and not ctx.outage.begun:
                            ctx.once.remember(keys[place], sent)
                    walk.take(sent)
                    messages += group if not sent.changed else sent.of(group)
                    end += len(group)
                    if end == form.settled and walk.lasts and not ctx.outage.begun:
                        form.settle(name, walk.walked(messages, keys[place]))
        messages += request.messages[end:]  # work that has begun goes on, for the next request
        done = {what: count for what, count in walk.counts.items() if count}
        if not done:
            results = sum(message.get("role") == "tool" for message in messages)
            return Keep(f"nothing to shorten in {counted(results, 'tool result')}" if results else "no tool results")
        return Rewrite(request.with_messages(messages), ", ".join(f"{n} {what}" for what, n in done.items()), done)


def _uses_tools(message: Message) -> bool:
    return message.get("role") == "tool" or bool(message.get("tool_calls"))


def _groups(messages: Sequence[Message]) -> Iterator[list[Message]]:
    """The messages cut before each of the assistant's: each group came with a request of its own."""
    group: list[Message] = []
    for message in messages:
        if message.get("role") == "assistant" and group:
            yield group
            group = []
        group.append(message)
    yield group


class _Key(NamedTuple):
    """Stands for all that a group's form depends on, by hashes of this process."""

    step: str
    hash: int
    size: int
    """The bytes up to its end."""
    read: bool


def _keys(groups: Sequence[Sequence[Message]], walked: "_SettledGroups") -> Iterator[_Key]:
    """A key for each group behind those of an earlier request."""
    before, size, last = walked.hash, walked.bytes, len(groups) - 1
    for place, group in enumerate(groups):
        raws = [message.raw for message in group]
        size += sum(map(len, raws))
        before = hash((before, *map(hash, raws)))
        yield _Key("compact_tool_results", before, size, place < last)


async def _known(keys: Sequence[_Key], ctx: Context) -> "list[_Sent | None]":
    """What earlier requests made of the groups; nothing where an original is no longer in the archive."""
    known: list[_Sent | None] = ctx.once.known(keys) if ctx.archive is not None else [None] * len(keys)
    handles = frozenset(handle for sent in known if sent is not None for handle in sent.handles)
    return known if await _are_there(handles, ctx) else [None] * len(keys)


async def _are_there(handles: frozenset[str], ctx: Context) -> bool:
    """Whether all these originals are in the archive; if so, they count as used."""
    return not handles or (ctx.archive is not None and handles <= await ctx.archive.touch(handles))


class _SettledGroups(NamedTuple):
    """What is known behind the groups that the next request begins with."""

    hash: int
    bytes: int = 0
    size: int = 0
    groups: int = 0
    seen: Mapping[Hashable, bool] = MappingProxyType({})
    counts: Mapping[str, int] = MappingProxyType({})
    handles: frozenset[str] = frozenset()
    shown: tuple[Shown, ...] = ()
    messages: tuple[Message, ...] = ()
    """As they are sent."""


class _Sent(NamedTuple):
    """What was made of a group."""

    changed: tuple[tuple[int, Message], ...]
    """Messages that are sent in another form, by their places."""
    size: int
    seen: tuple[tuple[Hashable, bool], ...]
    counts: tuple[tuple[str, int], ...]
    handles: tuple[str, ...]
    """Of the originals."""
    shown: tuple[Shown, ...]
    """What later results are compared with."""

    def of(self, group: Sequence[Message]) -> list[Message]:
        """The messages of the group as they are sent."""
        messages = list(group)
        for place, message in self.changed:
            messages[place] = message if message.made_of is group[place] else message.copied_from(group[place])
        return messages


def _referring(text: str, earlier: Sequence[Shown], beside: int) -> tuple[str, frozenset[int], Shown | None]:
    """A text with notes in the place of lines that earlier ones show, which these are, and the lines that it shows."""
    sent, used = with_references(text, earlier, beside)
    return sent, used, shown(sent)


class _CompactingWalk:
    """What is known of the conversation up to a place."""

    def __init__(self, policy: CompactToolResults, ctx: Context, *, edits: bool) -> None:
        self.policy, self.rules, self.archive, self.once = policy, ctx.model.cache, ctx.archive, ctx.once
        self.edits = edits
        """Whether a tool can edit files."""
        self._window = ctx.model.window
        self._layout = rows if policy.tables == "rows" else plain
        self.size = 0
        """The tokens before this place."""
        self.fixed = self.groups = 0
        """The tokens before the first group, and how many groups stand before this place."""
        self.seen: dict[Hashable, bool] = {}
        """The results so far as they were sent first, by hash, and whether they still stand in full; of those that
        do not, their handles, too."""
        self.shown: list[Shown] = []
        """The lines of the results so far, as they stand."""
        self.counts: Counter[str] = Counter()
        self.kept: set[str] = set()
        """The handles of the originals so far."""
        self.lasts = True
        """Whether the archive has kept all that it was given: else the next request tries again."""
        self._begin()

    def _begin(self) -> None:
        """What is known of one group."""
        self.forms: dict[int, ShortForm] = {}
        """What may stand for a text, by its place."""
        self.files: set[int] = set()
        """The places of messages that are files."""
        self.places: dict[str, int] = {}
        """The places of texts as they were sent first."""
        self.stays: set[int] = set()
        """The places of texts that stay: another one refers to them, or they have a marker of ours."""
        self.marked: dict[Hashable, bool] = {}
        self.done: Counter[str] = Counter()
        self.handles: list[str] = []

    def go_on(self, walked: _SettledGroups) -> None:
        """Go on behind the groups of an earlier request."""
        self.size, self.groups = walked.size or self.size, walked.groups
        self.seen, self.counts = {**walked.seen}, Counter(walked.counts)
        self.kept, self.shown = {*walked.handles}, [*walked.shown]

    def walked(self, messages: Sequence[Message], key: _Key) -> _SettledGroups:
        """What is known here, behind the group of a key."""
        seen, counts, kept = {**self.seen}, {**self.counts}, frozenset(self.kept)
        return _SettledGroups(
            key.hash, key.size, self.size, self.groups, seen, counts, kept, (*self.shown,), (*messages,)
        )

    def take(self, sent: _Sent) -> None:
        """Go on behind a group."""
        self.size = sent.size
        self.groups += 1
        self.kept.update(sent.handles)
        self.shown += sent.shown
        self.seen.update(sent.seen)
        self.counts.update(dict(sent.counts))

    def pass_by(self, texts: Iterator[str]) -> None:
        """Count what stands before the next group."""
        self.size += sum(map(weight, texts))

    async def forwarded(self, group: list[Message], key: _Key, *, is_held: bool) -> _Sent:
        """A group as it is sent; where it is held, nothing may change once it was read."""
        self._begin()
        self._key = key
        messages = list(group)
        lines: list[Shown] = []
        if _IN_FULL.isdisjoint(group[0].called_tools):  # what the model asked for in full it goes on needing
            lines = await self._shorten_group(messages, read=key.read and not is_held)
        self.pass_by(message.raw.decode() for message in messages)
        pairs = enumerate(zip(group, messages, strict=True))
        changed = tuple((place, new) for place, (old, new) in pairs if new is not old)
        seen, counts = tuple(self.marked.items()), tuple(self.done.items())
        return _Sent(changed, self.size, seen, counts, tuple(self.handles), tuple(lines))

    async def _shorten_group(self, messages: list[Message], *, read: bool) -> list[Shown]:
        texts = [text for place, message in enumerate(messages) for text in texts_of(place, message)]
        self.files = self._files(messages)
        lines: list[Shown | None] = []
        for place, text in enumerate(texts):
            await self._at_birth(place, text)
            lines.append(await self._refer(text, lines))
        for place in await self._worth(texts, messages) if read and self._may_leave_out else ():
            await self._shorten(place, texts[place])
            lines[place] = shown(texts[place].sent)
        for place, own in groupby(texts, key=lambda text: text.message):
            messages[place] = with_text(messages[place], *(text for text in own if text.sent is not text.given))
        if len(messages) > 1 and messages[0].get("tool_calls"):
            messages[0] = await self._with_short_arguments(messages[0], sum(weight(each.text) for each in messages))
        return [each for each in lines if each is not None]

    def _files(self, messages: Sequence[Message]) -> set[int]:
        if not self.edits:
            return set()
        reading = {str(call.get("id", "")) for call in messages[0].get("tool_calls") or () if reads_file(call)}
        return {place for place, message in enumerate(messages) if str(message.get("tool_call_id", "")) in reading}

    async def _keep(self, text: str) -> str | None:
        handle = None if self.archive is None else await self.archive.keep(text)
        if handle is not None:
            self.handles.append(handle)
        self.lasts = self.lasts and handle is not None
        return handle

    def _is_seen(self, text: str) -> bool | None:
        return self.seen.get((hash(text), len(text)))

    def _mark(self, text: str, *, full: bool) -> None:
        key = hash(text), len(text)
        self.seen[key] = self.marked[key] = full

    async def _at_birth(self, place: int, text: Text) -> None:
        """Say the same in less."""
        is_file = text.message in self.files
        sent = await self.once.of(as_file if is_file else self._layout, text.given)
        text.sent_tokens = text.form_tokens = text.kept = sent.tokens
        if is_file:
            self.stays.add(place)
        if await self._is_done(place, text.given):
            return
        handle = None if sent.is_whole else await self._keep(text.given)
        # what is remembered is equal, but not the same object
        if sent.text != text.given and (sent.is_whole or handle is not None):
            text.sent = sent.text if handle is None else shortened(sent.text, len(text.given), handle)
        if self._is_seen(text.sent) and (handle := await self._keep(text.given)) is not None:
            self.stays.add(self.places.get(text.sent, place))
            self._say(text, reference(handle), "repeats")
            return
        self.done["unwrapped"] += text.sent is not text.given
        if self._is_asked_again(text):
            self.stays.add(place)
        if len(text.sent) >= _REPEAT:
            self.places[text.sent] = place
            self._mark(text.sent, full=True)

    async def _is_done(self, place: int, text: str) -> bool:
        """Whether an earlier pass over the request wrote a text."""
        if await is_ours(text, self.archive):
            self.stays.add(place)
            self._mark(str(marked_handle(text)), full=False)
            return True
        if is_referring(text):
            self.stays.update(range(place + 1))
            return True
        return False

    def _is_asked_again(self, text: Text) -> bool:
        """Whether a large text stands in the conversation already, but not in full."""
        if self.archive is None or len(text.sent) <= self.policy.over:
            return False
        return self._is_seen(self.archive.handle(text.given)) is False

    async def _refer(self, text: Text, before: Sequence[Shown | None]) -> Shown | None:
        """Put notes in the place of lines that an earlier result shows; return the lines of a text of several."""
        if text.sent.count("\n") < FEWEST - 1:
            return None
        own = [(place, each) for place, each in enumerate(before) if each is not None]
        # what has a handle already could not be put together again from the client's text
        earlier = [] if is_shortened(text.sent) else [*self.shown, *(each for _, each in own)]
        work = partial(_referring, text.sent, earlier, BESIDE if text.message in self.files else 0)
        sent, used, lines = await self.once.of_key(("refer", self._key, len(before)), len(text.sent), work)
        if used:
            self._say(text, sent, "referring")
            self.stays.update(own[at - len(self.shown)][0] for at in used if at >= len(self.shown))
            self.stays.add(len(before))
        return lines

    def _say(self, text: Text, sent: str, what: str) -> None:
        text.sent, text.sent_tokens = sent, weight(sent)
        text.form_tokens = text.kept = text.sent_tokens
        self.done[what] += 1

    @property
    def _may_leave_out(self) -> bool:
        """Whether anything may be left out here at all."""
        has_cache = self.rules.ttl > 0 and self.rules.read < 1
        return self.archive is not None and (not has_cache or self.size >= self.policy.from_share * self._window)

    async def _worth(self, texts: list[Text], group: list[Message]) -> Sequence[int]:
        """The places of the texts that are shortened: all from one on, since what follows a change is sent anew."""
        for place, text in enumerate(texts):
            if len(text.sent) > self.policy.over and place not in self.stays:
                await self._take_form(place, text)
        saved = [max(text.saved, 0) for text in texts]
        if not any(saved):
            return ()
        last = max(text.message for text in texts)
        behind = sum(weight(message.text) for message in group[last + 1 :])
        full = self.size + sum(text.sent_tokens for text in texts) + behind
        ahead = self._ahead(full - sum(saved))
        risks = [
            self._risk(text.sent_tokens, full) if tokens else 0.0 for text, tokens in zip(texts, saved, strict=True)
        ]
        least, start, before = ahead(full, full), None, self.size
        for place, text in enumerate(texts):
            cost = ahead(before + text.kept, full - sum(saved[place:])) + sum(risks[place:]) + self._first_handle()
            if saved[place] and cost < least:
                least, start = cost, place
            before += text.sent_tokens
        return () if start is None else [place for place in range(start, len(texts)) if saved[place]]

    def _risk(self, tokens: int, prompt: int) -> float:
        """What it costs, on average, that the model asks for a text of so many tokens."""
        return self.policy.read_again * (tokens * self.rules.write + prompt * self.rules.read + _ANSWER)

    def _first_handle(self) -> float:
        """What it costs that the tool which reads handles must be offered; nothing where there was one before."""
        if self.kept:
            return 0.0
        return _RECALL * (self.rules.write + self.rules.read * (self.policy.turns - 1))

    def _ahead(self, total: int) -> Callable[[int, int], float]:
        """What the requests ahead cost, from the tokens shared and in all, if the conversation grows as it did so far.

        `total` are the tokens up to the end of this group.
        """
        growth = (total - self.fixed) // (self.groups + 1)
        return lambda shared, total: cost_ahead(self.rules, shared, total, self.policy.turns, growth)

    async def _take_form(self, place: int, text: Text) -> None:
        form = await self.once.of(form_of, text.sent)
        if form is not None:
            text.form, text.form_tokens, text.kept = form.text, form.tokens + MARKER_TOKENS, form.kept

    async def _shorten(self, place: int, text: Text) -> None:
        handle = await self._keep(text.given)
        if handle is not None and text.form is not None:
            self._mark(text.sent, full=False)
            self._mark(handle, full=False)
            text.sent = shortened(text.form, len(text.given), handle)
            self.done["shortened"] += 1

    async def _with_short_arguments(self, message: Message, others: int) -> Message:
        """The calls with short arguments; the group has `others` besides them, in tokens."""
        if not self._may_leave_out:
            return message
        calls = []
        for call in message["tool_calls"]:
            function = call.get("function") or {}
            arguments = function.get("arguments")
            short = arguments
            if isinstance(arguments, str) and not (self.edits and names_file(call)):
                short = await self._short_arguments(arguments, others)
            calls.append({**call, "function": {**function, "arguments": short}} if short != arguments else call)
        changed = sum(call is not other for call, other in zip(calls, message["tool_calls"], strict=True))
        self.done["arguments"] += changed
        return message.with_changes(tool_calls=calls) if changed else message

    async def _short_arguments(self, arguments: str, others: int) -> str:
        short = await self.once.of(minified, arguments)
        forms: dict[str, str] = {}
        for payload in payloads(short, self.policy.arguments_over):
            form = None if await is_ours(payload, self.archive) else await self.once.of(form_of, payload)
            if form is None or not self._is_worth(weight(payload), form.tokens + MARKER_TOKENS, others):
                continue
            if (handle := await self._keep(payload)) is not None:
                forms[payload] = shortened(form.text, len(payload), handle)
        return with_payloads(short, forms) if forms else arguments

    def _is_worth(self, full: int, short: int, others: int) -> bool:
        """Whether a new text is worth sending in short: not where the prompt becomes too short to be cached."""
        total = self.size + others + short
        ahead = self._ahead(total)
        cost = ahead(self.size, total) + self._risk(full, total) + self._first_handle()
        return short < full and cost < ahead(self.size, total + full - short)
