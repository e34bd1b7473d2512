"""The archive fails, and nothing leaves that could not come back: the default chain over sockets, fault by fault."""

import json
import random
import resource
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from proxy.state.sqlite import DATABASE
from tests.e2e.conftest import Lab
from tests.e2e.default_chain import TOOLS, Client, chatting, config, handles, is_whole, reading, result, working
from tests.e2e.served import served


async def started(lab: Lab) -> Client:
    return Client(await lab.start(config(lab.behind.url, lab.folder / "state")), lab.behind, lab.http)


async def stays_whole(client: Client, turns: int = 3) -> None:
    """Raises `AssertionError` where anything leaves, or a request is not answered."""
    sent = await client.work(turns)
    assert is_whole(sent, working(turns))
    assert not handles(sent)
    for messages in (chatting(), reading()):
        assert is_whole(await client.ask(messages), messages)
    assert await client.is_well()


async def is_shortened(client: Client, turns: int = 3) -> None:
    """Raises `AssertionError` unless what is large leaves, and is there."""
    assert len(handles(await client.work(turns))) == turns
    assert handles(await client.ask(chatting(), tools=TOOLS)), "a cut names what it removed"
    assert handles(await client.ask(reading()))
    assert not await client.missing()


def a_file_in_its_place(state: Path) -> None:
    state.write_text("no directory")


def garbage(state: Path) -> None:
    (state / "archive").mkdir(parents=True)
    (state / "archive" / DATABASE).write_bytes(random.Random(1).randbytes(40_000))


@pytest.mark.parametrize("fault", [a_file_in_its_place, garbage])
async def test_an_archive_that_is_broken_from_the_start(lab: Lab, fault: Callable[[Path], None]) -> None:
    fault(lab.folder / "state")
    client = await started(lab)
    await stays_whole(client)
    removed(lab.folder / "state")
    await is_shortened(client)


@pytest.mark.skipif(sys.platform != "linux", reason="limits another process")
async def test_a_disk_that_takes_no_byte_more(lab: Lab) -> None:
    async with served(config(lab.behind.url, lab.folder / "state"), lab.folder) as running:
        client = Client(running.base, lab.behind, lab.http)
        before = handles(await client.work(2))
        limits = resource.prlimit(running.process.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(running.process.pid, resource.RLIMIT_FSIZE, (0, limits[1]))
        sent = await client.work(4)
        assert handles(sent) == before, "what was kept is named as before, what is new stays whole"
        assert sum(json.dumps(result(n)) in sent for n in range(5)) == 3
        assert is_whole(await client.ask(chatting()), chatting())
        assert not await client.missing(), "it can be read all the while"
        assert await client.is_well()
        resource.prlimit(running.process.pid, resource.RLIMIT_FSIZE, limits)
        await is_shortened(client, 5)


def removed(state: Path) -> None:
    if state.is_file():
        state.unlink()
    while state.exists():  # what comes and goes while it is removed is no fault
        shutil.rmtree(state, ignore_errors=True)


def exchanged(state: Path) -> None:
    other = state / "other"
    other.write_bytes(random.Random(1).randbytes(40_000))
    other.replace(state / "archive" / DATABASE)


@pytest.mark.parametrize("fault", [removed, exchanged])
async def test_an_archive_that_is_lost_while_it_is_used(lab: Lab, fault: Callable[[Path], None]) -> None:
    client = await started(lab)
    await is_shortened(client)
    fault(lab.folder / "state")
    client.named.clear()
    await client.ask(chatting())
    await client.work(4)
    assert await client.is_well()
    assert not await client.missing()
    removed(lab.folder / "state")
    client.named.clear()
    await is_shortened(client, 5)
