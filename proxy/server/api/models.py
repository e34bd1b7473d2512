"""The models that clients are told of: named in the configuration, or offered by an upstream that an entry matches."""

import asyncio
import logging
from collections.abc import Mapping
from typing import Any

from proxy.gateway.fallback import same_server
from proxy.http.headers import impersonal
from proxy.upstreams.base import Upstream
from proxy.upstreams.routing import Routes

_PATIENCE = 3.0
"""Seconds that an upstream has to list its models."""

_log = logging.getLogger("penstock.catalogue")


class Catalogue:
    """Entries of `GET /v1/models`."""

    def __init__(self, routes: Routes) -> None:
        self._routes = routes

    async def listed(self, headers: Mapping[str, str]) -> dict[str, dict[str, Any]]:
        """All models by id; `headers` are the client's.

        The request names no model, so its key is meant for the default upstream: any other server is asked without it.
        What an upstream does not tell in time, or without the key, is left out.
        """
        listed = {name: self.described(name) for name in self._routes.names()}
        upstreams, meant, others = self._routes.upstreams, self._routes.default, impersonal(headers)
        asked = [_ask(each, headers if same_server(each, meant) else others) for each in upstreams]
        answers = await asyncio.gather(*asked)
        for upstream, answer in zip(upstreams, answers, strict=True):
            for model in answer:
                if self._routes.serves(model["id"], upstream):
                    listed[model["id"]] = {**self.described(model["id"]), **model}
        return listed

    async def one(self, name: str, headers: Mapping[str, str]) -> dict[str, Any]:
        """One model, with what its upstream says about it. Raises `NotFound` for one that nothing serves."""
        known = self.described(name)
        route = self._routes.of(name)
        told = next((model for model in await _ask(route.upstream, headers) if model["id"] == route.model), {})
        return {**known, **told, "id": name}

    def described(self, name: str) -> dict[str, Any]:
        """One model in OpenAI's words, and its limits in tokens. Raises `NotFound` for one that nothing serves."""
        route = self._routes.of(name)
        return {
            "id": name,
            "object": "model",
            "created": 0,
            "owned_by": route.upstream.name,
            "context_length": route.profile.window,
            "max_output_tokens": route.profile.max_output,
        }


async def _ask(upstream: Upstream, headers: Mapping[str, str]) -> list[dict[str, Any]]:
    try:
        async with asyncio.timeout(_PATIENCE):
            return await upstream.models(headers)
    except Exception as error:  # a list with a gap is better than none
        fields = {"upstream": upstream.name, "error": type(error).__name__}
        _log.warning("models not listed", extra={"fields": fields})
        return []
