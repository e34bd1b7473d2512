"""The ledger of a served conversation says what left it, and shows each change of a record."""

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from proxy.__main__ import main
from tests.e2e.conftest import Lab
from tests.e2e.test_records import SHORTENED, TOOLS, running, sent, talk, told


async def recorded(lab: Lab, records: str = "{}") -> Path:
    """The configuration of a proxy that has served two conversations of different clients."""
    async with AsyncExitStack() as lab.stack:
        client = await running(lab, records)
        await talk(client, 7)
        await sent(client, messages=SHORTENED, tools=TOOLS, key="other")
        await told(client, "/requests")  # who reads waits until all is written; an end waits for seconds only
    return lab.folder / "config.yaml"


@pytest.fixture
async def path(lab: Lab, request: pytest.FixtureRequest) -> Path:
    return await recorded(lab, getattr(request, "param", "{}"))


Run = Callable[..., Awaitable[tuple[int, str, str]]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    async def ledger(*arguments: object) -> tuple[int, str, str]:
        """The exit code, the output and the errors of the command."""
        return await asyncio.to_thread(main, ["ledger", *map(str, arguments)]), *capsys.readouterr()

    return ledger


def database(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(next(path.parent.glob("**/records.db")), isolation_level=None)


async def test_the_ledger_shows_removals_handles_and_broken_prefixes(path: Path, run: Run) -> None:
    code, shown, _ = await run("show", "--config", path)
    assert code == 0
    removals = ("removed: message 1", "by window_history", "prefix broken by window_history:")
    for text in (*removals, "shortened: message 2, tool", "new handles: "):
        assert text in shown


@pytest.mark.parametrize("path", ["{}", "{text: true}"], indirect=True)
async def test_verify_accepts_records_as_they_were_written(path: Path, run: Run) -> None:
    code, shown, _ = await run("verify", "--config", path)
    assert (code, len(shown.splitlines())) == (0, 3)
    assert shown.endswith("8 records as written\n")
    exported = path.with_name("ledger.jsonl")
    exported.write_text((await run("show", "--json", "--config", path))[1])
    assert (await run("verify", exported))[:2] == (0, shown)


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ("UPDATE requests SET row = json_set(row, '$.changes', json('[]')) WHERE turn = 5", "was changed"),
        ("UPDATE requests SET row = json_set(row, '$.prefix_broken', null) WHERE turn = 5", "was changed"),
        ("DELETE FROM requests WHERE turn = 4", "is missing"),
        ("INSERT INTO requests (row) SELECT row FROM requests WHERE turn = 4", "stands twice"),
        ("UPDATE requests SET row = json_set(row, '$.ledger.number', 9) WHERE turn = 4", "is missing"),
    ],
)
async def test_verify_finds_a_changed_record(path: Path, run: Run, change: str, fault: str) -> None:
    assert database(path).execute(change).rowcount == 1
    code, shown, faults = await run("verify", "--config", path)
    assert (code, shown, fault in faults) == (1, "", True)


@pytest.mark.parametrize(
    "change",
    [
        "DELETE FROM requests WHERE turn = 7",
        "UPDATE requests SET row = json_set(row, '$.changes', json('[]')) WHERE turn = 7",
    ],
)
async def test_a_head_proves_the_end_of_a_chain(path: Path, run: Run, change: str) -> None:
    heads = [line.split()[-1] for line in (await run("verify", "--config", path))[1].splitlines()[:-1]]
    known = [word for head in heads for word in ("--head", head)]
    assert (await run("verify", *known, "--config", path))[0] == 0
    assert database(path).execute(change).rowcount == 1
    assert (await run("verify", "--config", path))[0] == 0  # nothing behind an entry proves it
    code, _, faults = await run("verify", *known, "--config", path)
    assert (code, faults.startswith("penstock: no entry has the hash ")) == (1, True)


async def test_a_restart_begins_a_new_chain_and_a_ledger_may_begin_late(lab: Lab, path: Path, run: Run) -> None:
    await recorded(lab)
    code, shown, _ = await run("verify", "--config", path)
    assert (code, len({line.split()[0] for line in shown.splitlines()[:-1]})) == (0, 4)
    assert database(path).execute("DELETE FROM requests WHERE turn < 4").rowcount == 8
    assert (await run("verify", "--config", path))[0] == 0


async def test_verify_fails_without_a_ledger(tmp_path: Path, run: Run) -> None:
    path = tmp_path / "config.yaml"
    path.write_text("upstreams: {e: {kind: echo}}\nmodels: [{match: e, upstream: e}]\nstate: {kind: memory}\n")
    ends = "penstock: these records end with their process; set state.directory, or Redis, to keep a ledger\n"
    assert (await run("verify", "--config", path))[::2] == (1, ends)
    for other in (b"[1]", b"", b'{"model": "m", "messages": []}'):
        (tmp_path / "other.jsonl").write_bytes(other)
        code, _, faults = await run("verify", tmp_path / "other.jsonl")
        assert (code, "no ledger" in faults) == (1, True)


async def test_an_unknown_conversation_has_no_ledger(path: Path, run: Run) -> None:
    code, shown, faults = await run("show", "none", "--config", path)
    assert (code, shown, "no record of a conversation 'none'" in faults) == (1, "", True)
