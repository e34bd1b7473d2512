"""The sentences of a text that state something: no questions, no suppositions, nothing that is quoted or reported."""

import re
from collections.abc import Iterator
from typing import NamedTuple

from proxy.literals import Search, small

LONGEST = 400
"""Characters of a sentence that is looked at; longer ones are lists, code or data."""

_FENCE = re.compile(r"```.*?(?:```|\Z)|`[^`\n]*`", re.DOTALL)
_QUOTED = re.compile(r"“[^”]*”?|«[^»]*»?|\"[^\"\n]*\"|(?m:^[ \t]*>.*$)|(?<!\w)'[^'\n]{2,}'(?!\w)|‘[^‘’\n]*’(?!\w)")
_MARKS = re.compile(r"[“«\">‘']")
"""Without any of these nothing is quoted."""
# what may not stand in front of a full stop is looked for behind it: so only full stops are looked at
_ABBREVIATED = r"(?<!\b[A-Z].)(?<!\b(?:Dr|Mr|Ms|Sr|St|vs|No).)(?<!\b(?:Mrs|Sra|etc|Inc|e\.g|i\.e).)"
_ENDS = re.compile(rf"[.!?…\n](?:(?<=\n)\n*|(?<!\n){_ABBREVIATED}(?<![.!?…].)[.!?…]*+(?=[\s\"”»)]|$))")

_QUESTION = re.compile(
    r"^(?:who|what|when|where|why|which|how|is|are|was|were|do|does|did|can|could|should|would|will|has|have|had|isn't"
    r"|aren't|wasn't|doesn't|didn't)\b(?!.*[^?]$).*\?$|^¿|\?\s*$",
    re.IGNORECASE,
)
_ASKED = Search(
    r"\b(?:(?:ask|asked|wonder|wondering|check|verify|tell me|not sure|unsure|doubt|know|see|decide|find out)"
    r" (?:whether|if)|whether|(?:pregunto|preguntan?|no sé|dime|verifica|comprueba|dudo|averigua|averiguar|saber)"
    r" (?:que )?si)\b",
)
_SUPPOSED = Search(
    r"\b(?:if|unless|suppose|supposing|assume|assuming|imagine|pretend|hypothetically|in a world where|what if"
    r"|let's say|say that|as if|as though|could|would|might|(?-i:may)|maybe|perhaps|possibly|probably|should|i wish"
    r"|once upon a time"
    r"|in (?:my|the|this|our|a) (?:story|game|dream|fiction|universe|fantasy|quiz)"
    r"|in (?:my|this|our) (?:novel|film|movie|book)|^in (?:the|a) (?:novel|film|movie|book)"
    r"|si|supongamos|suponiendo|supón|supon|imagina|imaginemos|imagine|finge|hipotéticamente|quizá|quizás|tal vez|acaso"
    r"|podría|podrían|sería|serían|tendría|estaría|ojalá|digamos|como si|fuera|fuese|estuviera|puede que|érase una vez"
    r"|en (?:mi|el|la|esta|este|un|una|nuestra) (?:historia|cuento|juego|sueño|ficción|universo)"
    r"|en (?:mi|esta|este|nuestra) (?:novela|película|libro)|^en (?:el|la|un|una) (?:novela|película|libro))\b",
)
_REPORTED = Search(
    r"\b(?:say|says|said|claim|claims|claimed|claiming|believe|believes|believed|believing|think|thinks|thought|argue|argues"
    r"|argued|assert|asserts|asserted|allege|alleges|alleged|allegedly|supposedly|according to|rumou?rs?|myth|myths"
    r"|misconception|wrong(?:ly)?|false|falsely|fake|incorrect|untrue|mistake|mistaken|mistakenly|lied|lying|joke|joked"
    r"|(?:wrote|writes)(?:\s*[:,]|\b.{0,60}?\bthat\b)|reads|reading|quote|quotes|quoted|example|sentence|phrase|translate|translation|statement|pretended"
    r"|dice|dicen|dijo|dijeron|decía|decían|diciendo|afirma|afirman|afirmó|asegura|aseguran|aseguró|cree|creen|creía"
    r"|creyó|creo|piensa|piensan|pensaba|pienso|sostiene|según|supuestamente|presuntamente|rumor|rumores|mito|mitos|bulo"
    r"|falso|falsa|falsamente|incorrecto|incorrecta|erróneo|errónea|mentira|broma|(?:escribió|escribe)(?:\s*[:,]|\b.{0,60}?\bque\b)|cita|citó|ejemplo"
    r"|frase|oración|traduce|traducir|traducción|enunciado|equivocado|equivocada|error)\b",
)
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
    plain = small(sentence)
    return not any(each.finds(sentence, plain) for each in (_ASKED, _SUPPOSED, _REPORTED))


def _blank(found: re.Match[str]) -> str:
    return "\x00" * len(found[0])
