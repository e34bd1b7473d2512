"""What was done to a request is told by any replica of one Redis server, to whom it concerns, and also without it."""

import asyncio
import secrets
import zlib
from typing import Any

from proxy.state.redis import RedisLog
from proxy.state.redis_server import RedisServer
from tests.e2e.conftest import Lab
from tests.e2e.served import served
from tests.e2e.servers import Upstream
from tests.e2e.test_admin import ADMIN, CONFIG, SECRET, Client
from tests.redis_process import RedisProcess


def config(behind: Upstream, running: RedisProcess, patience: float = 60.0) -> str:
    made = CONFIG.format(url=behind.url, server="admin_key: s3cret")
    return f'{made}state: {{kind: redis, url: "{running.url}", timeout: {patience}}}\n'


async def replicas(lab: Lab, running: RedisProcess, patience: float = 60.0) -> tuple[Client, Client]:
    first, second = await lab.two(config(lab.behind, running, patience))
    return Client(first, lab.http), Client(second, lab.http)


def entries(running: RedisProcess) -> list[dict[bytes, bytes]]:
    """What the log on the server holds, whose size is counted."""
    with running.admin() as client:
        admin: Any = client
        found = [entry for _, entry in admin.xrange("penstock:records")]
        assert int(admin.get("penstock:records-size")) == sum(len(entry[b"rows"]) for entry in found)
    return found


def bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


async def told(client: Client, path: str, headers: dict[str, str]) -> Any:
    """The answer as soon as there is one: a record is written a moment after its request."""
    async with asyncio.timeout(60):
        while (answer := await client.ask("GET", path, headers))[0] != 200:
            await asyncio.sleep(0.02)
    return answer[1]


async def test_a_record_of_one_replica_is_told_by_the_other_to_its_own_tenant(running: RedisProcess, lab: Lab) -> None:
    first, second = await replicas(lab, running)
    await first.chat("mine", "one")
    here = await told(first, "/v1/explain/one", bearer("mine"))
    assert await told(second, "/v1/explain/one", bearer("mine")) == here
    assert await told(second, "/admin/requests/one", ADMIN) == here
    of_another = await second.ask("GET", "/v1/explain/one", bearer("other"))
    assert of_another[0] == 404
    assert of_another == await second.ask("GET", "/v1/explain/none", bearer("mine"))
    assert (await second.ask("GET", "/v1/explain/one"))[0] == 404
    # an id that another client takes as well hides nothing, wherever it does
    await second.chat("other", "one")
    theirs = await told(first, "/v1/explain/one", bearer("other"))
    assert theirs["tenant"] != here["tenant"]
    assert await told(second, "/v1/explain/one", bearer("mine")) == here
    # a list is of all replicas
    for replica in (first, second):
        _, listed = await replica.ask("GET", "/admin/requests", ADMIN)
        assert ([each["request_id"] for each in listed["requests"]], listed["shared"]) == (["one", "one"], True)
        _, talks = await replica.ask("GET", "/admin/conversations", ADMIN)
        assert {each["tenant"] for each in talks["conversations"]} == {here["tenant"], theirs["tenant"]}


async def test_the_server_gets_no_text_and_no_key(running: RedisProcess, lab: Lab) -> None:
    first, second = await replicas(lab, running)
    await first.chat("sk-client", "one")
    await told(second, "/v1/explain/one", bearer("sk-client"))
    with running.admin() as admin:
        assert 6 * 86400 < admin.ttl("penstock:records") <= 7 * 86400
    (entry,) = entries(running)
    kept = b"".join(entry.values()) + zlib.decompress(entry[b"rows"])
    assert b"window_history" in kept
    for secret in (SECRET, "sk-client", "s3cret"):
        assert secret.encode() not in kept


async def test_workers_and_replicas_tell_a_request_once(running: RedisProcess, lab: Lab) -> None:
    text = config(lab.behind, running)
    elsewhere = Client(await lab.start(text, "other"), lab.http)
    async with served(text, lab.folder, "--workers", "2") as one:
        workers = Client(one.base, lab.http)
        for n in range(6):
            await workers.chat("mine", f"id-{n}")
        for n in range(6):
            assert (await told(elsewhere, f"/v1/explain/id-{n}", bearer("mine")))["request_id"] == f"id-{n}"
        for client in (workers, elsewhere):
            _, listed = await client.ask("GET", "/admin/requests", ADMIN)
            assert sorted(each["request_id"] for each in listed["requests"]) == [f"id-{n}" for n in range(6)]


async def test_a_tenant_is_forgotten_by_all_replicas_and_by_the_server(running: RedisProcess, lab: Lab) -> None:
    first, second = await replicas(lab, running)
    for client, key in ((first, "mine"), (second, "mine"), (second, "other")):
        await client.chat(key, f"of-{key}")
    mine = (await told(second, "/v1/explain/of-mine", bearer("mine")))["tenant"]
    assert (await first.ask("GET", "/v1/explain/of-mine", bearer("mine")))[0] == 200
    status, forgotten = await first.ask("DELETE", f"/admin/tenants/{mine}", ADMIN)
    assert (status, forgotten["forgotten"]["requests"]) == (200, 2)
    for client in (first, second):
        assert (await client.ask("GET", "/v1/explain/of-mine", bearer("mine")))[0] == 404
        assert (await client.ask("GET", "/v1/explain/of-other", bearer("other")))[0] == 200
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


async def test_without_the_server_requests_go_on_and_each_replica_tells_its_own(
    running: RedisProcess, lab: Lab
) -> None:
    first, second = await replicas(lab, running, patience=2.0)
    await first.chat("mine", "before")
    await told(second, "/v1/explain/before", bearer("mine"))
    running.stop()
    await first.chat("mine", "meanwhile")
    assert (await first.ask("GET", "/v1/explain/meanwhile", bearer("mine")))[0] == 200
    assert (await first.ask("GET", "/v1/explain/before", bearer("mine")))[0] == 200
    status, answer = await second.ask("GET", "/v1/explain/meanwhile", bearer("mine"))
    assert (status, answer["error"]["code"]) == (404, "unknown_request")
    assert "cannot be read right now" in answer["error"]["message"]
    assert (await second.ask("GET", "/v1/explain/meanwhile", bearer("other")))[1] == answer, "it tells nobody more"
    running.start()
    assert (await told(second, "/v1/explain/meanwhile", bearer("mine")))["request_id"] == "meanwhile"
