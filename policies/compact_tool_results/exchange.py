"""One exchange as it is sent: an answer of the model, and the results that came with the request behind it."""

from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from functools import partial
from itertools import groupby
from typing import NamedTuple

from proxy.chat import Message
from proxy.chat.markers import MARKER_TOKENS, SHORTENED, is_shortened, marked_handle, shortened
from proxy.chat.provenance import origin
from proxy.chat.texts import Text, texts_of, with_text
from proxy.compaction.calls import names_path, payloads, reads_file, with_payloads
from proxy.compaction.fitting import is_ours
from proxy.compaction.form import Sent, as_file, form_of, weight
from proxy.compaction.references import BESIDE, Shown, ShownTexts, is_referring, shown, with_references
from proxy.compaction.row_names import names_files
from proxy.context import Context
from proxy.economics import cost_ahead
from proxy.text.json_values import minified
from proxy.tools.recall import DEFINITION as RECALL
from proxy.tools.search_tools import DEFINITION as SEARCH_TOOLS

_IN_FULL = frozenset({RECALL.name, SEARCH_TOOLS.name})
_ANSWER = 500
"""Input tokens that the call costs by which a model asks for what it was not shown."""


class ShorteningRules(NamedTuple):
    """The rules that hold for all exchanges of a conversation."""

    over: int
    arguments_over: int
    turns: int
    read_again: float
    layout: Callable[[str], Sent]
    leaves_out: bool
    """True if the model can read omitted texts again."""
    tool_tokens: int
    """The tokens of the tool that the first handle brings, in front of all that is cached; 0 where it brings none."""


class SentExchange(NamedTuple):
    """An exchange as it is sent."""

    changed: tuple[tuple[int, Message], ...]
    """Messages that are sent in another form, by their places."""
    tokens: int
    counts: tuple[tuple[str, int], ...]
    handles: tuple[str, ...]
    """Of the originals."""
    shown: tuple[Shown, ...]
    """Its lines, which later results may refer to."""

    def of(self, group: Sequence[Message]) -> list[Message]:
        messages = list(group)
        for place, message in self.changed:
            messages[place] = message if message.made_of is group[place] else message.copied_from(group[place])
        return messages


class Before(NamedTuple):
    """The conversation before an exchange, as it is sent."""

    size: int = 0
    """Its tokens."""
    fixed: int = 0
    """The tokens of the tools."""
    requests: int = 0
    shown: ShownTexts = ShownTexts()
    handles: frozenset[str] = frozenset()

    def behind(self, sent: SentExchange, *, is_answer: bool) -> "Before":
        handles = self.handles.union(sent.handles) if sent.handles else self.handles
        requests = self.requests + (is_answer or not self.requests)
        return Before(self.size + sent.tokens, self.fixed, requests, self.shown.then(sent.shown), handles)


class ShortenedExchange:
    """The work on one exchange."""

    def __init__(
        self,
        group: Sequence[Message],
        before: Before,
        terms: ShorteningRules,
        ctx: Context,
        key: Hashable,
        *,
        is_read: bool,
    ) -> None:
        """`key` names the exchange; `is_read` says that an answer follows it, so that something may be left out."""
        self._messages, self._before, self._terms, self._ctx, self._key = list(group), before, terms, ctx, key
        self._group, self._is_read, self._rules = group, is_read, ctx.model.cache
        self._counts: Counter[str] = Counter()
        self._handles: list[str] = []
        self._stays: set[int] = set()
        """The places of texts that stay: files, those that refer to others or are referred to, those with a marker."""
        self.lasts = True
        """True if the archive stored all originals; else the next request tries again."""

    async def sent(self) -> SentExchange:
        lines: list[Shown | None] = []
        if _IN_FULL.isdisjoint(self._group[0].called_tools):  # what the model asked for in full it goes on needing
            lines = await self._shorten_results()
        pairs = enumerate(zip(self._group, self._messages, strict=True))
        return SentExchange(
            changed=tuple((place, new) for place, (old, new) in pairs if new is not old),
            tokens=sum(weight(message.raw.decode()) for message in self._messages),
            counts=tuple(self._counts.items()),
            handles=tuple(self._handles),
            shown=tuple(each for each in lines if each is not None),
        )

    async def _shorten_results(self) -> list[Shown | None]:
        messages = self._messages
        texts = [text for place, message in enumerate(messages) for text in texts_of(place, message)]
        files, lines = self._files(), list[Shown | None]()
        for place, text in enumerate(texts):
            await self._say_in_less(place, text, is_file=text.message in files)
            lines.append(await self._refer(place, texts, lines, beside=BESIDE if text.message in files else 0))
        for place in await self._chosen(texts) if self._is_read and self._terms.leaves_out else ():
            text = texts[place]
            if text.form is not None and (handle := await self._keep(text.original)) is not None:
                text.sent = shortened(text.form, len(text.original), handle)
                lines[place] = shown(text.sent)
                self._counts["shortened"] += 1
        for place, own in groupby(texts, key=lambda text: text.message):
            messages[place] = with_text(messages[place], *(text for text in own if text.sent is not text.original))
        if len(messages) > 1 and messages[0].get("tool_calls") and self._terms.leaves_out:
            messages[0] = await self._with_short_arguments(messages[0], sum(weight(each.text) for each in messages))
        return lines

    def _files(self) -> set[int]:
        """Return the places of results that are files: an edit needs their exact text.

        A path without an extension is that of a folder, or of several files, where the result names files.
        """
        calls = {str(call.get("id", "")): call for call in self._group[0].get("tool_calls") or ()}
        called = ((place, one, calls.get(str(one.get("tool_call_id", "")))) for place, one in enumerate(self._group))
        return {
            place
            for place, one, call in called
            if call is not None and (reads_file(call) or (names_path(call) and not names_files(one.text)))
        }

    async def _say_in_less(self, place: int, text: Text, *, is_file: bool) -> None:
        """Give a text its first form, which loses nothing but the rest of an encoded blob."""
        once, original = self._ctx.once, text.original
        if await self._is_made_before(place, original):
            text.sent_tokens = text.form_tokens = text.prefix_tokens = await once.of(weight, original)
            return
        first = await once.of(as_file if is_file else self._terms.layout, original)
        handle = None
        if not first.is_whole:
            if self._pays(await once.of(weight, original), first.tokens + MARKER_TOKENS, others=0):
                handle = await self._keep(original)
            first = await once.of(as_file, original) if handle is None else first
        if first.text != original:  # what is remembered is equal, but not the same object
            text.sent = first.text if handle is None else shortened(first.text, len(original), handle)
            self._counts["unwrapped"] += 1
        text.sent_tokens = text.form_tokens = text.prefix_tokens = first.tokens
        if is_file or self._is_asked_again(text):
            self._stays.add(place)

    async def _is_made_before(self, place: int, text: str) -> bool:
        """Return True for a text that an earlier pass over the request wrote."""
        if await is_ours(text, self._ctx.archive):
            self._handles.append(str(marked_handle(text)))
            self._stays.add(place)
            return True
        if is_referring(text):
            self._stays.update(range(place + 1))
            return True
        return False

    def _is_asked_again(self, text: Text) -> bool:
        """Return True for a large text that stands in the conversation already, but not in full."""
        archive = self._ctx.archive
        if archive is None or len(text.sent) <= self._terms.over or not self._has_handles:
            return False
        first = texts_of(text.message, origin(self._group[text.message]))  # an earlier pass may have laid it out
        original = next((one.original for one in first if one.part == text.part), text.original)
        return archive.handle(original) in (*self._before.handles, *self._handles)

    async def _refer(
        self, place: int, texts: Sequence[Text], lines: Sequence[Shown | None], beside: int
    ) -> Shown | None:
        """Put notes in the place of lines that an earlier result shows; return the lines of the text."""
        text = texts[place]
        own = [(at, each) for at, each in enumerate(lines) if each is not None and not is_shortened(texts[at].sent)]
        # what has a handle already could not be put together again from the client's text
        earlier = () if is_shortened(text.sent) else self._before.shown.then(each for _, each in own)
        work = partial(with_references, text.sent, earlier, beside)
        referred = await self._ctx.once.of_key(("refer", self._key, place), len(text.sent), work)
        if referred.used:
            text.sent, text.sent_tokens = referred.text, weight(referred.text)
            text.form_tokens = text.prefix_tokens = text.sent_tokens
            self._counts["referring"] += 1
            others = len(self._before.shown)
            self._stays.update(own[at - others][0] for at in referred.used if at >= others)
            self._stays.add(place)
        return referred.shown

    @property
    def _has_handles(self) -> bool:
        return bool(self._handles or self._before.handles)

    async def _keep(self, text: str) -> str | None:
        archive = self._ctx.archive
        handle = None if archive is None else await archive.keep(text)
        if handle is not None:
            self._handles.append(handle)
        self.lasts = self.lasts and handle is not None
        return handle

    def _ahead(self, full: int) -> Callable[[int, int], float]:
        """Return a function of the cost of future requests, from shared and total tokens, at the growth so far.

        `full` are the tokens up to the end of this exchange, with all that may be left out.
        """
        growth = (full - self._before.fixed) // (self._before.requests + 1)
        return lambda shared, total: cost_ahead(self._rules, shared, total, self._terms.turns, growth)

    def _with_handle(self, shared: int, total: int) -> tuple[int, int]:
        """Return the shared and total tokens with a handle; the tool of the first handle stands in front of all."""
        first = self._terms.tool_tokens if not self._has_handles else 0
        return (0, total + first) if first else (shared, total)

    def _risk(self, left_out: Sequence[int], prompt: int) -> float:
        """Return the expected cost of the model's asking for texts of so many tokens."""
        again = (tokens * self._rules.write + prompt * self._rules.read + _ANSWER for tokens in left_out)
        return self._terms.read_again * sum(again)

    async def _chosen(self, texts: Sequence[Text]) -> Sequence[int]:
        """Return the places of the texts to shorten: all from one on, since a change makes the rest uncached."""
        large = [place for place, one in enumerate(texts) if len(one.sent) > self._terms.over]
        large = [place for place in large if place not in self._stays]
        for place in large:
            texts[place].form_tokens = MARKER_TOKENS
        if not self._worth(texts):  # no form is as short as that
            large = []
        for place in large:
            text = texts[place]
            form = await self._ctx.once.of(form_of, text.sent)
            text.form_tokens = text.sent_tokens
            if form is not None:
                text.form, text.prefix_tokens = form.text, form.prefix_tokens
                text.form_tokens = form.tokens + MARKER_TOKENS
        return self._worth(texts) if large else ()

    def _worth(self, texts: Sequence[Text]) -> Sequence[int]:
        saved = [max(text.sent_tokens - text.form_tokens, 0) for text in texts]
        if not any(saved):
            return ()
        last = max(text.message for text in texts)
        behind = sum(weight(message.text) for message in self._messages[last + 1 :])
        before = self._before.size
        full = before + sum(text.sent_tokens for text in texts) + behind
        ahead = self._ahead(full)
        least, start = ahead(full, full), None
        for place, text in enumerate(texts):
            left_out = [each.sent_tokens for each, tokens in zip(texts[place:], saved[place:], strict=True) if tokens]
            cost = ahead(*self._with_handle(before + text.prefix_tokens, full - sum(saved[place:])))
            cost += self._risk(left_out, full)
            if saved[place] and cost < least:
                least, start = cost, place
            before += text.sent_tokens
        return () if start is None else [place for place in range(start, len(texts)) if saved[place]]

    async def _with_short_arguments(self, message: Message, others: int) -> Message:
        """Return the calls with short arguments; `others` are the exchange's other tokens."""
        calls = []
        for call in message["tool_calls"]:
            function = call.get("function") or {}
            arguments = function.get("arguments")
            short = arguments
            if isinstance(arguments, str) and not names_path(call):
                short = await self._short_arguments(arguments, others)
            calls.append({**call, "function": {**function, "arguments": short}} if short != arguments else call)
        changed = sum(call is not other for call, other in zip(calls, message["tool_calls"], strict=True))
        self._counts["arguments"] += changed
        return message.with_changes(tool_calls=calls) if changed else message

    async def _short_arguments(self, arguments: str, others: int) -> str:
        once = self._ctx.once
        short = await once.of(minified, arguments)
        forms: dict[str, str] = {}
        over = self._terms.arguments_over
        for payload in payloads(short, 0 if SHORTENED in short else over):
            if await is_ours(payload, self._ctx.archive):
                self._handles.append(str(marked_handle(payload)))
                continue
            form = await once.of(form_of, payload) if len(payload) > over else None
            if form is None or not self._pays(weight(payload), form.tokens + MARKER_TOKENS, others):
                continue
            if (handle := await self._keep(payload)) is not None:
                forms[payload] = shortened(form.text, len(payload), handle)
        return with_payloads(short, forms) if forms else arguments

    def _pays(self, full: int, short: int, others: int) -> bool:
        """Return True for a new text that is worth sending in short: a prompt may become too short to be cached."""
        if short >= full or not self._terms.leaves_out:
            return False
        before, total = self._before.size, self._before.size + others + full
        ahead = self._ahead(total)
        cost = ahead(*self._with_handle(before, total - full + short)) + self._risk([full], total)
        return cost < ahead(before, total)
