"""An operator forgets a tenant: nothing of it is left that a key could see, and nothing of another's is gone."""

import asyncio
import json
from typing import Any

import aiohttp
import pytest

from proxy.config.keys_file import hash_of
from proxy.identity import tenant_named
from tests.e2e.conftest import Lab
from tests.e2e.served import served
from tests.e2e.servers import Received, Upstream, say
from tests.e2e.test_recall import CONVERSATION, TOOLS, handle_in
from tests.e2e.test_recall import model as recalling
from tests.scripted import answer

CONFIG = """
upstreams: {{main: {{kind: openai, base_url: "{url}", api_key: sk-own}}}}
models: [{{match: "*", upstream: main, window: 100000}}]
server: {{admin_key: s3cret}}
chains: {{default: [{{compact_tool_results: {{over: 600, read_again: 0}}}}, {{offer_recall: {{}}}}, {{include_shared: {{}}}}]}}
auth:
  kind: keys
  keys: [{{name: one, hash: {one}}}, {{name: two, hash: {two}}}]
"""
ADMIN = {"authorization": "Bearer s3cret"}


class Client:
    """What the two tenants do and see."""

    def __init__(self, base: str, http: aiohttp.ClientSession, behind: Upstream) -> None:
        self.base, self._http, self._behind = base, http, behind

    async def ask(self, method: str, path: str, key: str, headers: Any = None, **options: Any) -> tuple[int, Any]:
        sent = {"authorization": f"Bearer {key}", **(headers or {})}
        async with self._http.request(method, f"{self.base}{path}", headers=sent, **options) as response:
            return response.status, json.loads(await response.read())

    async def leaves(self, key: str) -> str:
        """Leave something of everything for a key; the handle of what was archived."""
        for user in ("ann", None):
            body: dict[str, Any] = {"text": "Likes candles"} | ({} if user is None else {"user": user})
            assert (await self.ask("POST", "/v1/memories", key, json=body))[0] == 200
        named = {"x-penstock-session": "s", "x-request-id": f"r-{key}"}
        before = len(self._behind.received)
        body = {"model": "m", "messages": CONVERSATION, "tools": TOOLS}
        assert (await self.ask("POST", "/v1/chat/completions", key, named, json=body))[0] == 200
        given = {"to": {"session": "s", "agent": "bob"}, "content": "a finding"}
        assert (await self.ask("POST", "/v1/context/share", key, named, json=given))[0] == 200
        to_bob = {**named, "x-penstock-agent": "bob", "x-request-id": "bob"}
        body = {"model": "m", "messages": [{"role": "user", "content": "And?"}]}
        assert (await self.ask("POST", "/v1/chat/completions", key, to_bob, json=body))[0] == 200
        return handle_in(self._behind.received[before].body)

    async def sees(self, key: str, handle: str) -> list[Any]:
        """How many memories of a user and of all, whether what was archived is there, and the record of its request."""
        counts = [len((await self.ask("GET", f"/v1/memories{user}", key))[1]["data"]) for user in ("?user=ann", "")]
        paths = (f"/v1/retrieve/{handle}", f"/v1/explain/r-{key}")
        return counts + [(await self.ask("GET", path, key))[0] for path in paths]

    async def forget(self, tenant: str) -> tuple[int, Any]:
        return await self.ask("DELETE", f"/admin/tenants/{tenant}", "s3cret")


async def recalling_or_signing(upstream: Upstream, received: Received, writer: asyncio.StreamWriter) -> None:
    """Read what was shortened; what was shared is answered with signed reasoning."""
    if b"a finding" not in received.body:
        await recalling(upstream, received, writer)
        return
    said = answer("Thanks.")
    said["choices"][0]["message"]["thinking_blocks"] = [{"type": "thinking", "thinking": "Hm.", "signature": "s"}]
    await say(writer, received, said)


@pytest.fixture(autouse=True)
def recalls(behind: Upstream) -> None:
    behind.respond = recalling_or_signing


def config(behind: Upstream) -> str:
    return CONFIG.format(url=behind.url, one=hash_of("pk-1"), two=hash_of("pk-2"))


async def test_all_of_one_tenant_goes_and_all_of_another_stays(lab: Lab) -> None:
    base = await lab.start(config(lab.behind))
    client = Client(base, lab.http, lab.behind)
    handles = {key: await client.leaves(key) for key in ("pk-1", "pk-2")}
    everything = [1, 1, 200, 200]
    for key, handle in handles.items():
        assert await client.sees(key, handle) == everything
    status, told = await client.forget("one")
    assert (status, told["complete"], told["failed"]) == (200, True, {})
    assert told["tenant"] == tenant_named("one")
    gone = ["requests", "memories", "originals", "shares", "decisions", "tool_rounds", "prefixes", "vectors"]
    assert {name for name, count in told["forgotten"].items() if count} == {*gone}
    assert {*told["forgotten"]} - {*gone} == {"corrections", "summaries"}
    assert (told["forgotten"]["memories"], told["forgotten"]["originals"]) == (2, 1)
    assert "usage_counts" in told["remains"]
    assert await client.sees("pk-1", handles["pk-1"]) == [0, 0, 404, 404]
    assert await client.sees("pk-2", handles["pk-2"]) == everything
    again = (await client.forget(tenant_named("one")))[1]["forgotten"]
    assert not any(count for name, count in again.items() if name != "vectors")
    assert await client.leaves("pk-1") == handles["pk-1"], "it begins anew, and what it sends is kept again"
    assert await client.sees("pk-1", handles["pk-1"]) == everything


async def test_every_worker_forgets(lab: Lab) -> None:
    async with served(config(lab.behind), lab.folder, "--workers", "2") as running:
        handles: list[str] = []
        for _ in range(4):  # a connection each, so that both workers have something
            async with aiohttp.ClientSession() as http:
                handles.append(await Client(running.base, http, lab.behind).leaves("pk-1"))
        async with aiohttp.ClientSession() as http:
            status, told = await Client(running.base, http, lab.behind).forget("one")
        assert (status, told["complete"]) == (200, True)
        assert told["forgotten"]["requests"] >= 4
        for _ in range(4):
            async with aiohttp.ClientSession() as http:
                assert await Client(running.base, http, lab.behind).sees("pk-1", handles[0]) == [0, 0, 404, 404]
