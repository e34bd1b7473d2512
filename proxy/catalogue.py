"""The models that clients are told of: named in the configuration, or offered by an upstream that an entry matches."""

import asyncio
import logging
from collections.abc import Mapping
from typing import Any

from proxy.routing import Routes

_log = logging.getLogger("penstock.catalogue")


class Catalogue:
    """Entries of `GET /v1/models`."""

    def __init__(self, routes: Routes) -> None:
        self._routes = routes

    async def listed(self, headers: Mapping[str, str]) -> dict[str, dict[str, Any]]:
        """All models by id. An upstream that cannot be asked is left out; `headers` are the client's, for its key."""
        listed = {name: self.described(name) for name in self._routes.names()}
        upstreams = self._routes.upstreams
        answers = await asyncio.gather(*(each.models(headers) for each in upstreams), return_exceptions=True)
        for upstream, answer in zip(upstreams, answers, strict=True):
            if isinstance(answer, BaseException):
                fields = {"upstream": upstream.name, "error": type(answer).__name__}
                _log.warning("models not listed", extra={"fields": fields})
                continue
            for model in answer:
                if self._routes.serves(model["id"], upstream):
                    listed[model["id"]] = {**self.described(model["id"]), **model}
        return listed

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
