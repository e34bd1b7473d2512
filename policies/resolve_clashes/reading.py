"""Reads a message into what it states and asks for. Pure."""

import re
from collections.abc import Iterable, Sequence

from policies.resolve_clashes import cues
from policies.resolve_clashes.attitudes import attitudes, preferred
from policies.resolve_clashes.categories import members
from policies.resolve_clashes.clauses import LONGEST, Clause, clauses, quoted
from policies.resolve_clashes.hints import Hints, hinted
from policies.resolve_clashes.opposites import counterparts, with_opposites, with_prefixes
from policies.resolve_clashes.places import places
from policies.resolve_clashes.possessions import had, lacked
from policies.resolve_clashes.rates import rates
from policies.resolve_clashes.relations import relations
from policies.resolve_clashes.statements import Said, Statement
from policies.resolve_clashes.terms import expanded, fold, is_term, stem, telling, terms, words
from policies.resolve_clashes.traits import traits
from policies.resolve_clashes.values import NUMBERS, Value, unit_terms, values
from proxy.chat import Message

_NAME = re.compile(r"(?<![.!?\n] )(?<!^)(?<![.!?¿¡\"(])\b[A-ZÁÉÍÓÚÑ][\w'’-]+")
_CODE = re.compile(r"```.*?(?:```|\Z)", re.DOTALL)
_YEAR = re.compile(r"(?:1\d|20)\d\d")
_SCOPE = 3
"""Telling words behind a negation that it is taken to be about."""
_DENIED = 12
"""Words behind a `never` that it is taken to be about."""
_HEARD = 1500
_BEFORE = 50
"""Characters in front of a value within which a negation denies it."""
_SHORT = 4
"""Words of a clause that says no more than a value."""

_NOTHING = Said()
_ORDINAL, _TIMES, _PEOPLE, _DESCRIBED = map(hinted, (cues.ORDINAL, cues.TIMES, cues.PEOPLE, cues.DESCRIBED))
_REPLACED, _NOT_THAT = map(hinted, (cues.REPLACED, cues.NOT_THAT))
_NEVER, _NEVER_IT = map(hinted, (cues.NEVER, cues.NEVER_IT))
_NEGATION, _IMPLIED = map(hinted, (cues.NEGATION, cues.IMPLIED))
_MARKS = (
    ("nearly", cues.NEARLY),
    ("first", cues.FIRST),
    ("correcting", cues.CORRECTING),
    ("updated", cues.UPDATED),
    ("following", cues.FOLLOWING),
    ("another", cues.ANOTHER),
    ("wanting", cues.WANTING),
    ("hedged", cues.HEDGED),
    ("done", cues.DONE),
    ("ongoing", cues.ONGOING),
    ("past_tense", cues.DID),
    ("universal", cues.UNIVERSAL),
    ("learning", cues.LEARNING),
    ("past", cues.PAST),
    ("unique", cues.UNIQUE),
    ("happens_once", cues.ONCE_ONLY),
    ("every", cues.EVERY),
    ("not_every", cues.NOT_EVERY),
    ("former", cues.FORMER),
    ("once", cues.THEN),
    ("passive", cues.PASSIVE),
    ("restricted", cues.RESTRICTED),
)
"""What a statement has where a pattern is found in it."""
_MARKED = Hints(_MARKS)
_UNMARKED = {name: False for name, _ in _MARKS}


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
        if found and _NEVER_IT.search(clause.folded, clause.begins):
            statement = statement._replace(never=found[-1].about, keys=statement.keys | found[-1].about, denies=True)
        found.append(statement)
    near = [frozenset[str](), *(each.terms for each in found), frozenset[str]()]
    return tuple(each._replace(around=near[at] | near[at + 2]) for at, each in enumerate(found))


def _statement(text: str, clause: Clause) -> Statement:
    start, end, folded, kind, begins = clause
    raw = text[start:end][: len(folded)]
    found, there = (*values(folded), *rates(folded), *members(folded)), places(raw)
    said = words(folded)
    stem_of = {word: stem(word) for word in said}
    order = tuple(stem_of[word] for word in said if is_term(word))
    stems = frozenset(order)
    tells = telling(stems)
    about = _about(folded, found, tells, len(said))
    negative, scope, denying = _denied(folded, begins)
    likes, dislikes = attitudes(folded, begins)
    named = frozenset(term for match in _NAME.finditer(raw) for term in terms(fold(match[0])))
    related = relations(folded, begins, named) if kind == "statement" else ()
    units = {f"{value.kind} {value.unit}" for value in found if value.unit and about <= unit_terms(value)}
    given = (*_now(found, folded), *there)
    shown, excluded = traits(folded, begins)
    over, under = preferred(folded, begins)
    has = had(folded, begins) | shown | over
    lacks = lacked(folded, begins) | excluded | under
    years = frozenset(filter(_YEAR.fullmatch, stems))
    opposing, prefixed = with_opposites(stem_of), with_prefixes(said)
    never = _never(_NEVER.search(folded, begins))
    marks = _UNMARKED | {name: True for name, pattern in _MARKED.near(begins) if pattern.search(folded)}
    return Statement(
        start=start,
        end=end,
        kind=kind,
        quote=quoted(text[start:end]),
        terms=stems,
        telling=tells,
        around=frozenset(),
        order=order,
        head=next((each for each in order if each in about), ""),
        ordinals=frozenset(match[0] for match in _ORDINAL.finditer(folded, begins)),
        about=about - _place_terms(raw, there),
        words=opposing,
        poles=frozenset(map(stem_of.__getitem__, opposing)),
        counterparts=counterparts(opposing),
        prefixed=prefixed,
        names=named & (about - _place_terms(raw, there, "from", "to")),
        years=years,
        times=years | {match[0] for match in _TIMES.finditer(folded, begins)},
        keys=tells | {relation.key for relation in related} | units | has | lacks,
        values=given,
        slots=frozenset(each.slot for each in given),
        relations=related,
        replaced=_objects(_REPLACED.finditer(folded, begins)) | _objects(_NOT_THAT.finditer(folded, begins)),
        negative=negative,
        scope=scope,
        denying=denying,
        never=never,
        likes=likes,
        dislikes=dislikes,
        has=has - lacks,
        lacks=lacks,
        people=frozenset(
            str(match["x"] or match["y"] or match["z"]).removesuffix("s") for match in _PEOPLE.finditer(folded, begins)
        ),
        own=bool(cues.OWN.search(raw.lower())),
        refused=_refused(folded, found, negative),
        described=frozenset(stem(match["x"]) for match in _DESCRIBED.finditer(folded, begins)),
        denies=negative or bool(never or dislikes or lacks or prefixed) or marks["not_every"],
        **marks,
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
    if not cues.UPDATED.search(folded):
        return found
    last = max((value.start for value in found if value.kind in NUMBERS), default=0)
    return tuple(
        value
        for value in found
        if not (value.kind in NUMBERS and value.start < last and cues.FROM.search(folded[: value.start]))
    )


def _refused(folded: str, found: tuple[Value, ...], negative: bool) -> bool:
    """Whether a negation stands a few words in front of a value; `negative` decides where there is no value."""
    if not found or not negative:
        return negative
    return any(cues.NEGATION.search(folded[max(0, each.start - _BEFORE) : each.start]) for each in found)


def _place_terms(raw: str, there: Sequence[Value], *parts: str) -> frozenset[str]:
    wanted = [place for place in there if not parts or place.part in parts]
    return frozenset(term for place in wanted for term in terms(fold(raw[place.start : place.end])))


def _denied(folded: str, begins: frozenset[str]) -> tuple[bool, frozenset[str], frozenset[str]]:
    """Whether a clause denies something, and what; an implied denial that is denied affirms."""
    if not (_NEGATION.search(folded, begins) or _IMPLIED.search(folded, begins)):
        return False, frozenset(), frozenset()
    bare = cues.AFFIRMED.sub(" ", cues.EMPHASIS.sub(" ", folded))
    matches = [*cues.NEGATION.finditer(bare)]
    implied = [*cues.IMPLIED.finditer(bare)]
    scope: set[str] = set()
    for match in (*matches, *implied):
        following = [term for word in words(bare[match.end() : match.end() + 80]) for term in terms(word)]
        scope |= set([term for term in following if telling(frozenset({term}))][:_SCOPE])
    denying = frozenset(term for match in implied for term in terms(match[0]))
    return bool(matches) != bool(implied), frozenset(scope), denying


def _never(match: re.Match[str] | None) -> frozenset[str]:
    """What was never done: without the verb, unless there is nothing else."""
    if match is None:
        return frozenset()
    denied = next((group for group in match.groups() if group), "")
    denied = cues.NEVER_ENDS.split(denied, 1)[0]
    content = [term for word in words(denied)[:_DENIED] for term in terms(word)]
    return telling(frozenset(content[1:])) or telling(frozenset(content))


def _objects(matches: Iterable[re.Match[str]]) -> frozenset[str]:
    return frozenset(term for match in matches for term in terms(cues.REPLACED_ENDS.sub("", match["x"])))


def _heard(text: str) -> Said:
    text = _CODE.sub(" ", text[-LONGEST:])[-_HEARD:]
    folded = expanded(fold(text))
    found = (*values(folded), *members(folded, alone=True), *places(text))
    last = folded.rstrip().rpartition(".")[2] if folded.rstrip().endswith("?") else ""
    return Said(
        named=frozenset((value.kind, value.unit, value.value) for value in found),
        asked=frozenset(kind for kind, pattern in cues.ASKED if pattern.search(last)),
        confirming=bool(cues.CONFIRMING.search(folded[-400:])),
        failed=bool(cues.FAILED.search(folded)),
    )
