"""`GET /v1/models` asks several servers: which of them get the client's key."""

import asyncio
import json
from pathlib import Path

import aiohttp
import pytest
from yarl import URL

from tests.e2e.servers import Received, Upstream, proxy, send, upstream

CONFIG = """
upstreams:
  first: {{kind: openai, base_url: "{first}"}}
  again: {{kind: openai, base_url: "{first}", idle_timeout: 5}}
  other: {{kind: openai, base_url: "{other}"}}
  keyed: {{kind: openai, base_url: "{other}", api_key: sk-own}}
  keyless: {{kind: openai, base_url: "{first}", keyless: true}}
models:
  - {{match: "other-*", upstream: other}}
  - {{match: "*", upstream: first}}
default_upstream: {default}
embedding: {{kind: none}}
telemetry: {{log_level: warning}}
"""
CLIENTS = {
    "authorization": "Bearer sk-clients",
    "x-api-key": "sk-clients",
    "api-key": "sk-clients",
    "openai-organization": "org-clients",
    "openai-project": "proj-clients",
    "x-goog-api-key": "sk-clients",
}


async def listing(behind: Upstream, received: Received, writer: asyncio.StreamWriter) -> None:
    """Lists a model; without a key, as few servers do."""
    models = [{"id": f"{name}-1", "object": "model"} for name in ("first", "other")]
    await send(writer, 200, json.dumps({"object": "list", "data": models}).encode())


@pytest.mark.parametrize("default", ["first", "other"])
async def test_the_clients_key_goes_only_to_the_server_that_it_is_meant_for(
    default: str, behind: Upstream, tmp_path: Path, http: aiohttp.ClientSession
) -> None:
    async with upstream() as elsewhere:
        behind.respond = elsewhere.respond = listing
        text = CONFIG.format(first=behind.url, other=elsewhere.url, default=default)
        async with proxy(text, tmp_path) as base:
            async with http.get(f"{base}/v1/models", params={"key": "sk-clients"}, headers=CLIENTS) as response:
                listed = {model["id"] for model in (await response.json())["data"]}
            meant, stranger = (behind, elsewhere) if default == "first" else (elsewhere, behind)
            assert listed == {"first-1", "other-1"}, "servers that list without a key are listed"
            assert [each.path for each in stranger.received], "it was asked"
            assert "clients" not in repr(stranger.received)
            with_key = [each.header("authorization") for each in meant.received]
            # `again` is the same server as `first`; `keyed` has a key of its own; `keyless` gets none
            assert with_key.count("Bearer sk-clients") == (2 if default == "first" else 1)
            assert {"Bearer sk-own"} == {
                key for key in (each.header("authorization") for each in elsewhere.received) if key
            } - {"Bearer sk-clients"}

            behind.received.clear()
            elsewhere.received.clear()
            # who names a model means its server, as with a chat
            async with http.get(URL(f"{base}/v1/models/other-1"), headers=CLIENTS) as response:
                assert response.status == 200
            assert not behind.received
            assert [each.header("authorization") for each in elsewhere.received] == ["Bearer sk-clients"]
