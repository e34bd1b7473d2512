"""Plain sentences: subject, verb, what is said behind it, and how one stands to a fact. English and Spanish. Pure."""

import re
from collections.abc import Sequence
from functools import lru_cache
from itertools import takewhile
from typing import Literal, NamedTuple

from policies.check_facts import geography
from policies.check_facts.measures import MONEY, SAID, Measure, agree, are_comparable, measures
from policies.check_facts.verbs import (
    ADDED,
    ASIDE,
    AUXILIARIES,
    DEFINITE,
    DENIERS,
    IN_PLACES,
    OF_ONE,
    ONE_WAY,
    PAST,
    PRESENT,
    ROLES,
    SETTLEMENTS,
    STRONG,
    TURNS,
)
from proxy.text.fold import folded, stem
from proxy.text.sentences import LEAD
from proxy.text.vocabulary import INNER, NATIONS

PlainVerdict = Literal["agrees", "contradicts", "unclear"]

TIMES = frozenset(["date", "weekday", "clock", "year"])
"""Kinds of values that say when."""


class Plain(NamedTuple):
    """A plain sentence, read once. All words are folded, and all but names are stems."""

    subject: frozenset[str]
    is_definite: bool
    """Whether there is one of the subject: `the main database`."""
    verb: str
    is_past: bool
    is_denied: bool
    words: frozenset[str]
    """What stands behind the verb besides names and values."""
    names: tuple[str, ...]
    """The names behind the verb."""
    items: tuple[frozenset[str], ...]
    """The words and names behind the verb, apart where they are listed."""
    measures: tuple[Measure, ...]
    language: str
    """`en` or `es`: the names of one thing differ between them."""
    key: str
    """The longest word of the subject as it is written, folded."""


def compare(said: Plain, fact: Plain) -> PlainVerdict:
    """How what a sentence says stands to a fact."""
    if _is_swapped(said, fact):
        return "contradicts"
    verb = _common_verb(said, fact)
    if said.subject != fact.subject or verb is None or said.is_past != fact.is_past:
        return "unclear"
    is_turned = (said.is_denied != fact.is_denied) != (said.verb != fact.verb and verb in _OPENING)
    if verb in IN_PLACES:
        return _places(said, fact, is_turned)
    if is_turned:
        return "contradicts" if _is_same(said, fact) or _is_listed(said, fact) else "unclear"
    if said.is_denied:
        return "agrees" if _is_same(said, fact) else "unclear"
    return _values(said, fact, verb)


_LONG = frozenset(["time", "months"])
_OPENING = frozenset(["open", "close"])


def _common_verb(said: Plain, fact: Plain) -> str | None:
    """The verb of both. To be closed on a day is not to be open; what is so many euros costs them."""
    if said.verb == fact.verb:
        return fact.verb
    verbs = {said.verb, fact.verb}
    both = (*said.measures, *fact.measures)
    if verbs == _OPENING and both and all(each.kind == "weekday" for each in both):
        return fact.verb
    if verbs == {"be", "take"} and both and all(each.kind in _LONG for each in both):
        return "take"
    if verbs == {"be", "cost"} and both and all(each.kind in MONEY for each in both):
        return "cost"
    return None


def _is_swapped(said: Plain, fact: Plain) -> bool:
    """Whether both name the same two the other way round: who reports to whom."""
    if said.verb != fact.verb or said.verb not in ONE_WAY or said.is_denied or fact.is_denied:
        return False
    one, other = (said.subject, fact.subject)
    return one != other and (one,) == fact.items and (other,) == said.items


def _is_same(said: Plain, fact: Plain) -> bool:
    """Whether both say the same but for a denial."""
    if said.words != fact.words or frozenset(said.names) != frozenset(fact.names):
        return False
    return len(said.measures) == len(fact.measures) and not any(_others(said.measures, fact.measures))


def _is_listed(said: Plain, fact: Plain) -> bool:
    """Whether all that one says is among what the fact lists: `supports dark mode and widgets`."""
    return not said.measures and not fact.measures and bool(said.items) and set(said.items) <= set(fact.items)


def _others(said: Sequence[Measure], known: Sequence[Measure]) -> list[bool]:
    """Of each value said, whether it is none of the known ones, although there are some of its kind."""
    found: list[bool] = []
    for each in said:
        alike = [one for one in known if are_comparable(each, one)]
        found.append(not any(agree(each, one) for one in alike))
    return found


def _values(said: Plain, fact: Plain, verb: str) -> PlainVerdict:
    same_names = _same_names(said.names, fact.names)
    if said.measures and fact.measures:
        is_same = same_names is not False or (verb == "due" and not said.names)
        return _measures(said.measures, fact.measures) if said.words == fact.words and is_same else "unclear"
    if said.words != fact.words or said.measures or fact.measures:
        return "unclear"
    if same_names is False and _is_of_one(said, fact, verb):
        return "contradicts"
    return "agrees" if same_names else "unclear"


def _measures(said: Sequence[Measure], known: Sequence[Measure]) -> PlainVerdict:
    """Whether values differ: one of them, or times only. Of another year there may be another price."""
    if not all(any(are_comparable(each, one) for one in known) for each in said):
        return "unclear"
    others = [each for each, differs in zip(said, _others(said, known), strict=True) if differs]
    if not others:
        return "agrees"
    of_other_time = any(each.kind in TIMES for each in others) and any(each.kind not in TIMES for each in said)
    return "unclear" if of_other_time else "contradicts"


def _same_names(said: Sequence[str], known: Sequence[str]) -> bool | None:
    """Whether the names are of the same; None where neither has any."""
    if not said and not known:
        return None
    one, other = ({word for name in names for word in name.split()} for names in (said, known))
    return bool(one & other) if one and other else False


def _is_of_one(said: Plain, fact: Plain, verb: str) -> bool:
    if not said.names or not fact.names:
        return False
    if verb not in IN_PLACES and any(map(geography.is_known, said.names)):
        return False  # who reports to Berlin reports to an office
    is_named = verb == "be" and fact.is_definite and not fact.words and len(fact.names) == 1 == len(said.names)
    return said.language == fact.language and (verb in OF_ONE or is_named)


def _places(said: Plain, fact: Plain, is_turned: bool) -> PlainVerdict:
    if (said.words | fact.words) - SETTLEMENTS or said.measures or fact.measures or not said.names or not fact.names:
        return "unclear"
    if said.is_denied or fact.is_denied:
        one, other = (said, fact) if said.is_denied else (fact, said)
        return "contradicts" if is_turned and set(one.names) <= set(other.names) else "unclear"
    are_apart = geography.apart(said.names, fact.names)
    if are_apart is None:
        return "agrees" if set(said.names) & set(fact.names) else "unclear"
    return "contradicts" if are_apart else "agrees"


LONGEST = 160
"""Characters of a sentence that may be a plain one."""
_MOST_READ = 13
"""Words in which the verb is looked for."""
_WORD = re.compile(r"[^\W_]+(?:['’.&-][^\W_]+)*")
_NO_PLAIN = re.compile(r"[();\x00]")
_FEMALE = re.compile(r"ora$")
_POSSESSIVE = re.compile(r"(?:['’]s|(?<=s)['’])(?= |$)")
_SPACES = re.compile(r"\s+")
_NAME = re.compile(
    r"(?<![\w'’])(?:[A-ZÀ-Þ][\w'’.&-]*)(?:\s(?:(?:of|de|del|da|di|van|von)\s(?:la\s|los\s)?)?[A-ZÀ-Þ][\w'’.&-]*)*"
)
_ONE = re.compile(r"(?:the|el|la)\s|[A-ZÀ-Þ][^,]{0,50}?(?:['’]s|s['’])\s", re.IGNORECASE)
"""With what a description begins that is of one: `the CEO of`."""


class _Cut(NamedTuple):
    """Where a sentence's verb is."""

    verb: str
    is_past: bool
    is_denied: bool
    start: int
    """Where the subject ends."""
    end: int
    is_sure: bool
    """Whether the verb can hardly be a noun."""


class _Word(NamedTuple):
    start: int
    end: int
    form: str
    """Folded, without the `n't` at its end."""
    verb: str | None
    denies: bool


@lru_cache(maxsize=4096)
def plain(sentence: str, language: str) -> Plain | None:
    """What a plain sentence of a language, `en` or `es`, says; None where it is none."""
    text = LEAD.sub("", sentence).strip(" \t\n-*•").rstrip(".!… ")
    if len(text) > LONGEST or _NO_PLAIN.search(text):
        return None
    cut = _cut(text)
    return None if cut is None else _said(text, cut)._replace(language=language)


def _cut(text: str) -> _Cut | None:
    """The verb: the first word that can hardly be anything else, or else the first that can be one."""
    words = [_word(each) for each in _WORD.finditer(text)][:_MOST_READ]
    weak: _Cut | None = None
    for at in range(1, len(words)):
        if all(word.form in DEFINITE for word in words[:at]):
            continue
        found = _verb_at(words, at)
        if found is not None and found.is_sure:
            return found
        weak = weak or found
    return weak


def _word(found: re.Match[str]) -> _Word:
    form = folded(found[0]).replace("’", "'")
    bare = "can" if form == "can't" else form.removesuffix("n't")
    verb = (PRESENT.get(bare) or PAST.get(bare)) if found[0][0].islower() else None
    return _Word(found.start(), found.end(), bare, verb, bare != form or form in DENIERS)


def _verb_at(words: Sequence[_Word], at: int) -> _Cut | None:
    """The verb that begins at a word, with its auxiliaries and what denies it."""
    led = list(takewhile(lambda word: word.form in AUXILIARIES or (word.denies and not word.verb), words[at:]))
    word = words[at + len(led)] if at + len(led) < len(words) else None
    is_denied = any(each.denies for each in led)
    if word is None or not (word.verb or is_denied):
        return None
    is_past = any(each.form == "did" for each in led) or (word.form in PAST and word.form not in PRESENT)
    verb, is_sure = word.verb or stem(word.form), bool(led) or word.form in STRONG
    return _Cut(verb, is_past, is_denied != word.denies, words[at].start, word.end, is_sure)


def _said(text: str, cut: _Cut) -> Plain:
    ahead, rest = text[: cut.start].strip(), text[cut.end :].strip()
    verb, is_denied = cut.verb, cut.is_denied
    begins = _WORD.match(rest)
    if begins and folded(begins[0]) in DENIERS:
        is_denied, rest = not is_denied, rest[begins.end() :].strip()
    adverb = SAID["adverb"].match(rest)
    valued, rest = measures(SAID["left out"].sub("", rest[adverb.end() :] if adverb else rest))
    rest = _SPACES.sub(" ", rest).strip()
    for pattern, then in TURNS.get(verb, ()):
        found = pattern.match(rest)
        if found and (then != "due" or all(each.kind in TIMES for each in valued)):
            rest, verb = rest[found.end() :].strip(), then.strip("-<")
            is_denied ^= then[0] == "-"
            ahead, rest = (rest, ahead) if then[0] == "<" else (ahead, rest)
            break
    if verb == "be" and _ONE.match(rest) and _NAME.fullmatch(ahead):
        ahead, rest = rest, ahead
    return _read(ahead, verb, rest, valued)._replace(is_past=cut.is_past, is_denied=is_denied)


def _read(ahead: str, verb: str, rest: str, valued: tuple[Measure, ...]) -> Plain:
    subject, key = _subject(ahead)
    roles = [ROLES[word] for word in subject if word in ROLES] if verb in ("be", "locate") else []
    if roles and len(subject) > 1:
        subject, verb = subject - ROLES.keys(), roles[0]
    if verb == "free":
        verb, valued = "cost", (Measure("dollar"), *valued)
    return Plain(
        subject=subject,
        is_definite=bool(_POSSESSIVE.search(ahead)) or folded(ahead.partition(" ")[0]) in DEFINITE,
        verb=verb,
        is_past=False,
        is_denied=False,
        words=_stems(_NAME.sub(lambda it: it[0] if folded(it[0]) in NATIONS else " ", rest)),
        names=tuple(name for each in _NAME.finditer(rest) if (name := folded(each[0])) not in NATIONS),
        items=tuple(item for part in SAID["between"].split(rest) if (item := _stems(part))),
        measures=valued,
        language="",
        key=key,
    )


def _subject(text: str) -> tuple[frozenset[str], str]:
    """The stems of a subject, and the longest of its words."""
    words = [folded(each) for each in _WORD.findall(_POSSESSIVE.sub("", text))]
    words = words[1:] if words and words[0] in DEFINITE else words
    words = [_FEMALE.sub("or", word) for word in words if word not in _INNER]
    words = [word for word in words if word not in ADDED] or words
    return frozenset(map(stem, words)), max((word for word in words if stem(word) not in ROLES), key=len, default="")


_INNER = INNER | {"for", "para"}


def _stems(text: str) -> frozenset[str]:
    words = [folded(each) for each in _WORD.findall(text)]
    return frozenset(stem(word) for word in words if word not in ASIDE and word not in ADDED)
