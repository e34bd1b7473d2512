"""Clear old tool results in batches: one line each, with the handle of the original."""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from math import inf
from types import MappingProxyType
from typing import Any, ClassVar

from pydantic import Field

from proxy.chat import ChatRequest, Message, split_head
from proxy.chat.markers import MARKER, is_to_fit
from proxy.chat.texts import arguments
from proxy.compaction.calls import callers
from proxy.compaction.form import headline
from proxy.compaction.references import is_referring, lines_of_results, make_standing, size_of_notes
from proxy.context import Context
from proxy.economics import turns_to_pay
from proxy.history.cuts import Marks, ResultLines, Room, as_sent
from proxy.policy import SHORTER_HISTORY, ActsNatively, CutsHistory, Decision, Keep, Policy, Rewrite, Stage
from proxy.tools.recall import DEFINITION as RECALL
from proxy.tools.search_tools import DEFINITION as SEARCH_TOOLS

_CALL = 60
"""Characters of the call that the line of a cleared result names."""


class ClearToolResults(Policy, CutsHistory, ActsNatively):
    """Replace many old tool results at once by one line each: the tool, what the result held, and its handle.

    A batch is cleared when the conversation fills the window to `clear_at`, when the provider has no prompt cache, or
    when it pays for itself within the expected further requests. It begins where clearing costs least of the cache for
    what it frees. Results are archived first; where that fails, all stay. The newest results, those that the last calls
    drew on, and recalled or searched content stay.

    Behind signed reasoning Anthropic clears results itself (`clear_tool_uses`, in Messages), at the same mark and in
    batches as large; the model cannot read those again. A client's own `context_management` stays.
    """

    stage: ClassVar = Stage.SHORTENS
    prefix_breaks_per_turn: ClassVar[float] = 0.1
    counted: ClassVar = {"cleared_results": SHORTER_HISTORY}

    clear_at: float = Field(default=0.75, gt=0, lt=1)
    """The share of the usable window above which a batch is cleared."""

    keep_last: int = Field(default=2, ge=0)
    """Newest results that stay in any case."""

    stride: float = Field(default=0.4, gt=0, lt=1)
    """The share of the usable window that a batch must free: smaller batches cost more of the cache than they save."""

    turns_ahead: int = Field(default=0, ge=0)
    """The most further requests to expect of a conversation (else a quarter of those that it had), within which a batch
    must pay for itself. With 0 only the window counts, and where there is no prompt cache, the stride."""

    native_edit: ClassVar = "clear_tool_uses_20250919"

    def native_fields(self, request: ChatRequest, ctx: Context) -> Mapping[str, Any]:
        if not request.rest.keys().isdisjoint(("context_management", "compaction")):
            return {}
        usable = ctx.model.usable(request)
        edit = {
            "type": self.native_edit,
            "trigger": {"type": "input_tokens", "value": int(usable * self.clear_at)},
            "keep": {"type": "tool_uses", "value": self.keep_last},
            "clear_at_least": {"type": "input_tokens", "value": max(1, int(usable * self.stride))},
            "exclude_tools": [RECALL.name, SEARCH_TOOLS.name],
        }
        return {"context_management": {"edits": [edit]}}

    @property
    def cuts_over(self) -> float:
        return self.clear_at

    async def apply(self, request: ChatRequest, ctx: Context) -> Decision:
        head, talk = split_head(request.messages)
        if sum(message.get("role") == "tool" for message in talk) <= self.keep_last:
            return Keep("no old tool results")
        count = await ctx.tokens.count(request)
        sizes = (await ctx.tokens.sizes(request.messages))[len(head) :]
        sent = as_sent(request, len(head), ctx.incoming) or talk
        born = sizes if sent is talk else await ctx.tokens.sizes(sent)
        room = Room.of(ctx.model.window, ctx.model.usable(request), count.total - sum(sizes), Marks(self.clear_at))
        batches = Batches(
            mark=room.high,
            stride=max(1, int(room.usable * self.stride)),
            keep=self.keep_last,
            due=partial(turns_to_pay, ctx.model.cache),
            ahead=self.turns_ahead,
            spared=frozenset({RECALL.name, SEARCH_TOOLS.name}),
        )
        lines = await ctx.once.run(size_of_notes(talk), partial(lines_of_results, talk))
        chosen = cleared(talk, sizes, born, batches, lines)
        if not chosen:
            return Keep(f"context at {count.total / ctx.model.usable(request):.0%}, no batch to clear")
        messages: list[Message] = list(talk)
        calls = callers(sent, _CALL)
        for index in chosen:
            handle = await ctx.archive.keep(sent[index].text) if ctx.archive else None
            if handle is None:
                return Keep(f"{len(chosen)} tool results to clear, but they could not be archived")
            messages[index] = line(sent[index], handle, calls.get(index, ""), is_short=sizes[index] <= _SMALL)
        standing = await make_standing(messages, ctx)
        if standing is not messages and sum(await ctx.tokens.sizes(standing)) >= sum(sizes):
            return Keep(f"{len(chosen)} tool results to clear, but later results show the same lines")
        return Rewrite(
            request.with_messages([*head, *standing]),
            why=f"cleared {len(chosen)} old tool results",
            facts={"cleared_results": len(chosen)},
        )


LINE, SHORT_LINE = 48, 28
"""The tokens that a cleared result takes, about: one with a line on its content, and a small one with its handle."""
_SMALL, _WORTH = 80, 40
"""Results of at most so many tokens get the short line, or stay."""
_VALUE = re.compile(r'[^\s"\\{}\[\],:]{4,80}')
_VALUES = 64
_RECENT = 64
"""Results among which a batch that pays begins: what stands further back has too much behind it."""
_LIKELY = 0.25
"""Further requests to expect for each that there was: a long conversation goes on longer than a short one, and to be
wrong costs more than to wait."""


@dataclass(frozen=True, slots=True)
class Batches:
    """When results are cleared."""

    mark: int
    """Above so many tokens of conversation, a batch is cleared."""
    stride: int
    """The tokens that a batch must free, unless it pays for itself."""
    keep: int
    """The newest results stay."""
    due: Callable[[int, int], float]
    """After how many further requests a batch has paid that removes so many tokens, in front of so many that stay."""
    ahead: float = 0.0
    """The most further requests that are expected: below the mark, a batch is cleared that has paid before."""
    spared: frozenset[str] = frozenset()
    """Names of tools whose results stay: the model asked for them in full."""


def cleared(
    messages: Sequence[Message],
    sizes: Sequence[int],
    born: Sequence[int],
    batches: Batches,
    lines: Mapping[int, ResultLines] = MappingProxyType({}),
) -> frozenset[int]:
    """Return the indexes of the results to clear. Those of a shorter conversation stay cleared in the longer one.

    A batch leaves out what the model has not read yet and what the calls of the open exchange were made from: results
    that hold a value of their arguments. Of what is left it takes all from a place on, since what follows a change is
    sent anew: from the place where it costs least for what it frees. `lines` of results, by their places, say what
    comes back where they refer to what is cleared.
    """
    walk = _ClearingWalk(messages, sizes, born, batches, lines)
    unread = requests = 0
    for index, message in enumerate(messages):
        walk.take(index)
        if message.get("role") == "tool":
            unread += 0 if is_to_fit(message.text) else max(0, born[index] - walk.sizes[index])
            continue
        if message.get("role") == "assistant":
            unread, requests = 0, requests + 1
        walk.clear(index, unread, min(batches.ahead, requests * _LIKELY))
    return frozenset(walk.gone)


class _ClearingWalk:
    def __init__(
        self,
        messages: Sequence[Message],
        sizes: Sequence[int],
        born: Sequence[int],
        batches: Batches,
        lines: Mapping[int, ResultLines],
    ) -> None:
        self._messages, self._batches, self._lines = messages, batches, lines
        self._notes = {place: max(0, born[place] - sizes[place]) // max(1, len(lines[place].noted)) for place in lines}
        self._settled, self.sizes = sizes, [*sizes]
        self._spared = {
            call
            for message in messages
            for call, name in zip(message.call_ids, message.called_tools, strict=True)
            if name in batches.spared
        }
        self._waiting: list[int] = []
        self._before: list[int] = []
        self._total = self._freed = self._tried = 0
        self.gone: set[int] = set()

    def take(self, index: int) -> None:
        message, size = self._messages[index], self.sizes[index]
        self._before.append(self._total)
        self._total += size
        is_worth = size > _WORTH or is_referring(message.text)  # what it refers to would come back in it
        if is_worth and clearable(message) and message.get("tool_call_id") not in self._spared:
            self._waiting.append(index)
            if len(self._waiting) > self._batches.keep:
                self._freed += _freed(self.sizes[self._waiting[-1 - self._batches.keep]])

    def clear(self, index: int, unread: int, turns: float) -> None:
        """Clear a batch behind this message, where the window forces it or it pays within so many further requests."""
        forced = self._total + unread > self._batches.mark
        least = self._batches.stride if forced or not turns else 1
        if self._freed < max(least, self._tried):
            return
        turns = inf if forced else turns
        old = self._waiting[: len(self._waiting) - self._batches.keep]
        if not self._cheapest(old, least, turns):
            return
        used = _in_use(self._messages, index, old)
        batch = self._cheapest([place for place in old if place not in used], least, turns)
        if not batch:
            self._tried = self._freed + self._freed // 4  # to look for values in use takes long
            return
        self._tried = 0
        self.gone.update(batch)
        self._waiting = [place for place in self._waiting if place not in self.gone]
        self._recount(index)

    def _cheapest(self, places: Sequence[int], least: int, turns: float) -> Sequence[int]:
        """Return the places from one on that pay soonest for what they free; none where no such batch is worth it."""
        removed, best, start = 0, turns, None
        for at in reversed(range(0 if turns == inf else max(0, len(places) - _RECENT), len(places))):
            removed += _freed(self.sizes[places[at]])
            due = self._batches.due(removed, self._total - self._before[places[at]] - removed)
            if removed >= least and due <= best:
                best, start = due, at
        return () if start is None else places[start:]

    def _recount(self, index: int) -> None:
        """Count the lines instead of the results, and what comes back in results that refer to them."""
        there = set[int]()
        for place, lines in self._lines.items():
            if place not in self.gone:
                self.sizes[place] = self._settled[place] + len(lines.noted - there) * self._notes[place]
                there |= lines.all
        for place in self.gone:
            self.sizes[place] = self._settled[place] - _freed(self._settled[place])
        *self._before, self._total = accumulate(self.sizes[: index + 1], initial=0)
        old = self._waiting[: max(0, len(self._waiting) - self._batches.keep)]
        self._freed = sum(_freed(self.sizes[place]) for place in old)


def clearable(message: Message) -> bool:
    """Return whether a message is a tool result of nothing but text."""
    is_text = all(isinstance(part.get("text"), str) for part in message.parts)
    return message.get("role") == "tool" and is_text and isinstance(message.get("content"), (str, list))


def _freed(size: int) -> int:
    """Return the tokens that are free once a result of this size is cleared."""
    return size - (LINE if size > _SMALL else SHORT_LINE)


def line(message: Message, handle: str, call: str, *, is_short: bool = False) -> Message:
    """Return the line in place of a cleared result: its call and its content, if they are not to be short."""
    text = message.text
    about = f": {call or 'a call'} gave {len(text)} characters, {headline(text)}"
    return message.with_changes(content=f'[removed{"" if is_short else about}; {MARKER}{handle}") has it]')


def _in_use(messages: Sequence[Message], index: int, old: Sequence[int]) -> Collection[int]:
    """Return the newest results that hold a value of the open exchange: of the calls of the last message that calls."""
    caller = next((one for one in reversed(messages[: index + 1]) if one.get("tool_calls")), None)
    if caller is None:
        return ()
    values = {value for text in arguments(caller) for value in _VALUE.findall(text[:4000])}
    used: set[int] = set()
    for value in sorted(values)[:_VALUES]:
        holding = next((place for place in reversed(old) if value in messages[place].text), None)
        if holding is not None:
            used.add(holding)
    return used
