"""Blocks: data that a step puts into a conversation, each a user message of its own in one tag.

This module alone knows how a block is written, placed and read. A block stands in front of a
message of the client's, and nothing stands between the two: providers accept user messages that follow each other.
For chat templates that do not, `alternate_roles` separates them at the end of the chain.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence

from proxy.chat import Message
from proxy.text.bm25 import terms

RECALLED = "recalled_context"
"""Passages of what left the conversation."""
MEMORIES = "relevant_context"
"""What is remembered of the user from other conversations."""
FACTS = "known_user_facts"
"""What the user said about themselves."""
NOTES = "notes_context"
"""The model's own notes."""
SHARED = "shared_context"
"""What other agents gave."""
PINNED = "pinned_context"
"""What must survive word for word."""

TAGS = (RECALLED, MEMORIES, FACTS, NOTES, SHARED, PINNED)

SHARE = 0.5
"""The share of the usable window that all blocks of a request may take together."""
CEILING = 0.8
"""The share of the usable window that the whole prompt may take with them."""

ANSWER = Message({"role": "assistant", "content": "Noted."})
"""What stands between a block and the message behind it where roles must alternate."""

_TAG = re.compile(rf"<(?=/?\s*(?:{'|'.join(TAGS)})\b)", re.IGNORECASE)
_ITEM = re.compile(r"^- (.*)$", re.MULTILINE)


def build(tag: str, about: str, lines: Iterable[str]) -> Message:
    """A block: a line that says what it is, then its content."""
    return Message({"role": "user", "content": wrap(tag, about, lines)})


def wrap(tag: str, about: str, lines: Iterable[str]) -> str:
    """The text of a block. No content can end it or begin another one."""
    return "\n".join([f"<{tag}>", escaped(about), *map(escaped, lines), f"</{tag}>"])


def items(texts: Iterable[str]) -> list[str]:
    """Texts as a list, a line each: none can look like two."""
    return ["- " + " ".join(text.split()) for text in texts]


def escaped(text: str) -> str:
    """A text in which no tag of a block stands."""
    return _TAG.sub(r"<\\", text)


def spans(text: str) -> list[tuple[int, int]]:
    """Where the items of a list stand in a block, without the dashes in front of them."""
    return [found.span(1) for found in _ITEM.finditer(text)]


def content(text: str) -> tuple[int, int]:
    """Where the content of a block stands, behind the line that says what it is."""
    opened = text.find("\n") + 1
    return text.find("\n", opened) + 1, text.rfind("\n</")


def is_block(candidate: Message, tag: str) -> bool:
    """Whether a message is such a block."""
    return candidate.get("role") == "user" and candidate.text.startswith(f"<{tag}>\n")


def injected(messages: Sequence[Message], client: Collection[int], *tags: str) -> list[int]:
    """The places of the blocks in a request, of these tags or of any; `client` are the places of the client's."""
    return [
        place
        for place, one in enumerate(messages)
        if place not in client and any(is_block(one, tag) for tag in tags or TAGS)
    ]


def placed(messages: Sequence[Message], blocks: Mapping[int, Sequence[Message]]) -> list[Message]:
    """The messages with blocks in front of those at some places; at the end too."""
    made: list[Message] = []
    for place in range(len(messages) + 1):
        made += blocks.get(place, ())
        made += messages[place : place + 1]
    return made


def is_said(text: str, messages: Iterable[Message]) -> bool:
    """Whether blocks say already what a line says: with its words, or an item has all its terms."""
    wanted = frozenset(term for term in terms(text) if len(term) > 1)
    for one in messages:
        said = one.text
        lines = (said[start:end] for start, end in spans(said))
        if text.strip(" .") in said or (len(wanted) > 1 and any(wanted <= frozenset(terms(line)) for line in lines)):
            return True
    return False
