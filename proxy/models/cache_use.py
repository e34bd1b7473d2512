"""Whether an upstream's prompt cache is used as its rules say: what is expected against what usage reports."""

from dataclasses import replace

from proxy.context import CacheRules, ModelProfile
from proxy.state.cache import Cache

MISSES = 8
"""So many answers in a row without a read that was expected: then the cache is taken for unused, until one has read."""

_MODELS = 1024


class CacheUse:
    """Remembers by upstream and model. For use on one event loop; losing it costs a few estimates."""

    def __init__(self) -> None:
        self._misses: Cache[tuple[str, str], int] = Cache(_MODELS)

    def note(self, upstream: str, model: str, expected: int, reported: int | None) -> None:
        """Take note of an answer: the tokens that were expected to be read from the cache, and those that were."""
        if reported:
            self._misses.pop((upstream, model))
        elif expected and reported == 0:  # None is a server that does not tell
            self._misses.put((upstream, model), (self._misses.get((upstream, model)) or 0) + 1)

    def applied(self, upstream: str, profile: ModelProfile) -> ModelProfile:
        """The profile as it is charged: without a cache where the upstream was seen to use none."""
        unused = (self._misses.get((upstream, profile.name)) or 0) >= MISSES
        return replace(profile, cache=CacheRules()) if unused else profile
