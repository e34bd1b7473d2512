"""What a message states and asks for, in a form that can be compared with what another one says. Pure."""

import re
from typing import NamedTuple

from proxy.chat import Message
from proxy.clashes import cues
from proxy.clashes.categories import members
from proxy.clashes.clauses import LONGEST, Kind, clauses
from proxy.clashes.opposites import with_opposites, with_prefixes
from proxy.clashes.places import places
from proxy.clashes.relations import Relation, relations
from proxy.clashes.terms import expanded, fold, stem, telling, terms, words
from proxy.clashes.traits import traits
from proxy.clashes.values import NUMBERS, Value, unit_terms, values

_NAME = re.compile(r"(?<![.!?\n] )(?<!^)(?<![.!?¿¡\"(])\b[A-ZÁÉÍÓÚÑ][\w'’-]+")
_CODE = re.compile(r"```.*?(?:```|\Z)", re.DOTALL)
_SCOPE = 3
"""Telling words behind a negation that it is taken to be about."""
_DENIED = 12
"""Words behind a `never` that it is taken to be about."""
_HEARD = 1500
_BEFORE = 50
"""Characters in front of a value within which a negation denies it."""
_SHORT = 4
"""Words of a clause that says no more than a value."""


class Statement(NamedTuple):
    """One thing that a message says."""

    start: int
    """Where it stands in the message's text."""
    end: int
    kind: Kind
    terms: frozenset[str]
    """The stems of its words."""
    about: frozenset[str]
    """Those that tell what it is about: without its values, and without words that any request has."""
    words: frozenset[str]
    """Its words of which there are opposites."""
    prefixed: frozenset[tuple[str, str]]
    """Stems that may have a denying prefix, each with what is left without it."""
    names: frozenset[str]
    """The stems of its names: capitalised words that do not begin a sentence."""
    keys: frozenset[str]
    """Of which it has one in common with whatever contradicts it."""
    values: tuple[Value, ...]
    relations: tuple[Relation, ...]
    replaced: frozenset[str]
    """What it says is not to be any more."""
    negative: bool
    scope: frozenset[str]
    """What is denied: the stems of the words behind the negation."""
    never: frozenset[str]
    """What it denies to have ever been done by who says it."""
    likes: frozenset[str]
    dislikes: frozenset[str]
    has: frozenset[str]
    lacks: frozenset[str]
    people: frozenset[str]
    """Others that it is about: a wife, a boss, `he`."""
    refused: bool
    """Whether it denies one of its values."""
    nearly: bool
    """Whether it gives a number as a bound or about."""
    first: bool
    """Whether it is about who says it."""
    correcting: bool
    """Whether it says that it changes something."""
    updated: bool
    """Whether it says that something is new."""
    following: bool
    """Whether it goes on with what was asked before: `how about Tuesday`."""
    another: bool
    """Whether it asks for something besides."""
    wanting: bool
    """Whether it asks for something to be so."""
    hedged: bool
    done: bool
    """Whether it says that something is or was done."""
    past_tense: bool
    """Whether it says that its author did something once."""
    universal: bool
    """Whether it denies without exception."""
    learning: bool
    """Whether it says that something is still to be learnt or done."""
    past: bool
    """Whether, though it may be a question, it says that its author has done or has something."""
    restricted: bool
    """Whether what it denies, it denies of a part only."""


class Said(NamedTuple):
    """What is known of a message."""

    statements: tuple[Statement, ...] = ()
    """Of a user's message."""
    named: frozenset[tuple[str, str, str]] = frozenset()
    """Of an assistant's message: kind, unit and value of what it names."""
    asked: frozenset[str] = frozenset()
    """Of an assistant's message: the kinds of values that it asks for."""
    confirming: bool = False
    """Of an assistant's message: whether it asks if it understood."""
    failed: bool = False
    """Of an assistant's message: whether it says that something could not be had."""


_NOTHING = Said()


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
        statement = _statement(text, clause.start, clause.end, clause.folded, clause.kind)
        if found and cues.NEVER_IT.search(clause.folded):
            statement = statement._replace(never=found[-1].about, keys=statement.keys | found[-1].about)
        found.append(statement)
    return tuple(found)


def _statement(text: str, start: int, end: int, folded: str, kind: Kind) -> Statement:
    raw = text[start:end][: len(folded)]
    found = (*values(folded), *members(folded))
    about = _about(folded, found)
    negative, scope = _denied(folded)
    likes, dislikes = _attitudes(folded)
    named = frozenset(term for match in _NAME.finditer(raw) for term in terms(fold(match[0])))
    related = relations(folded, named) if kind == "statement" else ()
    units = {f"{value.kind} {value.unit}" for value in found if value.unit and about <= unit_terms(value)}
    stems = terms(folded)
    shown, excluded = traits(folded)
    over, under = _preferred(folded)
    has = _things(cues.HAVING, folded) | shown | over
    lacks = _things(cues.LACKING, folded) | excluded | under
    return Statement(
        start=start,
        end=end,
        kind=kind,
        terms=stems,
        about=about - _place_terms(raw),
        words=with_opposites(words(folded)),
        prefixed=with_prefixes(words(folded)),
        names=named & (about - _place_terms(raw, "from", "to")),
        keys=telling(stems) | {relation.key for relation in related} | units | has | lacks,
        values=(*_now(found, folded), *places(raw)),
        relations=related,
        replaced=_objects(cues.REPLACED, folded, cues.REPLACED_ENDS)
        | _objects(cues.NOT_THAT, folded, cues.REPLACED_ENDS),
        negative=negative,
        scope=scope,
        never=_never(folded),
        likes=likes,
        dislikes=dislikes,
        has=has - lacks,
        lacks=lacks,
        people=frozenset(str(match["x"] or match["y"]).removesuffix("s") for match in cues.PEOPLE.finditer(folded)),
        refused=_refused(folded, found, negative),
        nearly=bool(cues.NEARLY.search(folded)),
        first=bool(cues.FIRST.search(folded)),
        correcting=bool(cues.CORRECTING.search(folded)),
        updated=bool(cues.UPDATED.search(folded)),
        following=bool(cues.FOLLOWING.search(folded)),
        another=bool(cues.ANOTHER.search(folded)),
        wanting=bool(cues.WANTING.search(folded)),
        hedged=bool(cues.HEDGED.search(folded)),
        done=bool(cues.DONE.search(folded)),
        past_tense=bool(cues.DID.search(folded)),
        universal=bool(cues.UNIVERSAL.search(folded)),
        learning=bool(cues.LEARNING.search(folded)),
        past=bool(cues.PAST.search(folded)),
        restricted=bool(cues.RESTRICTED.search(folded)),
    )


def _about(folded: str, found: tuple[Value, ...]) -> frozenset[str]:
    left, long = list(folded), len(words(folded)) > _SHORT
    for value in found:
        if long and value.part == "weak":
            continue
        left[value.start : value.end] = " " * (value.end - value.start)
    return telling(terms("".join(left)))


def _now(found: tuple[Value, ...], folded: str) -> tuple[Value, ...]:
    """The values without those that a clause says were before: the first of `rose from 5 to 8`."""
    if not cues.UPDATED.search(folded):
        return found
    return tuple(value for value in found if not (value.kind in NUMBERS and cues.FROM.search(folded[: value.start])))


def _refused(folded: str, found: tuple[Value, ...], negative: bool) -> bool:
    """Whether a negation stands a few words in front of a value; `negative` decides where there is no value."""
    if not found or not negative:
        return negative
    return any(cues.NEGATION.search(folded[max(0, each.start - _BEFORE) : each.start]) for each in found)


def _place_terms(raw: str, *parts: str) -> frozenset[str]:
    wanted = [place for place in places(raw) if not parts or place.part in parts]
    return frozenset(term for place in wanted for term in terms(fold(raw[place.start : place.end])))


def _denied(folded: str) -> tuple[bool, frozenset[str]]:
    """Whether a clause denies something, and what; an implied denial that is denied affirms."""
    bare = cues.AFFIRMED.sub(" ", cues.EMPHASIS.sub(" ", folded))
    matches = [*cues.NEGATION.finditer(bare)]
    implied = [*cues.IMPLIED.finditer(bare)]
    scope: set[str] = set()
    for match in (*matches, *implied):
        following = [term for word in words(bare[match.end() : match.end() + 80]) for term in terms(word)]
        scope |= set([term for term in following if telling(frozenset({term}))][:_SCOPE])
    return bool(matches) != bool(implied), frozenset(scope)


def _never(folded: str) -> frozenset[str]:
    """What was never done: without the verb, unless there is nothing else."""
    match = cues.NEVER.search(folded)
    if match is None:
        return frozenset()
    denied = next((group for group in match.groups() if group), "")
    denied = cues.NEVER_ENDS.split(denied, 1)[0]
    content = [term for word in words(denied)[:_DENIED] for term in terms(word)]
    return telling(frozenset(content[1:])) or telling(frozenset(content))


def _attitudes(folded: str) -> tuple[frozenset[str], frozenset[str]]:
    likes: set[str] = set()
    dislikes: set[str] = set()
    for match in cues.ATTITUDE.finditer(folded):
        target = cues.ATTITUDE_ENDS.split(folded[match.end() : match.end() + 60], 1)[0]
        following = cues.ATTITUDE.search(target)
        target = target[: following.start()] if following else target
        (dislikes if match["no"] else likes).update(telling(terms(target)))
    return frozenset(likes), frozenset(dislikes)


def _preferred(folded: str) -> tuple[frozenset[str], frozenset[str]]:
    """What is preferred to what, and the same the other way round."""
    match = cues.PREFERRED.search(folded)
    if match is None:
        return frozenset(), frozenset()
    above, below = (" ".join(sorted(terms(group))) for group in (match["a"] or match["c"], match["b"] or match["d"]))
    if not above or not below:
        return frozenset(), frozenset()
    return frozenset({f"{above} over {below}"}), frozenset({f"{below} over {above}"})


def _things(pattern: re.Pattern[str], folded: str) -> frozenset[str]:
    """The stems of things that are had or not: the first two words of each, less what nobody has."""
    found = frozenset(
        stem(word) for match in pattern.finditer(folded) for group in match.groups() if group for word in words(group)
    )
    things = telling(found & terms(folded)) - cues.NO_THINGS
    for name, kinds in (("pet", cues.PETS), ("child", cues.CHILDREN)):
        things |= {name} if things & kinds else frozenset()
    return things


def _objects(pattern: re.Pattern[str], folded: str, ends: re.Pattern[str]) -> frozenset[str]:
    return frozenset(term for match in pattern.finditer(folded) for term in terms(ends.sub("", match["x"])))


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
