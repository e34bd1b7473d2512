"""Tell the model what was wrong with its earlier answers."""

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from hashlib import blake2b
from typing import Any, ClassVar, Literal

import orjson
from pydantic import Field

from proxy.chat import ChatRequest, Message, encode
from proxy.chat.answer import Answer
from proxy.chat.blocks import CORRECTIONS, build, placed
from proxy.chat.provenance import arrived, of_client
from proxy.context import Context, Correction, Memo
from proxy.policy import AnswerObserver, Count, Decision, Keep, ObservesAnswers, Policy, Rewrite
from proxy.text import counted
from proxy.text.bm25 import terms
from proxy.text.language import NAMES, language, named
from proxy.text.tables import patterns

Kind = Literal["empty", "language", "json", "arguments", "refusal"]

_NOTES = "notes of self_correct"
_ABOUT = "About your earlier answers in this conversation; a remark for you, not a request:"


class SelfCorrect(Policy, ObservesAnswers):
    """Leave the model a short note in front of the next user message where an answer of its was plainly wrong.

    Faults are an empty answer, one in another language than the user's, one that is no JSON or does not fit the schema
    of `response_format`, arguments that do not fit the tool's parameters, and a refusal that was given before. Nothing
    is delayed. A note has one sentence a fault, in the user's role, and names only tools and places of a schema; it
    stays where it stands. Put it last.
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
        if ctx.services.corrections is None or ctx.memo is None:
            return Keep("nobody looks at the answers here")
        messages, form = ctx.incoming.messages, ctx.incoming.form
        count, settled = form.resume(_NOTES, dict[int, str]())  # in front of an answered message none is placed later
        anchors = _anchors(messages, count)
        placed = await ctx.memo.known([*anchors.values()])
        notes = settled | {place: note for place, note in zip(anchors, placed, strict=True) if note is not None}
        last = max(anchors, default=-1)
        # behind the message that the model is at work on nothing may change any more
        if last >= 0 and last == len(messages) - 1 and last not in notes:
            new = await _new_note(anchors[last], await ctx.services.corrections.pending(self.kinds), ctx.memo)
            notes |= {last: new} if new else {}
        if not ctx.outage.begun:
            form.settle(_NOTES, {place: note for place, note in notes.items() if place < form.settled})
        noted = _with_notes(request, ctx.incoming, notes)
        if noted is request:
            return Keep("no note to place" if not notes else "the notes stand there already")
        why = f"{counted(len(notes), 'note')} about earlier answers"
        lately = arrived(messages)
        facts = {
            "correction_notes": len(notes),
            "correction_notes_new": sum(id(messages[place]) in lately for place in notes),
        }
        # the notes quote nothing of the answers
        findings = [f"before messages[{n}]: {fault}" for n, note in sorted(notes.items()) for fault in note.split("\n")]
        return Rewrite(noted, why, facts, findings)


def _anchors(messages: Sequence[Message], count: int) -> dict[int, str]:
    """Return the memo's key of each user message behind the first `count` messages, by its place.

    It is a hash of the message's bytes and of its number.
    """
    users = [place for place, message in enumerate(messages) if message.get("role") == "user"]
    new = [(n, place) for n, place in enumerate(users) if place >= count]
    hashes = [blake2b(f"{n} ".encode() + messages[place].raw, digest_size=12).hexdigest() for n, place in new]
    return {place: f"self_correct/{each}" for (_, place), each in zip(new, hashes, strict=True)}


async def _new_note(anchor: str, pending: Sequence[Correction], memo: Memo) -> str:
    """Return the note on the faults that no note was about yet, one a line; empty where there are none."""
    keys = [f"self_correct/told/{each.name}" for each in pending]
    told = await memo.known(keys)
    new = {key: each.text for key, each, by in zip(keys, pending, told, strict=True) if by is None}
    if not new:
        return ""
    note = await memo.settle(anchor, "\n".join(new.values()))  # the same request may have come to another replica
    for key, text in new.items():
        if text in note.split("\n"):
            await memo.settle(key, anchor)
    return note


def _with_notes(request: ChatRequest, incoming: ChatRequest, notes: Mapping[int, str]) -> ChatRequest:
    """Return the request with notes in front of these messages of the client's; the same where they stand already."""
    blocks: dict[int, list[Message]] = {}
    for place, at in of_client(request, incoming).items() if notes else ():
        if at in notes:
            note = build(CORRECTIONS, _ABOUT, [f"- {fault}" for fault in notes[at].split("\n")])
            if place == 0 or request.messages[place - 1] != note:
                blocks[place] = [note]
    return request.with_messages(placed(request.messages, blocks)) if blocks else request


_CUT_OFF = frozenset({"length", "content_filter", "error"})
"""Finish reasons of answers that are not all there: they are nobody's mistake."""

_WORDS = 12
"""Words of an answer whose language counts."""
_SAID = 3
"""User messages that are read for the user's language."""
_EARLIER = 6
"""Earlier answers that are compared."""
_SAME = 0.8
"""The share of their words that two refusals have in common."""
_REFUSES = re.compile(patterns("refusals")["refuses"], re.IGNORECASE | re.DOTALL)
_MISSING = re.compile(r"'([\w.-]{1,64})' is a required property\Z")
_PLACE = re.compile(r"[\w.$\[\]-]{1,80}")
_NAME = re.compile(r"[\w.-]{1,64}")


def faults(sent: ChatRequest, answer: Answer, kinds: frozenset[str]) -> dict[str, str]:
    """Return the kinds of faults, each with a sentence for the model; none for an answer that was cut off."""
    if answer.finish in _CUT_OFF:
        return {}
    found = {kind: check(sent, answer) for kind, check in _CHECKS.items() if kind in kinds}
    return {kind: sentence for kind, sentence in found.items() if sentence is not None}


def _empty(sent: ChatRequest, answer: Answer) -> str | None:
    if answer.finish != "stop" or not answer.is_empty:
        return None
    return "An answer of yours was empty. Always answer in words, or call a tool."


def _language(sent: ChatRequest, answer: Answer) -> str | None:
    if len(answer.text.split()) < _WORDS or sent.rest.get("response_format") is not None:
        return None
    asked = [each.text for each in sent.messages if each.get("role") == "user"][-_SAID:]
    operator = [message.text for message in sent.messages if message.is_system]
    if not asked:
        return None
    # each message for itself as well: that somebody changes the language is no mistake of the model's
    wanted = {code for text in (*asked, "\n".join(asked)) if (code := language(text)) is not None}
    used = language(answer.text)
    if len(wanted) != 1 or used is None or used in wanted:
        return None
    # whoever speaks of another language than their own, or of translation, may want another one
    if any(named(text) - wanted for text in (*asked, *operator)):
        return None
    name = NAMES[wanted.pop()]
    message = f"The user writes {name}, and an answer of yours was in {NAMES[used]}."
    # a letter to somebody else may rightly be in theirs: the model has seen what was asked for
    return f"{message} Answer in the user's language, unless they wanted another one."


def _json(sent: ChatRequest, answer: Answer) -> str | None:
    asked = sent.rest.get("response_format")
    kind = asked.get("type") if isinstance(asked, Mapping) else None
    if kind not in ("json_object", "json_schema") or not answer.text.strip() or answer.calls:
        return None
    if not _is_json(answer.text):
        return "An answer of yours had to be JSON and was not. Answer with the JSON alone, without anything around it."
    described = asked.get("json_schema") if isinstance(asked, Mapping) else None
    schema = described.get("schema") if kind == "json_schema" and isinstance(described, Mapping) else None
    where = _misfits(schema, answer.text)
    return f"An answer of yours did not fit the JSON schema that was asked for: {where}." if where else None


def _arguments(sent: ChatRequest, answer: Answer) -> str | None:
    tools = {tool.name: tool for tool in sent.tools}
    for name, arguments in answer.calls:
        tool = tools.get(name)
        if tool is None or tool.get("type") == "custom" or not _NAME.fullmatch(name):
            continue
        given = arguments.strip() or "{}"
        if not _is_json(given):
            return f"A call of yours to {name} had arguments that are not JSON."
        function = tool.get("function")
        if where := _misfits(function.get("parameters") if isinstance(function, Mapping) else None, given):
            return f"A call of yours to {name} did not fit its parameters: {where}."
    return None


def _refusal(sent: ChatRequest, answer: Answer) -> str | None:
    now = _refused(answer.refusal, answer.text)
    if now is None:
        return None
    before = [message for message in sent.messages if message.get("role") == "assistant"][-_EARLIER:]
    refused = filter(None, (_refused(str(one.get("refusal") or ""), one.text) for one in before))
    if not any(len(then & now) >= _SAME * len(then | now) for then in refused):
        return None
    return "You gave the same refusal more than once. Say what you can do instead, or what you need for it."


_CHECKS: Mapping[str, Callable[[ChatRequest, Answer], str | None]] = {
    "empty": _empty,
    "language": _language,
    "json": _json,
    "arguments": _arguments,
    "refusal": _refusal,
}


def _refused(refusal: str, text: str) -> frozenset[str] | None:
    """Return the terms of a refusal; None for any other answer."""
    said = refusal.strip() or (text.strip() if _REFUSES.match(text) else "")
    return frozenset(terms(said[:2000])) or None if said else None


def _is_json(text: str) -> bool:
    try:
        orjson.loads(text)
    except ValueError:
        return False
    return True


def _misfits(schema: Any, data: str) -> str:
    """Return where and how JSON does not fit, without its values; empty where it does or may."""
    if not isinstance(schema, Mapping):
        return ""
    from proxy.tools.json_schema import misfits

    wrong: list[str] = []
    known = encode(schema).decode()
    for each in misfits(schema, data):
        place, _, what = each.partition(": ")
        missing = _MISSING.search(what)
        # a place is named by its keys, and those that the schema has not got are the model's own
        keys = [key for key in re.findall(r"[\w-]+", place) if not key.isdigit()]
        place = place if _PLACE.fullmatch(place) and all(f'"{key}"' in known for key in keys) else "$"
        wrong.append(f"{place} lacks {missing[1]}" if missing else f"{place} is not as it must be")
    return "; ".join(dict.fromkeys(wrong))
