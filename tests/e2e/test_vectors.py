"""Vectors of a running proxy: shared by its workers, kept over its death, done without where they cannot be had."""

import asyncio
import json
import re
import sqlite3
from collections.abc import AsyncGenerator, Callable
from contextlib import closing
from math import cos, sin
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from proxy.vectors.embedded import FILE
from proxy.vectors.scale import of_language
from tests.e2e.conftest import Lab
from tests.e2e.served import Served, served
from tests.e2e.servers import Received, Upstream, send, upstream

CONFIG = """
upstreams: {{echo: {{kind: echo}}}}
models: [{{match: "*", upstream: echo, window: 10000}}]
chains: {{default: [tests.vectors.nearest: {{timeout: 30}}]}}
state: {{directory: "{state}"}}
vectors: {vectors}
embedding: {{kind: openai, model: nomic, base_url: "{embedding}"}}
"""


KNOWN = {
    text: (sin(place + part / 10), cos(place + part / 10), 0.0)
    for place, pair in enumerate(of_language("en"))
    for part, text in enumerate((pair.query, pair.helps))
}
"""The texts by which a model is measured at the start: those that belong together are near each other."""


async def by_hash(server: Upstream, received: Received, writer: Any) -> None:
    texts = json.loads(received.body)["input"]
    made = [KNOWN.get(text, (len(text), sum(text.encode()) % 97, 1)) for text in texts]
    data = [{"index": place, "embedding": each} for place, each in enumerate(made)]
    await send(writer, 200, json.dumps({"data": data}).encode())


@pytest.fixture
async def embedding() -> AsyncGenerator[Upstream]:
    async with upstream() as server:
        server.respond = by_hash
        yield server


def config(folder: Path, embedding: Upstream, vectors: str = "{kind: embedded, timeout: 60}") -> str:
    return CONFIG.format(state=folder / "state", vectors=vectors, embedding=embedding.url)


def embedded(server: Upstream) -> list[str]:
    return [text for received in server.received for text in json.loads(received.body)["input"] if text not in KNOWN]


async def ask(base: str, number: int) -> str:
    texts = [f"text {number} {place} " + "x" * place for place in range(6)]
    body = {"model": "m", "messages": [{"role": "user", "content": text} for text in texts]}
    # a connection each, so that the workers take turns
    async with (
        aiohttp.ClientSession(headers={"authorization": "Bearer sk-1"}) as session,
        session.post(f"{base}/v1/chat/completions", json=body) as answer,
    ):
        assert answer.status == 200
        return answer.headers["server-timing"]


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(120):
        while not condition():
            await asyncio.sleep(0.05)


def warnings(running: Served) -> list[Any]:
    return [line for line in map(json.loads, running.log) if line.get("level") in ("warning", "error")]


def written(folder: Path) -> int:
    """How many points the directory has."""
    try:
        with closing(sqlite3.connect(f"file:{folder}/state/vectors/{FILE}?mode=ro", uri=True, timeout=60)) as db:
            return max(0, int(db.execute("SELECT COUNT(*) FROM Cache").fetchone()[0]) - len(KNOWN))
    except sqlite3.DatabaseError:  # it is just being made, or made anew
        return 0


async def test_workers_share_one_directory_and_nothing_is_lost_when_they_are_killed(
    lab: Lab, embedding: Upstream, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with served(config(tmp_path, embedding), tmp_path, "--workers", "2") as running:
        said = await asyncio.gather(*(ask(running.base, number) for number in range(12)))
        await until(lambda: written(tmp_path) >= 72)
        assert warnings(running) == []
    assert (tmp_path / "state" / "vectors").stat().st_mode & 0o777 == 0o700
    embedding.received.clear()
    async with served(config(tmp_path, embedding), tmp_path) as running:
        assert [name(each) for each in said] == [name(await ask(running.base, number)) for number in range(12)]
        assert embedding.received == [], "nothing is embedded twice"
        await ask(running.base, 99)
        await until(lambda: written(tmp_path) >= 78)
        await running.kill()
    embedding.received.clear()
    await ask(await lab.start(config(tmp_path, embedding)), 99)
    assert embedding.received == []
    assert capsys.readouterr().err == ""


def name(timing: str) -> str:
    """What the policy said, without how long it took."""
    found = re.search(r"message \d+ by nomic", timing)
    assert found is not None
    return found[0]


async def test_a_directory_that_cannot_be_had_is_done_without(
    lab: Lab, embedding: Upstream, caplog: pytest.LogCaptureFixture
) -> None:
    (lab.folder / "state").mkdir()
    (lab.folder / "state" / "vectors").write_text("a file")
    base = await lab.start(config(lab.folder, embedding))
    assert [name(await ask(base, number)) for number in (1, 1)]
    assert caplog.messages.count("the vector index does not work; going on without it") == 1
    assert str(lab.folder) not in "".join(str(vars(record)) for record in caplog.records)
    assert "penstock_index_degraded 1.0" in await metrics(base)
    assert len(embedded(embedding)) == 6, "memory does"


async def metrics(base: str) -> str:
    async with aiohttp.ClientSession() as session, session.get(f"{base}/metrics") as answer:
        return await answer.text()
