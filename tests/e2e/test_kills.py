"""Processes that die, and several that share a state directory: what was named is there, and the bytes are the same."""

import asyncio
import os
import random
import signal
import sqlite3
import time
from contextlib import AbstractContextManager, ExitStack, closing, nullcontext
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.e2e.default_chain import TOOLS, Client, chatting, config, handles, recalling, result, working
from tests.e2e.served import served
from tests.e2e.servers import Received, Upstream, plainly, proxy


async def hold(behind: Upstream, received: Received, writer: asyncio.StreamWriter) -> None:
    await asyncio.Event().wait()


async def test_a_kill_before_the_answer_loses_nothing_that_the_upstream_was_told_of(
    tmp_path: Path, behind: Upstream, http: aiohttp.ClientSession
) -> None:
    behind.respond = hold
    made = config(behind.url, tmp_path / "state")
    async with served(made, tmp_path) as running:
        client = Client(running.base, behind, http)
        asked = [asyncio.ensure_future(client.work(3)), asyncio.ensure_future(client.ask(chatting()))]
        await behind.arrived(2)
        await running.kill()
        for failure in await asyncio.gather(*asked, return_exceptions=True):
            assert isinstance(failure, aiohttp.ClientError)
    named = {handle for received in behind.received for handle in handles(received.body.decode())}
    assert len(named) > 3, "large results, and what a cut removed"
    async with served(made, tmp_path) as running:
        client = Client(running.base, behind, http)
        assert not await client.missing(named)
        assert result(0) in [await client.original(handle) for handle in named]
        other = Client(running.base, behind, http, key="other")
        assert await other.missing(named) == named


async def test_kills_at_any_moment_lose_nothing_that_was_ever_named(
    tmp_path: Path, behind: Upstream, http: aiohttp.ClientSession
) -> None:
    made, moments = config(behind.url, tmp_path / "state"), random.Random(7)

    async def converse(client: Client) -> None:
        while True:
            for turns in range(1, 7):
                messages: list[Any] = working(turns)
                messages[0] = {"role": "user", "content": f"Run {moments.random()}"}
                messages[2]["content"] += f"\n{moments.random()}"
                asked = {"model": "m", "messages": messages}
                status, _ = await client.send("POST", "/v1/chat/completions", json=asked)
                assert status == 200

    for _ in range(2):
        async with served(made, tmp_path) as running:
            client = Client(running.base, behind, http)
            before = len(behind.received)
            talks = [asyncio.ensure_future(converse(client)) for _ in range(3)]
            await behind.arrived(before + 9)  # some that each of them had named something in
            done, _pending = await asyncio.wait(talks, timeout=moments.uniform(0, 0.4))
            assert not done
            await running.kill()
            for failure in await asyncio.gather(*talks, return_exceptions=True):
                assert isinstance(failure, aiohttp.ClientError)
    named = {handle for received in behind.received for handle in handles(received.body.decode())}
    assert len(named) > 8
    async with served(made, tmp_path) as running:
        assert not await Client(running.base, behind, http).missing(named)


def workers(folder: Path) -> list[int]:
    """The processes of a server with several workers that are ready: each counts in a file of its own."""
    return [int(path.stem.removeprefix("counter_")) for path in folder.glob("penstock-metrics-*/counter_*.db")]


async def test_workers_whose_parent_is_killed_finish_and_give_the_port_back(
    tmp_path: Path, behind: Upstream, http: aiohttp.ClientSession
) -> None:
    async def slowly(behind: Upstream, received: Received, writer: asyncio.StreamWriter) -> None:
        await killed.wait()
        await plainly(behind, received, writer)

    killed, behind.respond = asyncio.Event(), slowly
    async with served(config(behind.url, tmp_path / "state"), tmp_path, "--workers", "2") as running:
        client = Client(running.base, behind, http)
        async with asyncio.timeout(60):
            while len(workers(tmp_path)) < 2:
                await client.is_well()
        asked = asyncio.ensure_future(client.ask(chatting()))
        await behind.arrived(1)
        running.process.send_signal(signal.SIGKILL)
        await asyncio.sleep(0.5)
        killed.set()
        assert await asked
        assert running.process.stdout is not None
        async with asyncio.timeout(60):
            await running.process.stdout.read()  # to its end, which is the end of all who could write there
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", int(running.base.rpartition(":")[2]))


async def test_a_worker_that_gets_no_time_for_a_while_is_not_killed(
    tmp_path: Path, behind: Upstream, http: aiohttp.ClientSession
) -> None:
    async with served(config(behind.url, tmp_path / "state"), tmp_path, "--workers", "2") as running:
        client = Client(running.base, behind, http)
        async with asyncio.timeout(60):
            while len(workers(tmp_path)) < 2:
                await client.is_well()
        before = workers(tmp_path)
        os.kill(before[0], signal.SIGSTOP)
        await asyncio.sleep(8)  # longer than uvicorn waits by itself
        os.kill(before[0], signal.SIGCONT)
        await client.is_well()
        assert workers(tmp_path) == before


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
                while _state_of(pid) != "T":
                    time.sleep(0.001)

    def __exit__(self, *_: object) -> None:
        for pid in self._stopped:
            os.kill(pid, signal.SIGCONT)


def _state_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


async def conversation(client: Client, turn: AbstractContextManager[None]) -> list[str]:
    """What the upstream gets of a conversation of an agent and one of a chat, request by request."""
    sent = []
    for turns in range(5):
        with turn:
            sent.append(await client.work(turns))
    for turns in range(28, 32):
        with turn:
            sent.append(await client.ask(chatting(turns)))
    return sent


async def test_workers_forward_the_same_bytes_and_read_what_the_others_kept(
    tmp_path: Path, behind: Upstream, http: aiohttp.ClientSession
) -> None:
    async with proxy(config(behind.url, tmp_path / "alone"), tmp_path) as base:
        alone = await conversation(Client(base, behind, http), nullcontext())
    assert len(handles(alone[4])) == 4
    assert handles(alone[-1])
    async with served(config(behind.url, tmp_path / "state"), tmp_path, "--workers", "2") as running:
        client = Client(running.base, behind, http)
        async with asyncio.timeout(60):
            while len(pids := workers(tmp_path)) < 2:
                await client.is_well()
        turn = Turns(pids, tmp_path / "state")
        assert await conversation(client, turn) == alone
        behind.respond = recalling()
        for _ in pids:
            with turn:
                asked = {"model": "m", "messages": working(3), "tools": TOOLS}
                _, answer = await client.send("POST", "/v1/chat/completions", json=asked)
            assert "paragraph" in answer["choices"][0]["message"]["content"]
            with turn:
                assert not await client.missing()
            with turn:
                assert not await client.missing()
