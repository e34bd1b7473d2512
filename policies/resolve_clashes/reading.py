"""Reads a message into what it states and asks for. Pure."""

import re
from collections.abc import Iterable, Sequence

from policies.resolve_clashes.categories import members
from policies.resolve_clashes.clauses import LONGEST, Clause, clauses, quoted
from policies.resolve_clashes.cues import ASKED, CUES
from policies.resolve_clashes.places import places
from policies.resolve_clashes.relations import relations
from policies.resolve_clashes.statements import Said, Statement
from policies.resolve_clashes.terms import expanded, fold, is_term, telling, terms, words
from policies.resolve_clashes.values import NUMBERS, Value, rates, unit_terms, values
from proxy.chat import Message
from proxy.text.fold import stem

_NAME = re.compile(r"(?<![.!?\n] )(?<!^)(?<![.!?¿¡\"(])\b[A-ZÁÉÍÓÚÑ][\w'’-]+")
_CODE = re.compile(r"```.*?(?:```|\Z)", re.DOTALL)
_YEAR = re.compile(r"(?:1\d|20)\d\d")
_SCOPE = 80
"""Characters behind a negation that it is taken to be about."""
_DENIED = 12
"""Words behind a `never` that it is taken to be about."""
_HEARD = 1500
_BEFORE = 50
"""Characters in front of a value within which a negation denies it."""
_SHORT = 4
"""Words of a clause that says no more than a value."""

_NOTHING = Said()
_MARKS = (
    "first", "correcting", "updated", "following", "another", "wanting", "hedged", "done", "learning", "past", "former",
    "once", "restricted",
)  # fmt: skip
"""What a statement has where the cue of that name is found in it."""


def read(message: Message) -> Said:
    """What a user's message states, or what an assistant's names. About a millisecond for two pages."""
    role = message.get("role")
    if role == "user":
        return Said(statements(message.text))
    return _heard(message.text) if role == "assistant" else _NOTHING


def statements(text: str) -> tuple[Statement, ...]:
    """What a user's text states and asks for, in its order."""
    found: list[Statement] = []
    for clause in clauses(text):
        statement = _statement(text, clause)
        if found and CUES["never it"].search(clause.folded):
            statement = statement._replace(never=found[-1].about, keys=statement.keys | found[-1].about)
        found.append(statement)
    return tuple(found)


def _statement(text: str, clause: Clause) -> Statement:
    start, end, folded, kind = clause
    raw = text[start:end][: len(folded)]
    found, there = (*values(folded), *rates(folded), *members(folded)), places(raw)
    said = words(folded)
    stem_of = {word: stem(word) for word in said}
    order = tuple(stem_of[word] for word in said if is_term(word))
    stems = frozenset(order)
    tells = telling(stems)
    about = _about(folded, found, tells, len(said))
    negative, scope = _denied(folded)
    likes, dislikes = _attitudes(folded)
    named = frozenset(term for match in _NAME.finditer(raw) for term in terms(fold(match[0])))
    related = relations(folded, named) if kind == "statement" else ()
    units = {f"{value.kind} {value.unit}" for value in found if value.unit and about <= unit_terms(value)}
    given = (*_now(found, folded), *there)
    years = frozenset(filter(_YEAR.fullmatch, stems))
    verb, never = _never(CUES["never"].search(folded))
    return Statement(
        start=start,
        end=end,
        kind=kind,
        quote=quoted(text[start:end]),
        terms=stems,
        telling=tells,
        order=order,
        head=next((each for each in order if each in about), ""),
        ordinals=frozenset(match[0] for match in CUES["ordinal"].finditer(folded)),
        about=about - _place_terms(raw, there),
        names=named & (about - _place_terms(raw, there, "from", "to")),
        years=years,
        keys=tells | {relation.key for relation in related} | units,
        values=given,
        slots=frozenset(each.slot for each in given),
        relations=related,
        replaced=_objects(CUES["replaced"].finditer(folded)) | _objects(CUES["not that"].finditer(folded)),
        negative=negative,
        scope=scope,
        never=never,
        verb=verb,
        likes=likes,
        dislikes=dislikes,
        people=frozenset(
            str(match["x"] or match["y"] or match["z"]).removesuffix("s") for match in CUES["people"].finditer(folded)
        ),
        refused=_refused(folded, found, negative),
        **{name: bool(CUES[name].search(folded)) for name in _MARKS},
    )


def _about(folded: str, found: tuple[Value, ...], tells: frozenset[str], count: int) -> frozenset[str]:
    """Of what a clause of `count` words tells, what is no value."""
    if not found:
        return tells
    left, long = list(folded), count > _SHORT
    for value in found:
        if long and value.part == "weak":
            continue
        left[value.start : value.end] = " " * (value.end - value.start)
    return telling(terms("".join(left)))


def _now(found: tuple[Value, ...], folded: str) -> tuple[Value, ...]:
    """The values without those that a clause says were before: the first of `rose from 5 to 8`."""
    if not CUES["updated"].search(folded):
        return found
    last = max((value.start for value in found if value.kind in NUMBERS), default=0)
    return tuple(
        value
        for value in found
        if not (value.kind in NUMBERS and value.start < last and CUES["from"].search(folded[: value.start]))
    )


def _refused(folded: str, found: tuple[Value, ...], negative: bool) -> bool:
    """Whether a negation stands a few words in front of a value; `negative` decides where there is no value."""
    if not found or not negative:
        return negative
    return any(CUES["negation"].search(folded[max(0, each.start - _BEFORE) : each.start]) for each in found)


def _place_terms(raw: str, there: Sequence[Value], *parts: str) -> frozenset[str]:
    wanted = [place for place in there if not parts or place.part in parts]
    return frozenset(term for place in wanted for term in terms(fold(raw[place.start : place.end])))


def _denied(folded: str) -> tuple[bool, frozenset[str]]:
    """Whether a clause denies something, and what."""
    if not CUES["negation"].search(folded):
        return False, frozenset()
    bare = CUES["affirmed"].sub(" ", folded)
    scopes = [telling(terms(bare[match.end() : match.end() + _SCOPE])) for match in CUES["negation"].finditer(bare)]
    return bool(scopes), frozenset[str]().union(*scopes)


def _attitudes(folded: str) -> tuple[frozenset[str], frozenset[str]]:
    """The stems of what is liked in a folded clause, and of what is disliked."""
    likes: set[str] = set()
    dislikes: set[str] = set()
    for match in CUES["attitude"].finditer(folded):
        target = CUES["liked ends"].split(folded[match.end() : match.end() + 60], 1)[0]
        following = CUES["attitude"].search(target)
        target = target[: following.start()] if following else target
        (dislikes if match["no"] else likes).update(telling(terms(target)))
    return frozenset(likes), frozenset(dislikes)


def _never(match: re.Match[str] | None) -> tuple[str, frozenset[str]]:
    """The verb of what was never done, and the rest, which is the verb where there is nothing else."""
    if match is None:
        return "", frozenset()
    denied = next((group for group in match.groups() if group), "")
    denied = CUES["never ends"].split(denied, 1)[0]
    content = [term for word in words(denied)[:_DENIED] for term in terms(word)]
    return content[0] if content else "", telling(frozenset(content[1:])) or telling(frozenset(content))


def _objects(matches: Iterable[re.Match[str]]) -> frozenset[str]:
    return frozenset(term for match in matches for term in terms(CUES["replaced ends"].sub("", match["x"])))


def _heard(text: str) -> Said:
    text = _CODE.sub(" ", text[-LONGEST:])[-_HEARD:]
    folded = expanded(fold(text))
    found = (*values(folded), *members(folded, alone=True), *places(text))
    last = folded.rstrip().rpartition(".")[2] if folded.rstrip().endswith("?") else ""
    return Said(
        named=frozenset((value.kind, value.unit, value.value) for value in found),
        asked=frozenset(kind for kind, pattern in ASKED if pattern.search(last)),
        failed=bool(CUES["failed"].search(folded)),
    )
