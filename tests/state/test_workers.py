"""Workers that ask each other."""

import asyncio
import json
import os
import socket
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

from proxy.state.workers import Peers, Question


async def doubled(question: Question) -> Any:
    return question["number"] * 2


@pytest.fixture
async def peers(tmp_path: Path) -> AsyncGenerator[Peers, None]:
    made = Peers(tmp_path)
    made.on("double", doubled)
    await made.open()
    yield made
    await made.aclose()


async def told(folder: Path, sent: bytes) -> bytes:
    reader, writer = await asyncio.open_unix_connection(folder / f"{os.getpid()}.sock")
    try:
        writer.write(sent + b"\n")
        return await reader.read()
    finally:
        writer.close()


async def test_it_answers_what_it_knows_and_nothing_else(peers: Peers, tmp_path: Path) -> None:
    assert json.loads(await told(tmp_path, b'{"ask": "double", "number": 4}')) == 8
    for broken in (b"", b"no json", b'{"ask": "unknown"}', b"{}", b'{"ask": "double"}'):
        assert await told(tmp_path, broken) == b""
    assert json.loads(await told(tmp_path, b'{"ask": "double", "number": 4}')) == 8


async def test_it_asks_the_others_and_does_without_the_dead(peers: Peers, tmp_path: Path) -> None:
    assert await peers.ask({"ask": "double", "number": 1}) == [], "it does not ask itself"

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(json.dumps(json.loads(await reader.readline())["number"] + 1).encode() + b"\n")
        writer.close()

    other = await asyncio.start_unix_server(answer, tmp_path / "1.sock")
    dead = socket.socket(socket.AF_UNIX)
    dead.bind(str(tmp_path / "2.sock"))
    dead.close()
    assert await peers.ask({"ask": "double", "number": 1}) == [2]
    other.close()
    await other.wait_closed()


@pytest.mark.parametrize("folder", [None, "gone"])
async def test_one_process_has_no_others(tmp_path: Path, folder: str | None) -> None:
    alone = Peers(None if folder is None else tmp_path / folder)
    await alone.open()
    assert await alone.ask({"ask": "double", "number": 1}) == []
    await alone.aclose()


async def test_the_folder_may_have_a_long_name_and_a_closed_one_leaves_no_socket(tmp_path: Path) -> None:
    folder = tmp_path / ("x" * 120)
    folder.mkdir()
    peers = Peers(folder)
    await peers.open()
    assert os.listdir(folder)
    await peers.aclose()
    assert not os.listdir(folder)
