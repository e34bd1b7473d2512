"""Carry a large tool result at full size only once."""

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from types import MappingProxyType
from typing import ClassVar, NamedTuple

from pydantic import Field

from proxy.chat import ChatRequest, Message
from proxy.chat.markers import MARKER_TOKENS, reference, shortened
from proxy.chat.texts import Text, texts_of, with_text
from proxy.compaction import Treatment, compact, minified, payloads, treated, weight, with_payloads
from proxy.compaction import gist as gists
from proxy.compaction.fitting import is_ours
from proxy.context import Context
from proxy.economics import cost_ahead
from proxy.policy import Decision, Keep, Policy, Rewrite, Stage
from proxy.text import counted
from proxy.tools.recall import DEFINITION as RECALL
from proxy.tools.search_tools import DEFINITION as SEARCH_TOOLS

_REPEAT = 300
"""Below this many characters a reference is hardly shorter than what it stands for."""

_IN_FULL = frozenset({RECALL.name, SEARCH_TOOLS.name})


class CompactToolResults(Policy):
    """Shorten large tool results once the model has read them.

    A new result loses only what carries nothing: the white space of JSON, a terminal's colours, the envelope that MCP
    clients put around a text, also where its end was cut off. One that repeats an earlier result word for word becomes
    a reference to it. As soon as an assistant message follows it, a large result takes its compact form: structure,
    identifiers, numbers and errors stay, prose and repetition go. The original is archived first, and the form ends in
    the handle that brings it back; without an archive nothing is shortened. The form depends on the content alone and
    is taken as early as possible, so the provider's prompt cache keeps hitting; where the model's cache rules say that
    it would not pay within `turns` further requests, the result stays as it is.
    """

    stage: ClassVar = Stage.SHORTENS
    edits_at_birth: ClassVar[bool] = True
    prefix_breaks_per_turn: ClassVar[float] = (
        1.0  # a large result that was just read: only the answer to it stands behind
    )

    over: int = Field(default=600, ge=200)
    """Results longer than this many characters are shortened."""

    arguments_over: int = Field(default=500, ge=200)
    """Strings longer than this in the model's own calls, such as a file that it wrote, are shortened, and the white
    space of the JSON around them goes, when the call's result is first sent: the model knows what it wrote, and the
    cached prefix never changes for it."""

    turns: int = Field(default=8, ge=1)
    """How many further requests a conversation is expected to have, for a shortening to pay for itself in."""

    gist: bool = False
    """Whether the small model that `writer` names adds one to three sentences to the form of a text that left prose
    out. It writes them while the result is new; where they are not ready when the form is first sent, or name a value
    that the text does not have, the form stands without them, from then on. They never replace anything."""

    @property
    def needs_writer(self) -> bool:
        return self.gist

    async def apply(self, request: ChatRequest, ctx: Context) -> Decision:
        """Walk the conversation exchange by exchange; the form of each depends on what stands before it alone."""
        if not request.form.any("tools used", _uses_tools):
            return Keep("no tool results")
        walk = _CompactingWalk(self, ctx)
        walk.pass_by(tool.raw.decode() for tool in request.tools)
        walk.fixed = walk.size
        start = self.over, self.arguments_over, self.turns, walk.drafts is None, walk.rules, walk.size, bool(ctx.held)
        form, name = request.form, ("compact_tool_results", start)
        _, before = form.resume(name, _SettledGroups(hash(start)))
        if not await _are_there(before.handles, before.gists, ctx):
            before = _SettledGroups(hash(start))
        walk.go_on(before)
        messages, end = list(before.messages), len(before.messages)
        groups = list(_groups(request.messages[end:]))
        keys = list(_keys(groups, before))
        known = await _known(keys, ctx)
        for place, group in enumerate(groups):
            sent = known[place]
            if sent is None:
                sent = await walk.forwarded(group, read=place < len(groups) - 1 and not ctx.held)
                if walk.lasts and not ctx.outage.begun:
                    ctx.once.remember(keys[place], sent)
            walk.take(sent)
            messages += group if not sent.changed else sent.of(group)
            end += len(group)
            if end == form.settled and walk.lasts and not ctx.outage.begun:
                form.settle(name, walk.walked(messages, keys[place]))
        await walk.have_gists_of(groups[-1])
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
    there = await _are_there(handles, [name for sent in known if sent is not None for name in sent.gists], ctx)
    return known if there else [None] * len(keys)


async def _are_there(handles: frozenset[str], names: Iterable[str], ctx: Context) -> bool:
    """Whether all these originals are in the archive; if so, they and the gists of these names count as used."""
    if handles and (ctx.archive is None or not handles <= await ctx.archive.touch(handles)):
        return False
    if ctx.drafts is not None:
        await gists.touch(names, ctx.drafts)
    return True


class _SettledGroups(NamedTuple):
    """What is known behind the groups that the next request begins with."""

    hash: int
    bytes: int = 0
    size: int = 0
    groups: int = 0
    seen: Mapping[Hashable, bool] = MappingProxyType({})
    counts: Mapping[str, int] = MappingProxyType({})
    handles: frozenset[str] = frozenset()
    gists: tuple[str, ...] = ()
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
    gists: tuple[str, ...]
    """Names of the gists that were settled, also of those that are empty."""

    def of(self, group: Sequence[Message]) -> list[Message]:
        """The messages of the group as they are sent."""
        messages = list(group)
        for place, message in self.changed:
            messages[place] = message if message.made_of is group[place] else message.copied_from(group[place])
        return messages


class _CompactingWalk:
    """What is known of the conversation up to a place."""

    def __init__(self, policy: CompactToolResults, ctx: Context) -> None:
        self.policy, self.rules, self.archive, self.once = policy, ctx.model.cache, ctx.archive, ctx.once
        self.drafts = ctx.drafts if policy.gist else None
        self.size = 0
        """The tokens before this place; counted only up to the shortest prefix that is cached."""
        self.fixed = self.groups = 0
        """The tokens before the first group, and how many groups stand before this place."""
        self.seen: dict[Hashable, bool] = {}
        """The results so far as they were sent first, by hash, and whether they still stand in full."""
        self.counts: Counter[str] = Counter()
        self.kept: set[str] = set()
        """The handles of the originals so far."""
        self.named: list[str] = []
        """The names of the gists so far."""
        self.lasts = True
        """Whether the archive has kept all that it was given: else the next request tries again."""
        self._begin()

    def _begin(self) -> None:
        """What is known of one group."""
        self.treatments: dict[str, Treatment] = {}
        self.own: set[str] = set()
        """Texts that came shortened, with a marker of ours."""
        self.marked: dict[Hashable, bool] = {}
        self.done: Counter[str] = Counter()
        self.handles: list[str] = []
        self.gists: list[str] = []

    def go_on(self, walked: _SettledGroups) -> None:
        """Go on behind the groups of an earlier request."""
        self.size, self.groups = walked.size or self.size, walked.groups
        self.seen, self.counts = {**walked.seen}, Counter(walked.counts)
        self.kept, self.named = {*walked.handles}, [*walked.gists]

    def walked(self, messages: Sequence[Message], key: _Key) -> _SettledGroups:
        """What is known here, behind the group of a key."""
        seen, counts, kept = {**self.seen}, {**self.counts}, frozenset(self.kept)
        return _SettledGroups(
            key.hash, key.size, self.size, self.groups, seen, counts, kept, (*self.named,), (*messages,)
        )

    def take(self, sent: _Sent) -> None:
        """Go on behind a group."""
        self.size = sent.size
        self.groups += 1
        self.kept.update(sent.handles)
        self.named += sent.gists
        self.seen.update(sent.seen)
        self.counts.update(dict(sent.counts))

    def pass_by(self, texts: Iterator[str]) -> None:
        """Count what stands before the next group."""
        for text in texts:
            if self.size >= self.rules.minimum:
                return
            self.size += weight(text)

    async def forwarded(self, group: list[Message], *, read: bool) -> _Sent:
        """A group as it is sent; `read` says that an assistant message follows it."""
        self._begin()
        messages = list(group)
        if _IN_FULL.isdisjoint(group[0].called_tools):  # what the model asked for in full it goes on needing
            await self._shorten_group(messages, read=read)
        self.pass_by(message.raw.decode() for message in messages)
        pairs = enumerate(zip(group, messages, strict=True))
        changed = tuple((place, new) for place, (old, new) in pairs if new is not old)
        seen, counts = tuple(self.marked.items()), tuple(self.done.items())
        return _Sent(changed, self.size, seen, counts, tuple(self.handles), tuple(self.gists))

    async def _shorten_group(self, messages: list[Message], *, read: bool) -> None:
        texts = [text for place, message in enumerate(messages) for text in texts_of(place, message)]
        for text in texts:
            await self._at_birth(text)
        for text in await self._worth(texts, messages) if read else ():
            await self._shorten(text)
        calls = messages[0]
        for place, own in groupby(texts, key=lambda text: text.message):
            messages[place] = with_text(messages[place], *(text for text in own if text.sent is not text.given))
        if len(messages) > 1 and calls.get("tool_calls"):
            messages[0] = await self._with_short_arguments(calls, sum(weight(message.text) for message in messages))

    async def _keep(self, text: str) -> str | None:
        handle = None if self.archive is None else await self.archive.keep(text)
        if handle is not None:
            self.handles.append(handle)
        self.lasts = self.lasts and handle is not None
        return handle

    def _mark(self, text: str, *, full: bool) -> None:
        key = hash(text), len(text)
        self.seen[key] = self.marked[key] = full

    async def _at_birth(self, text: Text) -> None:
        """Take out what carries nothing."""
        found = self.treatments[text.given] = await self.once.of(treated, text.given)
        text.sent_tokens = text.form_tokens = text.kept = found.sent_tokens
        if await is_ours(text.given, self.archive):
            self.own.add(text.given)
            return
        text.sent = text.given if found.sent is None else found.sent
        full = self.seen.get((hash(text.sent), len(text.sent)))
        if full and (handle := await self._keep(text.given)) is not None:
            text.sent = reference(handle)
            text.sent_tokens = text.form_tokens = text.kept = weight(text.sent)
            self.done["repeats"] += 1
            return
        self.done["unwrapped"] += text.sent is not text.given
        if len(text.sent) >= _REPEAT:
            text.repeats = full is False
            self._mark(text.sent, full=True)

    async def _worth(self, texts: list[Text], group: list[Message]) -> list[Text]:
        """The texts of a group that are shortened: all from a place on, since what follows a change is sent anew."""
        for text in texts:
            if self._is_large(text.sent):
                await self._take_form(text)
        saved = [max(text.saved, 0) for text in texts]
        if not any(saved):
            return []
        last = max(text.message for text in texts)
        behind = sum(weight(message.text) for message in group[last + 1 :])
        full = self.size + sum(text.sent_tokens for text in texts) + behind
        ahead = self._ahead(full - sum(saved))
        least, start, before = ahead(full, full), None, self.size
        for place, text in enumerate(texts):
            cost = ahead(before + text.kept, full - sum(saved[place:]))
            if saved[place] and cost < least:
                least, start = cost, place
            before += text.sent_tokens
        if start is None:
            return []
        return [text for text, tokens in zip(texts[start:], saved[start:], strict=True) if tokens]

    def _ahead(self, total: int) -> Callable[[int, int], float]:
        """What the requests ahead cost, from the tokens shared and in all, if the conversation grows as it did so far.

        `total` are the tokens up to the end of this group.
        """
        growth = (total - self.fixed) // (self.groups + 1)
        return lambda shared, total: cost_ahead(self.rules, shared, total, self.policy.turns, growth)

    async def _take_form(self, text: Text) -> None:
        found = self.treatments[text.given]
        if text.repeats:
            text.form, text.kept = reference("0" * 20), 0
            text.form_tokens = weight(text.form)
        elif found.form is not None:
            text.form, text.kept = found.form, found.kept_tokens
            text.form_tokens = found.form_tokens + MARKER_TOKENS
            gist = None if self.drafts is None else await gists.settled(text.given, self.drafts, self.once)
            if gist is not None:
                self.gists.append(gist.name)
                text.form += gist.line
                text.form_tokens += weight(gist.line) if gist.line else 0

    def _is_worth(self, full: int, short: int, others: int) -> bool:
        """Whether a new text is worth sending in short: not where the prompt becomes too short to be cached."""
        total = self.size + others + short
        ahead = self._ahead(total)
        return short < full and ahead(self.size, total) < ahead(self.size, total + full - short)

    async def have_gists_of(self, group: list[Message]) -> None:
        """Have gists written of the last group's results, which take their forms with the next request."""
        if self.drafts is not None and _IN_FULL.isdisjoint(group[0].called_tools):
            texts = [text.given for place, message in enumerate(group) for text in texts_of(place, message)]
            large = [each for each in texts if self._is_large(each) and not await is_ours(each, self.archive)]
            await gists.prepare(large, self.drafts, self.once)

    def _is_large(self, text: str) -> bool:
        return len(text) > self.policy.over and text not in self.own and self.archive is not None

    async def _shorten(self, text: Text) -> None:
        handle = await self._keep(text.given)
        if handle is None or text.form is None:
            return
        form = reference(handle) if text.repeats else shortened(text.form, len(text.given), handle)
        if len(form) < len(text.sent):
            self._mark(text.sent, full=False)
            text.sent = form
            self.done["shortened"] += 1

    async def _with_short_arguments(self, message: Message, others: int) -> Message:
        """The calls with short arguments; the group has `others` besides them, in tokens."""
        calls = []
        for call in message["tool_calls"]:
            function = call.get("function") or {}
            arguments = function.get("arguments")
            short = await self._short_arguments(arguments, others) if isinstance(arguments, str) else arguments
            calls.append({**call, "function": {**function, "arguments": short}} if short != arguments else call)
        changed = sum(call is not other for call, other in zip(calls, message["tool_calls"], strict=True))
        self.done["arguments"] += changed
        return message.with_changes(tool_calls=calls) if changed else message

    async def _short_arguments(self, arguments: str, others: int) -> str:
        short = await self.once.of(minified, arguments)
        forms: dict[str, str] = {}
        for payload in payloads(short, self.policy.arguments_over):
            form = None if await is_ours(payload, self.archive) else compact(payload)
            if form is None or not self._is_worth(weight(payload), weight(form.text) + MARKER_TOKENS, others):
                continue
            if (handle := await self._keep(payload)) is not None:
                forms[payload] = shortened(form.text, len(payload), handle)
        return with_payloads(short, forms) if forms else arguments
