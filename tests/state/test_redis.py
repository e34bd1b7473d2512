"""The store on a Redis server: what may go wrong with a server, and with those that share it."""

import asyncio
import logging
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from redis.exceptions import ConnectionError as Unconnected
from redis.exceptions import ResponseError

from proxy.state import redis as redis_state
from proxy.state.redis import RedisCounters, RedisLog, RedisServer, RedisStore
from proxy.state.store import Cause, StoreError
from tests.loopback import free_port
from tests.redis_process import RedisProcess, redis_process

LONG = 30.0
"""Seconds that a call may take where the test is not about that: machines may be slow."""


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redis_state, "PROBE_EVERY", 0.02)


@pytest.fixture
async def store(running: RedisProcess) -> AsyncIterator[RedisStore]:
    made = running.store(timeout=LONG)
    yield made
    await made.aclose()


@pytest.fixture
async def stores(running: RedisProcess) -> AsyncIterator[list[RedisStore]]:
    made = [running.store(timeout=LONG) for _ in range(3)]
    yield made
    for each in made:
        await each.aclose()


async def is_well(store: RedisStore) -> None:
    """Wait until a store has found out by itself that nothing is wrong any more."""
    async with asyncio.timeout(60):
        while store.degraded is not None:
            await asyncio.sleep(0.01)


async def test_a_server_that_is_away_is_found_again(running: RedisProcess, store: RedisStore) -> None:
    running.stop()
    assert store.degraded is None, "nothing is connected before it is needed"
    for _ in range(5):
        with pytest.raises(StoreError, match="unreachable"):
            await store.put("a", b"1", ttl=100)
    assert store.degraded == "unreachable"
    running.start()
    await is_well(store)
    await store.put("a", b"1", ttl=100)
    running.stop()
    with pytest.raises(StoreError, match="unreachable"):
        await store.get("a")
    assert store.degraded == "unreachable"
    running.start()
    await is_well(store)
    assert await store.get("a") is None
    assert store.losses > 0


async def test_a_look_finds_out_what_no_call_would(running: RedisProcess, store: RedisStore) -> None:
    await store.look()
    assert store.degraded is None
    running.stop()
    await store.look()
    assert store.degraded == "unreachable"
    running.start()
    await is_well(store)
    assert await store.keys("") == (), "nothing of it stays"
    await store.aclose()
    await store.look()


async def test_nothing_waits_for_a_server_that_sleeps(running: RedisProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    store = running.store(timeout=1.0)
    await store.put("a", b"1", ttl=100)
    running.signal(signal.SIGSTOP)
    for _ in range(redis_state.FAILURES):
        with pytest.raises(StoreError, match="unreachable"):
            await store.get("a")
    asked: list[object] = []
    monkeypatch.setattr(store.server, "_run", lambda *arguments: asked.append(arguments))
    for _ in range(100):
        with pytest.raises(StoreError, match="unreachable"):
            await store.get("a")
    assert not [each for each in asked if each is not None and "GET" in repr(each)], "it is not even asked"
    monkeypatch.undo()
    running.signal(signal.SIGCONT)
    await is_well(store)
    assert await store.get("a") == b"1"
    assert store.losses == 0
    await store.aclose()


@pytest.mark.parametrize("blocked", [0.25, 0.6])
async def test_a_busy_loop_is_no_server_that_is_away(running: RedisProcess, blocked: float) -> None:
    store = running.store(timeout=0.2)
    await store.put("a", b"1", ttl=100)
    asking = [asyncio.ensure_future(store.get("a")) for _ in range(5)]
    await asyncio.sleep(0)
    time.sleep(blocked)  # noqa: ASYNC251
    assert await asyncio.gather(*asking) == [b"1"] * 5
    assert store.degraded is None
    await store.aclose()


async def test_an_answer_that_nobody_waits_for_is_not_taken_for_another(running: RedisProcess) -> None:
    store = running.store(timeout=LONG, connections=1)
    for key in ("a", "b", "c"):
        await store.put(key, key.encode(), ttl=100)
    for _ in range(5):
        running.signal(signal.SIGSTOP)
        waiting = [asyncio.ensure_future(store.get(key)) for key in ("a", "b")]
        await asyncio.sleep(0.01)
        for each in waiting:
            each.cancel()
        await asyncio.wait(waiting)
        running.signal(signal.SIGCONT)
        assert [await store.get(key) for key in ("c", "b", "a")] == [b"c", b"b", b"a"]
    await store.aclose()


async def test_an_emptied_server_is_noticed_at_the_next_call(running: RedisProcess, stores: list[RedisStore]) -> None:
    for each in stores:
        await each.put("a", b"1", ttl=100)
    assert [each.losses for each in stores] == [0, 0, 0]
    running.flush()
    assert await stores[0].get("a") is None
    await stores[1].put("a", b"2", ttl=100)
    assert await stores[2].touch(["a"], ttl=100) == {"a"}
    assert [each.losses for each in stores] == [1, 1, 1]
    running.flush()
    assert await stores[0].keys("") == ()
    assert [each.losses for each in stores] == [2, 1, 1]


async def test_what_put_returned_from_survives_a_kill_where_the_server_syncs() -> None:
    with redis_process("--appendonly", "yes", "--appendfsync", "always") as running:
        store = running.store(timeout=LONG)
        for number in range(100):
            await store.put(str(number), b"%d" % number * 1000, ttl=100)
        running.stop()
        running.start()
        assert store.losses == 0
        for number in range(100):
            assert await store.get(str(number)) == b"%d" % number * 1000
        assert store.losses == 1, "it started again: it might have lost something"
        assert len(await store.keys("")) == 100
        await store.aclose()


async def test_a_server_that_is_full_takes_nothing_and_still_answers(running: RedisProcess, store: RedisStore) -> None:
    await store.put("a", b"1", ttl=1000)
    running.age(500)
    with running.admin() as admin:
        admin.config_set("maxmemory", 1)
        for attempt in (
            store.put("b", b"1", ttl=100),
            store.put_all({"a": b"2", "c": b"2"}, ttl=100),
            store.add("d", b"1", ttl=100),
            RedisCounters(store.server).add({"n": 1.0}, ttl=100),
        ):
            with pytest.raises(StoreError, match="full"):
                await attempt
        assert store.degraded == "full"
        assert await store.get("a", ttl=1000) == b"1"
        assert await store.add("a", b"2", ttl=1000) == b"1"
        assert await store.touch(["a", "b"], ttl=1000) == {"a"}
        assert await store.keys("") == ("a",)
        await store.delete(["a"])
        admin.config_set("maxmemory", 0)
    await is_well(store)
    await store.put("b", b"1", ttl=100)
    assert store.losses == 0


async def test_a_replica_that_takes_no_writes_still_answers(running: RedisProcess, store: RedisStore) -> None:
    await store.put("a", b"1", ttl=1000)
    running.age(500)
    with running.admin() as admin:
        admin.replicaof("127.0.0.1", free_port())
        assert await store.get("a", ttl=1000) == b"1"
        assert await store.keys("") == ("a",)
        for attempt in (store.put("b", b"1", ttl=100), store.touch(["a"], ttl=100), store.delete(["a"])):
            with pytest.raises(StoreError, match="read_only"):
                await attempt
        assert store.degraded == "read_only"
        admin.replicaof("NO", "ONE")
    await is_well(store)
    await store.put("b", b"1", ttl=100)


async def test_a_wrong_password_is_told_to_nobody(caplog: pytest.LogCaptureFixture) -> None:
    port = free_port()
    with redis_process("--requirepass", "right horse", port=port) as running:
        for server in (
            RedisServer(f"redis://:wr0ng-secret@127.0.0.1:{port}/0", timeout=LONG),
            RedisServer(running.url, timeout=LONG),
        ):
            store = RedisStore(server)
            with pytest.raises(StoreError, match="unreachable") as failed:
                await store.put("a", b"1", ttl=100)
            assert failed.value.__cause__ is None
            assert store.degraded == "unreachable"
            await store.aclose()
        for server in (
            RedisServer(f"redis://:right%20horse@127.0.0.1:{port}/1", timeout=LONG),
            RedisServer(f"redis://127.0.0.1:{port}/1", password="right horse", timeout=LONG),
        ):
            store = RedisStore(server)
            assert await store.add("a", b"1", ttl=100) == b"1"
            await store.aclose()
    told = " ".join(str(vars(record)) for record in caplog.records)
    assert "AuthenticationError" in told
    assert not any(word in told for word in ("wr0ng", "right horse", str(port)))


@pytest.mark.parametrize(("error", "cause"), [
    (ResponseError("OOM command not allowed when used memory > 'maxmemory'. script: 1."), "full"),
    (ResponseError("-READONLY You can't write against a read only replica."), "read_only"),
    (ResponseError("MISCONF Redis is configured to save RDB snapshots, but"), "read_only"),
    (ResponseError("BUSY Redis is busy running a script."), "busy"),
    (ResponseError("CROSSSLOT Keys in request don't hash to the same slot"), "unreachable"),
    (Unconnected("OOM"), "unreachable"),
    (TimeoutError(), "unreachable"),
])  # fmt: skip
async def test_errors_of_the_server_have_causes(
    store: RedisStore, monkeypatch: pytest.MonkeyPatch, error: Exception, cause: Cause
) -> None:
    async def fail(*arguments: object) -> None:
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(store.server, "_run", fail)
        with pytest.raises(StoreError) as failed:
            await store.get("a")
    assert (failed.value.cause, str(failed.value)) == (cause, cause)


async def test_it_says_once_a_minute_that_it_is_degraded(
    running: RedisProcess, store: RedisStore, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "penstock.state")
    running.stop()
    for _ in range(2):
        with pytest.raises(StoreError):
            await store.put("some-key", b"some content", ttl=100)
    running.start()
    await is_well(store)
    assert [record.getMessage() for record in caplog.records] == ["state degraded", "state recovered"]
    assert "some" not in str([vars(record) for record in caplog.records])


PLANTED: dict[str, Callable[[Any, str], Any]] = {
    "string": lambda admin, key: admin.set(key, "another's"),
    "almost": lambda admin, key: admin.set(key, "0123456789abcdef1"),
    "list": lambda admin, key: admin.rpush(key, "another's"),
    "hash": lambda admin, key: admin.hset(key, "another's", "1"),
    "zset": lambda admin, key: admin.zadd(key, {"another's": 1}),
    "stream": lambda admin, key: admin.xadd(key, {"another's": "1"}),
}


async def put(store: RedisStore) -> bytes | None:
    await store.put("a", b"1", ttl=100)
    return await store.get("a")


async def count(store: RedisStore) -> Sequence[float]:
    counters = RedisCounters(store.server)
    added = await counters.add({"before": 1.0, "a": 2.0}, ttl=100)
    return [added["before"], (await counters.read(["a"]))["a"]]


async def log(store: RedisStore) -> Sequence[bytes]:
    await RedisLog(store.server, max_bytes=1000, age=100).append([("t", b"{}")])
    return [row for _, row in await RedisLog(store.server, max_bytes=1000, age=100).read()]


async def forget(store: RedisStore) -> None:
    await RedisLog(store.server, max_bytes=1000, age=100).forget("t")


@pytest.mark.parametrize("kind", PLANTED)
@pytest.mark.parametrize(("key", "call", "expected", "told"), [
    ("value:a", put, b"1", None),
    ("value:a", lambda store: store.get("a"), None, "corrupted"),
    ("value:a", lambda store: store.add("a", b"1", ttl=100), b"1", "corrupted"),
    ("value:a", lambda store: store.touch(["a", "b"], ttl=100), {"b"}, "corrupted"),
    ("value:a", lambda store: store.keys(""), ("b",), None),
    ("names", put, b"1", "corrupted"),
    ("count:a", count, [1.0, 2.0], "corrupted"),
    ("records", log, [b"{}"], "corrupted"),
    ("records", forget, None, "corrupted"),
    ("records-size", log, [b"{}"], "corrupted"),
    ("epoch", put, b"1", None),
    ("probe", put, b"1", None),
])  # fmt: skip
async def test_a_key_of_another_type_is_told_and_written_anew(
    running: RedisProcess,
    store: RedisStore,
    kind: str,
    key: str,
    call: Callable[[RedisStore], Awaitable[Any]],
    expected: Any,
    told: str | None,
) -> None:
    """Whatever the key is for, the call that meets it works."""
    if (key, kind) in (("names", "zset"), ("records", "stream")):
        return  # that is its own type
    await store.put("b", b"2", ttl=100)
    with running.admin() as admin:
        admin.delete(f"penstock:{key}")
        PLANTED[kind](admin, f"penstock:{key}")
    assert await call(store) == expected
    assert store.degraded == told
    assert told is None or store.losses == 1


async def test_scripts_that_the_server_has_forgotten_are_told_again(running: RedisProcess, store: RedisStore) -> None:
    await store.put("a", b"1", ttl=100)
    with running.admin() as admin:
        admin.script_flush()
    assert await store.get("a") == b"1"
    assert store.degraded is None


async def test_names_of_what_has_expired_leave(running: RedisProcess, store: RedisStore) -> None:
    for start in range(0, 300, 100):
        await store.put_all({f"old/{start + n}": b"" for n in range(100)}, ttl=100)
    running.age(200)
    await store.put_all({f"new/{n}": b"" for n in range(600)}, ttl=100)
    with running.admin() as admin:
        assert 600 <= admin.zcard("penstock:names") < 850
        assert await store.keys("old/") == ()
        assert admin.zcard("penstock:names") == 600
    await store.delete([f"new/{n}" for n in range(600)])
    with running.admin() as admin:
        assert set(admin.keys()) == {b"penstock:epoch"}


async def test_many_names_are_read_page_by_page(
    running: RedisProcess, store: RedisStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redis_state, "_PAGE", 7)
    monkeypatch.setattr(redis_state, "_AT_ONCE", 5)
    names = sorted(f"a/{n}é" for n in range(40))
    for name in reversed(names):
        await store.put(name, b"", ttl=100)
    await store.put("b", b"", ttl=100)
    with running.admin() as admin:
        admin.delete(*(f"penstock:value:{name}" for name in names[3:17]))
    left = names[:3] + names[17:]
    assert await store.keys("a/") == tuple(left)
    assert await store.keys("a/", limit=8) == tuple(left[:8])
    assert await store.keys("a/", limit=30, latest=True) == tuple(left)
    assert await store.touch([*names, "none"], ttl=100) == set(left)
    await store.delete(names)
    assert await store.keys("") == ("b",)


async def test_two_prefixes_share_nothing(running: RedisProcess) -> None:
    first, second = (running.store(timeout=LONG, prefix=prefix) for prefix in ("one", "one.two"))
    await first.put("a", b"1", ttl=100)
    assert await second.get("a") is None
    assert await second.keys("") == ()
    assert await second.add("a", b"2", ttl=100) == b"2"
    assert await first.keys("") == ("a",)
    await first.aclose()
    await second.aclose()


async def test_calls_have_a_bound(running: RedisProcess, store: RedisStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redis_state, "MOST_WAITING", 4)
    await store.put("a", b"1", ttl=100)
    running.signal(signal.SIGSTOP)
    reads = [asyncio.ensure_future(store.get("a")) for _ in range(4)]
    await asyncio.sleep(0)
    with pytest.raises(StoreError, match="busy"):
        await store.get("a")
    running.signal(signal.SIGCONT)
    assert await asyncio.gather(*reads) == [b"1"] * 4
    assert store.degraded is None


async def test_closing_ends_what_waits(running: RedisProcess, store: RedisStore) -> None:
    await store.put("a", b"1", ttl=100)
    running.signal(signal.SIGSTOP)
    reads = [asyncio.ensure_future(store.get("a")) for _ in range(3)]
    await asyncio.sleep(0.01)
    await store.aclose()
    running.signal(signal.SIGCONT)
    ends: list[Any] = await asyncio.gather(*reads, return_exceptions=True)
    assert {end.cause for end in ends} == {"closed"}
    with pytest.raises(StoreError, match="closed"):
        await store.put("a", b"1", ttl=100)


async def test_counts_are_exact_for_all_who_share_them(running: RedisProcess, stores: list[RedisStore]) -> None:
    counters = [RedisCounters(each.server) for each in stores]
    await asyncio.gather(*(counters[n % 3].add({"t/requests": 1, "t/cost": 0.25}, ttl=100) for n in range(120)))
    added = await counters[0].add({"t/requests": 0, "t/cost": 0.5, "new": -2}, ttl=100)
    assert added == {"t/requests": 120.0, "t/cost": 30.5, "new": -2.0}
    assert await stores[0].keys("") == (), "they are no values"
    running.stop()
    with pytest.raises(StoreError, match="unreachable"):
        await counters[0].add({"t/requests": 1}, ttl=100)


async def test_the_rights_that_are_documented_are_enough(running: RedisProcess) -> None:
    page = (Path(__file__).parents[2] / "docs" / "how-to" / "replicas.md").read_text()
    (rights,) = [line for line in page.splitlines() if line.startswith("ACL SETUSER")]
    with running.admin() as admin:
        operator: Any = admin
        operator.execute_command(*rights.replace("PASSWORD", "pw").split())
        operator.execute_command("ACL", "SETUSER", "default", "off")
    store = RedisStore(RedisServer(running.url, timeout=LONG))
    with pytest.raises(StoreError, match="unreachable"):
        await store.get("a")
    await store.aclose()
    store = RedisStore(RedisServer(running.url.replace("unix://", "unix://penstock:pw@"), timeout=LONG))
    await store.put_all({"a": b"1", "b": b"2"}, ttl=1000)
    with running.admin(username="penstock", password="pw") as admin:
        admin.setrange("penstock:value:a", 0, b"%016d" % 1)
    assert await store.get("a", ttl=1000) == b"1"
    assert await store.add("b", b"3", ttl=1000) == b"2"
    assert await store.touch(["a"], ttl=1000) == {"a"}
    assert await store.keys("") == ("a", "b")
    await store.delete(["a"])
    assert await store.keys("", limit=5, latest=True) == ("b",)
    assert await RedisCounters(store.server).add({"n": 1}, ttl=1000) == {"n": 1.0}
    assert await RedisCounters(store.server).read(["n"]) == {"n": 1.0}
    assert (store.losses, store.degraded) == (0, None)
    await store.aclose()


async def test_connections_that_the_server_ends_are_replaced(running: RedisProcess) -> None:
    store = running.store(timeout=LONG, connections=4)
    counters = RedisCounters(store.server)
    await asyncio.gather(*(store.put(f"{n}", b"1", ttl=100) for n in range(20)))
    for round_ in range(1, 4):
        with running.admin() as admin:
            admin.client_kill_filter(_type="normal", skipme=True)
        if round_ % 2:
            assert await store.get("1") == b"1"
        else:
            async with asyncio.timeout(60):  # that they have ended is known a moment later
                assert store.server._client is not None
                connections = store.server._client.connection_pool._available_connections
                while not all([await each.can_read() for each in connections if each.is_connected]):
                    await asyncio.sleep(0.001)
        assert await counters.add({"n": 1}, ttl=100) == {"n": float(round_)}
    assert (store.losses, store.degraded) == (0, None)
    await store.aclose()
