"""A stop signal: not ready at once, then no new connections, and what is under way ends well."""

import asyncio
import json
import signal

import aiohttp
import pytest

from tests.e2e.conftest import Client, Lab
from tests.e2e.served import Served, served
from tests.e2e.servers import Received, Upstream, begin_stream, send_chunk, until, until_ready

CONFIG = """
models: [{match: m, upstream: main, window: 8192, chain: {chain}}]
chains: {empty: [], default: [consolidate_system: {}]}
server: {{server}}
telemetry: {log_level: info}
"""
BODY = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "stream": True}
EVENT = b'data: {"choices":[{"delta":{"content":"x"}}]}\n\n'
STREAMS = 20


class Held:
    """An upstream's streams, which begin and then wait for each other's leave."""

    def __init__(self, *, begins: bool = True) -> None:
        self.go_on = asyncio.Event()
        self._begins = begins

    async def __call__(self, upstream: Upstream, received: Received, writer: asyncio.StreamWriter) -> None:
        if self._begins:
            await begin_stream(writer)
            await send_chunk(writer, EVENT)
        await self.go_on.wait()
        for _ in range(20):
            await send_chunk(writer, EVENT)
        await send_chunk(writer, b"data: [DONE]\n\n")
        await send_chunk(writer, b"")


async def refuses(base: str) -> bool:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", int(base.rpartition(":")[2]))
    except ConnectionRefusedError:
        return True
    except ConnectionResetError:  # it stopped listening before it took this one
        return False
    writer.close()
    return False


async def ends_well(running: Served) -> None:
    async with asyncio.timeout(60):
        assert await running.process.wait() == 0


async def test_no_stream_is_broken(lab: Lab) -> None:
    lab.behind.respond = held = Held()
    async with lab.served(CONFIG, "--workers", "2", server="drain: 60", chain="empty") as running:
        begun = asyncio.Semaphore(0)

        async def stream(chain: str) -> bytes:
            headers = {"x-penstock-chain": chain}
            async with lab.http.post(f"{running.base}/v1/chat/completions", json=BODY, headers=headers) as response:
                assert response.status == 200
                first = await response.content.readany()
                begun.release()
                return first + await response.read()

        streams = [asyncio.ensure_future(stream("empty" if n % 2 else "default")) for n in range(STREAMS)]
        for _ in streams:
            await begun.acquire()
        running.process.send_signal(signal.SIGTERM)
        await until(lambda: refuses(running.base))
        held.go_on.set()
        for received in await asyncio.gather(*streams):
            assert received == EVENT * 21 + b"data: [DONE]\n\n"
        await ends_well(running)


async def test_it_is_not_ready_while_it_still_takes_connections(lab: Lab) -> None:
    held = Held()
    held.go_on.set()
    lab.behind.respond = held
    async with lab.served(CONFIG, server="drain_delay: 600", chain="empty") as running:
        await until_ready(running.base)
        client = Client(running.base, lab.http)
        assert (await client.get("/readyz")).json["status"] == "ready"
        running.process.send_signal(signal.SIGTERM)
        answer = await until(lambda: client.get("/readyz"), lambda got: got.status != 200)
        assert (answer.status, answer.json) == (503, {"status": "draining"})
        for chain in ("empty", "default"):
            headers = {"x-penstock-chain": chain}
            url = f"{running.base}/v1/chat/completions"
            async with aiohttp.ClientSession() as lasting, lasting.post(url, json=BODY, headers=headers) as response:
                assert response.status == 200
                assert response.headers["connection"] == "close", "although the client would keep it"
                assert (await response.read()).endswith(b"data: [DONE]\n\n")
        running.process.send_signal(signal.SIGTERM)  # a second one does not wait
        await ends_well(running)


@pytest.mark.parametrize(
    ("workers", "number", "server"), [("1", signal.SIGINT, "drain_delay: 600"), ("2", signal.SIGTERM, "")]
)
async def test_a_stop_waits_for_no_model_that_loads_and_an_interrupt_for_no_delay(
    lab: Lab, workers: str, number: signal.Signals, server: str
) -> None:
    modules = lab.folder / "modules"
    modules.mkdir()
    (modules / "torch.py").write_text("import time\nfrom pathlib import Path\n"
                                      "Path(__file__).with_name('begun').touch()\ntime.sleep(600)\n")  # fmt: skip
    text = lab.config(CONFIG, server=server, chain="default").replace("consolidate_system", "recall_history")
    text += f'embedding: {{kind: sentence-transformers, model: "{modules}"}}\n'
    async with served(text, lab.folder, "--workers", workers, before=modules) as running, asyncio.timeout(300):
        while not (modules / "begun").exists():
            await asyncio.sleep(0.05)
        await until_ready(running.base)
        running.process.send_signal(number)
        assert await running.process.wait() == 0
        assert not [line for line in running.log if '"level":"info"' not in line]


@pytest.mark.parametrize("begins", [True, False])
async def test_what_does_not_end_is_cut_with_an_error(lab: Lab, begins: bool) -> None:
    lab.behind.respond = Held(begins=begins)
    async with lab.served(CONFIG, server="drain: 1", chain="empty") as running:
        asking = asyncio.ensure_future(lab.http.post(f"{running.base}/v1/chat/completions", json=BODY))
        await lab.behind.arrived(1)
        if begins:
            response = await asking
            assert await response.content.readany() == EVENT
        running.process.send_signal(signal.SIGTERM)
        response = await asking
        text = await response.text()
        assert response.status == (200 if begins else 503)
        error = json.loads(text.removeprefix("data: "))["error"]
        assert error["code"] == "server_stopping"
        await ends_well(running)
        assert not [line for line in running.log if "exception" in line]
