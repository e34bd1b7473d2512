"""Texts that survive word for word when history leaves: the open plan, system messages, the operator's patterns."""

import re
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import pairwise
from typing import Annotated, Any, NamedTuple

from pydantic import AfterValidator

from proxy.chat import ChatRequest, Message, head_of
from proxy.chat.markers import MARKER
from proxy.chat.provenance import origin
from proxy.chat.texts import arguments
from proxy.context import Context
from proxy.economics import turns_to_pay
from proxy.text.json_values import Pairs, parsed

_LONGEST_LINE = 600
_SYSTEM = 2000
_SCANNED = 4000
"""Characters of each end of a message that are read: more is a pasted document."""

_NESTED = re.compile(r"\([^()]*[+*}][^()]*\)\s*[+*{]|\\[1-9]|\(\?P=")


class PinnedLine(NamedTuple):
    """A text that stays, and whose it is."""

    role: str
    text: str


def compiled(pattern: str) -> re.Pattern[str]:
    """Return an operator's pattern; raise `ValueError` for one that may take more than linear time."""
    if _NESTED.search(pattern):
        raise ValueError(f"pattern {pattern!r} repeats a repetition or refers back: such patterns can take forever")
    try:
        return re.compile(pattern, re.IGNORECASE)
    except re.error as error:
        raise ValueError(f"pattern {pattern!r}: {error}") from None


def _checked(pattern: str) -> str:
    compiled(pattern)
    return pattern


Pattern = Annotated[str, AfterValidator(_checked)]
"""An operator's pattern in the settings of a policy."""


def marked(messages: Sequence[Message], patterns: Sequence[str]) -> list[PinnedLine]:
    """Return the lines that match a pattern, each once, in order."""
    known = [compiled(pattern) for pattern in patterns]
    if not known:
        return []
    lines = (PinnedLine(message.role, line) for message in messages for line in _lines(message))
    return list(dict.fromkeys(line for line in lines if any(pattern.search(line.text) for pattern in known)))


def system_messages(messages: Sequence[Message]) -> list[PinnedLine]:
    """Return what the operator said in mid-conversation."""
    return [PinnedLine(each.role, each.text) for each in messages if each.is_system and 0 < len(each.text) <= _SYSTEM]


def _lines(message: Message) -> Iterator[str]:
    text = message.text
    for part in (text,) if len(text) <= 2 * _SCANNED else (text[:_SCANNED], text[-_SCANNED:]):
        for line in part.splitlines():
            if 0 < len(line.strip()) <= _LONGEST_LINE:
                yield line.strip()


# --- task plans: the newest open one is never lost, and one that is sent again and again stands once ---


_LONGEST_PLAN = 8000
_MOST = 2000
_BOX = re.compile(r"^[ \t]*+(?:(?:[-*+]|\d{1,3}[.)])[ \t]*+)?\[([ xX✓✔~>-])\][ \t]+(\S.*)$", re.MULTILINE)
_DONE = frozenset({"x", "X", "✓", "✔", "completed", "complete", "done", "cancelled", "canceled", True})
_OPEN = frozenset({"pending", "in_progress", "in-progress", "not_started", "not-started", "todo", "open", False})
_STATES = ("status", "state", "completed", "done")


class Plan(NamedTuple):
    """The steps of a plan: the assistant's, of its text or todo tool, or the operator's."""

    text: str
    steps: tuple[str, ...]
    is_open: bool
    """True if any step is still to be done."""


def plan_of(message: Message) -> Plan | None:
    """Return the plan that a message writes down, if it is the assistant's or the operator's."""
    return message.derive("plan", partial(_read, message))


def open_plan(gone: Sequence[Message], staying: Sequence[Message]) -> Plan | None:
    """Return the newest plan of messages that leave, while anything in it is open and no newer one stays."""
    if any(plan_of(message) for message in staying):
        return None
    plan = next(filter(None, map(plan_of, reversed(gone))), None)
    return plan if plan is not None and plan.is_open else None


def _read(message: Message) -> Plan | None:
    sent = origin(message)
    if sent.is_system:
        steps = _boxes(sent.text)
    elif message.get("role") == "assistant":
        steps = next(filter(None, (_boxes(message.text), *map(_listed, arguments(message)))), [])
    else:
        return None
    if len(steps) < 2:
        return None
    text = "\n".join(f"- [{'x' if is_done else ' '}] {' '.join(step.split())}" for step, is_done in steps)
    text = text[:_MOST].rpartition("\n")[0] if len(text) > _MOST else text
    return Plan(text, tuple(step for step, _ in steps), not all(is_done for _, is_done in steps))


def _boxes(text: str) -> list[tuple[str, bool]]:
    if len(text) > _LONGEST_PLAN or "[" not in text:
        return []
    return [(found[2].strip(), found[1] in _DONE) for found in _BOX.finditer(text)]


def _listed(text: str) -> list[tuple[str, bool]]:
    """Return the steps in a call's arguments: a list of objects with a text and a state, or one text with boxes."""
    value = parsed(text) if len(text) <= _LONGEST_PLAN else None
    members = [member for _, member in value] if isinstance(value, Pairs) else []
    if len(members) == 1 and isinstance(members[0], str):
        return _boxes(members[0])
    for member in members:
        steps = [_step(each) for each in member] if isinstance(member, list) else []
        if len(steps) > 1 and None not in steps:
            return [step for step in steps if step is not None]
    return []


def _step(value: Any) -> tuple[str, bool] | None:
    members = dict(value) if isinstance(value, Pairs) else {}
    state = next((members[name] for name in _STATES if isinstance(members.get(name), (str, bool))), None)
    # an identifier with a state is a record, no step
    texts = (each for name, each in members.items() if name not in _STATES and isinstance(each, str))
    text = next((each for each in texts if len(each.split()) > 1 or any(char >= "\u2e80" for char in each)), "")
    return (text, state in _DONE) if text and state in _DONE | _OPEN else None


async def earlier_copies(request: ChatRequest, ctx: Context) -> dict[int, Message]:
    """Return references that replace system messages in mid-conversation with the plan of a later one, archived first.

    What stands up to the next copy decides, so later requests do the same: in a cached prompt the edit must pay back
    within as many turns as there were so far.
    """
    if ctx.frozen or ctx.archive is None:  # nothing may change in front of signed reasoning
        return {}
    messages = request.messages
    system = request.form.places("system messages", lambda message: origin(message).is_system)
    if len(system) < 2:
        return {}
    plans = map(plan_of, [messages[place] for place in system])
    titles = {
        place: origin(messages[place]).text.lstrip().partition("\n")[0]
        for place, plan in zip(system, plans, strict=True)
        if plan is not None
    }
    if len(titles) < 2:
        return {}
    sizes = await ctx.tokens.sizes(messages)
    references: dict[int, Message] = {}
    first = len(head_of(messages))
    copies = [place for place in titles if place >= first and titles[place] == titles[max(titles)]]
    for place, following in pairwise(copies):
        text = messages[place].text
        handle = ctx.archive.handle(text)
        short = f'[An earlier copy of this plan: {MARKER}{handle}"). The newest copy stands below.]'
        changed = messages[place].with_changes(content=short)
        (size,) = await ctx.tokens.sizes([changed])
        turns = sum(message.get("role") == "user" for message in messages[:following])
        rewritten = sum(sizes[place + 1 : following])
        if turns_to_pay(ctx.model.cache, sizes[place] - size, rewritten) > turns:
            continue
        if await ctx.archive.touch([handle]) or await ctx.archive.keep(text) is not None:
            references[place] = changed
    return references
