"""What is written over a store is seen there, and leaves no trace in the store."""

from proxy.state.sqlite import Overlay, SqliteStore
from tests.clock import Clock

TTL = 60.0


async def test_what_is_below_is_read_and_what_is_written_stays_above() -> None:
    below = SqliteStore(None, 10**6)
    await below.put_all({"a/1": b"one", "a/2": b"two"}, ttl=TTL)
    over = Overlay(below)
    await over.put("a/2", b"other", ttl=TTL)
    await over.put_all({"a/3": b"three"}, ttl=TTL)
    assert [await over.get(f"a/{n}", ttl=TTL) for n in (1, 2, 3, 4)] == [b"one", b"other", b"three", None]
    assert await over.touch(["a/1", "a/3", "a/4"], ttl=TTL) == {"a/1", "a/3"}
    assert await over.keys("a/") == ("a/1", "a/2", "a/3")
    assert await over.keys("a/", limit=2) == ("a/1", "a/2")
    assert await over.keys("a/", limit=2, latest=True) == ("a/3", "a/2")
    await over.delete(["a/1", "a/2"])
    assert (await below.get("a/1"), await below.get("a/2"), await below.get("a/3")) == (b"one", b"two", None)
    assert await over.get("a/2") == b"two"


async def test_what_was_settled_below_stands_and_what_was_written_can_be_forgotten() -> None:
    below = SqliteStore(None, 10**6)
    await below.put("a", b"one", ttl=TTL)
    over = Overlay(below)
    assert await over.add("a", b"two", ttl=TTL) == b"one"
    assert await over.add("b", b"two", ttl=TTL) == b"two"
    assert await over.add("b", b"three", ttl=TTL) == b"two"
    assert await below.get("b") is None
    below = SqliteStore(None, 10**6)
    over = Overlay(below)
    await over.put("a", b"one", ttl=TTL)
    assert over.losses == below.losses
    await over.clear()
    assert await over.get("a") is None
    assert over.losses == below.losses + 1
    await over.aclose()


async def test_reading_is_no_use_of_what_is_below() -> None:
    clock = Clock()
    below = SqliteStore(None, 10**6, clock=clock)
    await below.put("a", b"one", ttl=TTL)
    over = Overlay(below)
    clock.now += TTL - 1
    assert await over.get("a", ttl=TTL) == b"one"
    assert await over.touch(["a"], ttl=TTL) == {"a"}
    clock.now += 2
    assert await over.get("a") is None
