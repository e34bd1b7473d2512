"""What a person says of themselves and their things that is one at a time: a subject, a relation, an object. Pure."""

import re
from typing import NamedTuple

from proxy.clashes.terms import stem, terms, words

_ADVERB = r"(?:now |currently |actually |really |still |also |just |already )?"
_OBJECT = r"(?P<o>[^,.;:!?]{1,60})"
_NOW = r"(?:ahora |actualmente |todavia |tambien )?"

_PATTERNS = tuple(
    (name, re.compile(pattern))
    for name, pattern in (
        ("my", rf"\b(?:my|our) (?P<s>[a-z' ]{{2,40}}?) (?:is|are|will be|should be|has changed to|changed to|"
               rf"became) {_ADVERB}{_OBJECT}"),
        ("my", rf"\b(?:mi|mis|nuestro|nuestra) (?P<s>[a-z ]{{2,40}}?) (?:es|son|sera|seran|esta en|ha cambiado a|"
               rf"cambia a|paso a ser|pasa a ser|ha pasado a ser) {_NOW}{_OBJECT}"),
        ("called", rf"\b(?:my|our|the) (?P<s>[a-z' ]{{2,30}}?) (?:is|are) (?:called|named) {_OBJECT}"),
        ("called", rf"\b(?:mi|mis|nuestr[oa]|el|la) (?P<s>[a-z ]{{2,30}}?) se llaman? {_OBJECT}"),
        ("number", r"\b(?:the|el|la) (?P<s>[a-z' ]{2,30}?) (?:is|es) (?:now |"
                   r"ahora )?(?P<o>[a-z]{0,3}-?\d[\d -]*\d)(?=$|[.,;!?]| instead| now)"),
        ("live", rf"\b(?:i|we)(?:'m| am|'ve| have)? {_ADVERB}(?:live|living|reside|based|moved|relocated|"
                 rf"settled) {_ADVERB}(?:in|to) {_OBJECT}"),
        ("live", rf"\b(?:vivo|vivimos|resido|me mude|me he mudado|nos mudamos|nos hemos mudado) {_NOW}(?:en|"
                 rf"a) {_OBJECT}"),
        ("work", rf"\bi(?:'m| am)? {_ADVERB}(?:work|working) {_ADVERB}(?:at|for) {_OBJECT}"),
        ("work", rf"\btrabajo {_NOW}(?:en|para) {_OBJECT}"),
        ("profession", rf"\bi(?:'m| am)? {_ADVERB}(?:work|working) {_ADVERB}as an? {_OBJECT}"),
        ("profession", rf"\btrabajo {_NOW}(?:de|como) {_OBJECT}"),
        ("name", rf"\b(?:call me|my name is|me llamo|llamame) {_OBJECT}"),
        ("origin", rf"\b(?:i'm|i am|i come) from {_OBJECT}"),
        ("origin", rf"\b(?:soy|vengo) de {_OBJECT}"),
        ("drive", rf"\bi {_ADVERB}drive an? {_OBJECT}"),
        ("drive", rf"\bconduzco {_NOW}una? {_OBJECT}"),
        ("study", rf"\bi(?:'m| am)? {_ADVERB}(?:study|studying|majoring in|major in) {_OBJECT}"),
        ("study", rf"\bestudio {_NOW}(?!en\b){_OBJECT}"),
        ("prefer", rf"\b(?:i|we)(?:'d| would)? {_ADVERB}(?:prefer|rather have) {_OBJECT}"),
        ("prefer", rf"\b(?:prefiero|preferimos|preferiria) {_NOW}{_OBJECT}"),
    )
)  # fmt: skip
_BEHIND = re.compile(
    r"\b(?:now|instead|anymore|these days|at the moment|currently|since|but|and|because|so|then|when|with|for|"
    r"from|over|"
    r"rather than|to|ahora|actualmente|pero|porque|desde|cuando|para|y|que|al|a la|en vez|en lugar|con)\b.*$"
)
_EXACT = re.compile(r"(?:(?:el|the|at) )?(?:[\w.+-]+@[\w.-]+\w|\+?\d[\d ()-]{3,}\d|[a-z]\w*[_.-]\w[\w.-]*)(?![\w'])")
"""An address or a number that is a name: another one is another."""
_SPANISH = re.compile(r"\b(?:prefiero|preferimos|preferiria)\b")
_GENERIC = frozenset({"goal", "plan", "questi", "proble", "issue", "idea", "point", "thing", "favori", "next", "thank"})


class Relation(NamedTuple):
    """Of a subject, what it is."""

    key: str
    """The subject and the relation: equal for what can have one object only."""
    object: frozenset[str]


def relations(clause: str) -> tuple[Relation, ...]:
    """The relations that a folded clause states."""
    found: list[Relation] = []
    for name, pattern in _PATTERNS:
        for match in pattern.finditer(clause):
            exact = _EXACT.match(clause, match.start("o"))
            said = _BEHIND.sub("", match["o"])
            target = frozenset({exact[0]}) if exact else terms(said) or frozenset(words(said)[-1:])
            if not target:
                continue
            found += _relation(name, match, said, target)
    return tuple(found)


def _relation(name: str, match: re.Match[str], said: str, target: frozenset[str]) -> list[Relation]:
    if name in ("my", "called", "number"):
        subject = terms(match["s"])
        if not subject or subject <= _GENERIC:
            return []
        return [Relation(f"{name} {' '.join(sorted(subject))}", target)]
    if name == "prefer":
        content = [word for word in words(said) if terms(word)]
        if len(content) < 2:
            return []
        head = stem(content[0] if _SPANISH.search(match[0]) else content[-1])
        return [Relation(f"prefer {head}", target - {head})] if target - {head} else []
    return [Relation(name, target)]
