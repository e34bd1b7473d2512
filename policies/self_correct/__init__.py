"""Tell the model what was wrong with its earlier answers."""

import json
from collections.abc import Sequence
from functools import partial
from hashlib import blake2b
from typing import ClassVar, Literal, NamedTuple

from pydantic import Field

from policies.self_correct.faults import faults
from proxy.chat import ChatRequest, Message
from proxy.chat.blocks import CORRECTIONS, build, placed
from proxy.chat.provenance import arrived, of_client
from proxy.context import Context, Correction, Memo
from proxy.policy import AnswerObserver, Count, Decision, Keep, ObservesAnswers, Policy, Rewrite
from proxy.text import counted

Kind = Literal["empty", "language", "json", "arguments", "refusal"]

_ABOUT = "About your earlier answers in this conversation; a remark for you, not a request:"
_MOST = 64
"""Notes that one conversation can have."""


class SelfCorrect(Policy, ObservesAnswers):
    """Leave the model a short note in front of the next user message where an answer of its was plainly wrong.

    Looked for are answers that are empty, that are in another language than the user's, that are no JSON or do not fit
    the schema where `response_format` asked for it, calls whose arguments do not fit the tool's parameters, and a
    refusal that was given before. Answers are looked at when the client has all of them, so nothing is delayed. A note
    is one sentence for each, in the user's role, and names nothing but tools and places of a schema; once it stands in
    front of a user message it stays there. Put it last.
    """

    may_grow: ClassVar[bool] = True
    gives_way: ClassVar[bool] = True
    counted: ClassVar = {
        "correction_notes": Count("correction_notes", "Notes about earlier answers that were put into requests.")
    }

    kinds: tuple[Kind, ...] = ("empty", "language", "json", "arguments", "refusal")
    """The faults that are looked for."""

    cooldown: float = Field(default=7200.0, gt=0)
    """Seconds after a note within which there is no other of its kind."""

    expiry: float = Field(default=86400.0, gt=0)
    """Seconds after which a note that no request has taken up is dropped."""

    @property
    def observer(self) -> AnswerObserver:
        return AnswerObserver(partial(faults, kinds=frozenset(self.kinds)), self.cooldown, self.expiry)

    async def apply(self, request: ChatRequest, ctx: Context) -> Decision:
        """Put back the notes that were placed before, and place what is new in front of the last user message."""
        if ctx.corrections is None or ctx.memo is None:
            return Keep("nobody looks at the answers here")
        users = _anchors(ctx.incoming.messages)
        placed = await _placed(ctx.memo)
        # behind the message that the model is at work on nothing may change any more
        if users and ctx.incoming.messages[-1] is users[-1][1]:
            placed = await _with_new(users[-1][0], placed, await ctx.corrections.pending(self.kinds), ctx.memo)
        texts = {note.anchor: note.text for note in placed}
        notes = {id(message): texts[anchor] for anchor, message in users if anchor in texts}
        noted = _with_notes(request, ctx.incoming, notes)
        if noted is request:
            return Keep("no note to place" if not notes else "the notes stand there already")
        why = f"{counted(len(notes), 'note')} about earlier answers"
        new = len(notes.keys() & arrived(ctx.incoming.messages))
        facts = {"correction_notes": len(notes), "correction_notes_new": new}
        return Rewrite(noted, why, facts, _findings(notes, ctx.incoming.messages))


class _Note(NamedTuple):
    """A note that was placed."""

    anchor: str
    """Stands for the user message that it is in front of."""
    names: list[str]
    """The corrections that it is about."""
    text: str


def _anchors(messages: Sequence[Message]) -> list[tuple[str, Message]]:
    """Return the user messages, each behind its anchor: a hash of its bytes and the number of those before it."""
    users = [message for message in messages if message.get("role") == "user"]
    return [
        (blake2b(f"{place} ".encode() + message.raw, digest_size=12).hexdigest(), message)
        for place, message in enumerate(users)
    ]


async def _placed(memo: Memo) -> list[_Note]:
    """Return the notes of this conversation, in the order in which they were placed."""
    notes: list[_Note] = []
    while len(notes) < _MOST:
        value = (await memo.known([_slot(len(notes))]))[0]
        if value is None:
            break
        notes.append(_Note(*json.loads(value)))
    return notes


async def _with_new(anchor: str, placed: list[_Note], pending: Sequence[Correction], memo: Memo) -> list[_Note]:
    """Return the notes, with a new one in front of this message about faults that no note was about yet."""
    told = {name for note in placed for name in note.names}
    new = [each for each in pending if each.name not in told]
    if not new or any(note.anchor == anchor for note in placed):
        return placed
    mine = _Note(anchor, [each.name for each in new], "\n".join(f"- {each.text}" for each in new))
    while len(placed) < _MOST:
        settled = _Note(*json.loads(await memo.settle(_slot(len(placed)), json.dumps(mine))))
        placed = [*placed, settled]
        if settled.anchor == anchor:
            break  # by this request, or by the same one elsewhere
    return placed


def _with_notes(request: ChatRequest, incoming: ChatRequest, notes: dict[int, str]) -> ChatRequest:
    """Return the request with a note in front of each of these messages; the same where they stand there already."""
    blocks: dict[int, list[Message]] = {}
    for place, at in of_client(request, incoming).items() if notes else ():
        if (text := notes.get(id(incoming.messages[at]))) is not None:
            note = build(CORRECTIONS, _ABOUT, [text])
            if place == 0 or request.messages[place - 1] != note:
                blocks[place] = [note]
    return request.with_messages(placed(request.messages, blocks)) if blocks else request


def _findings(notes: dict[int, str], messages: Sequence[Message]) -> list[str]:
    """Return the faults of answers, by the user message that stands behind them: the notes quote none of them."""
    return [
        f"before messages[{place}]: {fault.removeprefix('- ')}"
        for place, message in enumerate(messages)
        for fault in notes.get(id(message), "").splitlines()
    ]


def _slot(place: int) -> str:
    return f"self_correct/{place}"
