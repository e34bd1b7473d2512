"""The internal tool `recall`: how the model gets back what left its context."""

import json
from collections.abc import Sequence
from typing import Any

from proxy.chat import Tool
from proxy.context import Archive

LONGEST = 16_000
"""Characters of one answer: what was too long for the context must not come back at once."""

DEFINITION = Tool(
    {
        "type": "function",
        "function": {
            "name": "recall",
            "description": 'Reads text that left this conversation, by its recall("HANDLE"): all, or the lines wanted.',
            "parameters": {
                "type": "object",
                "properties": {
                    "handle": {"type": "string"},
                    "contains": {"type": "string"},
                    "first_line": {"type": "integer"},
                    "last_line": {"type": "integer"},
                },
                "required": ["handle"],
            },
        },
    }
)
"""What the model is offered: short, because it is sent with every request, and always the same, because its bytes stand
at the head of each."""


class Recall:
    """Reads an archive for the model. Whatever it is asked, it answers in words."""

    name = DEFINITION.name
    definition = DEFINITION

    def __init__(self, archive: Archive) -> None:
        self._archive = archive

    async def run(self, arguments: str) -> str:
        """The text behind a handle, or the part of it that was asked for, with the numbers of its lines if in part."""
        try:
            asked = json.loads(arguments or "{}")
        except (ValueError, RecursionError):
            return "The arguments are not valid JSON."
        handle = asked.get("handle") if isinstance(asked, dict) else None
        if not isinstance(handle, str):
            return 'A handle is needed, as it stands in the conversation: {"handle": "..."}.'
        text = await self._archive.fetch(handle)
        if text is None:
            return "Nothing is kept under this handle, or no longer. Do not ask for it again."
        lines = list(enumerate(text.splitlines(), 1))
        part = _asked_for(lines, asked)
        if len(part) == len(lines):
            return _bounded(text)
        if not part:
            return f"No line of the {len(lines)} fits."
        return _bounded("\n".join(f"{number}: {line}" for number, line in part))


def _asked_for(lines: Sequence[tuple[int, str]], asked: dict[str, Any]) -> list[tuple[int, str]]:
    first, last, word = asked.get("first_line"), asked.get("last_line"), asked.get("contains")
    start = first if isinstance(first, int) else 1
    end = last if isinstance(last, int) else len(lines)
    words = word.lower() if isinstance(word, str) else ""
    return [(number, line) for number, line in lines if start <= number <= end and words in line.lower()]


def _bounded(text: str) -> str:
    if len(text) <= LONGEST:
        return text
    return f"{text[:LONGEST]}\n[{len(text) - LONGEST} more characters: ask for a range of lines or for a word]"
