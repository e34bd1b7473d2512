"""Processes that die, and several that share a state directory: what was named is there, and the bytes are the same."""

import asyncio
import contextlib
import os
import signal
import sqlite3
import time
from contextlib import AbstractContextManager, ExitStack, closing, nullcontext
from pathlib import Path

import aiohttp
import pytest

from tests.e2e import conftest
from tests.e2e.conftest import Lab
from tests.e2e.default_chain import TOOLS, Client, chatting, config, handles, recalling, result, working
from tests.e2e.served import served
from tests.e2e.servers import Received, Upstream, plainly, proxy, silent


async def test_a_kill_before_the_answer_loses_nothing_that_the_upstream_was_told_of(lab: Lab) -> None:
    lab.behind.respond = silent
    made = config(lab.behind.url, lab.folder / "state")
    async with served(made, lab.folder) as running:
        client = Client(running.base, lab.behind, lab.http)
        asked = [asyncio.ensure_future(client.work(3)), asyncio.ensure_future(client.ask(chatting(), tools=TOOLS))]
        await lab.behind.arrived(2)
        await running.kill()
        for failure in await asyncio.gather(*asked, return_exceptions=True):
            assert isinstance(failure, aiohttp.ClientError)
    named = {handle for received in lab.behind.received for handle in handles(received.body.decode())}
    assert len(named) > 3, "large results, and what a cut removed"
    client = Client(await lab.start(made), lab.behind, lab.http)
    assert not await client.missing(named)
    assert result(0) in [await client.original(handle) for handle in named]
    client.key = "other"
    assert await client.missing(named) == named


def counting(folder: Path) -> list[int]:
    """The processes of a server with several workers that are ready: each counts in a file of its own."""
    return [int(path.stem.removeprefix("counter_")) for path in folder.glob("penstock-metrics-*/counter_*.db")]


async def workers(folder: Path, base: str, http: aiohttp.ClientSession) -> list[int]:
    """The two workers of a server, once both are ready."""
    async with asyncio.timeout(60):
        while len(found := counting(folder)) < 2:
            async with http.get(f"{base}/healthz") as response:
                assert response.status == 200
    return found


async def test_slow_workers_stay_and_when_their_parent_is_killed_they_give_the_port_back(lab: Lab) -> None:
    async def slowly(behind: Upstream, received: Received, writer: asyncio.StreamWriter) -> None:
        await killed.wait()
        await plainly(behind, received, writer)

    killed, lab.behind.respond = asyncio.Event(), slowly
    async with served(config(lab.behind.url, lab.folder / "state"), lab.folder, "--workers", "2") as running:
        before = await workers(lab.folder, running.base, lab.http)
        os.kill(before[0], signal.SIGSTOP)
        await asyncio.sleep(8)  # longer than uvicorn waits by itself
        os.kill(before[0], signal.SIGCONT)
        client = Client(running.base, lab.behind, lab.http)
        await client.is_well()
        assert await workers(lab.folder, running.base, lab.http) == before
        asked = asyncio.ensure_future(client.ask(chatting()))
        await lab.behind.arrived(1)
        running.process.send_signal(signal.SIGKILL)
        await asyncio.sleep(0.5)
        killed.set()
        assert await asked
        assert running.process.stdout is not None
        async with asyncio.timeout(60):
            await running.process.stdout.read()  # to its end, which is the end of all who could write there
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", int(running.base.rpartition(":")[2]))


async def test_a_worker_that_was_killed_has_no_requests_under_way(lab: Lab) -> None:
    lab.behind.respond = silent
    async with served(config(lab.behind.url, lab.folder / "state"), lab.folder, "--workers", "2") as running:
        before = await workers(lab.folder, running.base, lab.http)
        asked = asyncio.ensure_future(Client(running.base, lab.behind, lab.http).ask(chatting()))
        await lab.behind.arrived(1)
        for pid in before:
            os.kill(pid, signal.SIGSTOP)
        await asyncio.sleep(2)  # until their parent waits for a sign of life
        for pid in before:
            os.kill(pid, signal.SIGKILL)
        with pytest.raises(aiohttp.ClientError):
            await asked
        anybody = conftest.Client(running.base, lab.http)
        async with asyncio.timeout(45):
            while True:
                with contextlib.suppress(aiohttp.ClientError):  # a connection that a worker had taken
                    if "\npenstock_active_requests 0.0\n" in await anybody.metrics():
                        return
                await asyncio.sleep(0.1)


class Turns:
    """Lets one worker after another have the requests. Those who wait hold no lock of what they share in a folder."""

    def __init__(self, pids: list[int], state: Path) -> None:
        self._pids, self._state = pids, state
        self._next = 0

    def __enter__(self) -> None:
        self._next += 1
        self._stopped = [pid for place, pid in enumerate(self._pids) if place != self._next % len(self._pids)]
        with ExitStack() as stack:
            for file in sorted(self._state.rglob("*.db")):
                database = stack.enter_context(closing(sqlite3.connect(file, timeout=60, isolation_level=None)))
                database.execute("BEGIN IMMEDIATE")
            for pid in self._stopped:
                os.kill(pid, signal.SIGSTOP)
                while Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "T":
                    time.sleep(0.001)

    def __exit__(self, *_: object) -> None:
        for pid in self._stopped:
            os.kill(pid, signal.SIGCONT)


async def conversation(client: Client, turn: AbstractContextManager[None]) -> list[str]:
    """What the upstream gets of a conversation of an agent and one of a chat, request by request."""
    sent = []
    for turns in range(5):
        with turn:
            sent.append(await client.work(turns))
    for turns in range(28, 32):
        with turn:
            sent.append(await client.ask(chatting(turns), tools=TOOLS))
    return sent


async def test_workers_forward_the_same_bytes_and_read_what_the_others_kept(lab: Lab) -> None:
    async with proxy(config(lab.behind.url, lab.folder / "alone"), lab.folder) as base:
        alone = await conversation(Client(base, lab.behind, lab.http), nullcontext())
    assert len(handles(alone[4])) == 4
    assert handles(alone[-1])
    async with served(config(lab.behind.url, lab.folder / "state"), lab.folder, "--workers", "2") as running:
        client = Client(running.base, lab.behind, lab.http)
        pids = await workers(lab.folder, running.base, lab.http)
        turn = Turns(pids, lab.folder / "state")
        assert await conversation(client, turn) == alone
        lab.behind.respond = recalling()
        for _ in pids:
            with turn:
                asked = {"model": "m", "messages": working(3), "tools": TOOLS}
                _, answer = await client.send("POST", "/v1/chat/completions", json=asked)
            assert "paragraph" in answer["choices"][0]["message"]["content"]
            for _ in pids:
                with turn:
                    assert not await client.missing()
