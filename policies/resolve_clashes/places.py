"""Names of places behind a preposition, in English and Spanish. Pure."""

import re

from policies.resolve_clashes.categories import members
from policies.resolve_clashes.terms import fold, words
from policies.resolve_clashes.values import Value

_PLACE = re.compile(
    r"\b(?P<p>from|to|in|around|near|for|of|about|desde|hacia|en|a)\s+(?P<x>(?:[A-ZÁÉÍÓÚÑ][\w'’-]*\.?)"
    r"(?:\s+(?:[A-ZÁÉÍÓÚÑ][\w'’-]*|de|del|la)(?=\s|[,.;!?]|$))*)"
)
_NO_PLACE = re.compile(
    r"^(?:january|february|march|april|may|june|july|august|september|october|november|december|monday|tuesday|"
    r"wednesday|"
    r"thursday|friday|saturday|sunday|enero|febrero|marzo|abril|mayo|junio|julio|agosto|septiembre|octubre|noviembre|"
    r"diciembre|lunes|martes|miercoles|jueves|viernes|sabado|domingo|i|i'm|i'd|english|spanish|french|german|ingles|"
    r"espanol|the|el|la(?= \w)|q[1-4]|[a-z]|flight|number|economy|business|basic|gold|silver|credit|card|"
    r"reservation|mr|mrs|ms|dr|schedule|book|find|confirm|check|see|get|make|buy)\b"
)
_ALIASES = {
    "la": "los angeles", "nyc": "new york", "new york city": "new york", "sf": "san francisco", "sfo": "san francisco",
    "san fran": "san francisco", "philly": "philadelphia", "sd": "san diego", "dc": "washington", "vegas": "las vegas",
    "lax": "los angeles", "frisco": "san francisco", "cdmx": "ciudad de mexico", "bcn": "barcelona",
}  # fmt: skip
_PARTS = {"from": "from", "desde": "from", "to": "to", "hacia": "to", "a": "to"}


_KNOWN = (
    "new york|los angeles|san francisco|san jose|san diego|chicago|boston|seattle|portland|denver|austin|dallas|"
    "houston|"
    "miami|atlanta|phoenix|las vegas|washington|philadelphia|sacramento|oakland|berkeley|fresno|toronto|vancouver|"
    "montreal|mexico city|london|paris|berlin|madrid|barcelona|valencia|sevilla|seville|bilbao|malaga|rome|roma|milan|"
    "milano|lisbon|lisboa|porto|amsterdam|brussels|vienna|viena|prague|praga|budapest|warsaw|dublin|edinburgh|"
    "manchester|stockholm|oslo|copenhagen|helsinki|zurich|geneva|munich|hamburg|athens|istanbul|cairo|nairobi|dubai|"
    "delhi|mumbai|bangkok|singapore|hong kong|tokyo|tokio|osaka|seoul|beijing|shanghai|sydney|melbourne|bogota|lima|"
    "quito|santiago|buenos aires|montevideo|caracas|la habana|guadalajara|monterrey|rio de janeiro|sao paulo"
)
_BEGINS = frozenset(name.split()[0] for name in [*_KNOWN.split("|"), "nyc", "san", "philly"])
_CITY = re.compile(rf"(?:\b(?P<p>from|to|desde|hacia|a)\s+)?\b(?P<x>{_KNOWN}|nyc|san fran|philly)\b")


def places(text: str) -> list[Value]:
    """The places that a text names; offsets are those of the text."""
    found: list[Value] = []
    for match in _PLACE.finditer(text):
        name = fold(match["x"]).strip(" .,'-")
        if name and not _NO_PLACE.search(name) and not _is_member(name):
            part = _PARTS.get(match["p"], "in")
            found.append(Value("place", part, "", _ALIASES.get(name, name), match.start("x"), match.end("x")))
    folded = fold(text)
    if _BEGINS.isdisjoint(words(folded)):
        return found
    taken = {place for value in found for place in range(value.start, value.end)}
    for match in _CITY.finditer(folded):
        if match.start("x") not in taken:
            name, part = match["x"], _PARTS.get(match["p"] or "", "in")
            found.append(Value("place", part, "", _ALIASES.get(name, name), match.start("x"), match.end("x")))
    return found


def _is_member(name: str) -> bool:
    return any(value.end - value.start == len(name) for value in members(name, alone=True))
