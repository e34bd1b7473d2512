"""`GET /v1/models` asks several servers: which of them get the client's key."""

import json

import pytest
from yarl import URL

from tests.e2e.conftest import Lab
from tests.e2e.servers import answering, proxy, upstream

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
"""
CLIENTS = {
    "authorization": "Bearer sk-clients",
    "x-api-key": "sk-clients",
    "api-key": "sk-clients",
    "openai-organization": "org-clients",
    "openai-project": "proj-clients",
    "x-goog-api-key": "sk-clients",
}


MODELS = [{"id": f"{name}-1", "object": "model"} for name in ("first", "other")]


@pytest.mark.parametrize("default", ["first", "other"])
async def test_the_clients_key_goes_only_to_the_server_that_it_is_meant_for(lab: Lab, default: str) -> None:
    async with upstream() as elsewhere:
        # without a key, as few servers do
        listing = answering(json.dumps({"object": "list", "data": MODELS}).encode())
        lab.behind.respond = elsewhere.respond = listing
        text = CONFIG.format(first=lab.behind.url, other=elsewhere.url, default=default)
        async with proxy(text, lab.folder) as base:
            async with lab.http.get(f"{base}/v1/models", params={"key": "sk-clients"}, headers=CLIENTS) as response:
                listed = {model["id"] for model in (await response.json())["data"]}
            meant, stranger = (lab.behind, elsewhere) if default == "first" else (elsewhere, lab.behind)
            assert listed == {"first-1", "other-1"}, "servers that list without a key are listed"
            assert [each.path for each in stranger.received], "it was asked"
            assert "clients" not in repr(stranger.received)
            with_key = [each.header("authorization") for each in meant.received]
            # `again` is the same server as `first`; `keyed` has a key of its own; `keyless` gets none
            assert with_key.count("Bearer sk-clients") == (2 if default == "first" else 1)
            assert {"Bearer sk-own"} == {
                key for key in (each.header("authorization") for each in elsewhere.received) if key
            } - {"Bearer sk-clients"}

            lab.behind.received.clear()
            elsewhere.received.clear()
            # who names a model means its server, as with a chat
            async with lab.http.get(URL(f"{base}/v1/models/other-1"), headers=CLIENTS) as response:
                assert response.status == 200
            assert not lab.behind.received
            assert [each.header("authorization") for each in elsewhere.received] == ["Bearer sk-clients"]
