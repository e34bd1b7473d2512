"""Texts that survive word for word when history leaves: the open plan, system messages, the operator's patterns."""

import re
from collections.abc import Iterator, Sequence
from typing import Annotated, NamedTuple

from pydantic import AfterValidator

from proxy.chat import Message
from proxy.history.plans import Plan, plan_of

_LONGEST = 600
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


def open_plan(gone: Sequence[Message], staying: Sequence[Message]) -> Plan | None:
    """Return the newest plan of messages that leave, while anything in it is open and no newer one stays."""
    if any(plan_of(message) for message in staying):
        return None
    plan = next(filter(None, map(plan_of, reversed(gone))), None)
    return plan if plan is not None and plan.is_open else None


def _lines(message: Message) -> Iterator[str]:
    text = message.text
    for part in (text,) if len(text) <= 2 * _SCANNED else (text[:_SCANNED], text[-_SCANNED:]):
        for line in part.splitlines():
            if 0 < len(line.strip()) <= _LONGEST:
                yield line.strip()
