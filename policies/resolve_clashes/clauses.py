"""A message cut into clauses, each of a kind: questions, suppositions and what others say state nothing. Pure."""

import re
from collections.abc import Iterator
from typing import Literal, NamedTuple

from policies.resolve_clashes.hints import beginnings, hinted
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
_JOINT = re.compile(
    r",?(?<!\s)\s++(?:but|however|although|though|whereas|so(?= (?:i|i'm|i've|we|can|could|my|please)\b)|because|pero|"
    r"aunque|porque|ya que|asi que|sin embargo|mientras que)\s+|"
    r",\s+(?:and|which|while|y|then|especially since|considering(?: that)?|given that|since)\s+|,\s+(?=(?:i|i'm|"
    r"i've|we|he|she|they|you|it|my|can|could|would|will|should|do|does|is|are|what|how|yo|mi|"
    r"me|no|not|never|nada de|sin|without|nunca|quiero|prefiero|ahora|just|haz)\b)|(?<!\s)\s++and\s+(?=(?:i|i'm|"
    r"i've|we|my)\b)|:\s+",
)
_REQUEST = hinted(
    r"^\W*(?:(?:yes|yeah|yup|yep|no|nope|ok|okay|great|thanks|thank you|sorry|alright|actually|well|please|wait|hmm+|"
    r"sure|not bad|sounds good|that works|si|vale|perfecto|gracias|bueno|now|and|y|oye|perdon)\W+(?:then )?)*"
    r"(?:can|could|would|will) (?:you|i|we)\b|^\W*(?:(?:me )?(?:puedes|podrias|puede|podria)\b|"
    r"y (?:en|a|al|el|la|los|las|para|desde|hacia|con|de)\b(?=[^,.]{1,30}$)|"
    r"(?:any|do you have|are there|is there|otro|algun)\b|(?:what|which) (?:\w+ ){0,2}(?:ones|options)\b|"
    r"what (?:does|do|else does|else do) \w+(?: \w+)? have\b|"
    r"(?:is|would|does) [^?]{2,40} (?:possible|available|ok|okay|work|fine)\W*$|"
    r"and (?:my|on|in|at|for|from|to|the|next|this)\b.{1,30}$)|"
    r"\b(?:(?:how|what) about|what else|que tal|y si|(?:can|could|would|will) you|what (?:is|will|would) (?:it|the|"
    r"my))\b"
)
_ASKING = re.compile(
    r"^\W*(?:(?:and|but|so|or|y|pero|yes|no|ok|okay|well|hey|hi)\W+)*(?:what|how|why|when|where|who|whom|whose|"
    r"which|is|"
    r"are|am|was|were|do|does|did|can|could|would|will|should|shall|have|has|had|may|must|any|que|como|por que|cuando|"
    r"donde|quien|cual|cuanto|cuantos|cuantas|es|son|esta|estan|hay|puedo|deberia|debo)\b"
)
_SUPPOSED = hinted(
    r"^\W*(?:(?:and|but|so|y|pero|or|o)\W+)?(?:even )?(?:if|suppose|supposing|imagine|assuming|unless|what if|"
    r"let's say|"
    r"say that|in case|whether|si(?= \w+ \w+)|supongamos|imagina|imaginemos|suponiendo|en caso de|ojala|a menos que)\b"
    r"(?!,)"
)
_WISHED = hinted(r"\bi wish\b(?! to\b)|\bif only\b|\bojala\b|\bwould have\b|\bhubiera\b|\bused to\b|\bsolia\b")
_REPORTED = hinted(
    r"\b(?:he|she|they|someone|people|everyone|everybody|(?:my|our|the|his|her|your) [a-z]+(?: [a-z]+)?|[A-Z][a-z]+)"
    r"(?:'s)? (?:says?|said|thinks?|thought|tells?|told|claims?|claimed|believes?|believed|argues?|argued|wrote|"
    r"writes|"
    r"suggests?|suggested|recommends?|recommended|insists?|insisted|asked|asks|wants|wanted|prefers|preferred|"
    r"mentioned)\b|"
    r"\baccording to\b|\b(?:dice|dicen|dijo|dijeron|cree|creen|piensa|piensan|opina|opinan|afirma|afirman|afirmo|"
    r"asegura|sostiene|cuenta|comenta|escribio) que\b|\bsegun (?!yo\b)|\b(?:me|nos) (?:dijo|dijeron|conto|ha dicho)\b",
)


class Clause(NamedTuple):
    """A part of a message that says one thing."""

    start: int
    """Where it begins in the message."""
    end: int
    folded: str
    """In lower case, without accents, negations written out."""
    kind: Kind
    begins: frozenset[str]
    """The beginnings of its words."""


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
    cuts = [0, *(at for joint in _JOINT.finditer(whole) for at in (joint.start(), joint.end())), len(whole)]
    pieces = [(a, b) for a, b in zip(cuts[::2], cuts[1::2], strict=True) if whole[a:b].strip(" ,.;:!?¿¡")]
    asking = False
    for a, b in pieces:
        folded = expanded(whole[a:b][:_CLAUSE])
        begins = beginnings(folded)
        if _SUPPOSED.search(folded, begins) or _is_reported(folded, begins, text[start + a : start + b], whole[a:b]):
            return  # what follows in the sentence hangs on it
        if _WISHED.search(folded, begins):
            continue
        asking = asking or (asked and (bool(_ASKING.search(folded)) or len(pieces) == 1 or "¿" in whole[a:b]))
        kind: Kind = "request" if _REQUEST.search(folded, begins) else "question" if asking else "statement"
        lead = len(whole[a:b]) - len(whole[a:b].lstrip(" ,"))
        yield Clause(start + a + lead, start + b, folded, kind, begins)


def _is_reported(folded: str, begins: frozenset[str], raw: str, whole: str) -> bool:
    """Whether a clause says what others say, by its words or by a name in what was written."""
    if _REPORTED.search(folded, begins):
        return True
    return bool(_REPORTED.search(raw, begins if len(whole) == len(folded) else beginnings(whole)))


def _blank(match: re.Match[str]) -> str:
    return re.sub(r"[^\n]", " ", match[0])
