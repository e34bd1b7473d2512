"""Find the passages of messages that bear on a question, by their words and by their meaning."""

import re
import unicodedata
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import accumulate, islice
from math import log
from types import MappingProxyType
from typing import NamedTuple

from policies.recall_history.chance import above_chance
from policies.recall_history.relevance import Candidates, Ranked, ranked
from proxy.chat import ChatRequest, Message, digest
from proxy.chat.attachments import attachments, described
from proxy.chat.blocks import passages_block
from proxy.chat.markers import is_shortened
from proxy.chat.passages import Passage, passages
from proxy.chat.provenance import identities, of_client, raws, stands
from proxy.compaction.references import is_referring
from proxy.context import Context
from proxy.history.reading import only_asks
from proxy.text import arrays
from proxy.text.arrays import Array
from proxy.text.bm25 import Fits, Index, index, joined, query_terms, terms
from proxy.text.fold import UNSPACED
from proxy.text.small_talk import asks_nothing

_FRAME = 1
"""Tokens that the line around a passage takes beyond what a message's own frame does."""

_CLEAR = -2.1
"""The least distance from chance (`above_chance`) of a message that is clearly about what left."""
_PERHAPS, _ASKED = -1.5, -2.85
"""The least distance of a message, and of a question, that may be about it."""
_UNCLEAR, _UNSURE = 150, 800
"""The most tokens that come back where it is not clear, and where it is not sure; beyond chance the best passage does
in any case."""
_RARE, _NEAR = 2.0, 0.1
"""It is sure where the terms in one passage are so rare for its length that chance puts them together in one of
`exp(_RARE)` such conversations, or where a passage is so much nearer than small talk."""
_BLOCK = 60
"""Tokens that a block takes beyond its passage, at most about."""
_ASKED_FOR = 16
"""Names in a question that are looked for, at most."""
_PICKS = 3
"""Passages that a name picks out, at most: what stands in more of them points to none."""
_SAID = 0.9
"""The share of a passage's words that its message's form in the prompt has where it says the passage."""
_COVERED = 0.2
"""The part of a question that a passage must have to be about it, if it has `_TERMS` of its terms; rare terms count
more."""
_TERMS = 2
_FIRST = 16
"""Passages with the best words, whose vectors are made first."""
_ROWS = 6
_CHARACTERS = 3
"""Of a token, about."""
_MOST = 1 / 3
"""The part of its terms that is enough in any case, however common they are."""
_REPLY = 80
"""Characters of an answer that says no more than that a statement was heard."""
_AS_NEAR = 0.5
"""The relevance, as a share of the best one's, of a passage that is needed although the summary says the best."""
_MOST_WORDS = 0.5
"""The part of a question, by the rarity of its terms, that the summary must have to say what is asked. Where it does, a
passage is needed that has more than this part of what the summary has of them."""

_BETWEEN = r"[\s#:.№º°-]{0,3}"
_NUMBERED = re.compile(rf"(?<![^\W\d_])([^\W\d_]{{2,40}}|[{UNSPACED}]){_BETWEEN}(\d{{1,9}})(?![\w.,]?\d)")
_CODE = re.compile(r"(?<![\w.,/-])(?=[\w/-]{0,40}\d)(?:[\w/-]{0,20}[^\W\d_][\w/-]{0,20}|[\d-]{5,40})(?![\w/-]|[.,]\d)")
"""A word with a number, `order 50042`, and a code: they name one thing in any language."""
_BESIDE_UNSPACED = re.compile(rf"(?<=[{UNSPACED}])(?=[0-9A-Za-z_])|(?<=[0-9A-Za-z_])(?=[{UNSPACED}])")
_ITEM = re.compile(r"^[ \t]*[(（]?(\d{1,3})[.)）、．]", re.MULTILINE)
"""The mark of an item of a numbered list."""
_DIGIT = re.compile(r"\d")
_QUESTION_MARKS = frozenset("?؟՞")
_SHORTEST = 4
_WORD = re.compile(r"\w+")
_MISSING = "passages that the prompt lacks"
_INDEXES = 32
"""Indexes above which those of messages that left become one."""

Place = tuple[int, int]
"""A passage: its message, and its place in the message."""


class Found(NamedTuple):
    """A passage that bears on a question."""

    place: Place
    share: float
    """Its relevance, as a share of the best one's."""
    tokens: int
    """Its size, the framing included, about."""
    is_about: bool
    """True if it is about the question, and not only the best there is."""
    only_asks: bool = False
    """True if the user asks something in it and says nothing else: then it tells nothing without its answer."""


class SearchResult(NamedTuple):
    """The result of a search."""

    passages: Sequence[Found]
    """The passages, the best first; none where the question does not ask for what left."""
    how: str
    """The reason for them, or for none."""
    most: int | None = None
    """The most tokens that may come back, where it is not clear that any are asked for."""


class HistorySearch:
    """A search in the messages that left a conversation."""

    def __init__(
        self,
        gone: Sequence[int],
        ctx: Context,
        summary: str = "",
        missing: Mapping[int, Collection[int] | None] = MappingProxyType({}),
    ) -> None:
        """Search the client's messages at the places `gone`.

        A passage is not found if it stands word for word in the summary, or if its place has `missing` ones and it is
        none of them.
        """
        messages = ctx.incoming.messages
        turns = [*accumulate(message.get("role") == "user" for message in messages)]
        self._gone, self._turns = tuple(messages[place] for place in gone), [turns[place] for place in gone]
        self._ctx, self._summary = ctx, "".join(summary.split())
        self._missing = [missing.get(place) for place in gone]

    async def find(self, question: str, *, least: float, wait: float) -> SearchResult:
        """Return the passages that a question asks for.

        `least` is the relevance, as a share of the best one's, that a passage must have; `wait` the seconds for which
        missing vectors are waited for.
        """
        if asks_nothing(question):
            return SearchResult((), "nothing is asked")
        numpy = arrays.numpy()
        sizes = _text_sizes(self._gone, numpy.array(await self._ctx.tokens.sizes(self._gone), int))
        there = await self._read()
        candidates = there.candidates(sizes)
        words = Fits(_spaced(question), there.terms)
        meaning = await self._meaning(question, there, candidates.are_user, words.scores, wait)
        is_known = ~numpy.isnan(meaning)
        floor = (
            await self._ctx.services.embedder.floor(question, wait=wait)
            if self._ctx.services.embedder and is_known.any()
            else None
        )
        nearest = None if floor is None else float(numpy.nanmax(meaning))
        covering = _covering(words)
        named = there.named(islice(dict.fromkeys(_names(_spaced(question))), _ASKED_FOR))
        listed = None if named else there.with_item(_spaced(question))
        is_listed = listed is not None and self._stands(there, listed)
        item = None
        if listed is not None and not is_listed and self._is_missing(there.places[listed]):
            item = Found(there.places[listed], 1.0, int(candidates.tokens[listed]), is_about=True)
        most, above = (None, 0.0) if named else await self._clear(question, there, words, nearest, floor)
        if most == 0:
            return (
                SearchResult([item], "by its number") if item else SearchResult((), "nothing of what left is asked for")
            )
        is_about = covering if floor is None else covering | (is_known & (meaning > floor))
        once: dict[str, Ranked] = {}
        for each in ranked(candidates, words.scores, meaning, least):
            once.setdefault(there.texts[each.place], each)
        order = sorted(once.values(), key=lambda each: each.bears not in named)
        order = [each for each in order if self._is_missing(there.places[each.place])]
        in_summary = {each.place: self._stands(there, each.place) for each in order}
        # where the summary says the best, what only stands beside it is not needed
        best = [each.place if _asks(question) else each.bears for each in order[:1]]
        is_said = any(
            in_summary.get(place) and not (_asks(question) and self._lacks_answer(there, place, candidates))
            for place in best
        )
        is_near = is_about & (words.telling >= _TERMS)
        least_words = self._least_words(there, words, candidates, named, is_listed=is_listed)
        matches = [
            Found(
                there.places[place],
                share,
                int(candidates.tokens[place]),
                bool(is_about[bears]),
                bool(candidates.only_ask[place]),
            )
            for place, share, bears in order
            if not in_summary[place]
            and (not least_words or words.shares[bears] > least_words)
            and (not is_said or is_near[place] or (is_about[place] and share >= _AS_NEAR))
        ]
        if is_listed:
            most = _UNCLEAR
        elif most is not None and matches and above >= 0:
            most = max(most, matches[0].tokens + _BLOCK)
        if item is not None:
            matches = [item, *(each for each in matches if each.place != item.place)]
            most = None if most is None else most + item.tokens
        count, known = len(meaning), int(is_known.sum())
        how = "by words and meaning" if known else "by their words"
        how += f" ({known} of {count} vectors were there)" if 0 < known < count else ""
        return SearchResult(matches, how if matches or not order else "the summary says it", most=most)

    def _least_words(
        self,
        there: "_SearchedMessages",
        words: Fits,
        candidates: Candidates,
        named: Collection[int],
        *,
        is_listed: bool,
    ) -> float:
        """Return the part of a question that a passage must exceed to say more than the summary, where that says it.

        It says what is asked if it has the list that the question names an item of, all that it names, or a statement
        with most of the question's terms, of which no passage has more. Beside what it names, words may be common ones.
        """

        def says(place: int) -> bool:
            return self._stands(there, place) and not self._lacks_answer(there, place, candidates)

        if is_listed:
            return _MOST_WORDS
        if named and all(map(says, named)):
            return float(words.shares[[*named]].max())
        most = float(words.shares.max(initial=0.0))
        best = arrays.numpy().flatnonzero(words.shares >= most).tolist() if most >= _MOST_WORDS else ()
        return _MOST_WORDS * most if any(map(says, best)) else 0.0

    def _lacks_answer(self, there: "_SearchedMessages", place: int, candidates: Candidates) -> bool:
        """Return True for a passage that asks for something, or may ask for a long answer that the summary lacks."""
        answer = there.places[place][0] + 1
        if candidates.ask[place] or not candidates.are_user[place] or answer >= len(self._gone):
            return bool(candidates.ask[place])
        text = self._gone[answer].text
        return len(text) > _REPLY and "".join(text.split()) not in self._summary

    def _stands(self, there: "_SearchedMessages", place: int) -> bool:
        """Return True if the summary says a passage; an attachment stands nowhere but in its message."""
        message, _ = there.places[place]
        return not attachments(self._gone[message]) and "".join(there.texts[place].split()) in self._summary

    def _is_missing(self, place: Place) -> bool:
        missing = self._missing[place[0]]
        return missing is None or place[1] in missing

    async def _clear(
        self, question: str, there: "_SearchedMessages", words: Fits, nearest: float | None, floor: float | None
    ) -> tuple[int | None, float]:
        """Return the most tokens that may come back, 0 where a message does not ask for what left; and `above_chance`.

        One that is no nearer to a passage than to small talk does only if it is a question with rare words of it. Where
        no passage has two of its terms, and enough of them, it is not clear: in a long conversation any word and any
        vector is near to something. Where meaning tells little, and such terms may stand together by chance, as common
        words do in a language whose stop words are not known, it is not sure; nor is it where nothing is asked.
        """
        asks = _asks(question)
        is_nearer = nearest is not None and floor is not None and nearest > floor
        if not is_nearer and not (words.telling.any() and (asks or nearest is None)):
            return 0, 0.0
        above = await above_chance(words, nearest, floor, there.texts, there.terms, self._ctx)
        several = words.scores[_covering(words) & (words.terms >= _TERMS)]
        is_chance = several.max(initial=0.0) - log(len(there.texts)) < _RARE
        is_chance = is_chance and nearest is not None and floor is not None and nearest - floor < _NEAR
        if above < (_ASKED if asks else _PERHAPS):
            return 0, above
        most = _UNCLEAR if above < _CLEAR or not several.size else _UNSURE if is_chance or not asks else None
        return most, above

    async def _read(self) -> "_SearchedMessages":
        """Return the passages of all messages and the places of their terms; only newly left messages are read."""
        form, name = self._ctx.incoming.folds.of(self._gone), "passages"
        known: _SearchedMessages | None = form.known(name)
        if known is None:
            nothing = _SearchedMessages(0, (), (), arrays.numpy().zeros((_ROWS, 0), int), ())
            count, before = form.resume(name, nothing)
            new = await self._ctx.once.of_each(_indexed, self._gone[count:])
            settled = before.behind(new[: form.settled - count])
            if len(settled.terms) > _INDEXES:
                settled = settled._replace(terms=(joined(settled.terms),))
            form.settle(name, settled)
            known = form.keep(name, settled.behind(new[form.settled - count :]))
        return known

    async def shown(self, places: Sequence[Place]) -> Message:
        there = sorted(place for place in places if place[0] < len(self._gone))
        read = await self._ctx.once.of_each(_indexed, [self._gone[message] for message, _ in there])
        wanted: dict[int, list[Passage]] = {}
        for (message, part), each in zip(there, read, strict=True):
            wanted.setdefault(message, []).extend(each.passages[part : part + 1])
        return passages_block(self._gone, self._turns, wanted)

    async def _meaning(
        self, question: str, there: "_SearchedMessages", are_user: Array, words: Array, wait: float
    ) -> Array:
        """Return the cosine of each passage; not a number where there is no vector."""
        numpy = arrays.numpy()
        if self._ctx.services.embedder is None or not there.texts:
            return numpy.full(len(there.texts), numpy.nan)
        # should the time not suffice, what shares most words and what the user said have their vectors
        is_best = numpy.zeros(len(words), bool)
        is_best[numpy.argsort(-words, kind="stable")[:_FIRST]] = True
        order = numpy.lexsort((-words, ~are_user, ~is_best)).tolist()
        near = await self._ctx.services.embedder.similarities(question, there.texts, wait=wait, order=order)
        return numpy.array(near, float)


class Left(NamedTuple):
    """The client's messages before the last user message that left the prompt, or stand in it in a shorter form."""

    end: int = 0
    """The messages of the prompt that were looked at."""
    reached: int = 0
    """The client's messages up to the last one that was found."""
    places: Mapping[int, Collection[int] | None] = MappingProxyType({})
    """The passages that their forms lack, by the places of the messages that left; None where one has no form."""
    stand: bool = False
    """True if another form says all that one of them said."""


async def find_left(request: ChatRequest, ctx: Context) -> Left:
    """Return which of the client's messages left, but for system messages and calls in another form.

    A passage stands if the form that its message has in the prompt has its words: it may be a table of them. So does
    one of which notes say where an earlier message shows its lines.
    """
    incoming, asked = ctx.incoming, ctx.incoming.last_user_message
    if request.messages is incoming.messages or asked is None:
        return Left()
    form, name, last = request.form, ("left", incoming.form.lineage), identities(incoming)(id(asked)) or 0
    walk = await _further(form.resume(name, Left())[1], form.settled, last, request, ctx)
    form.settle(name, walk)
    walk = await _further(walk, len(request.messages), last, request, ctx)
    rest = [place for place in range(walk.reached, last) if not incoming.messages[place].is_system]
    if not walk.places and not rest:
        return walk
    said, there = incoming.messages, raws(request)
    places = {place: walk.places.get(place) for place in sorted((*walk.places, *rest))}
    gone = {place: parts for place, parts in places.items() if place < last and said[place].raw not in there}
    return walk._replace(places=gone)


async def _further(before: Left, end: int, last: int, request: ChatRequest, ctx: Context) -> Left:
    """Return what left of the client's messages up to place `last`, by the prompt's messages up to `end`."""
    sent, came = of_client(request, ctx.incoming), ctx.incoming.messages
    place, reached, places, stand = before.end, before.reached, {**before.places}, before.stand
    for place in range(before.end, end):
        at = sent.get(place, -1)
        if at >= last:
            break
        places |= {each: None for each in range(reached, at) if not came[each].is_system}
        message, is_again, reached = request.messages[place], 0 <= at < reached, max(reached, at + 1)
        if at < 0 or (is_again and at not in places):
            continue
        places.pop(at, None)
        if stands(message, came[at]) or message.get("tool_calls") or came[at].is_system:
            continue
        parts = await _lacking(came[at], message, ctx)
        stand = stand or not parts
        if parts:
            places[at] = parts
    else:
        place = max(end, before.end)
    return Left(place, reached, places, stand)


async def _lacking(message: Message, form: Message, ctx: Context) -> Collection[int]:
    if (parts := form.derived(_MISSING)) is None:
        key = (_MISSING, hash(message.raw), len(message.raw), hash(form.raw))
        parts = await ctx.once.of_key(key, len(message.raw), partial(_missing, message, form))
        form.derive(_MISSING, partial(tuple[int, ...], parts))
    lacking: Collection[int] = parts
    return lacking


def _missing(message: Message, form: Message) -> tuple[int, ...]:
    """Return the passages of a message that do not stand in the prompt in another form."""
    text, shown = described(message), form.text
    if is_referring(shown) and not is_shortened(shown) and not is_referring(text):
        return ()
    there = {*_WORD.findall(shown)}
    words = [{*_WORD.findall(part.of(text))} for part in passages(text)]
    stand = [bool(there) and len(own & there) >= _SAID * len(own) for own in words]
    return tuple([place for place, stands in enumerate(stand) if not stands])


async def prepare(messages: Sequence[Message], ctx: Context) -> None:
    """Begin to make the vectors of the passages of messages that will be searched; those of each message once."""
    if ctx.services.embedder is None:
        return
    digests = await ctx.once.of_each(digest, messages)
    keys = [("passages prepared", ctx.services.embedder.name, digest) for digest in digests]
    new = [place for place, known in enumerate(ctx.once.known(keys)) if known is None]
    parts = await ctx.once.of_each(_indexed, [messages[place] for place in new])
    texts = [text for each in parts for text in each.texts]
    if texts:
        ctx.services.embedder.prepare(texts)
    for place in new:
        ctx.once.remember(keys[place], True)


class _Indexed(NamedTuple):
    is_user: bool
    length: int
    """Characters of its text."""
    passages: tuple[Passage, ...]
    texts: tuple[str, ...]
    """The texts of the passages."""
    ask: tuple[bool, ...]
    only_ask: tuple[bool, ...]
    terms: Index
    """Of the texts."""


class _SearchedMessages(NamedTuple):
    read: int
    """Their number."""
    places: tuple[Place, ...]
    """Of each passage."""
    texts: tuple[str, ...]
    """Its text."""
    table: Array
    """Rows of whole numbers, a column for each passage: its message, its characters and those of its message, whether
    it is the user's, whether something is asked in it, and whether nothing else is said."""
    terms: tuple[Index, ...]

    def named(self, names: Iterable[str]) -> frozenset[int]:
        """Return the passages that have one of these names, if it picks out some."""
        picked: set[int] = set()
        for name in names:
            first = next(filter(None, (self._having(name, term) for term in name.split())), ())
            picked.update(first if len(first) <= _PICKS else ())
        return frozenset(picked)

    def _having(self, name: str, term: str) -> Sequence[int]:
        """Return the first passages that have a name, of those with a term of it."""
        words = Fits(term, self.terms)
        places = arrays.numpy().flatnonzero(words.terms >= max(1, words.wanted)).tolist()
        having = (at for at in places if _is_named(name.casefold(), _spaced(self.texts[at]).casefold()))
        return [*islice(having, _PICKS + 1)]

    def with_item(self, question: str) -> int | None:
        """Return the newest passage with a numbered list that has the item which a question names: `point 6`."""
        telling = {*query_terms(question)}
        numbered = _NUMBERED.findall(question) if _DIGIT.search(question) else ()
        numbers = {int(number) for word, number in numbered if not telling.isdisjoint(terms(word))}
        for place in range(len(self.texts) - 1, -1, -1) if numbers else ():
            marks = {*map(int, _ITEM.findall(self.texts[place]))}
            if any(marks >= {number, beside} for number in numbers for beside in (number - 1, number + 1)):
                return place
        return None

    def behind(self, messages: Sequence[_Indexed]) -> "_SearchedMessages":
        if not messages:
            return self
        numbered = list(enumerate(messages, self.read))
        columns = [
            (
                place,
                passage.end - passage.start,
                each.length,
                each.is_user,
                each.is_user and asks,
                each.is_user and only,
            )
            for place, each in numbered
            for passage, asks, only in zip(each.passages, each.ask, each.only_ask, strict=True)
        ]
        numpy = arrays.numpy()
        return _SearchedMessages(
            self.read + len(messages),
            (*self.places, *((place, part) for place, each in numbered for part in range(len(each.passages)))),
            (*self.texts, *(text for each in messages for text in each.texts)),
            numpy.hstack((self.table, numpy.array(columns, int).reshape(-1, _ROWS).T)),
            (*self.terms, *(each.terms for each in messages)),
        )

    def candidates(self, sizes: Array) -> Candidates:
        messages, chars, of, are_user, ask, only_ask = self.table
        return Candidates(messages, are_user > 0, _FRAME + sizes[messages] * chars // of, ask > 0, only_ask > 0)


def _indexed(message: Message) -> _Indexed:
    text = described(message)
    parts = passages(text)
    texts = tuple(part.of(text) for part in parts)
    ask, only = tuple(map(_asks, texts)), tuple(map(only_asks, texts))
    return _Indexed(message.get("role") == "user", len(text), parts, texts, ask, only, index(map(_spaced, texts)))


def _spaced(text: str) -> str:
    """Return a text with a space wherever a name or a number stands beside letters of a script without spaces."""
    return text if text.isascii() else _BESIDE_UNSPACED.sub(" ", text)


def _names(text: str) -> Iterator[str]:
    """Return the things that a text names by a number or a code."""
    if _DIGIT.search(text):  # most texts have none
        yield from (f"{word} {int(number)}" for word, number in _NUMBERED.findall(text) if terms(word))
        yield from (code for code in _CODE.findall(text) if len(code) >= _SHORTEST)


def _is_named(name: str, text: str) -> bool:
    """Return whether a text in lower case names a thing of `_names`."""
    word, _, number = name.partition(" ")
    at = text.find(word)
    while at >= 0:
        if number:
            one = _NUMBERED.match(text, at)
            if one and one[1] == word and int(one[2]) == int(number):
                return True
        elif (one := _CODE.match(text, at)) and one[0] == word:
            return True
        at = text.find(word, at + 1)
    return False


def _text_sizes(messages: Sequence[Message], sizes: Array) -> Array:
    """Return the sizes of messages without attachments: a file is not less about a question for its size."""
    carrying = [place for place, message in enumerate(messages) if attachments(message)]
    if not carrying:
        return sizes
    counted = sizes.copy()
    counted[carrying] = [len(described(messages[place])) // _CHARACTERS for place in carrying]
    return counted


def _asks(text: str) -> bool:
    return not _QUESTION_MARKS.isdisjoint(text if text.isascii() else unicodedata.normalize("NFKC", text))


def _covering(words: Fits) -> Array:
    """Return for each passage whether it has enough of the question's words to be about it."""
    is_much = (words.terms >= _TERMS) & (words.shares >= _COVERED)
    return is_much | ((words.terms > 0) & (words.terms >= _MOST * words.wanted))
