"""What the model is told of a statement that no longer holds: data, in the user's words, never an instruction."""

from collections.abc import Sequence

from policies.resolve_clashes.dialogue import Clash
from proxy.chat import Message
from proxy.chat.markers import MARKER

_MARK = "[Penstock: "
_BRIEF = 100
"""The longest statement that a line is told of, in characters: of a long one it is not clear what is meant."""
_FEW = 32
"""Characters of a statement that a line names."""
_TOLD = 2
"""Statements that a line is told of."""
_MOST = 3
"""Statements that one message is told of."""


def is_told(message: Message) -> bool:
    """Whether a message was made here: marked, or telling what holds."""
    text = message.text
    return _MARK in text and "supersede" in text


def is_brief(clash: Clash) -> bool:
    """Whether both statements are short enough for a line to tell of them."""
    return max(clash.older_end - clash.older_start, clash.newer_end - clash.newer_start) <= _BRIEF


def line(clashes: Sequence[Clash]) -> Message:
    """What stands in front of a user's message that overtakes earlier statements: which, by what they begin with.

    What holds now is not repeated: it stands right behind. Of two statements of that message, the later one is named.
    """
    latest = clashes[-_TOLD:]
    older = [f'"{_begun(each.was)}"' for each in latest if each.older != each.newer]
    told = [f"next message supersedes {' and '.join(older)}"] if older else []
    within = [each for each in latest if each.older == each.newer]
    told += [f'in the next message, "{_begun(each.now)}" supersedes "{_begun(each.was)}"' for each in within]
    return Message({"role": "user", "content": f"{_MARK}{'; '.join(told)}]"})


def _begun(quote: str) -> str:
    """The first words of a quotation: enough to find it."""
    return quote if len(quote) <= _FEW else f"{quote[:_FEW].rpartition(' ')[0] or quote[:_FEW]}…"


def marked(message: Message, said: Message, clashes: Sequence[Clash]) -> Message:
    """The older message of clashes as it is now, its words kept, and behind them a note that says what holds now.

    `said` is the message as it was said: an earlier step may have changed it since.
    """
    length = len(said.text.strip()) - 1
    notes = "".join([f"\n{_note(each, length)}" for each in clashes[:_MOST]])
    content = message.get("content")
    if isinstance(content, str):
        return message.with_changes(content=content + notes)
    return message.with_changes(content=[*message.parts, {"type": "text", "text": notes.strip()}])


def removed(said: Message, clashes: Sequence[Clash], handle: str) -> Message:
    """The older message of clashes without the statements that no longer hold; `handle` has the whole of it.

    A message of several parts keeps them, and is marked.
    """
    text = said.get("content")
    if not isinstance(text, str):
        return marked(said, said, clashes)
    for each in sorted({one.older_start: one for one in clashes}.values(), reverse=True):
        note = f'{_MARK}superseded, the user said later: "{each.now}"; {MARKER}{handle}") has the original]'
        text = text[: each.older_start] + note + text[each.older_end :]
    return said.with_changes(content=text)


def _note(clash: Clash, length: int) -> str:
    """What stands behind a message of so many characters, the last one aside."""
    what = "this" if clash.older_end - clash.older_start >= length else f'"{clash.was}"'
    return f'{_MARK}{what} is superseded, the user said later: "{clash.now}"]'
