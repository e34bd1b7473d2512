"""What a sentence is about: the proper name that it begins with, however it leads up to it. Pure."""

import re
from collections.abc import Callable, Sequence
from functools import lru_cache

from policies.check_facts.contrasts import CALLINGS
from proxy.text.fold import folded, words
from proxy.text.vocabulary import EVENTS, KINDS, NATIONS, SMALL, word_set

TOKEN = re.compile(r"\([^()]*\)|[^\W_]+(?:['’.*&-][^\W_]+)*|,")
JOIN = frozenset(["of", "the", "de", "del", "la", "el", "los", "las", "and", "y", "&", "vs", "for", "in"])
"""What may stand inside a name."""
_PRONOUNCED = re.compile(r"\[[^\]]*\]")
_LED_BY = re.compile(
    r"^(?P<lead>(?:In|On|During|Since|By|As of|Before|After|Born|[A-Z][a-z]+ed|Written|En|Desde|Nacid[oa]|Fundad[oa])"
    r" [^;:]{2,80}?),\s+(?P<rest>(?:[Tt]he |[Ee]l |[Ll]a )?(?:[A-ZÀ-Þ][\w'’.-]*\s)+[a-zà-ÿ(].*?)\.?$",
    re.DOTALL,
)
_ACTIVE = re.compile(
    r"(?P<who>[A-ZÀ-Þ][^,;:]{1,60}?) (?P<verb>wrote|directed|founded|discovered|invented|painted|composed|designed"
    r"|created|developed|published|portrayed|acquired) (?P<what>[A-ZÀ-Þ][^,;:]{1,80}?)\.?$"
)
_PASSIVE = {"wrote": "written"}
_MAKERS = {
    "director": "directed", "author": "written", "writer": "written", "founder": "founded", "creator": "created",
    "composer": "composed", "designer": "designed", "developer": "developed", "publisher": "published",
    "owner": "owned", "inventor": "invented", "discoverer": "discovered", "host": "hosted",
    "distributor": "distributed",
}  # fmt: skip
_MAKER = "|".join(_MAKERS)
_OF_MAKER = re.compile(
    rf"^(?:(?P<of>[A-ZÀ-Þ][^,;:]{{0,80}}?)['’]s? (?P<maker>{_MAKER})"
    rf"|[Tt]he (?P<role>{_MAKER}) of (?P<what>[A-ZÀ-Þ\d][^,;:]{{0,80}}?))"
    r" (?:is|was) (?P<who>[A-ZÀ-Þ][^;:]{1,80}?)\.?$"
)
_EXISTS = re.compile(
    r"^There (?:is|was|exists) (?P<what>an? [^,;:]{2,60}?) (?:called|named|titled)"
    r" (?P<name>[A-ZÀ-Þ\d][^,;:]{0,80}?)\.?$"
)
_DAY = re.compile(r"^(?P<who>[A-ZÀ-Þ][^,;:]{1,60}?)['’]s? birthday (?:is|was) (?:on )?(?P<day>.{3,40}?)\.?$")
_MOST_LEADING = 5
"""Words that may stand in front of a name: `the former American film director`."""
_READ = 240
"""Characters in which a name is looked for."""
_TITLES = frozenset(["president", "pope", "bishop", "senator", "governor", "minister", "mayor", "judge", "admiral"])
"""Callings that are a part of names: `Pope Francis`."""
_GOES_ON = word_set(
    """
    is was are were has had does did can will won wins plays appears appeared works lives never also only still
    es era fue tiene tuvo son
    """
)
"""What may stand behind a name that something led up to, besides past forms: `the novel Dune was`."""


def turned(sentence: str) -> str:
    """What says the same with its subject in front; else the sentence itself.

    `Frank Herbert wrote Dune` is `Dune was written by Frank Herbert`, and `In 1965, Dune won` is `Dune won, in 1965`.
    """
    led = _LED_BY.match(sentence)
    if led:
        sentence = f"{led['rest']} {led['lead'][0].lower()}{led['lead'][1:]}."
    for pattern, say in _FRAMES:
        found = pattern.match(sentence)
        if found:
            return say(found)
    return sentence


def _made_by(found: re.Match[str]) -> str:
    return f"{found['of'] or found['what']} was {_MAKERS[found['maker'] or found['role']]} by {found['who']}."


_FRAMES: Sequence[tuple[re.Pattern[str], Callable[[re.Match[str]], str]]] = (
    (_ACTIVE, lambda it: f"{it['what']} was {_PASSIVE.get(it['verb'], it['verb'])} by {it['who']}."),
    (_OF_MAKER, _made_by),
    (_EXISTS, lambda it: f"{it['name']} is {it['what']}."),
    (_DAY, lambda it: f"{it['who']} was born on {it['day']}."),
)


def subject_of(sentence: str) -> frozenset[str]:
    """The words of the proper name that a sentence begins with."""
    return (
        read(_PRONOUNCED.sub(" ", sentence))[0] if sentence[:1].isupper() or not sentence[:1].isalpha() else frozenset()
    )


@lru_cache(maxsize=4096)
def read(text: str) -> tuple[frozenset[str], str]:
    """The words of the name with which a sentence begins, and what leads up to it: `The Danish painter`."""
    tokens = [found for found in TOKEN.finditer(text[:_READ]) if found[0][0] != "("]
    begins = _leading([found[0] for found in tokens[: _MOST_LEADING + 2]])
    name = _name([found[0] for found in tokens[begins:]])
    if begins and not any(_goes_on(found[0]) for found in tokens[begins + len(name) :][:1]):
        begins, name = 0, _name([found[0] for found in tokens])
    known = frozenset(word for word in words(" ".join(name)) if word not in SMALL)
    known |= {each.lower() for each in name[1:] if len(each) == 1 and each.isupper()}  # `Plan A`
    return known, text[: tokens[begins].start()] if begins else ""


def _leading(tokens: Sequence[str]) -> int:
    """How many words lead up to a name and say what it is of."""
    if not tokens:
        return 0
    begins = int(tokens[0] in ("The", "El", "La"))
    plain = [folded(each) for each in tokens]
    at = begins
    while at < len(tokens) - 1 and _describes(tokens[at], plain[at], at == begins):
        at += 1
    names_kind = at > begins and (plain[at - 1] in CALLINGS or (begins and plain[at - 1] in KINDS))
    return at if names_kind and tokens[at][0].isupper() else 0


def _describes(token: str, plain: str, is_first: bool) -> bool:
    if token[0].isupper():
        return plain in NATIONS or (is_first and plain in CALLINGS and plain not in _TITLES)
    return token.isalpha() and plain not in SMALL


def _goes_on(token: str) -> bool:
    plain = folded(token)
    return plain in _GOES_ON or plain in EVENTS or plain.endswith("ed") or plain == ","


def _name(tokens: Sequence[str]) -> Sequence[str]:
    """The tokens of the name with which a list of them begins."""
    found = 0
    for token in tokens:
        begins = token[0].isupper() or (found and token[0].isdigit())
        if not begins and not (found and token.lower() in JOIN):
            break
        found += 1
    while found and tokens[found - 1].lower() in JOIN:
        found -= 1
    return tokens[:found]
