"""What a sentence of prose says, as far as words show it: names, times, amounts, kinds, events, denials. Pure."""

import re
from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise, takewhile

from policies.check_facts.contrasts import CALLINGS, GENERAL, OPPOSITES, SORTS
from policies.check_facts.counts import amounts, counted, ranks
from policies.check_facts.dates import When, life, when
from policies.check_facts.events import awards, events, parts
from policies.check_facts.prose import Prose, Timed
from policies.check_facts.subjects import read
from proxy.text.fold import stem, words
from proxy.text.vocabulary import KINDS, NATIONS, SMALL

_NAME = re.compile(r"\(?[A-ZÁÉÍÓÚÑÜ0-9][\w'’.*-]*\)?")
_NO_NOUN = re.compile(r"\b[a-z]+['’]s\b")
"""Whose something is: `a painter's friend` is no painter."""
_OWNED = re.compile(r"[^,;:]{2,60}?(?:['’]s|s['’])\s(?:[\w-]+\s){1,3}?(?=(?:is|was|came|reached|sold|had|has)\b)")
"""`Marrow's second single was`: it is the how manieth of something else than a fact about the first."""
_ASIDE = re.compile(r"\([^()]*\)")
_PRONOUNCED = re.compile(r"\[[^\]]*\]")
_OPENING = 120
"""Characters of a sentence in which it says what it is about."""
_DENIED = re.compile(
    r"\b(?:not(?! (?:just|only|merely|solely)\b)|never|no(?! (?:solo|sólo|solamente)\b)|none|cannot"
    r"|neither|nor|without|incapable of|unable to|fail(?:s|ed)? to|declin(?:es|ed)(?: to)?"
    r"|refus(?:es|ed)(?: to)?|(?:ha[sd]|have|is|are) yet to|avoid(?:s|ed)?|lack(?:s|ed)?|lack of|zero|devoid of"
    r"|(?:born|located|situated|filmed|shot|founded|based|held|set) outside(?: of)?"
    r"|nunca|jamás|tampoco|sin|ningún|ninguna)\b|n['’]t\b",
    re.IGNORECASE,
)
_IS_NO = re.compile(
    r"\b(?:is|was|are|were|es|era|fue) (?:not|never|no|nunca)\b|n['’]t an?\b|\b(?:no|nunca) (?:es|era|fue)\b"
    r"|\b(?:never|not) been an?\b",
    re.IGNORECASE,
)
_ALIAS = re.compile(
    r"\b(?:known(?: \w+ly)?(?: by \w+ \w+ name)?(?: as)?|stage name|nicknamed|also called|credited as"
    r"|conocid[oa] como) (?:as )?"
    r"(?P<name>[A-ZÀ-Þ][\w'’.-]*(?: [A-ZÀ-Þ][\w'’.-]*){0,2})"
)
_CLAUSE = re.compile(r"[,;:]|\bbut\b|\bpero\b")
_TOLD = re.compile(
    r"[;:]|(?<!\d),|\)|\((?!born)|,(?= (?:and|but|who|which|then)\b)|\b(?:and|but|who|which|that|then|y|pero|que)\b"
)
"""Between parts of a sentence that may each tell of another time."""
_ONLY = re.compile(r"\b(?:only|exclusively|solely|solo|sólo|solamente|únicamente|exclusivamente)\b", re.IGNORECASE)
_COPULAS = frozenset(["is", "was", "are", "were", "es", "era", "son", "fue"])
_ARTICLES = frozenset(["a", "an", "the", "un", "una", "el", "la"])
_ADVERBS = frozenset(
    ["not", "never", "only", "exclusively", "solely", "also", "still", "currently", "actually", "solo", "tambien"]
)
_BEHIND = frozenset(
    ["who", "which", "that", "by", "in", "on", "from", "of", "about", "recorded", "directed", "que", "de", "en", "por"]
)
"""Where what a thing is ends and more about it begins."""
_DESCRIBED = 12
"""Words of a description in which its noun is looked for."""
_FOR_THE_FIRST_TIME = re.compile(r"\bfirst [a-z]+ed\b")
_MADE = frozenset(["film", "series", "music", "book", "game", "video"])
_COMES_OUT = frozenset(map(stem, ["released", "premiered", "made", "published", "aired", "came", "debuted"]))
"""What happens to a film or book in the year that stands before its kind."""


@lru_cache(maxsize=4096)
def prose(sentence: str) -> Prose:
    """Read a sentence."""
    plain = _PRONOUNCED.sub(" ", sentence) if "[" in sentence else sentence
    subject, lead = read(plain)
    is_denied = denies(plain)
    said = words(_DENIED.sub(" ", plain) if is_denied else plain)
    content = _stems(said, subject)
    described = [*words(lead), *_described(plain)]
    called = [word for word in described if word in CALLINGS and word not in subject]
    kinds = frozenset(kind for word in described if (kind := KINDS.get(word) or KINDS.get(word.removesuffix("s"))))
    names = _names(plain)
    owned = _OWNED.match(plain)
    won, nominated = awards(plain)
    time = when(plain)
    return Prose(
        text=sentence,
        names=names,
        subject=subject,
        aliases=_aliases(plain),
        opening=names if len(plain) <= _OPENING else _names(plain[:_OPENING]),
        content=content,
        callings=frozenset(field for word in called for field in CALLINGS[word]),
        is_list=len(called) > 1,
        sorts=_sorts([*described, *_played(said)]),
        poles=frozenset((stem, pole) for stem in content if stem in OPPOSITES for pole in OPPOSITES[stem]),
        life=life(plain),
        time=time,
        told=_told(plain, subject, kinds, time),
        counted=(*counted(words(_DENIED.sub(" ", plain[owned.end() :])) if owned else said), *ranks(plain)),
        nations=frozenset(NATIONS[word] for word in described if word in NATIONS and word not in subject),
        kinds=kinds,
        events=events(plain),
        parts=parts(plain),
        won=won,
        nominated=nominated,
        is_only=_ONLY.search(plain) is not None,
        amounts=amounts(plain),
        denied=_denied(plain, subject) if is_denied else frozenset(),
        denied_kinds=_general(described) if _IS_NO.search(plain) else frozenset(),
    )


def denies(sentence: str) -> bool:
    """Whether a sentence has a word that denies something."""
    return _DENIED.search(sentence) is not None


def _sorts(described: Sequence[str]) -> frozenset[tuple[str, str]]:
    languages = {("language", word.partition("-")[0]) for word in described if word.endswith("-language")}
    return frozenset(
        {SORTS.get(word) or SORTS.get(word.removesuffix("s"), ("", "")) for word in described} - {("", "")} | languages
    )


def _general(described: Sequence[str]) -> frozenset[str]:
    """The kinds and fields of which general words tell."""
    general = [word for word in described if word in GENERAL]
    return frozenset(
        {KINDS[word] for word in general if word in KINDS and word not in CALLINGS}
        | {field for word in general for field in CALLINGS.get(word, ())}
    )


def _aliases(text: str) -> tuple[frozenset[str], ...]:
    return tuple(frozenset(words(found["name"])) for found in _ALIAS.finditer(text))


def _stems(said: Sequence[str], about: frozenset[str]) -> frozenset[str]:
    return frozenset(stem(word) for word in said if word not in SMALL and word not in about and not word.isdigit())


def _names(text: str) -> frozenset[str]:
    return frozenset(word for word in words(" ".join(_NAME.findall(text))) if word not in SMALL)


def _described(text: str) -> list[str]:
    """The words behind the first `is a`, up to where more about it begins."""
    said = [
        word
        for word in words(_NO_NOUN.sub(" of ", _ASIDE.sub(" ", text)).replace("n't a", " a"))
        if word not in _ADVERBS
    ]
    begins = (n for n, (verb, word) in enumerate(pairwise(said)) if verb in _COPULAS and word in _ARTICLES)
    at = next(begins, None)
    if at is None:
        return [word for verb, word in pairwise(said) if verb in _COPULAS and word in NATIONS][:1]
    rest = said[at + 2 : at + 2 + _DESCRIBED]
    return list(takewhile(lambda word: word not in _BEHIND, rest))


def _played(said: Sequence[str]) -> list[str]:
    """The sports that somebody plays."""
    return [word for verb, word in pairwise(said) if verb in ("plays", "played", "play", "juega")]


def _told(text: str, about: frozenset[str], kinds: frozenset[str], all_of: When) -> tuple[Timed, ...]:
    """The parts of a sentence that tell of a time, with what they say happened then; `all_of` are its times."""
    found: list[Timed] = []
    for part in _TOLD.split(text):
        time = when(part or "") if part != text else all_of
        if any(time):
            content = _stems(words(part), about)
            content = content if _FOR_THE_FIRST_TIME.search(part) else content - {"first"}
            found.append(Timed(content | _COMES_OUT if kinds & _MADE and not found else content, time))
    return tuple(found)


def _denied(text: str, about: frozenset[str]) -> frozenset[str]:
    """The stems behind a denial, up to the end of its clause."""
    found = _DENIED.search(text)
    if found is None:
        return frozenset()
    rest = _CLAUSE.split(text[found.end() :])[0]
    return frozenset(
        stem(word)
        for word in words(rest)
        if word not in SMALL and word not in about and len(word) > 2 and not word.isdigit()
    )
