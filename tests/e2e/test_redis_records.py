"""What was done to a request, and what keys use, is told by any replica of one Redis server, and also without it."""

import asyncio
import secrets
import zlib
from functools import partial
from typing import Any

from proxy.config.keys_file import hash_of
from proxy.state.redis import RedisLog, RedisServer
from tests.e2e.conftest import Client, Lab
from tests.e2e.servers import filled, until
from tests.e2e.test_admin import BODY, CONFIG, SECRET
from tests.redis_process import RedisProcess


def config(running: RedisProcess, patience: float = 60.0) -> str:
    state = f'state: {{kind: redis, url: "{running.url}", timeout: {patience}}}\n'
    return filled(CONFIG, server="admin_key: s3cret") + state


async def replicas(lab: Lab, running: RedisProcess, patience: float = 60.0) -> list[Client]:
    return [Client(base, lab.http, "mine") for base in await lab.two(config(running, patience))]


async def chat(client: Client, name: str, key: str = "mine") -> None:
    assert (await client.post("/v1/chat/completions", BODY, {"x-request-id": name}, key=key)).status == 200


def entries(running: RedisProcess) -> list[dict[bytes, bytes]]:
    """What the log on the server holds, whose size is counted."""
    with running.admin() as client:
        admin: Any = client
        found = [entry for _, entry in admin.xrange("penstock:records")]
        assert int(admin.get("penstock:records-size")) == sum(len(entry[b"rows"]) for entry in found)
    return found


async def told(client: Client, path: str, key: str = "mine") -> Any:
    """Return the answer as soon as there is one: a record is written a moment after its request."""
    return (await until(lambda: client.get(path, key=key), lambda got: got.status == 200)).json


async def test_a_record_of_one_replica_is_told_by_the_other_to_its_own_tenant(running: RedisProcess, lab: Lab) -> None:
    first, second = await replicas(lab, running)
    await chat(first, "one")
    here = await told(first, "/v1/explain/one")
    assert await told(second, "/v1/explain/one") == here
    assert await told(second, "/admin/requests/one", "s3cret") == here
    of_another = await second.get("/v1/explain/one", key="other")
    assert (of_another.status, of_another.body) == (404, (await second.get("/v1/explain/none")).body)
    assert (await second.get("/v1/explain/one", key="")).status == 404
    # an id that another client takes as well hides nothing, wherever it does
    await chat(second, "one", "other")
    theirs = await told(first, "/v1/explain/one", "other")
    assert theirs["tenant"] != here["tenant"]
    assert await told(second, "/v1/explain/one") == here
    # a list is of all replicas
    for replica in (first, second):
        listed = await told(replica, "/admin/requests", "s3cret")
        assert ([each["request_id"] for each in listed["requests"]], listed["shared"]) == (["one", "one"], True)
        talks = await told(replica, "/admin/conversations", "s3cret")
        assert {each["tenant"] for each in talks["conversations"]} == {here["tenant"], theirs["tenant"]}


async def test_the_server_gets_no_text_and_no_key(running: RedisProcess, lab: Lab) -> None:
    first, second = await replicas(lab, running)
    await chat(first, "one", "sk-client")
    await told(second, "/v1/explain/one", "sk-client")
    with running.admin() as admin:
        assert 6 * 86400 < admin.ttl("penstock:records") <= 7 * 86400
    (entry,) = entries(running)
    kept = b"".join(entry.values()) + zlib.decompress(entry[b"rows"])
    assert b"window_history" in kept
    for secret in (SECRET, "sk-client", "s3cret"):
        assert secret.encode() not in kept


async def test_workers_and_replicas_tell_a_request_once(running: RedisProcess, lab: Lab) -> None:
    text = config(running)
    elsewhere = await lab.client(text, "mine", "other")
    async with lab.served(text, "--workers", "2") as one:
        workers = Client(one.base, lab.http, "mine")
        for n in range(6):
            await chat(workers, f"id-{n}")
        for n in range(6):
            assert (await told(elsewhere, f"/v1/explain/id-{n}"))["request_id"] == f"id-{n}"
        for client in (workers, elsewhere):
            listed = await told(client, "/admin/requests", "s3cret")
            assert sorted(each["request_id"] for each in listed["requests"]) == [f"id-{n}" for n in range(6)]


async def test_a_tenant_is_forgotten_by_all_replicas_and_by_the_server(running: RedisProcess, lab: Lab) -> None:
    first, second = await replicas(lab, running)
    for client, key in ((first, "mine"), (second, "mine"), (second, "other")):
        await chat(client, f"of-{key}", key)
    mine = (await told(second, "/v1/explain/of-mine"))["tenant"]
    assert (await first.get("/v1/explain/of-mine")).status == 200
    forgotten = await first.send("DELETE", f"/admin/tenants/{mine}", key="s3cret")
    assert forgotten.json["forgotten"]["requests"] == 2
    for client in (first, second):
        found = [(await client.get(f"/v1/explain/of-{key}", key=key)).status for key in ("mine", "other")]
        assert found == [404, 200]
    assert [bool(entry[b"rows"]) for entry in entries(running) if entry[b"of"].decode() == mine] == [False]


async def test_the_log_is_bounded(running: RedisProcess) -> None:
    server = RedisServer(running.url, timeout=60)
    log, reader = (RedisLog(server, max_bytes=20_000, age=3600) for _ in range(2))
    for n in range(50):
        await log.append([("ann", secrets.token_hex(1000).encode()), (f"t{n}", str(n).encode())])
    assert 15_000 < sum(len(entry[b"rows"]) for entry in entries(running)) <= 20_000
    found = [row for _, row in await reader.read()]
    assert found[-1] == b"49"
    assert await reader.read() == await log.read() == []
    await server.aclose()


async def test_without_the_server_each_replica_tells_its_own(running: RedisProcess, lab: Lab) -> None:
    first, second = await replicas(lab, running, patience=2.0)
    await chat(first, "before")
    await told(second, "/v1/explain/before")
    running.stop()
    await chat(first, "meanwhile")
    assert [(await first.get(f"/v1/explain/{name}")).status for name in ("meanwhile", "before")] == [200, 200]
    answer = await second.get("/v1/explain/meanwhile")
    assert answer.refusal == (404, "unknown_request")
    assert "cannot be read right now" in answer.json["error"]["message"]
    assert (await second.get("/v1/explain/meanwhile", key="other")).body == answer.body, "it tells nobody more"
    running.start()
    assert (await told(second, "/v1/explain/meanwhile"))["request_id"] == "meanwhile"


ANN, OTHER = "pk-ann", "pk-bob"
LIMITED = """
server: {admin_key: the-operator}
upstreams: {main: {kind: openai, base_url: "{url}", api_key: sk-own}}
models: [{match: "*", upstream: main, window: 4000, reserve: 100, prices: {input: 1000000, output: 1000000}}]
state: {kind: redis, url: "{redis}", timeout: 60}
auth:
  kind: keys
  keys:
    - {name: ann, hash: {ann}, budget_per_day: 1000, requests_per_minute: 1000}
    - {name: bob, hash: {bob}}
"""


async def test_what_a_key_used_is_told_by_both_alike(running: RedisProcess, lab: Lab) -> None:
    bases = await lab.two(LIMITED, redis=running.url, ann=hash_of(ANN), bob=hash_of(OTHER))
    clients = [Client(base, lab.http, ANN) for base in bases]
    for n in range(4):
        assert (await clients[n % 2].chat()).status == 200
    for client in clients:
        # what the other one has noted comes a moment later
        answer = await until(partial(client.get, "/v1/usage"), lambda got: got.json["used"]["requests"] >= 4)
        told = answer.json
        used = {name: told["used"][name] for name in ("requests", "input_tokens", "output_tokens", "usd")}
        assert used == {"requests": 4, "input_tokens": 36, "output_tokens": 8, "usd": 44.0}
        assert told["models"] == {"*": told["used"]}
        assert told["limits"]["budget_per_day"]["remaining"] == 1000 - 44
        assert told["limits"]["requests_per_minute"]["remaining"] < 1000 - 4
    assert (await clients[0].get("/v1/usage", key=OTHER)).json["used"]["requests"] == 0
    await asyncio.to_thread(running.stop)
    refused = await clients[0].get("/v1/usage")
    assert refused.refusal == (503, "usage_unavailable")
    assert "retry-after" in refused.headers
