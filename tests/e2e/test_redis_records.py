"""What was done to a request is told by any replica of one Redis server, to whom it concerns, and also without it."""

import secrets
import zlib
from typing import Any

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
