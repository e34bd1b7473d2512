"""What people like and prefer, and what they do not, in English and Spanish. Pure."""

import re

from policies.resolve_clashes.hints import hinted
from policies.resolve_clashes.terms import telling, terms

_LIKES = (
    r"\bi(?:'m| am) not (?:really |at all )?(?:afraid|scared|terrified) of\b|"
    r"\b(?:i|we) (?:really |absolutely |do |just |also |still |now )*(?:love|like|enjoy|adore)\b|"
    r"\bi(?:'m| am) (?:really )?(?:a (?:big |huge )?fan of|into|fond of)\b|"
    r"\b(?:i|we) (?:do|would) not mind\b|\bno me importan?\b|\bme dan? igual\b|"
    r"\bi(?:'m| am) (?:also )?an? (?:[a-z]+ )?(?=[a-z]{3,}(?:er|ist)\b)|"
    r"\bmy favou?rite [a-z]+(?: [a-z]+)? (?:is|are)\b|\bmi [a-z]+ favorit[oa] (?:es|son)\b|"
    r"\b(?:me|nos) (?:gustan?|encantan?|fascinan?|chiflan?)\b|\b(?:adoro|disfruto|amo)\b"
)
_DISLIKES = (
    r"\bi(?:'m| am) (?:really |so |very )?(?:afraid|scared|terrified|sick|tired) of\b|"
    r"\b(?:i|we) (?:really |absolutely |just |also |now )*(?:hate|dislike|loathe|despise|detest)\b|"
    r"\b(?:i|we) (?:do|did) not (?:really |even )?(?:love|like|enjoy|care for)\b|\b(?:i|we) can not stand\b|"
    r"\bi(?:'m| am) not (?:really )?(?:a (?:big )?fan of|into|fond of)\b|"
    r"\bno (?:me|nos) (?:gustan?|encantan?)\b|\b(?:odio|detesto|aborrezco|no soporto|no aguanto)\b|\bme disgustan?\b"
)
_BEHIND = hinted(
    r"(?P<x>[^,.;:!?]{2,40}?) (?:is|are|es|son) (?:(?P<yes>(?:one of )?my (?:favou?rites?|passion|hobby|thing|"
    r"favou?rite hobby)|"
    r"mi (?:pasion|favorit[oa]))|(?P<no>not (?:really )?(?:for me|my (?:thing|cup|favou?rites?))|disgusting|gross))\b"
)
"""What stands in front of a word for liking it or not."""
_BEHIND_CUE = re.compile(r"(?:is|are|es|son) (?:one of|my|mi|not|disgusting|gross)\b")
"""A part of it that is found at less cost."""
_ATTITUDE = hinted(rf"(?P<no>{_DISLIKES})|(?P<yes>{_LIKES})")
_ENDS = re.compile(r"\b(?:but|because|what|which|who|that|and i|(?<!it )when|since|so|pero|porque|cuando)\b|[,;.!?]")
_PREFERRED = hinted(
    r"\b(?:prefer|like|choose) (?P<a>[^,.;]{2,40}?) (?:over|to|rather than|more than|instead of) (?P<b>[^,.;]{2,40})|"
    r"\b(?:prefiero|preferimos|prefieren) (?P<c>[^,.;]{2,40}?) (?:a|al|antes que|que|en vez de) (?P<d>[^,.;]{2,40})"
)
"""What is preferred to what."""


def attitudes(folded: str, begins: frozenset[str]) -> tuple[frozenset[str], frozenset[str]]:
    """The stems of what is liked in a folded clause of these beginnings, and of what is disliked."""
    likes: set[str] = set()
    dislikes: set[str] = set()
    for match in _ATTITUDE.finditer(folded, begins):
        target = _ENDS.split(folded[match.end() : match.end() + 60], 1)[0]
        following = _ATTITUDE.pattern.search(target)
        target = target[: following.start()] if following else target
        (dislikes if match["no"] else likes).update(telling(terms(target)))
    for match in _BEHIND.finditer(folded, begins) if _BEHIND_CUE.search(folded) else ():
        (dislikes if match["no"] else likes).update(telling(terms(match["x"])))
    return frozenset(likes), frozenset(dislikes)


def preferred(folded: str, begins: frozenset[str]) -> tuple[frozenset[str], frozenset[str]]:
    """What is preferred to what, and the same the other way round."""
    match = _PREFERRED.search(folded, begins)
    if match is None:
        return frozenset(), frozenset()
    above, below = (" ".join(sorted(terms(group))) for group in (match["a"] or match["c"], match["b"] or match["d"]))
    if not above or not below:
        return frozenset(), frozenset()
    return frozenset({f"{above} over {below}"}), frozenset({f"{below} over {above}"})
