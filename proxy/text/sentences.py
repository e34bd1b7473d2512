"""Sentences of a text, and a test for statements: no questions, suppositions, quotations or reported speech."""

import re
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

from proxy.text.tables import sections, word_lists

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
"""Patterns. `LEAD` matches a main clause without content of its own, such as "it is true that"."""
_WORDS = frozenset(" ".join(_DATA["words"]).split())
"""Words that mark a supposition or reported speech, as do the phrases."""
_WORD = re.compile(r"\w+")
_SYMBOLS = re.compile(r"[^\w\s\"“«'‘(¿¡\[\x00]+\s*(?=\w)")
_BREAK = re.compile(r":\s+|\s+[–—-]\s+|,\s+|\s+(?:that|que)\s+")
_OPENING_WORD = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)?")
_NO_OPENING = re.compile(r"[\d\x00?¿(/]|\s[A-ZÀ-Þ](?!\b|['’])|n['’]t\b")
"""Numbers, names and denials: an opening with one of them has content of its own."""
_ENCLITIC = re.compile(r"(?=\w*[áéíóú])\w*(?:me|te|se|lo|nos)")
"""A Spanish imperative with a pronoun at its end: `créeme`, `recuérdalo`."""
_LONGEST_OPENING = 60
_MOST_OPENING = 7
_MOST_CLAUSE = 3
"""Most words before `that`: after more of them it may belong to a noun."""
_MOST_UNMARKED = 4
_TITLE_MARKS = re.compile(r"[\"“”«»]|``|''")
_SPACE = re.compile(r"\s+")
_PRONOUN = re.compile(r"(?:He|She|It|They)\s")
_NAMED = re.compile(r"(?:[A-Z0-9][^\s,(]*\s(?:of |the |and )?)+(?=(?:is|was|are|were|has|had|\()\b)")


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


def in_full(text: str) -> Iterator[str]:
    """Yield a fact's sentences without quotation marks, a leading pronoun replaced by the last named subject."""
    name = ""
    for each in sentences(_SPACE.sub(" ", _TITLE_MARKS.sub(" ", text)).strip()):
        pronoun = _PRONOUN.match(each.text)
        full = f"{name} {each.text[pronoun.end() :]}" if pronoun and name else each.text
        begins = _NAMED.match(full)
        name = begins[0].strip() if begins else name
        yield full


def is_stated(sentence: str) -> bool:
    """Return whether a sentence is a statement: no question, supposition, quotation or reported speech."""
    if "\x00" in sentence or (("?" in sentence or "¿" in sentence) and _QUESTION.search(sentence)):
        return False
    return _WORDS.isdisjoint(_WORD.findall(sentence.lower())) and _PHRASES.search(sentence) is None


def behind_openers(sentence: str) -> Iterator[tuple[str, str]]:
    """Yield openings of a sentence that add nothing, such as `I am sure:` or `Recuerda:`, each with the rest."""
    begins = _SYMBOLS.match(sentence)
    bare = sentence[begins.end() :] if begins else sentence
    lead = LEAD.match(bare)
    if begins or lead:
        yield "", bare[lead.end() :] if lead else bare
    for match in _BREAK.finditer(bare[:_LONGEST_OPENING]):
        opening = bare[: match.start()]
        # `believe me` is an opening; `they believe` is reported speech
        if _leads(opening, match[0].strip()) and (is_stated(opening) or opening.endswith(" me")):
            yield opening, bare[match.end() :]


def _leads(opening: str, mark: str) -> bool:
    """Return whether an opening only leads up to a statement; before a comma or `that` it must name who speaks."""
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


def _blank(match: re.Match[str]) -> str:
    return "\x00" * len(match[0])
