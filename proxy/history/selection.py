"""Choose what of the messages that leave survives word for word: once for each cut, the same on every replica.

Vectors may come late, so a choice that they took part in is settled in the memo and read from there ever after.
"""

import json
from collections.abc import Hashable, Sequence
from hashlib import blake2b

from proxy.chat import ChatRequest, Message, digest
from proxy.context import Context
from proxy.history.pins import (
    Noted,
    PinnedStatement,
    Pins,
    Place,
    candidates,
    chosen,
    compiled,
    note,
    standing,
    with_statements,
)
from proxy.history.statements import UserSentence, model


async def select(
    gone: Sequence[Message], kept: Sequence[Message], patterns: Sequence[str], size: int, ctx: Context, *, wait: float
) -> Pins:
    """The pins of the messages that leave; what the user laid down in at most about `size` bytes.

    `kept` are the messages that stay and were there when it was decided that the others leave. `wait` is how many
    seconds vectors are waited for; without them form and words decide.
    """
    notes = await ctx.once.of_each(note, [*gone, *kept])
    noted, there = notes[: len(gone)], notes[len(gone) :]
    found = standing(gone, noted, there, [compiled(pattern) for pattern in patterns])
    key = ("laid down", fingerprint(gone), fingerprint(kept), size)
    (known,) = ctx.once.known([key])
    if size <= 0:
        known = ()
    elif known is None:
        known = await _settled(gone, kept, noted, there, size, ctx, wait)
        if not ctx.outage.begun:
            ctx.once.remember(key, known)
    return with_statements(found, known)


async def noteworthy(request: ChatRequest, ctx: Context) -> frozenset[int]:
    """The places of the messages that may have anything to be pinned, but for what an operator's patterns name: all of
    the user's and the system's, and plans."""
    form = request.form
    known: frozenset[int] | None = form.known("noteworthy")
    if known is None:
        count, before = form.resume("noteworthy", frozenset[int]())
        new = dict(enumerate(request.messages[count:], count))
        places = {place for place, message in new.items() if message.is_system or message.get("role") == "user"}
        others = {place: message for place, message in new.items() if place not in places}
        notes = await ctx.once.of_each(note, [*others.values()])
        places |= {place for place, noted in zip(others, notes, strict=True) if noted.plan is not None}
        form.settle("noteworthy", before.union([place for place in places if place < form.settled]))
        known = form.keep("noteworthy", before.union(places))
    return known


async def prepare_vectors(messages: Sequence[Message], ctx: Context) -> None:
    """Begin to make the vectors of the sentences that a cut will judge; those of each message once."""
    embedder = ctx.embedder
    if embedder is None or embedder.name != model().name:
        return
    keys = [("sentences prepared", hash(message.raw), len(message.raw)) for message in messages]
    new = [place for place, known in enumerate(ctx.once.known(keys)) if known is None]
    notes = await ctx.once.of_each(note, [messages[place] for place in new])
    texts = [each.text for each in candidates(notes, ()).values()]
    if texts:
        embedder.prepare(texts)
    for place in new:
        ctx.once.remember(keys[place], True)


async def _settled(
    gone: Sequence[Message],
    kept: Sequence[Message],
    noted: Sequence[Noted],
    there: Sequence[Noted],
    size: int,
    ctx: Context,
    wait: float,
) -> tuple[PinnedStatement, ...]:
    found = candidates(noted, there)
    if ctx.embedder is None or ctx.embedder.name != model().name or not found:
        return chosen([(place, each, each.guess) for place, each in found.items()], size)
    name = await _name(gone, kept, size, ctx)
    if ctx.memo is not None and (value := (await ctx.memo.known([name]))[0]) is not None:
        return _read(value, found)
    texts = [each.text for each in found.values()]
    vectors = await ctx.embedder.along(model().directions, texts, wait=wait)
    judged = zip(found.items(), vectors, strict=True)
    statements = chosen([(place, each, each.judged(vector)) for (place, each), vector in judged], size)
    if ctx.memo is None:
        return statements
    value = json.dumps([[*each.place, each.heading] for each in statements], separators=(",", ":"))
    return _read(await ctx.memo.settle(name, value), found)


def _read(value: str, found: dict[Place, UserSentence]) -> tuple[PinnedStatement, ...]:
    places = [((int(message), int(part)), str(heading)) for message, part, heading in json.loads(value)]
    return tuple(PinnedStatement(place, found[place].text, heading) for place, heading in places if place in found)


async def _name(gone: Sequence[Message], kept: Sequence[Message], size: int, ctx: Context) -> str:
    """A name for what is chosen of: the same on every replica."""
    digests = await ctx.once.of_each(digest, [*gone, *kept])
    running = blake2b(b"%d %d" % (size, len(gone)), digest_size=16)
    for one in digests:
        running.update(one)
    return f"laid-down-{running.hexdigest()}"


def fingerprint(messages: Sequence[Message]) -> Hashable:
    """Equal for messages of equal bytes, in this process; free where their bytes were hashed before."""
    raws = [message.raw for message in messages]
    return hash(tuple(map(hash, raws))), len(raws), sum(map(len, raws))
