"""Which of the memories that were found are given to the model, and why others are not. Pure."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from pydantic import BaseModel, ConfigDict, Field

from policies.inject_facts.patterns import facts_in, single
from policies.resolve_clashes.clashes import clash
from policies.resolve_clashes.statements import Statement, statements
from proxy.context import RememberedItem
from proxy.text.bm25 import terms
from proxy.text.same import first_person

_NAMED = 10
"""Memories that are named in the figures, the nearest first."""
_SHARED = 2
"""Terms that a memory shares with a preference that it matches."""


class Bars(BaseModel):
    """The bars that memories must reach: fields of `select_memories`."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    top: int = Field(default=5, ge=1, le=50)
    """The most memories for one message."""

    threshold: float = Field(default=0.7, ge=0, le=1)
    """The score that they must reach."""

    fallback: float = Field(default=0.5, ge=0, le=1)
    """The score that is enough where none reaches the threshold."""

    fallback_top: int = Field(default=3, ge=0, le=50)
    """The most memories that are given then."""

    floor: float = Field(default=0.5, ge=0, le=1)
    """The similarity below which a memory stays out, whatever its bonus."""

    recent: float = Field(default=3600.0, ge=0)
    """Seconds for which a memory counts as recent."""

    recent_bonus: float = Field(default=0.1, ge=0, le=1)
    """The bonus of a recent memory."""

    preference_bonus: float = Field(default=0.15, ge=0, le=1)
    """The bonus of a memory that matches the user's preferences: it is one of them, or it shares two telling words with
    one whose similarity to the message is at least `fallback`."""

    max_age: float | None = Field(default=None, gt=0)
    """Seconds after which a memory that was not said again stays out; by default none is too old."""

    min_confidence: float = Field(default=0.3, ge=0, le=1)
    """The confidence below which a memory stays out."""


class Ranking(NamedTuple):
    """The chosen memories, the best first, and figures about them."""

    chosen: tuple[RememberedItem, ...]
    facts: dict[str, str | int | float | bool]

    @property
    def why(self) -> str:
        """The reasons for which others stay out, as the end of a clause; empty where none does."""
        reasons = [f"{self.facts[name]} {text}" for name, text in _WHY.items() if self.facts.get(name)]
        return "".join(f", {each}" for each in reasons) + (", by the fallback" if self.facts.get("fallback") else "")


def ranked(items: Sequence[RememberedItem], bars: Bars) -> Ranking:
    """Return the memories to give."""
    out = {item.id: reason for item in items if (reason := _reason(item, bars))}
    fit = [item for item in items if item.id not in out]
    scores = _scores(fit, bars)
    order = sorted(fit, key=lambda item: (-scores[item.id], item.age, item.id))
    passing = [item for item in order if scores[item.id] >= bars.threshold]
    chosen = passing[: bars.top]
    if not passing:
        passing = [item for item in order if scores[item.id] > bars.fallback]
        chosen = passing[: bars.fallback_top]
    out |= {item.id: "left_rank" for item in passing[len(chosen) :]}
    out |= {item.id: "left_relevance" for item in order[len(passing) :]}
    by_fallback = bool(chosen) and scores[chosen[0].id] < bars.threshold
    facts: dict[str, str | int | float | bool] = {"memories_found": len(items), **Counter(out.values())}
    if chosen:
        facts["given"] = ", ".join(f"{item.id} {scores[item.id]:.2f}" for item in chosen)
    if out:
        facts["left_out"] = _named([item for item in items if item.id in out], out, scores)
    return Ranking(tuple(chosen), {**facts, **({"fallback": True} if by_fallback else {})})


def _named(items: Sequence[RememberedItem], out: Mapping[str, str], scores: Mapping[str, float]) -> str:
    """Return the nearest of those that stay out, each with its score and why; of one that got none its similarity."""
    near = sorted(items, key=lambda item: (-scores.get(item.id, item.similarity), item.id))[:_NAMED]
    return ", ".join(f"{each.id} {scores.get(each.id, each.similarity):.2f} {_WHY[out[each.id]]}" for each in near)


_WHY = {
    "left_relevance": "not relevant enough",
    "left_age": "too old",
    "left_confidence": "not sure enough",
    "left_rank": "behind the best",
}


def _reason(item: RememberedItem, bars: Bars) -> str:
    """Why a memory stays out whatever its score is; empty where it need not."""
    if item.similarity < bars.floor:
        return "left_relevance"
    if item.confidence < bars.min_confidence:
        return "left_confidence"
    return "left_age" if bars.max_age is not None and item.age > bars.max_age else ""


def _scores(items: Sequence[RememberedItem], bars: Bars) -> dict[str, float]:
    """Similarity, and what is added to it."""
    said = {item.id: frozenset(terms(item.text)) for item in items}
    wishes = [item for item in items if item.is_own and item.kind == "preference" and item.similarity >= bars.fallback]
    scores: dict[str, float] = {}
    for item in items:
        matches = any(item is wish or len(said[item.id] & said[wish.id]) >= _SHARED for wish in wishes)
        recent = bars.recent_bonus if item.age < bars.recent else 0.0
        scores[item.id] = item.similarity + recent + (bars.preference_bonus if matches else 0.0)
    return scores


class _ReadText(NamedTuple):
    """A text as it was read."""

    statements: tuple[Statement, ...]
    facts: dict[str, str]
    """Facts of which a user has one: a home, a workplace."""


def outdated(texts: Sequence[str]) -> dict[int, int]:
    """Return the places of texts, the oldest first, that a newer one contradicts, each with the newest such one."""
    own = [first_person(text) for text in texts]
    read = [_ReadText(statements(text), single(facts_in(text))) for text in own]
    found: dict[int, int] = {}
    for newer in range(len(read)):
        found |= {older: newer for older in range(newer) if _contradicts(read[older], read[newer])}
    return found


def _contradicts(older: _ReadText, newer: _ReadText) -> bool:
    if any(value.casefold() != newer.facts.get(name, value).casefold() for name, value in older.facts.items()):
        return True
    pairs = ((clash(old, new), new) for old in older.statements for new in newer.statements)
    # one travels to many places
    return any(rule and (rule != "value" or any(one.kind != "place" for one in new.values)) for rule, new in pairs)
