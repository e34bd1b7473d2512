"""The table of models: the upstream, chain and profile of each name that clients may use."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from fnmatch import translate
from functools import partial
from urllib.parse import urlsplit

from proxy.chat.errors import NotFound
from proxy.config.settings import ModelSettings, Settings
from proxy.context import ModelProfile
from proxy.models import Models
from proxy.state.cache import Cache
from proxy.upstreams.base import Upstream
from proxy.upstreams.keys import fits, fitting

_REMEMBERED = 4096
"""Names whose route is kept; clients choose names, so there must be an end."""

ProfileOf = Callable[[str, ModelSettings, Upstream], ModelProfile]


@dataclass(frozen=True, slots=True)
class Route:
    """The upstream, chain and profile of a model."""

    upstream: Upstream
    chain: str
    model: str
    """The upstream's name for the model."""
    label: str
    """The entry of the configuration that matched."""
    named: bool
    """The configuration names the model, so that its name is not of the client's choosing."""
    profile: ModelProfile
    settings: ModelSettings


class Routes:
    """The table of models."""

    def __init__(
        self, settings: Settings, upstreams: Mapping[str, Upstream], profile_of: ProfileOf | None = None
    ) -> None:
        self._models = settings.models
        self._globs = [
            (entry, glob, re.compile(translate(glob)).match) for entry in self._models for glob in entry.match
        ]
        self._upstreams = upstreams
        self._takes_clients_key = {name for name, each in settings.upstreams.items() if not each.has_own_key}
        self.profile_of = profile_of or partial(_profile_of, Models())
        self._known: Cache[str, Route] = Cache(_REMEMBERED)
        self.upstreams = tuple(upstreams.values())
        self._default = upstreams[settings.default_upstream or next(iter(upstreams))]

    def of(self, model: str, may_use: Callable[[str], bool] | None = None) -> Route:
        """Return the route of a model. Raise `NotFound` if no entry matches, or if `may_use` forbids the model."""
        if may_use is not None and not may_use(model):
            raise _unknown(model)
        route = self._known.get(model)
        if route is None:
            route = self._find(model)
            self._known.put(model, route)
        return route

    def _find(self, model: str) -> Route:
        for entry, label, matches in self._globs:
            if matches(model):
                upstream = self._upstreams[entry.upstream]
                name = entry.model or model
                named = entry.model is not None or model in entry.match
                profile = self.profile_of(name, entry, upstream)
                return Route(upstream, entry.chain, name, label, named, profile, entry)
        raise _unknown(model)

    def unnamed(self, headers: Mapping[str, str]) -> Upstream:
        """Return the upstream of a request that names no model: the default one.

        If the client's key is another vendor's, it is the only server of that vendor. Raise `BadRequest` if there is
        none that may get the key.
        """
        default = self._default
        if fits(headers, default.provider):
            return default
        others = [each for each in self.upstreams if self.takes_clients_key(each) and fits(headers, each.provider)]
        if len({each.address for each in others}) == 1:
            return others[0]
        if self.takes_clients_key(default):
            fitting(headers, default, "")
        return default

    def takes_clients_key(self, upstream: Upstream) -> bool:
        return upstream.name in self._takes_clients_key

    def place(self, model: str) -> int:
        """Return the place in the configuration of the entry that serves a model."""
        entry = self.of(model).settings
        return next(place for place, each in enumerate(self._models) if each is entry)

    def serves(self, model: str, upstream: Upstream) -> bool:
        """Return whether requests for this model go to this upstream under the same name."""
        try:
            route = self.of(model)
        except NotFound:
            return False
        return route.upstream is upstream and route.model == model

    def names(self) -> list[str]:
        return [name for entry in self._models for name in entry.match if not any(mark in name for mark in "*?[")]


def _unknown(model: str) -> NotFound:
    """Return the error for an unknown model, the same as for one that the caller may not use."""
    return NotFound(
        f"The model `{model[:200]}` does not exist or you do not have access to it. No entry of `models` in the "
        "configuration serves it to you.",
        code="model_not_found",
    )


def _profile_of(models: Models, name: str, entry: ModelSettings, upstream: Upstream) -> ModelProfile:
    """Return the profile of a model. Only OpenAI itself is known to take `prompt_cache_key`."""
    profile = models.resolve(name, entry, ollama=upstream.provider == "ollama")
    takes_key = entry.cache is not None or urlsplit(upstream.address or "").hostname == "api.openai.com"
    if takes_key or not profile.cache.keyed:
        return profile
    return replace(profile, cache=replace(profile.cache, keyed=False))
