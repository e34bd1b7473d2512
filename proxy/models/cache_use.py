"""Use of prompt caches: the reads that usage reports, compared with those that the cache's rules predict."""

from collections.abc import Callable
from dataclasses import replace
from time import monotonic

from proxy.context import CacheRules, Identity, ModelProfile
from proxy.state.cache import Cache

MISSES = 3
"""So many answers in a row without a read that was expected: then the cache is taken for unused."""

PAUSE = 600.0
"""Seconds after which it is tried again."""

_CONVERSATIONS = 20_000


class CacheUse:
    """The misses of each conversation, upstream and model. For one event loop; losing it costs a few estimates."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        """`clock` is in seconds."""
        self._misses: Cache[tuple[str, str, str, str], int] = Cache(_CONVERSATIONS, age=PAUSE, clock=clock)

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
        """Forget a tenant's conversations; return how many they were."""
        return self._misses.forget(tenant)
