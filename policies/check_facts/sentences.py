"""Compare two sentences that have all words in common but one value, one name or a denial. Any language. Pure."""

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Literal, NamedTuple

from proxy.text.fold import IS, NATIONS, folded, stem, word_set
from proxy.text.tables import sections
from proxy.text.values import value

Verdict = Literal["agrees", "contradicts", "unclear"]

LONGEST = 160
"""Characters of a sentence that is compared as a whole."""
_FEWEST = 3
"""Words of such a sentence."""
_BOTH = 2
"""Words that two sentences begin with in common."""
_AROUND = ((0, 0), (1, 0), (0, 1), (1, 1), (2, 0), (0, 2))
"""Words in common, in front and behind, with which a difference may be a value: of `May 3` and `June 3` the day."""

_ASIDE = re.compile(r"[();\x00]")
_TABLE = sections("facts/words")
_ARTICLES, _DENIALS, _AUXILIARIES, _BY = (
    word_set(" ".join(_TABLE[name])) for name in ("articles", "denials", "auxiliaries", "by")
)


class Plain(NamedTuple):
    """A sentence as it is compared."""

    words: tuple[str, ...]
    """As written, without articles."""
    stems: tuple[str, ...]
    key: tuple[str, ...]
    """The first stems, denials aside: any sentence that is compared with it begins so."""


@lru_cache(maxsize=4096)
def plain(sentence: str) -> Plain | None:
    """Return a sentence as it is compared; None for a long one, or one with something in brackets."""
    if len(sentence) > LONGEST or _ASIDE.search(sentence):
        return None
    words = [word for each in sentence.strip("-*• ").split() if (word := each.strip(".,:!…\"'"))]
    words = [word for word in words if folded(word) not in _ARTICLES]
    if len(words) < _FEWEST:
        return None
    forms = [folded(word).replace("’", "'") for word in words]
    stems = tuple(map(stem, forms))
    return Plain(tuple(words), stems, tuple(map(stem, _bare(forms)[:_BOTH])))


def compare(sentence: Plain, fact: Plain) -> Verdict:
    """Return how a sentence stands to a fact that begins alike."""
    if sentence.stems == fact.stems:
        return "agrees"
    most = min(len(sentence.stems), len(fact.stems))
    front = next((n for n in range(most) if sentence.stems[n] != fact.stems[n]), most)
    rest = most - front
    back = next((n for n in range(rest) if sentence.stems[-1 - n] != fact.stems[-1 - n]), rest)
    mine, theirs = slice(front, len(sentence.stems) - back), slice(front, len(fact.stems) - back)
    if _is_denial(sentence.words[mine], fact.words[theirs]):
        return "contradicts"
    verdict = _by_value(sentence, fact, mine, theirs)
    if verdict == "unclear" and not back and front and folded(fact.words[front - 1]) in IS | _BY:
        return _by_name(sentence.words[mine], fact.words[theirs])
    return verdict


def _is_denial(sentence: Sequence[str], known: Sequence[str]) -> bool:
    """Return whether one of two differences is the other, denied."""
    one, other = ([folded(word).replace("’", "'") for word in words] for words in (sentence, known))
    denials = sum(word in _DENIALS or word.endswith("n't") for word in (*one, *other))
    return denials == 1 and [*map(stem, _bare(one))] == [*map(stem, _bare(other))]


def _bare(forms: Sequence[str]) -> list[str]:
    bare = (form.removesuffix("n't") for form in forms)
    return [form for form in bare if form not in _DENIALS and form not in _AUXILIARIES]


def _by_value(sentence: Plain, fact: Plain, mine: slice, theirs: slice) -> Verdict:
    if mine.start == mine.stop or theirs.start == theirs.stop:
        return "unclear"
    for front, back in _AROUND:
        if mine.start < front or len(sentence.words) - mine.stop < back:
            continue
        one = " ".join(sentence.words[mine.start - front : mine.stop + back])
        other = " ".join(fact.words[theirs.start - front : theirs.stop + back])
        stated = value(one)
        known = value(other) if stated is not None else None
        if stated is not None and known is not None:
            is_part = one.startswith(f"{other}.") or other.startswith(f"{one}.")  # 15.4 is a 15
            return "contradicts" if stated.differs(known) and not is_part else "agrees"
    return "unclear"


def _by_name(sentence: Sequence[str], known: Sequence[str]) -> Verdict:
    if not all(each and all(word[0].isupper() for word in each) for each in (sentence, known)):
        return "unclear"
    one, other = {*map(folded, sentence)}, {*map(folded, known)}
    return "agrees" if one & other or not NATIONS.keys().isdisjoint(one | other) else "contradicts"
