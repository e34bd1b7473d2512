"""An explanation of a request by a running server: nothing is sent, and nothing that is kept changes."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from proxy.access.callers import Caller
from proxy.access.exchange import Exchange
from proxy.chat import encode
from proxy.chat.errors import BadRequest, ConfigError, NotFound
from proxy.chat.parse import Body
from proxy.config.load import Config, read_chain
from proxy.config.settings import Settings
from proxy.gateway.prepare import Services
from proxy.server.explain import shown_with_text
from proxy.server.replay.player import NO_HEADERS, choosing, patient, play_all, player_beside
from proxy.state.store import Store
from proxy.upstreams.routing import Routes

MOST_BEFORE = 64
"""Requests that may stand before one."""

_TIME = 30.0
"""Seconds for the chain: nobody waits for an answer."""

_TRIED = "tried here"
"""The name of a chain that is only tried."""

Find = Callable[[str, Mapping[str, Any]], Awaitable[dict[str, Any] | None]]
"""The record of a request id, if there is one."""


class Explaining:
    """`POST /v1/explain` and `POST /admin/explain`."""

    def __init__(self, config: Config, routes: Routes, services: Services, store: Store) -> None:
        self._config, self._settings = config, config.settings
        self._routes, self._services, self._store = routes, services, store

    async def serve(self, http: Exchange) -> dict[str, Any]:
        """Explain a request of the client's own, with the chain that it would get, or may choose."""
        asked = await http.body()
        async with http.watch():
            chain = _text(asked, "chain")
            headers = {**http.headers, "x-penstock-chain": chain} if chain else http.headers
            return await self._explain(self._settings, _request(asked), asked, None, headers, http.caller)

    async def for_operators(self, body: bytes, find: Find) -> dict[str, Any]:
        """Explain any request, or a recorded one, with any chain, and with another to compare.

        `chain_yaml` is a chain that is only tried. Raise `PenstockError`.
        """
        asked, caller = Body(body), None
        request_id = _text(asked, "request_id")
        if request_id is None:
            raw = _request(asked)
        else:
            which = {name: _text(asked, name) or "" for name in ("tenant", "until")}
            raw, caller = await _recorded(request_id, which, find)
        settings, against = choosing(self._settings), _text(asked, "against")
        chain, tried = _text(asked, "chain"), _text(asked, "chain_yaml")
        if tried is not None:
            try:
                chain, steps = _TRIED, await asyncio.to_thread(read_chain, tried, self._config)
            except ConfigError as error:
                raise BadRequest(str(error), param="chain_yaml", code="invalid_type") from None
            settings = settings.model_copy(update={"chains": {**settings.chains, _TRIED: steps}})
        explained = await self._explain(settings, raw, asked, chain, NO_HEADERS, caller)
        other = None if against is None else await self._explain(settings, raw, asked, against, NO_HEADERS, caller)
        return {"explained": explained, "against": other}

    async def _explain(
        self,
        settings: Settings,
        raw: bytes,
        asked: Body,
        chain: str | None,
        headers: Mapping[str, str],
        caller: Caller | None,
    ) -> dict[str, Any]:
        before = asked.raws_of("before")
        if len(before) > MOST_BEFORE:
            told = f"before has {len(before)} requests; send at most {MOST_BEFORE}"
            raise BadRequest(told, param="before", code="array_above_max_length")
        settings = patient(settings, _TIME)  # also where a model is still being loaded
        async with player_beside(settings, self._routes, self._services, self._store) as player:
            played = await play_all(player, raw, before, chain=chain, headers=headers, caller=caller)
            return await shown_with_text(played)


def _request(asked: Body) -> bytes:
    """Return the client's own bytes of the request: handles are made of them."""
    if not isinstance(asked.get("request"), dict):
        raise BadRequest("request must be the body of a chat request", param="request", code="invalid_type")
    return asked.raw_of("request")


async def _recorded(request_id: str, which: Mapping[str, str], find: Find) -> tuple[bytes, Caller]:
    """Return a recorded request, and whose it was."""
    record = await find(request_id, which)
    text = None if record is None else record.get("text")
    if record is None or not isinstance(text, Mapping):
        told = "no recent request has this id, or its text was not kept; set records.text in the configuration"
        raise NotFound(told, code="unknown_request")
    tools = {"tools": text["tools_before"]} if text.get("tools_before") else {}
    raw = encode({"model": record["model"], "messages": text["before"], **tools})
    return raw, Caller(str(record["tenant"]))


def _text(asked: Body, name: str) -> str | None:
    value = asked.get(name)
    if value is not None and not isinstance(value, str):
        raise BadRequest(f"{name} must be a string", param=name, code="invalid_type")
    return value
