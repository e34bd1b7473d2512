"""Reports of vendors: dropped reasoning, edits of their own, causes of a missed cache, and reads of the cache."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from time import monotonic
from typing import Any, NamedTuple

from proxy.context import CacheRules, Identity, ModelProfile
from proxy.state.cache import Cache

HARMFUL = frozenset({"prefix_binding_mismatch", "prefix_mismatch"})
"""Reasons for dropped reasoning that an edit of a prompt causes; others are a change of the model or the account."""
_CHANGED = re.compile(r"(?!model)\w+_changed")
"""Causes of a missed cache that an edit of a prompt can have."""

_CONVERSATIONS = 20_000
_AGE = 24 * 3600.0


class VendorReport(NamedTuple):
    """A vendor's report on one request."""

    dropped: tuple[str, ...] = ()
    """The reason for each block or item of reasoning that it took out."""
    edits: tuple[str, ...] = ()
    """The types of its own edits that it applied."""
    missed: str | None = None
    """The part of the prompt that kept it from reading its cache."""

    def harm(self, *, is_unread: bool) -> str | None:
        """Return why an edit did harm, or None; `is_unread` if nothing was read that should have been cached."""
        is_edited = is_unread and self.missed is not None and _CHANGED.fullmatch(self.missed) is not None
        return next((reason for reason in self.dropped if reason in HARMFUL), self.missed if is_edited else None)

    def __str__(self) -> str:
        dropped = [f"dropped reasoning: {reason}" for reason in dict.fromkeys(self.dropped)]
        edits = [f"applied {edit}" for edit in dict.fromkeys(self.edits)]
        return "; ".join([*dropped, *edits, *([f"missed its cache: {self.missed}"] if self.missed else [])])

    def joined(self, other: "VendorReport") -> "VendorReport":
        """Return both as one: a stream reports in several events, some of them twice."""
        return VendorReport(other.dropped or self.dropped, other.edits or self.edits, other.missed or self.missed)


def read_report(answer: Mapping[str, Any]) -> VendorReport:
    """Return the report in an answer, or in an event of its stream."""
    found = _objects(answer.get("input_transformations"))
    dropped = [str(each.get("reason")) for each in found if each.get("type") != "thinking_mismatch_allowed"]
    management = answer.get("context_management")
    applied = management.get("applied_edits") if isinstance(management, Mapping) else None
    edits = [str(each.get("type")) for each in _objects(applied)]
    return VendorReport(tuple(dropped), tuple(edits), _missed(answer))


def _missed(answer: Mapping[str, Any]) -> str | None:
    for field, name in (("diagnostics", "cache_miss_reason"), ("prompt_cache_diagnostics", "reason")):
        told = answer.get(field)
        reason = told.get(name) if isinstance(told, Mapping) else None
        if reason:
            return str(reason.get("type")) if isinstance(reason, Mapping) else str(reason)
    return None


def _objects(value: Any) -> Iterator[Mapping[str, Any]]:
    return (each for each in value if isinstance(each, Mapping)) if isinstance(value, list) else iter(())


MISSES = 3
"""So many answers in a row without a read that was expected: then the cache is taken for unused."""

PAUSE = 600.0


class ReportMemory:
    """The steps on hold, and the misses of the cache, in each conversation. For use on one event loop."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._holds: Cache[tuple[str, str], Mapping[str, str]] = Cache(_CONVERSATIONS, age=_AGE)
        self._misses: Cache[tuple[str, str, str, str], int] = Cache(_CONVERSATIONS, age=PAUSE, clock=clock)

    def hold(self, who: Identity, steps: Iterable[str], reason: str) -> None:
        self._holds.put((who.tenant, who.scope), {**self.on_hold(who), **dict.fromkeys(steps, reason)})

    def on_hold(self, who: Identity) -> Mapping[str, str]:
        return self._holds.get((who.tenant, who.scope)) or {}

    def note(self, who: Identity, upstream: str, model: str, expected: int, reported: int | None) -> None:
        """Take note of an answer: the tokens that were expected to be read from the cache, and those that were."""
        key = (who.tenant, who.scope, upstream, model)
        if reported:
            self._misses.pop(key)
        elif expected and reported == 0:  # None is a server that does not tell
            self._misses.put(key, (self._misses.get(key) or 0) + 1)

    def applied(self, who: Identity, upstream: str, profile: ModelProfile) -> ModelProfile:
        """Return the profile as it is charged: without a cache where the conversation was seen to read none."""
        unused = (self._misses.get((who.tenant, who.scope, upstream, profile.name)) or 0) >= MISSES
        return replace(profile, cache=CacheRules()) if unused else profile

    def forget(self, tenant: str) -> int:
        return self._holds.forget(tenant) + self._misses.forget(tenant)
