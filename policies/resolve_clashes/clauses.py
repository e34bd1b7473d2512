"""A message cut into clauses, each of a kind: questions, suppositions and what others say state nothing. Pure."""

import re
from collections.abc import Iterator
from typing import Literal, NamedTuple

from policies.resolve_clashes.cues import CUES
from policies.resolve_clashes.terms import expanded, fold

Kind = Literal["statement", "request", "question"]

LONGEST = 6000
"""Characters of a message that are read; what follows is a pasted document."""
_QUOTE = 160
"""Characters of a clause that are quoted."""
_CLAUSE = 1000
"""Characters of a clause that are read."""
_MOST = 60
"""Clauses of a message that are read."""

_FENCE = re.compile(r"```.*?(?:```|\Z)", re.DOTALL)
_LINES = re.compile(r"`[^`\n]*`|^(?:>|\|).*$", re.MULTILINE)
_QUOTED = re.compile(r"\"[^\"\n]{12,400}\"|“[^”\n]{12,400}”|«[^»\n]{12,400}»|(?<!\w)'[^'\n]{20,400}'(?!\w)")
_SENTENCE = re.compile(r"(?:[^.!?;\n]|[.](?=[\w]))+[.!?;]*")


class Clause(NamedTuple):
    """A part of a message that says one thing."""

    start: int
    """Where it begins in the message."""
    end: int
    folded: str
    """In lower case, without accents, negations written out."""
    kind: Kind


def clauses(text: str) -> Iterator[Clause]:
    """The clauses of a message that state something, ask for something to be done, or ask; the rest is left out."""
    shown = _QUOTED.sub(_blank, _LINES.sub(_blank, _FENCE.sub(_blank, text[:LONGEST])))
    count = 0
    for sentence in _SENTENCE.finditer(shown):
        for clause in _of_sentence(shown, sentence.start(), sentence.end()):
            count += 1
            if count > _MOST:
                return
            yield clause


def quoted(said: str) -> str:
    """The user's words on one line, without what would end the quotation."""
    said = " ".join(said.split()).strip(" ,.;:").replace('"', "'").replace("<", "(").replace(">", ")")
    return said if len(said) <= _QUOTE else said[: _QUOTE - 1] + "…"


def _of_sentence(text: str, start: int, end: int) -> Iterator[Clause]:
    whole = fold(text[start:end])
    asked = "?" in whole or "¿" in whole
    cuts = [0, *(at for joint in CUES["joint"].finditer(whole) for at in (joint.start(), joint.end())), len(whole)]
    pieces = [(a, b) for a, b in zip(cuts[::2], cuts[1::2], strict=True) if whole[a:b].strip(" ,.;:!?¿¡")]
    asking = False
    for a, b in pieces:
        folded = expanded(whole[a:b][:_CLAUSE])
        if (
            CUES["supposed"].search(folded)
            or CUES["reported"].search(folded)
            or CUES["reported"].search(text[start + a : start + b])
        ):
            return  # what follows in the sentence hangs on it
        if CUES["wished"].search(folded):
            continue
        asking = asking or (asked and (bool(CUES["asking"].search(folded)) or len(pieces) == 1 or "¿" in whole[a:b]))
        kind: Kind = "request" if CUES["request"].search(folded) else "question" if asking else "statement"
        lead = len(whole[a:b]) - len(whole[a:b].lstrip(" ,"))
        yield Clause(start + a + lead, start + b, folded, kind)


def _blank(match: re.Match[str]) -> str:
    return re.sub(r"[^\n]", " ", match[0])
