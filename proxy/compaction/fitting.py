"""Short forms of exchanges that are too large for the window even if all before them left.

The form depends on what stands before an exchange and on itself, so each later request makes the same form again.
"""

import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property, partial
from itertools import accumulate, pairwise
from typing import NamedTuple

from proxy.chat import ChatRequest, Message, head_of, legal_cuts
from proxy.chat.markers import MARKER_TOKENS, is_shortened, marked_handle, shortened
from proxy.chat.provenance import of_client
from proxy.chat.texts import Text, arguments, texts_of, with_text
from proxy.compaction.excerpts import excerpt, line_starts
from proxy.compaction.form import rows
from proxy.compaction.pieces import parts
from proxy.compaction.preview import divided
from proxy.compaction.references import BESIDE, Shown, is_referring, with_references
from proxy.context import Archive, Context
from proxy.history.cuts import Marks, Room, as_sent

_FULL = Marks(high=0.94, critical=0.94)
"""The share of the window in which the newest exchange stays whole, just below the limit of `reject_oversize`."""
_LEAST = 16
"""A text may always have this part of the usable window."""
_PART = 4
"""The part of the free window that a call's results may take where no earlier message may be cut."""
_TRIES = 4
_BESIDE = 4
"""Texts at the start and at the end of an exchange whose own words say what a text is asked for."""


async def is_ours(text: str, archive: Archive | None) -> bool:
    """Return True if a text ends in a marker whose handle is in the archive. A forged marker is content."""
    handle = marked_handle(text)
    return handle is not None and archive is not None and handle in await archive.touch([handle])


async def forced(request: ChatRequest, ctx: Context, share: float) -> dict[int, Message]:
    """Return the short forms of the messages that are too large to be sent, by their places; all of them are archived.

    The form of a text that is much too long takes at most `share` of the usable window.
    """
    if ctx.archive is None:
        return {}
    head = head_of(request.messages)
    total, came = (await ctx.tokens.count(request)).total, (await ctx.tokens.count(ctx.incoming)).total
    own = sum((await ctx.tokens.sizes(request.messages))[len(head) :])
    room = Room.of(ctx.model.window, ctx.model.usable(request), total - own, _FULL)
    # what could stand beside an exchange is at most this: then even all together is not too large
    if not ctx.frozen and own + came <= room.high - room.summary - room.usable // _LEAST:
        return {}
    walk = _FittingWalk(request, len(head), room, share, ctx)
    return await walk.through(sorted(legal_cuts(request.messages[len(head) :])))


class _FittingWalk:
    def __init__(self, request: ChatRequest, head: int, room: Room, share: float, ctx: Context) -> None:
        self._messages, self._head, self._room, self._ctx = request.messages, head, room, ctx
        self._most = int(room.usable * share)
        self._least = room.usable // _LEAST
        self._tools = self._least if request.tools else 0
        self._theirs = _places(request, head, ctx.incoming)
        self._user: int | None = None
        self._done: dict[int, Message] = {}

    async def through(self, cuts: Sequence[int]) -> dict[int, Message]:
        messages = self._messages[self._head :]
        if not self._ctx.frozen:
            messages = tuple(map(self._original, range(self._head, len(self._messages))))
        sizes = await self._ctx.tokens.sizes(messages)
        before = [0, *accumulate(sizes)]
        sent = carried = 0
        for start, end in pairwise(cuts):
            places, tokens = range(self._head + start, self._head + end), before[end] - before[start]
            is_user = messages[start].get("role") == "user"
            if is_user:
                self._user, carried = places[0], 0
            past = before[start] - (0 if self._user is None or is_user else sizes[self._user - self._head])
            most = self._limit(sent, carried, past, is_user=is_user)
            if tokens > most and places[0] >= self._ctx.frozen:
                tokens = await self._shorten(places, most)
            sent, carried = sent + tokens, tokens if is_user else carried
        return self._done

    def _limit(self, sent: int, carried: int, past: int, *, is_user: bool) -> int:
        """Return the tokens that an exchange may have.

        Where no earlier message may be cut, results leave room for those to come; a user's message need not.
        """
        high = self._room.high
        if self._ctx.frozen:
            return high if is_user else max(self._least // _PART, (high - sent) // _PART)
        # beside a user's message stands what it answers, and what the conversation began with
        beside = max(self._tools, min(self._least, past)) if is_user else carried
        return max(self._least, high - min(self._room.summary, past) - beside)

    def _original(self, place: int) -> Message:
        return self._ctx.incoming.messages[self._theirs[place]] if place in self._theirs else self._messages[place]

    async def _shorten(self, places: Sequence[int], most: int) -> int:
        """Give as few as possible of an exchange's largest texts their forms; return its tokens then."""
        texts = {place: await self._texts(place) for place in places if place in self._theirs}
        originals = {place: with_text(self._messages[place], *texts.get(place, ())) for place in places}
        sizes = [(text.sent_tokens, text) for own in texts.values() for text in own]
        whole = await self._tokens([*originals.values()])
        if whole > most and any(is_referring(self._messages[place].text) for place in texts):
            referring = await self._tokens(_with_references(originals))
            whole = referring if referring <= most else whole
        if whole <= most or not sizes:
            return whole
        rest = sum(size for size, _ in sizes)
        room = most - (whole - rest)
        sizes.sort(key=lambda pair: -pair[0])
        for count, (size, _) in enumerate(sizes, 1):
            rest -= size
            each = (room - rest) // count
            if each >= self._least or count == len(sizes):
                break
        every = [text for own in texts.values() for text in own]
        beside = every if len(every) <= 2 * _BESIDE else [*every[:_BESIDE], *every[-_BESIDE:]]
        short: dict[int, list[Text]] = {}
        for size, text in sizes[:count]:
            # what is a little too long loses a little, of what is much too long an outline stays
            most = max(0, min(each, max(self._most, 2 * each - size)))
            if size > max(each, MARKER_TOKENS) and await self._fit(text, beside, most):
                short.setdefault(text.message, []).append(text)
        for place, own in short.items():
            self._done[place] = with_text(self._messages[place], *own)
        return await self._tokens([self._done.get(place, originals[place]) for place in places])

    async def _texts(self, place: int) -> list[Text]:
        """Return the texts of a message that may take a form, as they are sent first, with their tokens."""
        message, original = self._messages[place], self._original(place)
        if message.role not in ("user", "tool") or len(message.parts) != len(original.parts):
            return []
        now = {text.part: text.original for text in texts_of(place, message, message.role)}
        texts = []
        for text in texts_of(place, original, message.role):
            if await is_ours(text.original, self._ctx.archive):
                continue
            if now.get(text.part) != text.original and message.role == "tool":
                text.sent = (await self._ctx.once.of(rows, text.original)).text
            texts.append(text)
        alone = [Message({"role": message.role, "content": text.sent}) for text in texts]
        for text, size in zip(texts, await self._ctx.tokens.sizes(alone), strict=True):
            text.sent_tokens = size
        return texts

    async def _fit(self, text: Text, beside: Sequence[Text], tokens: int) -> bool:
        """Give a text a form of at most so many tokens; return False if the user's own words are too long."""
        archive = self._ctx.archive
        if archive is None:
            return False
        queries, handle = self._queries(text, beside), archive.handle(text.original)
        is_user = self._messages[text.message].get("role") == "user"
        line = 1 if text.sent == text.original else None
        room = len(text.sent) * tokens // max(1, text.sent_tokens)
        form = ""
        for _ in range(_TRIES):
            make = (
                partial(fitted, text.original, queries, room)
                if is_user
                else partial(excerpt, text.sent, queries, room, line)
            )
            key = ("fitting", hash(text.original), len(text.original), is_user, line, queries, room)
            excerpted = await self._ctx.once.of_key(key, len(text.original), make)
            form = shortened(excerpted, len(text.original), handle, to_fit=True)
            size = await self._tokens([Message({"role": "tool", "content": form})])
            if size <= tokens or not room:
                break
            room = min(room - 1, room * tokens // size * 19 // 20)
        if size < text.sent_tokens and is_shortened(form) and await archive.keep(text.original) is not None:
            text.sent = form
            return True
        return False

    def _queries(self, text: Text, beside: Sequence[Text]) -> tuple[str, ...]:
        """Return the queries that select passages of a text: the user's question; for a result, its call too."""
        message = self._messages[text.message]
        if message.get("role") == "user":
            return tuple(words for other in beside if other is not text for words in own_words(other.original))
        asked = () if self._user is None else own_words(self._original(self._user).text)
        return (*asked, *self._called.get(str(message.get("tool_call_id", "")), ()))

    @cached_property
    def _called(self) -> Mapping[str, Sequence[str]]:
        called: dict[str, list[str]] = {}
        for message in self._messages:
            for call, words in dict(zip(message.call_ids, arguments(message), strict=False)).items():
                if words:
                    called.setdefault(call, []).append(words)
        return called

    async def _tokens(self, messages: Sequence[Message]) -> int:
        return sum(await self._ctx.tokens.sizes(messages))


def _with_references(originals: Mapping[int, Message]) -> Sequence[Message]:
    """Return the messages of an exchange in which results refer to the lines of those before them in it."""
    earlier, messages = list[Shown](), list[Message]()
    for place, message in originals.items():
        own = list(texts_of(place, message))
        for text in own:
            text.sent, _, lines = with_references(text.original, earlier, BESIDE)
            earlier += [lines] if lines is not None else []
        messages.append(with_text(message, *own))
    return messages


def _places(request: ChatRequest, head: int, incoming: ChatRequest) -> Mapping[int, int]:
    """Return the places of the client's messages, each with that in `incoming`; one to one where no step added any."""
    if as_sent(request, head, incoming) is None:
        return of_client(request, incoming)
    offset = len(incoming.messages) - len(request.messages)
    return {place: place + offset for place in range(head, len(request.messages))}


_OWN = 1500
_ASIDE = 600
"""Characters of further paragraphs at an end of a document that stay with the first one."""
_END = 300
"""Characters that stay at an end that has no paragraph of its own."""
_THANKS = 30
_BREAK = re.compile(r"\n[ \t]*\n")
_ASKS = re.compile(r"[?？؟]\s*$", re.MULTILINE)
_SAYS_ALL = re.compile(r"[?？؟:：]\s*\Z")
"""The end of a question, or of a lead to a document."""


class _Piece(NamedTuple):
    """A large part of a message: what stays of it word for word, and the document between."""

    head: str
    document: str
    tail: str


def own_words(text: str) -> tuple[str, ...]:
    """Return the user's own words in a message, without the documents in it; questions first."""
    said: list[str] = []
    for piece in _divided(text):
        # of what stays at the ends, the outermost paragraph is the user's, the others may be the document's
        said += [piece.strip()] if isinstance(piece, str) else [_outer(piece.head, 1), _outer(piece.tail, -1)]
    return tuple(sorted(filter(None, dict.fromkeys(said)), key=lambda words: _ASKS.search(words) is None))


def fitted(text: str, queries: Sequence[str], room: int) -> str:
    """Return a message in about `room` characters: the user's words, and excerpts of documents by `queries`."""
    pieces = list(_divided(text))
    queries = tuple(dict.fromkeys((*queries, *own_words(text))))
    documents = sum(len(piece.document) for piece in pieces if isinstance(piece, _Piece))
    own = sum(len(piece) if isinstance(piece, str) else len(piece.head) + len(piece.tail) for piece in pieces)
    starts, shown, at = line_starts(text), [], 0
    for piece in pieces:
        if isinstance(piece, str):
            shown.append(piece)
            continue
        at = text.index(piece.document, at)
        line = bisect_right(starts, at) if starts is not None else None
        share = max(0, room - own) * len(piece.document) // max(1, documents)
        shown += filter(None, (piece.head, excerpt(piece.document, queries, share, line), piece.tail))
    return "\n".join(shown)


def _divided(text: str) -> Iterator[str | _Piece]:
    for part, marked in divided(text):
        if len(part) <= _OWN:
            yield part
        elif marked:
            first, _, rest = part.partition("\n")
            body, _, last = rest.rpartition("\n")
            yield _Piece(first, body, last)
        else:
            head, tail = _end(part, first=True), _end(part, first=False)
            document = part[len(head) : len(part) - len(tail)]
            yield _Piece(head.rstrip(), document.strip("\n"), tail.lstrip())


def _outer(text: str, step: int) -> str:
    paragraphs = [part for part in _BREAK.split(text.strip()) if part.strip()][::step]
    many = 2 if paragraphs and len(paragraphs[0]) < _THANKS and not _SAYS_ALL.search(paragraphs[0]) else 1
    return "\n".join(paragraphs[:many][::step])


def _end(text: str, *, first: bool) -> str:
    """Return the user's own words at one end: a short paragraph, with others as long as all of them are short."""
    breaks = [found.end() if first else found.start() for found in _BREAK.finditer(text)]
    sizes = breaks if first else [len(text) - place for place in reversed(breaks)]
    near = [size for size in sizes if size <= _ASIDE] or [size for size in sizes[:1] if size <= _OWN]
    if near:
        return text[: near[-1]] if first else text[len(text) - near[-1] :]
    line = text.partition("\n")[0] if first else text.rpartition("\n")[2]
    if "\n" in text and len(line) <= _ASIDE:
        return text[: len(line)] if first else text[len(text) - len(line) :]
    start, _, last = parts(text, *((_END, 0) if first else (0, _END)))
    return start if first else last
