"""A plan that a client sends again and again stands once: the newest copy, at its place."""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from proxy.chat import ChatRequest, Message, split_head
from proxy.chat.markers import MARKER
from proxy.context import Context
from proxy.economics import turns_to_pay
from proxy.history.pins import note


class _SystemPlaces(NamedTuple):
    """The places of messages among the first `end` ones."""

    end: int
    places: tuple[int, ...]


_NONE = _SystemPlaces(0, ())


def _with_system(before: _SystemPlaces, messages: Sequence[Message]) -> _SystemPlaces:
    places = [place for place, message in enumerate(messages, before.end) if message.is_system]
    return _SystemPlaces(before.end + len(messages), (*before.places, *places))


async def earlier_copies(request: ChatRequest, ctx: Context) -> dict[int, Message]:
    """References to take the places of system messages in mid-conversation that repeat the plan of a later one.

    Each is archived first. Whether one is replaced depends on what stands up to the next copy alone, so it is the same
    in every later request: where the provider caches prompts, the edit must pay back within as many turns as there
    were so far, because all behind it is written anew.
    """
    if ctx.held or ctx.archive is None:  # nothing may change in front of signed reasoning
        return {}
    messages = request.messages
    system = request.form.fold("system messages", _NONE, _with_system).places
    if len(system) < 2:
        return {}
    notes = await ctx.once.of_each(note, [messages[place] for place in system])
    titles = {
        place: messages[place].text.lstrip().partition("\n")[0]
        for place, noted in zip(system, notes, strict=True)
        if noted.plan is not None
    }
    if len(titles) < 2:
        return {}
    sizes = await ctx.tokens.sizes(messages)
    found: dict[int, Message] = {}
    first = len(split_head(messages)[0])
    copies = [place for place in titles if place >= first and titles[place] == titles[max(titles)]]
    for place, following in pairwise(copies):
        text = messages[place].text
        short = f'[An earlier copy of this plan: {MARKER}{ctx.archive.handle(text)}"). The newest copy stands below.]'
        changed = messages[place].with_changes(content=short)
        (size,) = await ctx.tokens.sizes([changed])
        turns = sum(message.get("role") == "user" for message in messages[:following])
        rewritten = sum(sizes[place + 1 : following])
        if turns_to_pay(ctx.model.cache, sizes[place] - size, rewritten) <= turns and await _is_kept(text, ctx):
            found[place] = changed
    return found


async def _is_kept(text: str, ctx: Context) -> bool:
    archive = ctx.archive
    if archive is None:
        return False
    return bool(await archive.touch([archive.handle(text)])) or await archive.keep(text) is not None
