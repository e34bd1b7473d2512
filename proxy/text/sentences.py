"""The sentences of a text that state something: no questions, no suppositions, nothing that is quoted or reported."""

import re
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

from proxy.text.tables import sections, word_lists

LONGEST = 400
"""Characters of a sentence that is looked at; longer ones are lists, code or data."""

_FENCE = re.compile(r"```.*?(?:```|\Z)|`[^`\n]*`", re.DOTALL)
_QUOTED = re.compile(r"“[^”]*”?|«[^»]*»?|\"[^\"\n]*\"|(?m:^[ \t]*>.*$)|(?<!\w)'[^'\n]{2,}'(?!\w)|‘[^‘’\n]*’(?!\w)")
_MARKS = re.compile(r"[“«\">‘']")
"""Without any of these nothing is quoted."""
# what may not stand in front of a full stop is looked for behind it: so only full stops are looked at
_ABBREVIATED = r"(?<!\b[A-Z].)(?<!\b(?:Dr|Mr|Ms|Sr|St|vs|No).)(?<!\b(?:Mrs|Sra|etc|Inc|e\.g|i\.e).)"
_ENDS = re.compile(rf"[.!?…\n](?:(?<=\n)\n*|(?<!\n){_ABBREVIATED}(?<![.!?…].)[.!?…]*+(?=[\s\"”»)]|$))")

_TOLD = sections("sentences")
_QUESTION, _PHRASES, LEAD = (
    re.compile("".join(_TOLD[name]), re.IGNORECASE) for name in ("question", "phrases", "lead")
)
"""`LEAD` is a main clause that says nothing but that something is so."""
_WORDS = frozenset(" ".join(_TOLD["words"]).split())
"""With one of these, or one of the phrases, a sentence supposes, or tells what somebody else holds."""
_WORD = re.compile(r"\w+")
_SYMBOLS = re.compile(r"[^\w\s\"“«'‘(¿¡\[\x00]+\s*(?=\w)")
_BREAK = re.compile(r":\s+|\s+[–—-]\s+|,\s+|\s+(?:that|que)\s+")
_OPENING_WORD = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)?")
_NO_OPENING = re.compile(r"[\d\x00?¿(/]|\s[A-ZÀ-Þ](?!\b|['’])|n['’]t\b")
"""A number, a name or a denial: the opening says something of its own."""
_ENCLITIC = re.compile(r"(?=\w*[áéíóú])\w*(?:me|te|se|lo|nos)")
"""A Spanish imperative with a pronoun at its end: `créeme`, `recuérdalo`."""
_LONGEST_OPENING = 60
_MOST_OPENING = 7
_MOST_CLAUSE = 3
"""Words in front of `that`: behind more it may belong to a noun."""
_MOST_UNMARKED = 4
"""Words of an opening that speaks of nobody."""
_TITLE_MARKS = re.compile(r"[\"“”«»]|``|''")
_SPACE = re.compile(r"\s+")
_PRONOUN = re.compile(r"(?:He|She|It|They)\s")
_NAMED = re.compile(r"(?:[A-Z0-9][^\s,(]*\s(?:of |the |and )?)+(?=(?:is|was|are|were|has|had|\()\b)")


class Sentence(NamedTuple):
    """A sentence and where it stands."""

    text: str
    start: int
    end: int
    """Behind its full stop."""


def sentences(text: str) -> Iterator[Sentence]:
    """The sentences of a text in order, however they are meant. What is quoted or code is blanked out in them."""
    blanked = _FENCE.sub(_blank, text) if "`" in text else text
    blanked = _QUOTED.sub(_blank, blanked) if _MARKS.search(blanked) else blanked
    start = 0
    for found in [*_ENDS.finditer(blanked), None]:
        end = len(blanked) if found is None else found.end()
        raw = blanked[start:end]
        lead = len(raw) - len(raw.lstrip(" \t\n-*•·#"))
        trimmed = raw[lead:].rstrip()
        if trimmed and len(trimmed) <= LONGEST:
            yield Sentence(trimmed, start + lead, start + lead + len(trimmed))
        start = end


def in_full(text: str) -> Iterator[str]:
    """The sentences of a fact; titles in it are names, and `It` at the beginning is what the one before is about."""
    name = ""
    for each in sentences(_SPACE.sub(" ", _TITLE_MARKS.sub(" ", text)).strip()):
        pronoun = _PRONOUN.match(each.text)
        full = f"{name} {each.text[pronoun.end() :]}" if pronoun and name else each.text
        begins = _NAMED.match(full)
        name = begins[0].strip() if begins else name
        yield full


def is_stated(sentence: str) -> bool:
    """Whether a sentence claims something: it neither asks, supposes, quotes nor tells what somebody else holds."""
    if "\x00" in sentence or (("?" in sentence or "¿" in sentence) and _QUESTION.search(sentence)):
        return False
    return _WORDS.isdisjoint(_WORD.findall(sentence.lower())) and _PHRASES.search(sentence) is None


def behind_openers(sentence: str) -> Iterator[tuple[str, str]]:
    """The openings of a sentence that only lead up to what it states, each with what stands behind it.

    `I am sure:`, `Recuerda:`, `I'm telling you,`, a symbol. An opening is short, states something, and limits nothing:
    what holds during the war or for students is another statement.
    """
    begins = _SYMBOLS.match(sentence)
    bare = sentence[begins.end() :] if begins else sentence
    lead = LEAD.match(bare)
    if begins or lead:
        yield "", bare[lead.end() :] if lead else bare
    for found in _BREAK.finditer(bare[:_LONGEST_OPENING]):
        opening = bare[: found.start()]
        # `believe me` asks for belief, where `they believe` tells somebody else's
        if _leads(opening, found[0].strip()) and (is_stated(opening) or opening.endswith(" me")):
            yield opening, bare[found.end() :]


def _leads(opening: str, mark: str) -> bool:
    """Whether an opening only leads up to a statement, by its form.

    In front of a comma, or of `that` or `que`, it has to speak of the speaker or the listener; a colon or a dash says
    it by itself.
    """
    is_clause, is_comma = mark[:1].isalpha(), mark == ","
    words = [word.lower().replace("’", "'") for word in _OPENING_WORD.findall(opening)]
    classes = _classes()
    if not words or len(words) > (_MOST_CLAUSE if is_clause else _MOST_OPENING) or _NO_OPENING.search(opening):
        return False
    if len(words) == 1 and is_comma:
        return words[0] in classes["reply"] or _ENCLITIC.fullmatch(words[0]) is not None
    if words[0] in classes["limit"] or not classes["doubt"].isdisjoint(words):
        return False
    speaks = not classes["speaker"].isdisjoint(words[:2])
    return speaks or (not is_comma and not is_clause and len(words) <= _MOST_UNMARKED)


@cache
def _classes() -> dict[str, frozenset[str]]:
    return word_lists("clause_openers")


def _blank(found: re.Match[str]) -> str:
    return "\x00" * len(found[0])
