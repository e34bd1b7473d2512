"""An operator forgets a tenant: nothing of it is left that a key could see, and nothing of another's is gone."""

import asyncio
from dataclasses import replace
from typing import Any

import aiohttp
import pytest

from proxy.config.keys_file import hash_of
from proxy.identity import tenant_named
from tests.e2e.conftest import Client, Lab
from tests.e2e.servers import Received, Upstream, say
from tests.e2e.test_recall import CONVERSATION, TOOLS, handle_in
from tests.e2e.test_recall import model as recalling
from tests.scripted import answer

CONFIG = """
upstreams: {main: {kind: openai, base_url: "{url}", api_key: sk-own}}
server: {admin_key: s3cret}
chains: {default: [{compact_tool_results: {over: 600, read_again: 0}}, {offer_recall: {}}, {include_shared: {}}]}
auth:
  kind: keys
  keys: [{name: one, hash: {one}}, {name: two, hash: {two}}]
"""


class Tenant:
    """What somebody with a key does and sees."""

    def __init__(self, client: Client, behind: Upstream) -> None:
        self._client, self._behind = client, behind

    async def leaves(self) -> str:
        """Leave something of everything; the handle of what was archived."""
        client, before = self._client, len(self._behind.received)
        named = {"x-penstock-session": "s", "x-request-id": f"r-{client.key}"}
        to_bob = {**named, "x-penstock-agent": "bob", "x-request-id": "bob"}
        given = {"to": {"session": "s", "agent": "bob"}, "content": "a finding"}
        for got in (
            await client.post("/v1/memories", {"text": "Likes candles", "user": "ann"}),
            await client.post("/v1/memories", {"text": "Likes candles"}),
            await client.chat(messages=CONVERSATION, tools=TOOLS, headers=named),
            await client.post("/v1/context/share", given, named),
            await client.chat("And?", headers=to_bob),
        ):
            assert got.status == 200, got
        return handle_in(self._behind.received[before].body)

    async def sees(self, handle: str) -> list[Any]:
        """How many memories of a user and of all, whether what was archived is there, and the record of its request."""
        counts = [len((await self._client.get(f"/v1/memories{user}")).json["data"]) for user in ("?user=ann", "")]
        paths = (f"/v1/retrieve/{handle}", f"/v1/explain/r-{self._client.key}")
        return counts + [(await self._client.get(path)).status for path in paths]


async def forget(client: Client, tenant: str) -> tuple[int, Any]:
    answer = await client.send("DELETE", f"/admin/tenants/{tenant}", key="s3cret")
    return answer.status, answer.json


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


HASHES = {"one": hash_of("pk-1"), "two": hash_of("pk-2")}
EVERYTHING, NOTHING = [1, 1, 200, 200], [0, 0, 404, 404]


async def test_all_of_one_tenant_goes_and_all_of_another_stays(lab: Lab) -> None:
    one = await lab.client(CONFIG, "pk-1", **HASHES)
    first, second = Tenant(one, lab.behind), Tenant(replace(one, key="pk-2"), lab.behind)
    handle, others = await first.leaves(), await second.leaves()
    assert (await first.sees(handle), await second.sees(others)) == (EVERYTHING, EVERYTHING)
    status, told = await forget(one, "one")
    assert (status, told["complete"], told["failed"]) == (200, True, {})
    assert told["tenant"] == tenant_named("one")
    gone = ["requests", "memories", "originals", "shares", "decisions", "tool_rounds", "prefixes", "vectors"]
    assert {name for name, count in told["forgotten"].items() if count} == {*gone}
    assert {*told["forgotten"]} - {*gone} == {"corrections", "summaries"}
    assert (told["forgotten"]["memories"], told["forgotten"]["originals"]) == (2, 1)
    assert "usage_counts" in told["remains"]
    assert (await first.sees(handle), await second.sees(others)) == (NOTHING, EVERYTHING)
    again = (await forget(one, tenant_named("one")))[1]["forgotten"]
    assert not any(count for name, count in again.items() if name != "vectors")
    assert await first.leaves() == handle, "it begins anew, and what it sends is kept again"
    assert await first.sees(handle) == EVERYTHING


async def test_every_worker_forgets(lab: Lab) -> None:
    async with lab.served(CONFIG, "--workers", "2", **HASHES) as running:
        handles: list[str] = []
        for _ in range(4):  # a connection each, so that both workers have something
            async with aiohttp.ClientSession() as http:
                handles.append(await Tenant(Client(running.base, http, "pk-1"), lab.behind).leaves())
        client = Client(running.base, lab.http, "pk-1")
        status, told = await forget(client, "one")
        assert (status, told["complete"]) == (200, True)
        assert told["forgotten"]["requests"] >= 4
        for _ in range(4):
            async with aiohttp.ClientSession() as http:
                assert await Tenant(replace(client, http=http), lab.behind).sees(handles[0]) == NOTHING
