"""What is given is for its receiver alone: under its tenant, conversation, agent and task."""

import itertools

import pytest

from proxy.context import Identity
from proxy.state.inbox import Shares
from proxy.state.sqlite import SqliteStore


def who(session: str = "s", agent: str = "", task: str = "", tenant: str = "t") -> Identity:
    named = {kind: f"{kind}-{name}" for kind, name in (("agent", agent), ("task", task)) if name}
    return Identity(tenant, f"named-{session}", **named)


@pytest.fixture
def shares() -> Shares:
    return Shares(SqliteStore(None, 2**24), ttl=60, clock=itertools.count(1.0).__next__)


async def give(shares: Shares, giver: Identity, receiver: Identity, content: str = "c", note: str = "") -> str:
    return (await shares.give(giver, receiver, agent="a", task="", note=note, content=content)).id


async def contents(shares: Shares, identity: Identity) -> list[str]:
    return [given.content for given in await shares.received(identity)]


EVERYBODY = [who(*names) for names in itertools.product(("s", "z"), ("", "a", "b"), ("", "x", "y"), ("t", "u"))]


@pytest.mark.parametrize(("receiver", "readers"), [
    (who(agent="a", task="x"), {who(agent="a", task="x")}),
    (who(agent="a"), {who(agent="a", task=task) for task in ("", "x", "y")}),
    (who(task="x"), {who(agent=agent, task="x") for agent in ("", "a", "b")}),
    (who(), {who(agent=agent, task=task) for agent in ("", "a", "b") for task in ("", "x", "y")}),
])  # fmt: skip
async def test_it_is_for_whom_it_was_given_to(shares: Shares, receiver: Identity, readers: set[Identity]) -> None:
    await give(shares, who("elsewhere"), receiver)
    assert {each for each in EVERYBODY if await contents(shares, each)} == readers


async def test_it_comes_in_order_and_the_same_comes_once(shares: Shares) -> None:
    giver, receiver = who(agent="a"), who(agent="b")
    first = await give(shares, giver, receiver, "z")
    await give(shares, giver, receiver, "a")
    assert await give(shares, giver, receiver, "z") == first
    others = {await give(shares, giver, receiver, "z", "noted"), await give(shares, who(agent="c"), receiver, "z")}
    assert len(others | {first}) == 3
    assert await contents(shares, receiver) == ["z", "a", "z", "z"]


async def test_it_can_be_taken_back_by_who_gave_it_and_by_who_got_it(shares: Shares) -> None:
    giver, receiver = who(agent="a", task="x"), who(agent="b")
    for by in (giver, receiver, who(agent="b", task="y")):
        id_ = await give(shares, giver, receiver)
        for other in (who(agent="c"), who(agent="a"), who(agent="b", tenant="u"), who("z", "b")):
            assert not await shares.take_back(other, id_)
        assert not await shares.take_back(by, "")
        assert not await shares.take_back(by, id_[1:])
        assert await contents(shares, receiver) == ["c"]
        assert await shares.take_back(by, id_)
        assert await contents(shares, receiver) == []


async def test_it_lives_from_its_last_use() -> None:
    time = [0.0]
    store = SqliteStore(None, 2**20, clock=lambda: time[0])
    shares = Shares(store, ttl=60)
    await give(shares, who("elsewhere"), who())
    for time[0], left in ((59.0, ["c"]), (118.0, ["c"]), (179.0, [])):
        assert await contents(shares, who()) == left
