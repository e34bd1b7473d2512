"""Summaries of messages that leave a conversation, which are archived first. A summary is data in the user's role."""

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from itertools import islice, pairwise
from math import ceil

from proxy.chat import CONTROL, Message
from proxy.chat.blocks import SUMMARY
from proxy.chat.markers import MARKER
from proxy.chat.provenance import identities, sent_as
from proxy.context import Archive, Context, Material
from proxy.history.digest import Line, block, choose, lines
from proxy.history.pins import marked, open_plan
from proxy.history.reading import clipped, read

BYTES = 3.5
"""Bytes that a token of a summary takes, about; where identifiers and numbers take less, it is made again, shorter."""
_SMALLEST = 200
_SHRINKING = (1.15, 1.1, 1.05, 1.0, 0.9, 0.8, 0.7, 0.5, 0.25, 0.0)
"""Shares of the room that are tried until the digest fits: the chosen lines may have fewer tokens a byte than all."""
_WRITTEN_FROM = 0.5
WRITTEN = 0.4
"""The share of the room that a model's text may take."""
_TOGETHER = 2
_LEVEL = 20
"""Turns that share a line of the list of entries."""
_WORDS = 80
_FIRST = 5
"""Among so many messages behind the head the summary is: it may stand behind a carried one, or behind pins."""


@dataclass(frozen=True, slots=True)
class Leaving:
    """A conversation without its head, and what of it leaves."""

    talk: Sequence[Message]
    sent: Sequence[Message]
    """The same messages as the client sent them."""
    ends: tuple[int, ...]
    """Where it was cut, the oldest first: the messages before the last of them leave."""
    at: int
    """The index of the message at which the last cut was decided."""
    carried: int | None = None

    @property
    def start(self) -> int:
        """The index of the first message that stays."""
        return self.ends[-1]

    @property
    def count(self) -> int:
        return self.start - (self.carried is not None) - len(self.controls)

    @property
    def controls(self) -> list[Message]:
        """The messages before the cut that never leave: they say how the rest is to be read."""
        return [message for message in self.talk[: self.start] if message.role == CONTROL]

    def since(self, end: int) -> list[Message]:
        """Return the messages that the model got in full since the cut, up to an index, the carried one among them."""
        carried = [] if self.carried is None else [self.sent[self.carried]]
        return [*carried, *self.sent[self.start : end]] if self.start < end else []

    def without_carried(self, messages: Sequence[Message]) -> list[Message]:
        parted = self.start if self.carried is None else self.carried
        return [*messages[:parted], *messages[parted + 1 : self.start]]


@dataclass(frozen=True, slots=True)
class SummarySize:
    """The size that a summary may have."""

    tokens: int
    patterns: tuple[str, ...] = ()
    """Lines that match one of these regular expressions stay word for word."""

    @property
    def size(self) -> int:
        return max(_SMALLEST, int(self.tokens * BYTES))


@dataclass(frozen=True, slots=True)
class Written:
    """A model's summary of the beginning of the leaving messages."""

    text: str = ""
    end: int = 0
    """The index of the first message that it does not tell of."""


def is_summarised(talk: Iterable[Message], ctx: Context) -> bool:
    """Return True if a summary was made in this request: one that the client sends is content like any other."""
    first = [*islice((message for message in talk if message.role != CONTROL), _FIRST)]
    begins = [place for place, message in enumerate(first) if message.text.startswith(f"<{SUMMARY}>")]
    if not begins:
        return False
    theirs = identities(ctx.incoming)
    return any(sent_as(first[place], theirs) is None and first[place] not in ctx.incoming.messages for place in begins)


async def read_ahead(sent: Sequence[Message], ctx: Context, near: float) -> None:
    """Read the share `near` of the messages, the oldest first: a little in each request, for the next cut."""
    await ctx.once.of_each(read, sent[: ceil(len(sent) * min(max(near, 0.0), 1.0))])


async def archived(leaving: Leaving, ctx: Context) -> tuple[str, ...] | None:
    """Return the handles of what leaves, as JSON lines; None where something could not be kept: then nothing may leave.

    An entry holds what one cut removed, or two, four, ...; the handle of one more lists them if they are more than two.
    """
    if ctx.archive is None:
        return None
    archive, handles = ctx.archive, []
    parts = [leaving.sent[start:end] for start, end in pairwise((0, *levels(leaving.ends)))]
    for part in parts:
        work = partial(_handle, archive, part)
        handles.append(await ctx.once.of_key(("handle", fingerprint(part)), _size(part), work))
    listed = contents(parts, handles) if len(handles) > 2 else ""
    shown = [archive.handle(listed)] if listed else handles
    there = await archive.touch([*handles, *shown])
    for handle, part in zip(handles, parts, strict=True):
        if handle not in there and await archive.keep(_lines(part)) is None:
            return None
    if listed and shown[0] not in there and await archive.keep(listed) is None:
        return None
    return tuple(shown)


def contents(parts: Sequence[Sequence[Message]], handles: Sequence[str]) -> str:
    """Return a line for each twenty turns of the parts of a conversation: their span, handle, and first words."""
    lines = ["Turns that left, each twenty with the handle of their text and the words that they begin with:"]
    turn = 0
    for part, handle in zip(parts, handles, strict=True):
        users = [message.text for message in part if message.get("role") == "user"] or [""]
        for first in range(0, len(users), _LEVEL):
            last = min(first + _LEVEL, len(users))
            words = clipped(" ".join(users[first][:_SMALLEST].split()), _WORDS)
            lines.append(f'{turn + first + 1}-{turn + last}: {MARKER}{handle}") {words} [...]')
        turn += sum(message.get("role") == "user" for message in part)
    return "\n".join(lines)


def levels(ends: Sequence[int]) -> list[int]:
    """Return the places between the archive's entries: the older the cuts, the more of them share one."""
    count, places, block = len(ends), [], 1
    while block <= count:
        block *= _TOGETHER
    place = 0
    while block > 1:
        block //= _TOGETHER
        while place + block <= count:
            place += block
            places.append(ends[place - 1])
    return places


async def summarised(
    leaving: Leaving,
    handles: tuple[str, ...],
    measure: SummarySize,
    ctx: Context,
    written: Written | None = None,
    shown: int = 0,
) -> list[Message] | None:
    """Return the messages that replace the leaving ones, in their room; None if even the shortest would be longer.

    What a model has written stands for the answers of its part, if it fits. The last `shown` messages need no line.
    """
    used = written if written is not None and len(written.text.encode()) <= measure.size * WRITTEN else Written()
    carried = () if leaving.carried is None else (leaving.talk[leaving.carried],)
    start = leaving.start - shown
    sent, staying = leaving.sent[:start], leaving.sent[start : leaving.at + 1]
    replaced = sum(await ctx.tokens.sizes(leaving.without_carried(leaving.talk)))
    key = ("digest", fingerprint(sent), fingerprint(staying), leaving.carried, measure, used, handles, replaced, shown)
    (known,) = ctx.once.known([key])
    if known is None:
        readings = await ctx.once.of_each(read, sent)
        work = partial(lines, sent, readings, staying, leaving.carried, used.end)
        digest_lines = await ctx.once.of_key((*key, "lines"), _size(sent), work)
        known = (await _digest(leaving, digest_lines, handles, measure, ctx, used.text, replaced, shown),)
        ctx.once.remember(key, known)
    # first the carried one, because it outlasts the summary in the cache
    return None if known[0] is None else [*carried, known[0]]


async def _digest(
    leaving: Leaving,
    digest_lines: Sequence[Line],
    handles: Sequence[str],
    measure: SummarySize,
    ctx: Context,
    written: str,
    replaced: int,
    last: int,
) -> Message | None:
    """Return the digest of these lines that fits its room and has fewer tokens than the messages it replaces.

    The `last` of these are shown behind it.
    """
    gone = leaving.without_carried(leaving.sent)
    staying = [*gone[len(gone) - last :], *leaving.since(leaving.at + 1)]
    pinned, plan = marked(gone, measure.patterns), open_plan(gone, staying)
    every = Message({"role": "user", "content": "\n".join(line.text for line in digest_lines)})
    for share in _SHRINKING:
        frame = partial(block, pinned=pinned if share else (), plan=plan if share else None, count=leaving.count)
        digest = frame((), handles=handles, written=written if share > _WRITTEN_FROM else "")
        fixed, whole = await ctx.tokens.sizes([digest, every])
        free = min(int((measure.tokens - fixed) * share), int(replaced * 0.9) - fixed)
        shown = choose(digest_lines, free * sum(line.size for line in digest_lines) // max(whole, 1))
        digest = frame(shown, handles=handles, written=written if share > _WRITTEN_FROM else "")
        (tokens,) = await ctx.tokens.sizes([digest])
        if tokens < replaced and (tokens <= measure.tokens or not share):
            return digest
    return None


async def settled(leaving: Leaving, end: int, measure: SummarySize, ctx: Context) -> Written | None:
    """Return a model's summary of the messages before `end`, if it was ready when this cut was first used."""
    if ctx.services.drafts is None or not end:
        return None
    cut = await _name(leaving.sent[: leaving.start], measure, ctx)
    text = await ctx.services.drafts.settled(f"{cut}.{end}", await _name(leaving.sent[:end], measure, ctx))
    return Written(text, end) if text else None


async def prepare(
    gone: Sequence[Message], since: Sequence[Message], about: Sequence[Message], measure: SummarySize, ctx: Context
) -> None:
    """Have the summary written that a cut behind `gone` would need, of one in `about` and the messages `since`."""
    if ctx.services.drafts is None or not since:
        return
    before = next((message.text for message in about if message.text.startswith(f"<{SUMMARY}>")), "")
    name = await _name(gone, measure, ctx)
    ctx.services.drafts.prepare(Material(name, before, tuple(since), int(measure.size * WRITTEN)))


async def _name(messages: Sequence[Message], measure: SummarySize, ctx: Context) -> str:
    """Return a name for messages and the room of their summary, the same on every replica."""
    work = partial(_hash, messages, measure)
    return await ctx.once.of_key(("name", fingerprint(messages), measure), _size(messages), work)


def _hash(messages: Sequence[Message], measure: SummarySize) -> str:
    digest = blake2b(repr(measure).encode(), digest_size=20)
    for message in messages:
        digest.update(len(message.raw).to_bytes(8, "big") + message.raw)
    return digest.hexdigest()


def fingerprint(messages: Sequence[Message]) -> Hashable:
    """Return a key that is equal for messages of equal bytes, in this process; cheap if their hashes are known."""
    raws = [message.raw for message in messages]
    return hash(tuple(map(hash, raws))), len(raws), sum(map(len, raws))


def _size(messages: Sequence[Message]) -> int:
    return sum([len(message.raw) for message in messages])


def _handle(archive: Archive, messages: Sequence[Message]) -> str:
    return archive.handle(_lines(messages))


def _lines(messages: Sequence[Message]) -> str:
    return "\n".join(message.raw.decode(errors="replace") for message in messages)
