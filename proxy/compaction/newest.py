"""The newest of what leaves a conversation: it has the room that the summary leaves of its own."""

from collections.abc import Sequence
from functools import partial
from itertools import pairwise

from proxy.chat import Message, legal_cuts
from proxy.chat.markers import shortened
from proxy.chat.texts import texts_of, with_text
from proxy.compaction import condensed
from proxy.context import Archive, Context
from proxy.history.summaries import Leaving, SummarySize

_PART = 8
"""A text that the model got may take this part of the summary's room."""


async def newest(leaving: Leaving, before: Sequence[Message], measure: SummarySize, ctx: Context) -> list[Message]:
    """Return the newest exchanges that leave, as far as the summary's room allows, behind the carried summary.

    They begin with the assistant, whose words stay whole; the texts of others are short.
    """
    if ctx.archive is None:
        return []
    most = measure.size // _PART
    room = measure.tokens - sum(await ctx.tokens.sizes(before[leaving.carried is not None :]))
    cuts = [place for place in sorted(legal_cuts(leaving.talk)) if place <= leaving.start]
    newest: list[Message] = []
    waiting: list[Message] = []
    for start, end in reversed([*pairwise(cuts)]):
        if leaving.carried is not None and start <= leaving.carried:
            break
        exchange = [await _short(leaving, place, most, ctx.archive, ctx) for place in range(start, end)]
        room -= sum(await ctx.tokens.sizes(exchange))
        if room < 0:
            break
        waiting = [*exchange, *waiting]
        if exchange[0].get("role") == "assistant":
            newest, waiting = [*waiting, *newest], []
    return newest


async def _short(leaving: Leaving, place: int, most: int, archive: Archive, ctx: Context) -> Message:
    """Return a message that leaves; a user's or tool's text has at most about so many characters."""
    message, sent = leaving.talk[place], leaving.sent[place]
    if message.get("role") not in ("user", "tool") or len(message.text) <= most:
        return message
    changed = []
    for text in texts_of(place, sent, str(sent.get("role"))):
        if len(text.original) > most and (handle := await archive.keep(text.original)) is not None:
            key = ("newest", hash(text.original), len(text.original), most)
            form = await ctx.once.of_key(key, len(text.original), partial(condensed, text.original, most))
            text.sent = shortened(form, len(text.original), handle)
            changed.append(text)
    return with_text(sent, *changed)
