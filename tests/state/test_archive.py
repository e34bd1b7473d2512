"""Nothing is lost: what has a handle can be fetched, by whom it belongs to and by nobody else."""

import asyncio
import logging
import random
import re
import threading
import zlib
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from pathlib import Path

import pytest

from proxy.context import Identity
from proxy.state.archive import HANDLE, Archives, BoundArchive, handle_of
from proxy.state.redis import RedisStore
from proxy.state.sqlite import SqliteStore
from proxy.state.store import Cause, StoreError
from tests.clock import Clock
from tests.redis_process import RedisProcess

MIB = 2**20
MINE, NEXT = Identity("a", "named-s"), Identity("a", "named-t")


class Recording(SqliteStore):
    """Counts its calls, and fails on demand."""

    def __init__(self, max_bytes: int = 64 * MIB) -> None:
        super().__init__(None, max_bytes)
        self.calls: list[str] = []
        self.broken: Cause | None = None

    def _note(self, call: str) -> None:
        self.calls.append(call)
        if self.broken:
            raise StoreError(self.broken)

    async def get_all(self, keys: Sequence[str], *, ttl: float | None = None) -> list[bytes | None]:
        self._note("get")
        return await super().get_all(keys, ttl=ttl)

    async def put_all(self, values: Mapping[str, bytes], *, ttl: float) -> None:
        self._note("put")
        await super().put_all(values, ttl=ttl)

    async def touch(self, keys: Collection[str], *, ttl: float) -> frozenset[str]:
        self._note("touch")
        return await super().touch(keys, ttl=ttl)


@pytest.fixture
def clock() -> Clock:
    return Clock(0.0)


@pytest.fixture
def store() -> Recording:
    return Recording()


@pytest.fixture
def archives(store: Recording, clock: Clock) -> Archives:
    return Archives(store, clock=clock)


async def kept(archive: BoundArchive, content: str) -> str:
    handle = await archive.keep(content)
    assert handle is not None
    return handle


@pytest.fixture
async def disk(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    made = SqliteStore(tmp_path / "archive", 64 * MIB)
    yield made
    await made.aclose()


@pytest.mark.parametrize(
    "content", ["", "a", "\ud800", "\udfff" * 5000, "\0" * 2000, "é€😀" * 20_000, "line\r\n" * 9000]
)
async def test_text_of_all_kinds_comes_back_from_disk(disk: SqliteStore, content: str) -> None:
    archive = Archives(disk).bind(Identity("t", "named-s"))
    handle = await kept(archive, content)
    assert HANDLE.fullmatch(handle)
    assert await Archives(disk).bind(Identity("t", "named-s")).fetch(handle) == content


async def test_a_handle_depends_on_the_content_alone(archives: Archives) -> None:
    assert handle_of("content") == "cud24exxu2lm36aci7lr"
    handles = {await archives.bind(Identity(t, f"named-{s}")).keep("content") for t in "ab" for s in "xy"}
    assert handles == {"cud24exxu2lm36aci7lr"}
    assert len({handle_of(str(number)) for number in range(10_000)}) == 10_000


@pytest.mark.parametrize(("tenant", "session"), [
    ("b", "s"), ("a", "t"), ("a/s", ""), ("a", ""), ("", "a/s"), ("A", "s"), ("a", "s/"), ("%61", "s"),
])  # fmt: skip
async def test_a_handle_is_worth_nothing_elsewhere(archives: Archives, tenant: str, session: str) -> None:
    handle = await kept(archives.bind(MINE), "secret")
    assert await archives.bind(MINE).fetch(f" {handle.upper()}\n") == "secret", "models copy it carelessly"
    other = archives.bind(Identity(tenant, f"named-{session}"))
    assert await other.fetch(handle) is None
    assert await other.touch([handle]) == frozenset()
    assert await archives.bind(MINE).fetch(handle) == "secret"


@pytest.mark.parametrize(
    "handle", ["", "x", "a" * 19, "a" * 21, "../" * 7, "a" * 19 + "%", "a" * 19 + "\n", "\ud800" * 20]
)
async def test_what_is_no_handle_reaches_no_store(archives: Archives, store: Recording, handle: str) -> None:
    assert await archives.bind(MINE).fetch(handle) is None
    assert await archives.bind(MINE).touch([handle]) == frozenset()
    assert "get" not in store.calls


async def test_keeping_again_is_cheap_and_uses(archives: Archives, store: Recording, clock: Clock) -> None:
    archive = archives.bind(MINE)
    for _ in range(5):
        assert await archive.keep("content")
    assert store.calls == ["touch", "put", "get"], "what was seen is looked up once a request"
    clock.now += 61
    assert await archive.keep("content")
    assert store.calls == ["touch", "put", "get", "touch"]


@pytest.mark.parametrize("later", [0, 61])
async def test_where_what_was_seen_is_gone_nothing_of_it_is_trusted(
    archives: Archives, store: Recording, clock: Clock, later: float
) -> None:
    first, second = [str(await archives.bind(MINE).keep(content)) for content in ("one", "two")]
    assert await archives.bind(MINE).touch([first, handle_of("other"), "nonsense"]) == {first}
    await store.delete(await store.keys(""))
    clock.now += later
    archive = archives.bind(MINE)
    assert await archive.touch([first, second]) == frozenset()
    assert [await archive.keep(content) for content in ("one", "two")] == [first, second]
    assert [await archive.fetch(handle) for handle in (first, second)] == ["one", "two"]


@pytest.mark.parametrize(("cause", "is_trusted"), [("corrupted", False), ("unreachable", False), ("locked", True)])
async def test_what_was_seen_is_trusted(archives: Archives, store: Recording, cause: Cause, is_trusted: bool) -> None:
    handle = await archives.bind(MINE).keep("content")
    store.broken = cause
    assert await archives.bind(MINE).keep("content") == (handle if is_trusted else None)


async def test_what_was_kept_while_the_store_lost_values_is_looked_up_again(
    archives: Archives, store: Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_all = store.put_all

    async def emptied(values: Mapping[str, bytes], *, ttl: float) -> None:
        await put_all(values, ttl=ttl)
        store._database.losses += 1

    monkeypatch.setattr(store, "put_all", emptied)
    for _ in range(2):
        await archives.bind(MINE).keep("content")
    assert store.calls == ["touch", "put", "touch"]


async def test_a_sessions_archive_is_listed_to_it_alone(archives: Archives, store: Recording, clock: Clock) -> None:
    archive = archives.bind(MINE)
    handles = [await archive.keep(str(number)) for number in range(4)]
    await archives.bind(NEXT).keep("other")
    assert await archive.handles(10) == tuple(reversed(handles))
    clock.now += 61
    await archive.keep("0")
    assert await archive.handles(2) == (handles[0], handles[3])
    assert await archives.bind(Identity("b", "named-s")).handles(10) == ()
    await store.aclose()
    with pytest.raises(StoreError):
        await archive.handles(10)


async def test_of_a_session_without_a_name_only_what_is_used_now_is_listed(archives: Archives) -> None:
    """Another conversation may have opened with the same words."""
    one, other = (archives.bind(Identity("a", "opening")) for _ in range(2))
    mine, old = await kept(one, "mine"), await kept(one, "old")
    assert await other.keep("theirs") == handle_of("theirs")
    assert await one.handles(10) == (old, mine)
    later = archives.bind(Identity("a", "opening"))
    assert await later.handles(10) == ()
    assert await later.touch([mine]) == {mine}
    await later.keep("new")
    assert await later.handles(10) == (handle_of("new"), mine)
    assert await later.handles(1) == (handle_of("new"),)
    assert await later.fetch(old) == "old", "a handle is only known to who has read it"


async def test_a_tenant_finds_its_content_without_the_session(archives: Archives, clock: Clock) -> None:
    handle = await kept(archives.bind(MINE), "content")
    assert await archives.find("a", f" {handle.upper()}") == "content"
    assert await archives.find("b", handle) is None
    assert await archives.find("a", "nonsense") is None
    assert await archives.bind(NEXT).fetch(handle) is None, "a session still sees its own alone"


async def test_sessions_of_a_tenant_share_a_content_and_each_claims_it(archives: Archives, store: Recording) -> None:
    handle = await kept(archives.bind(MINE), "content")
    assert await archives.bind(NEXT).fetch(handle) is None
    assert await archives.bind(NEXT).keep("content") == handle
    assert await archives.bind(Identity("b", "named-s")).keep("content") == handle
    assert [key[:10] for key in await store.keys("archive/")] == ["archive/a/", "archive/b/"]
    assert await archives.bind(NEXT).fetch(handle) == "content"


async def test_a_lost_claim_loses_no_content_and_comes_back_with_it(
    archives: Archives, store: Recording, clock: Clock
) -> None:
    archive = archives.bind(MINE)
    handle = await kept(archive, "content")
    await store.delete(await store.keys("claim/"))
    assert await archive.fetch(handle) is None
    assert await archives.find("a", handle) == "content"
    clock.now += 61
    assert await archive.touch([handle]) == frozenset()
    assert await archive.keep("content") == handle
    assert await archive.fetch(handle) == "content"


async def test_a_content_that_cannot_be_read_now_is_not_lost(archives: Archives, store: Recording) -> None:
    handle = await kept(archives.bind(MINE), "content")
    store.broken = "unreachable"
    with pytest.raises(StoreError):
        await archives.find("a", handle)
    store.broken = None
    assert await archives.find("a", handle) == "content"


async def test_what_is_forgotten_leaves_no_claim(archives: Archives, store: Recording) -> None:
    mine, theirs = await kept(archives.bind(MINE), "content"), await kept(archives.bind(NEXT), "other")
    await archives.bind(Identity("b", "named-s")).keep("content")
    assert await archives.forget("a") == 2
    assert [key.split("/")[:2] for key in await store.keys("")] == [["archive", "b"], ["claim", "b"]]
    assert [await archives.find("a", each) for each in (mine, theirs)] == [None, None]
    assert await archives.bind(MINE).keep("content") == mine
    assert await archives.find("a", mine) == "content", "it may be kept again at once"


async def test_a_broken_store_keeps_nothing_and_says_so_once_a_minute(
    archives: Archives, store: Recording, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "penstock.archive")
    archive = archives.bind(Identity("tenant", "named-session"))
    store.broken = "read_only"
    for _ in range(5):
        assert await archive.keep("content") is None
        with pytest.raises(StoreError):
            await archive.fetch(handle_of("content"))
        assert await archive.touch([handle_of("content")]) == frozenset()
    store.broken = "full"
    assert await archive.keep("content") is None
    fields = [vars(record)["fields"] for record in caplog.records]
    told = [f"{each['action']}: {each['cause']}" for each in fields]
    assert told == ["keep: read_only", "fetch: read_only", "touch: read_only", "keep: full"]
    assert not re.search(r"content|tenant'|session'", str([vars(record) for record in caplog.records]))
    clock.now += 61
    assert await archive.keep("content") is None
    assert len(caplog.records) == 5
    store.broken = None
    handle = await kept(archive, "content")
    assert await archive.fetch(handle) == "content"


async def test_what_is_too_large_stays(store: Recording) -> None:
    archives = Archives(store, largest=10_000)
    assert await archives.bind(MINE).keep("a" * 10_001) is None
    assert await archives.bind(MINE).keep("é" * 5001) is None
    handle = await kept(archives.bind(MINE), "a" * 10_000)
    assert await archives.bind(MINE).fetch(handle) == "a" * 10_000


async def test_long_text_is_compressed_where_that_pays(archives: Archives, store: Recording) -> None:
    noise = random.Random(0).randbytes(50_000).decode("latin-1")
    for content, most in (("some log line 17\n" * 3000, 2000), (noise, 76_000), ("short " * 10, 61)):
        await archives.bind(Identity("a", f"named-{content[:1]}")).keep(content)
        (key,) = await store.keys("archive/")
        value = await store.get(key)
        assert value is not None
        assert len(value) <= most
        await store.delete([key])


@pytest.mark.parametrize("planted", [
    *(b"", b"\0other", b"\0\xff", b"\1garbage", b"\2content", b"\x80\x04."),
    *(b"\1" + zlib.compress(bytes(200 * MIB), 9), b"\1" + zlib.compress(b"content")[:-6]),
])  # fmt: skip
async def test_content_that_does_not_fit_its_handle_is_never_returned(
    archives: Archives, store: Recording, planted: bytes
) -> None:
    archive = archives.bind(MINE)
    handle = await kept(archive, "content")
    (key,) = await store.keys("archive/")
    await store.put(key, planted, ttl=1000)
    assert await archive.fetch(handle) is None


async def test_nothing_waits_for_a_store_that_sleeps(archives: Archives, monkeypatch: pytest.MonkeyPatch) -> None:
    woken, slept = threading.Event(), threading.Event()

    def sleep(content: str, largest: int) -> bytes:
        slept.set()
        assert woken.wait(30)
        return b"\0content"

    monkeypatch.setattr("proxy.state.archive._packed", sleep)
    keeping = asyncio.ensure_future(archives.bind(MINE).keep("content"))
    assert await asyncio.to_thread(slept.wait, 30)
    assert not keeping.done()
    woken.set()
    assert await keeping == handle_of("content")


@pytest.fixture
async def stores(running: RedisProcess) -> AsyncIterator[list[RedisStore]]:
    made = [running.store(timeout=30.0) for _ in range(3)]
    yield made
    for each in made:
        await each.aclose()


async def test_a_tenant_is_forgotten_for_all(stores: list[RedisStore], running: RedisProcess) -> None:
    first, second = (Archives(store) for store in stores[:2])
    for n in range(30):
        for tenant in ("a", "b"):
            await first.bind(Identity(tenant, f"named-s{n % 3}")).keep(f"{tenant} {n}")
    assert await second.forget("a") == 30
    with running.admin() as admin:
        left = [name.decode() for name in admin.scan_iter("*:value:*")]
    assert len(left) == 60
    assert all("/b/" in name for name in left)


async def test_nothing_seen_is_trusted_after_an_emptied_server(stores: list[RedisStore], running: RedisProcess) -> None:
    first, second = (Archives(store) for store in stores[:2])
    for archives in (first, second):
        assert await archives.bind(Identity("t", "named-s")).keep("shared")
    only = await second.bind(Identity("t", "named-s")).keep("only")
    assert only is not None
    running.flush()
    await first.bind(Identity("t", "named-u")).keep("shared")  # its pointer, which is the tenant's, is there again
    archive = second.bind(Identity("t", "named-s"))
    assert await archive.keep("shared")
    assert await archive.keep("only") == only
    assert await first.bind(Identity("t", "named-s")).fetch(only) == "only"
    running.flush()
    shared = await first.bind(Identity("t", "named-s")).keep("shared") or ""
    assert await second.bind(Identity("t", "named-s")).touch([shared, only]) == {shared}, "nor by touch"
