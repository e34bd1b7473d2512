"""Write notes on statements that no longer hold: data, in the user's words, never an instruction. Pure."""

from collections.abc import Sequence

from policies.resolve_clashes.clashes import Clash
from proxy.chat import Message

_MARK = "[Penstock: "
_BRIEF = 100
"""Characters of the longest statement that a line names: a part of a long one would not be clear."""
_FEW = 32
"""Characters of a statement that a line names."""
_OF_LINE = 2
"""Statements that a line names."""
_OF_MESSAGE = 3
"""Statements that the notes behind one message name."""


def is_written(message: Message, text: Message) -> bool:
    """Return whether a message has a note from here that it did not have as the client sent it."""
    return "supersede" in message.text and message.text.count(_MARK) > text.text.count(_MARK)


def is_brief(clash: Clash) -> bool:
    """Return whether both statements are short enough for a line."""
    return max(clash.was.size, clash.now.size) <= _BRIEF


def line(clashes: Sequence[Clash]) -> Message:
    """Return the line in front of a user's message that overtakes statements: it names those by their first words.

    It does not repeat the newer statement, which stands right behind, but where both stand in that message.
    """
    latest = clashes[-_OF_LINE:]
    older = [f'"{_begun(each.was.quote)}"' for each in latest if each.older != each.newer]
    parts = [f"next message supersedes {' and '.join(older)}"] if older else []
    within = [each for each in latest if each.older == each.newer]
    parts += [
        f'in the next message, "{_begun(each.now.quote)}" supersedes "{_begun(each.was.quote)}"' for each in within
    ]
    return Message({"role": "user", "content": f"{_MARK}{'; '.join(parts)}]"})


def _begun(quote: str) -> str:
    """Return the first words of a quotation, enough to find it."""
    return quote if len(quote) <= _FEW else f"{quote[:_FEW].rpartition(' ')[0] or quote[:_FEW]}…"


def marked(message: Message, text: Message, clashes: Sequence[Clash]) -> Message:
    """Return the older message of clashes with a note behind its words that quotes the newer statement.

    `text` is the message as the client sent it: an earlier step may have changed it since.
    """
    length = len(text.text.strip()) - 1
    notes = "".join([f"\n{_note(each, length)}" for each in clashes[:_OF_MESSAGE]])
    content = message.get("content")
    if isinstance(content, str):
        return message.with_changes(content=content + notes)
    return message.with_changes(content=[*message.parts, {"type": "text", "text": notes.strip()}])


def _note(clash: Clash, length: int) -> str:
    """Return the note behind a message of so many characters, the last one aside."""
    subject = "this" if clash.was.size >= length else f'"{clash.was.quote}"'
    return f'{_MARK}{subject} is superseded, the user said later: "{clash.now.quote}"]'
