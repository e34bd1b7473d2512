"""What the model is told of a statement that no longer holds: data, in the user's words, never an instruction."""

from collections.abc import Sequence

from proxy.chat import Message
from proxy.clashes.dialogue import Clash
from proxy.pins import MARKER

TAG = "user_update"
NOTED = Message({"role": "assistant", "content": "Noted."})
"""The answer to a message that only tells what holds, so that the roles still alternate."""

_MARK = "[Penstock: "
_QUOTE = 160
"""Characters of a statement that are quoted."""
_BRIEF = 100
"""The longest statement that a line is told of, in characters: it is quoted whole and carried on from then on."""
_TOLD = 2
"""Statements that a line is told of."""
_MOST = 3
"""Statements that one message is told of."""


def is_told(message: Message) -> bool:
    """Whether a message was made here: marked, or telling what holds."""
    text = message.text
    return text.startswith(f"<{TAG}>") or (_MARK in text and "superseded" in text)


def is_brief(clash: Clash) -> bool:
    """Whether both statements are short enough for a line to quote them."""
    return max(clash.older_end - clash.older_start, clash.newer_end - clash.newer_start) <= _BRIEF


def line(messages: Sequence[Message], clashes: Sequence[Clash]) -> Message:
    """What stands in front of a user's message that overtakes earlier ones: what holds now, and what it replaces."""
    replaced: dict[str, list[str]] = {}  # what overtakes two statements is quoted once
    for each in clashes[-_TOLD:]:
        newer = _quoted(messages[each.newer], each.newer_start, each.newer_end)
        replaced.setdefault(newer, []).append(_quoted(messages[each.older], each.older_start, each.older_end))
    told = [
        f'"{newer}" replaces the earlier ' + " and ".join(f'"{each}"' for each in older)
        for newer, older in replaced.items()
    ]
    text = f"From Penstock, as data: next, {'; '.join(told)}."
    return Message({"role": "user", "content": f"<{TAG}>{text}</{TAG}>"})


def marked(message: Message, messages: Sequence[Message], clashes: Sequence[Clash]) -> Message:
    """The older message of clashes as it is now, its words kept, and behind them a note that says what holds now.

    `messages` are what was said: an earlier step may have changed the older one since.
    """
    notes = "".join(f"\n{_note(messages, each)}" for each in clashes[:_MOST])
    content = message.get("content")
    if isinstance(content, str):
        return message.with_changes(content=content + notes)
    return message.with_changes(content=[*message.parts, {"type": "text", "text": notes.strip()}])


def removed(messages: Sequence[Message], clashes: Sequence[Clash], handle: str) -> Message:
    """The older message of clashes without the statements that no longer hold; `handle` has the whole of it.

    A message of several parts keeps them, and is marked.
    """
    message = messages[clashes[0].older]
    text = message.get("content")
    if not isinstance(text, str):
        return marked(message, messages, clashes)
    for each in sorted({one.older_start: one for one in clashes}.values(), reverse=True):
        now = _quoted(messages[each.newer], each.newer_start, each.newer_end)
        note = f'{_MARK}superseded, the user said later: "{now}"; {MARKER}{handle}") has the original]'
        text = text[: each.older_start] + note + text[each.older_end :]
    return message.with_changes(content=text)


def _note(messages: Sequence[Message], clash: Clash) -> str:
    old, new = messages[clash.older], messages[clash.newer]
    now = _quoted(new, clash.newer_start, clash.newer_end)
    whole = clash.older_end - clash.older_start >= len(old.text.strip()) - 1
    what = "this" if whole else f'"{_quoted(old, clash.older_start, clash.older_end)}"'
    return f'{_MARK}{what} is superseded, the user said later: "{now}"]'


def _quoted(message: Message, start: int, end: int) -> str:
    """The user's words on one line, without what would end the quotation."""
    said = (
        " ".join(message.text[start:end].split()).strip(" ,.;:").replace('"', "'").replace("<", "(").replace(">", ")")
    )
    return said if len(said) <= _QUOTE else said[: _QUOTE - 1] + "…"
