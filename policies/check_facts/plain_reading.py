"""Reading plain sentences: subject, verb, and what is said behind it. English and Spanish. Pure."""

import re
from collections.abc import Sequence
from functools import lru_cache
from itertools import takewhile
from typing import NamedTuple

from policies.check_facts.measures import Measure, measures
from policies.check_facts.plain import TIMES, Plain
from policies.check_facts.verbs import ADDED, AUXILIARIES, DEFINITE, DENIERS, PAST, PRESENT, ROLES, STRONG, TURNS
from proxy.text.fold import folded, stem
from proxy.text.sentences import LEAD
from proxy.text.vocabulary import INNER, NATIONS, word_set

LONGEST = 160
"""Characters of a sentence that may be a plain one."""
_MOST_READ = 13
"""Words in which the verb is looked for."""
_WORD = re.compile(r"[^\W_]+(?:['’.&-][^\W_]+)*")
_NO_PLAIN = re.compile(r"[();\x00]")
_WHICH = re.compile(r"^(?P<who>[^,]{3,60}), (?:which|who|que) (?P<what>[^,]{3,60}),")
_POSSESSIVE = re.compile(r"(?:['’]s|(?<=s)['’])(?= |$)")
_ASIDE = word_set("the a an of to in on at by for with from el la los las un una de del en a al por para con se lo as")
"""Words that are not compared."""
_ADVERB = re.compile(
    r"(?:(?:actually|really|still|currently|now|also|in fact|definitely"
    r"|realmente|actualmente|todavía|ahora|en realidad)\s)+",
    re.IGNORECASE,
)
_LEFT_OUT = re.compile(
    r",\s(?:not|no|and not|y no|rather than|instead of|en vez de)\b.*$"
    r"|\s(?:in the morning|de la mañana|every day|daily|a diario|todos los días)\b",
    re.IGNORECASE,
)
"""What a sentence says besides, without changing what it says: `is in London, not in Paris`."""
_SPACES = re.compile(r"\s+")
_FEMALE = re.compile(r"ora$")
_SPLIT = re.compile(r",\s|\s(?:and|or|y|o|e|u|as well as|así como)\s")
_NAME = re.compile(
    r"(?<![\w'’])(?:[A-ZÀ-Þ][\w'’.&-]*)(?:\s(?:(?:of|de|del|da|di|van|von)\s(?:la\s|los\s)?)?[A-ZÀ-Þ][\w'’.&-]*)*"
)
_TITLE = re.compile(
    rf"(?:[Tt]he |[Ll]a |[Ee]l )?(?P<who>{_NAME.pattern}) (?:in|en) (?P<where>{_NAME.pattern}(?:, {_NAME.pattern})?)"
)
_ONE = re.compile(r"(?:the|el|la)\s|[A-ZÀ-Þ][^,]{0,50}?(?:['’]s|s['’])\s", re.IGNORECASE)
"""With what a description begins that is of one: `the CEO of`."""
_CHIEF = re.compile(r"\bchief executive(?: officer)?\b", re.IGNORECASE)


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
    aside = _WHICH.match(text)
    text = f"{aside['who']} {aside['what']}" if aside else text
    cut = _cut(text)
    if cut is None:
        title = _TITLE.fullmatch(text)
        return _read(title["who"], "locate", title["where"], ())._replace(language=language) if title else None
    return _said(text, cut)._replace(language=language)


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
    adverb = _ADVERB.match(rest)
    valued, rest = measures(_LEFT_OUT.sub("", rest[adverb.end() :] if adverb else rest))
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
        items=tuple(item for part in _SPLIT.split(rest) if (item := _stems(part))),
        measures=valued,
        language="",
        key=key,
    )


def _subject(text: str) -> tuple[frozenset[str], str]:
    """The stems of a subject, and the longest of its words."""
    words = [folded(each) for each in _WORD.findall(_POSSESSIVE.sub("", _CHIEF.sub("CEO", text)))]
    words = words[1:] if words and words[0] in DEFINITE else words
    words = [_FEMALE.sub("or", word) for word in words if word not in _INNER]
    words = [word for word in words if word not in ADDED] or words
    return frozenset(map(stem, words)), max((word for word in words if stem(word) not in ROLES), key=len, default="")


_INNER = INNER | {"for", "para"}


def _stems(text: str) -> frozenset[str]:
    words = [folded(each) for each in _WORD.findall(text)]
    return frozenset(stem(word) for word in words if word not in _ASIDE and word not in ADDED)
