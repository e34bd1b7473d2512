"""Two proxies on one Redis server behave as one, and go on without it: the default chain over sockets."""

import asyncio
import signal
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from proxy.state import redis as redis_state
from tests.e2e.conftest import Lab
from tests.e2e.default_chain import TOOLS, Client, chatting, config, handles, recalling, working
from tests.e2e.served import served
from tests.e2e.servers import Received, Upstream, say, until
from tests.e2e.test_faults import is_shortened, stays_whole
from tests.e2e.test_kills import conversation
from tests.redis_process import RedisProcess
from tests.scripted import answer


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redis_state, "PROBE_EVERY", 0.05)


def on(running: RedisProcess, url: str, timeout: float = 60.0) -> str:
    """The shipped configuration with its state on a server."""
    made = config(url, Path("unused"))
    state = f'state: {{kind: redis, url: "{running.url}", timeout: {timeout}}}'
    changed = made.replace('state: {directory: "unused", max_mib: 8}', state)
    assert changed != made
    return changed


class Alternating:
    """Sends each request of a client to the next of several proxies."""

    def __init__(self, client: Client, bases: list[str]) -> None:
        self._client, self._bases, self._next = client, bases, 0

    def __enter__(self) -> None:
        self._client.base = self._bases[self._next % len(self._bases)]
        self._next += 1

    def __exit__(self, *_: object) -> None:
        pass


async def on_one(lab: Lab) -> list[str]:
    """What the upstream gets of a conversation that one proxy has alone, on a directory."""
    base = await lab.start(config(lab.behind.url, lab.folder / "alone"))
    return await conversation(Client(base, lab.behind, lab.http), nullcontext())


async def test_a_conversation_that_alternates_is_forwarded_as_on_one(running: RedisProcess, lab: Lab) -> None:
    alone = await on_one(lab)
    assert len(handles(alone[4])) == 4
    assert handles(alone[-1])
    bases = await lab.two(on(running, lab.behind.url))
    client = Client(bases[0], lab.behind, lab.http)
    turn = Alternating(client, bases)
    assert await conversation(client, turn) == alone
    for _ in bases:
        with turn:
            assert not await client.missing()
        with turn:
            assert await Client(client.base, lab.behind, lab.http, key="other").missing(client.named) == client.named


async def test_what_one_has_learned_of_the_count_moves_no_cut_of_a_running_conversation(
    running: RedisProcess, lab: Lab
) -> None:
    async def counting(upstream: Upstream, received: Received, writer: asyncio.StreamWriter) -> None:
        await say(writer, received, answer("hi", used=(len(received.body) * 115 // 400, 1, 0)))

    lab.behind.respond = counting
    bases = await lab.two(on(running, lab.behind.url))
    client = Client(bases[0], lab.behind, lab.http)
    first = [await client.ask(chatting(turns)) for turns in (20, 40, 60)]
    for place in range(12):
        await client.ask([{"role": "user", "content": f"{place} " + "lorem ipsum " * 800}])
    for client.base in bases:
        assert [await client.ask(chatting(turns)) for turns in (20, 40, 60)] == first


async def test_when_one_is_killed_the_other_goes_on_with_the_same_prefix(
    running: RedisProcess, lab: Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    alone = await on_one(lab)
    made = on(running, lab.behind.url)
    second = await lab.start(made, "second")
    (lab.folder / "first").mkdir()
    async with served(made, lab.folder / "first") as first:
        client = Client(first.base, lab.behind, lab.http)
        sent = [await client.work(turns) for turns in range(3)] + [await client.ask(chatting(28), tools=TOOLS)]
        kept = set(client.named)
        assert kept
        await first.kill()
        client.base = second
        sent += [await client.work(turns) for turns in range(3, 5)]
        sent += [await client.ask(chatting(turns), tools=TOOLS) for turns in range(29, 32)]
        assert sorted(sent) == sorted(alone)
        assert not await client.missing(kept)
        lab.behind.respond = recalling(min(handles(sent[2])))
        asked = {"model": "m", "messages": working(5), "tools": TOOLS}
        _, answer = await client.send("POST", "/v1/chat/completions", json=asked)
        assert "paragraph" in answer["choices"][0]["message"]["content"]
    assert capsys.readouterr().err == ""


def away(running: RedisProcess) -> Callable[[], None]:
    running.stop()
    return running.start


def asleep(running: RedisProcess) -> Callable[[], None]:
    running.signal(signal.SIGSTOP)
    return lambda: running.signal(signal.SIGCONT)


def full(running: RedisProcess) -> Callable[[], None]:
    with running.admin() as admin:
        admin.flushall()
        admin.config_set("maxmemory", 1)

    def mend() -> None:
        with running.admin() as admin:
            admin.config_set("maxmemory", 0)

    return mend


@pytest.mark.parametrize("fault", [away, asleep, full])
async def test_requests_go_on_without_the_server_and_recover_by_themselves(
    running: RedisProcess, lab: Lab, fault: Callable[[RedisProcess], Callable[[], None]]
) -> None:
    patience = 2.0 if fault is asleep else 60.0
    bases = await lab.two(on(running, lab.behind.url, patience))
    client = Client(bases[0], lab.behind, lab.http)
    await is_shortened(client)
    mend = fault(running)
    for client.base in bases:
        await stays_whole(client)
    mend()
    client.named.clear()
    for client.base in bases:
        await until(lambda: client.work(3), lambda sent: len(handles(sent)) == 3)
    for client.base in bases:
        await is_shortened(client)


@pytest.mark.parametrize("fault", [away, full])
async def test_what_only_fits_when_it_is_cut_may_be_tried_again_once_the_server_is_back(
    running: RedisProcess, lab: Lab, fault: Callable[[RedisProcess], Callable[[], None]]
) -> None:
    fits: dict[str, Any] = {"messages": chatting(90), "tools": TOOLS}
    long = [{"role": "system", "content": "Read this. " * 9000}, {"role": "user", "content": "hi"}]
    client = await lab.client(on(running, lab.behind.url), "k")
    mend = fault(running)
    refused = await client.chat(**fits)
    assert (refused.refusal, refused.headers["retry-after"]) == ((503, "state_unavailable"), "5")
    assert "x-should-retry" not in refused.headers, "an SDK tries again by itself"
    assert refused.json["error"]["type"] == "service_unavailable_error"
    assert (await client.chat(messages=long)).refusal == (400, "context_length_exceeded"), "no state would help"
    assert not lab.behind.received
    mend()
    await until(lambda: client.chat(**fits), lambda answer: answer.status == 200)
    assert handles(lab.behind.last.body.decode())
    assert (await client.chat(messages=long)).refusal == (400, "context_length_exceeded")
