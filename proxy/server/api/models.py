"""The models that clients are told of: named in the configuration, or offered by an upstream that an entry matches."""

import asyncio
import logging
from collections.abc import Mapping
from typing import Any

from proxy.access.exchange import Exchange
from proxy.chat.errors import PenstockError
from proxy.gateway.fallback import same_server
from proxy.http.headers import forwarded, impersonal
from proxy.upstreams.base import Upstream
from proxy.upstreams.keys import fitting
from proxy.upstreams.routing import Routes

_PATIENCE = 3.0
"""Seconds that an upstream has to list its models."""
_OF_KEYS = (400, 401, 403)
"""Statuses of errors that are about the client's key: it is another vendor's, or the server refuses it."""

_EPOCH = "1970-01-01T00:00:00Z"

_log = logging.getLogger("penstock.catalogue")


class ModelsApi:
    """`/v1/models`."""

    def __init__(self, routes: Routes) -> None:
        self._routes = routes

    async def find(self, http: Exchange) -> dict[str, Any]:
        """`GET /v1/models`: those that the configuration names, and those of the upstreams that it lets through."""
        async with http.watch():
            listed = await self._listed(forwarded(http.headers))
        data = [model for name, model in listed.items() if http.caller.may_use(name)]
        if "anthropic-version" not in http.headers:
            return {"object": "list", "data": data}
        # the same list reads as Anthropic's too
        data = [{"type": "model", "display_name": model["id"], "created_at": _EPOCH, **model} for model in data]
        first, last = (data[place]["id"] if data else None for place in (0, -1))
        return {"object": "list", "data": data, "has_more": False, "first_id": first, "last_id": last}

    async def get(self, http: Exchange) -> dict[str, Any]:
        """`GET /v1/models/{id}`, as its upstream describes it. Raise the upstream's refusal of a key."""
        name = http.scope["path_params"]["model"]
        headers: Mapping[str, str] = forwarded(http.headers)
        known, route = self._described(name), self._routes.of(name, http.caller.may_use)
        if self._routes.takes_clients_key(route.upstream):
            headers = fitting(headers, route.upstream, name)
        async with http.watch():
            listed = await self._ask(route.upstream, headers, is_meant=True)
        answer = next((model for model in listed if model["id"] == route.model), {})
        return {**known, **answer, "id": name}

    async def _listed(self, headers: Mapping[str, str]) -> dict[str, dict[str, Any]]:
        """Return all models by id, in the order of their entries. Only `Routes.unnamed` gets the client's key."""
        listed = {name: self._described(name) for name in self._routes.names()}
        upstreams, meant, others = self._routes.upstreams, self._routes.unnamed(headers), impersonal(headers)
        asked = [
            self._ask(each, headers if same_server(each, meant) else others, is_meant=each is meant)
            for each in upstreams
        ]
        for upstream, answer in zip(upstreams, await asyncio.gather(*asked), strict=True):
            for model in answer:
                if self._routes.serves(model["id"], upstream):
                    listed[model["id"]] = {**self._described(model["id"]), **model}
        return {name: listed[name] for name in sorted(listed, key=self._routes.place)}

    def _described(self, name: str) -> dict[str, Any]:
        """Return one model in OpenAI's words, with its limits in tokens where known. Raise `NotFound`."""
        route = self._routes.of(name)
        profile = route.profile
        limits = {"context_length": profile.window, "max_output_tokens": profile.max_output}
        known = {} if profile.source == "default" else limits
        return {"id": name, "object": "model", "created": 0, "owned_by": route.upstream.name, **known}

    async def _ask(self, upstream: Upstream, headers: Mapping[str, str], *, is_meant: bool) -> list[dict[str, Any]]:
        """Return the models of one upstream. Raises its refusal of the client's key if the key `is_meant` for it."""
        try:
            async with asyncio.timeout(_PATIENCE):
                return await upstream.models(headers)
        except Exception as error:  # a list with a gap is better than none
            is_of_key = isinstance(error, PenstockError) and error.status in _OF_KEYS
            if not (is_of_key and self._routes.takes_clients_key(upstream)):
                fields = {"upstream": upstream.name, "error": type(error).__name__}
                _log.warning("models not listed", extra={"fields": fields})
            elif is_meant:
                raise
            return []
