"""Sentences of a text, and a test for statements: no questions, suppositions, quotations or reported speech."""

import re
from collections.abc import Iterator
from typing import NamedTuple

from proxy.text.tables import sections

LONGEST = 400
"""Characters of the longest sentence that is read; longer ones are lists, code or data."""

_FENCE = re.compile(r"```.*?(?:```|\Z)|`[^`\n]*`", re.DOTALL)
_QUOTED = re.compile(r"“[^”]*”?|«[^»]*»?|\"[^\"\n]*\"|(?m:^[ \t]*>.*$)|(?<!\w)'[^'\n]{2,}'(?!\w)|‘[^‘’\n]*’(?!\w)")
_MARKS = re.compile(r"[“«\">‘']")
# lookbehinds after the full stop, so that the pattern is tried at full stops only
_ABBREVIATED = r"(?<!\b[A-Z].)(?<!\b(?:Dr|Mr|Ms|Sr|St|vs|No).)(?<!\b(?:Mrs|Sra|etc|Inc|e\.g|i\.e).)"
_ENDS = re.compile(rf"[.!?…\n](?:(?<=\n)\n*|(?<!\n){_ABBREVIATED}(?<![.!?…].)[.!?…]*+(?=[\s\"”»)]|$))")

_DATA = sections("sentences")
_QUESTION, _PHRASES, LEAD = (
    re.compile("".join(_DATA[name]), re.IGNORECASE) for name in ("question", "phrases", "lead")
)
"""Patterns. `LEAD` matches an opening without content of its own, such as "note that"."""
_WORDS = frozenset(" ".join(_DATA["words"]).split())
"""Words that mark a supposition or reported speech, as do the phrases."""
_WORD = re.compile(r"\w+")


class Sentence(NamedTuple):
    """A sentence and its position in a text."""

    text: str
    start: int
    end: int


def sentences(text: str, *, longest: int = LONGEST) -> Iterator[Sentence]:
    """Yield the sentences of a text in order, of any kind. Quotations and code are replaced by NUL characters."""
    blanked = _FENCE.sub(_blank, text) if "`" in text else text
    blanked = _QUOTED.sub(_blank, blanked) if _MARKS.search(blanked) else blanked
    start = 0
    for match in [*_ENDS.finditer(blanked), None]:
        end = len(blanked) if match is None else match.end()
        raw = blanked[start:end]
        lead = len(raw) - len(raw.lstrip(" \t\n-*•·#"))
        trimmed = raw[lead:].rstrip()
        if trimmed and len(trimmed) <= longest:
            yield Sentence(trimmed, start + lead, start + lead + len(trimmed))
        start = end


def is_stated(sentence: str) -> bool:
    """Return whether a sentence is a statement: no question, supposition, quotation or reported speech."""
    if "\x00" in sentence or (("?" in sentence or "¿" in sentence) and _QUESTION.search(sentence)):
        return False
    return _WORDS.isdisjoint(_WORD.findall(sentence.lower())) and _PHRASES.search(sentence) is None


def _blank(match: re.Match[str]) -> str:
    return "\x00" * len(match[0])
