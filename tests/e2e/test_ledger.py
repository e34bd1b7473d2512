"""The ledger of a served conversation says what left it, and shows each change of a record."""

import asyncio
import sqlite3
from collections.abc import Callable
from pathlib import Path

import orjson
import pytest

from proxy.__main__ import main
from tests.e2e.conftest import Lab
from tests.e2e.servers import proxy
from tests.e2e.test_admin import Client
from tests.e2e.test_records import SHORTENED, TOOLS, config, sent, talk

Change = Callable[[sqlite3.Connection], object]


async def recorded(lab: Lab, records: str = "{}") -> Path:
    """The configuration of a proxy that has served two conversations of different clients."""
    async with proxy(config(lab.behind, records), lab.folder) as base:
        client = Client(base, lab.http)
        await talk(client, 7)
        await sent(client, {"model": "m", "messages": SHORTENED, "tools": TOOLS}, key="other")
    return lab.folder / "config.yaml"


async def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    code = await asyncio.to_thread(main, ["ledger", *map(str, arguments)])
    return code, *capsys.readouterr()


def database(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(next(path.parent.glob("**/records.db")), isolation_level=None)


async def test_the_ledger_shows_removals_handles_and_broken_prefixes(
    lab: Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    path = await recorded(lab)
    code, shown, _ = await run(capsys, "show", "--config", path)
    assert code == 0
    assert "removed: message 1" in shown
    assert "by window_history" in shown
    assert "prefix broken by window_history:" in shown
    assert "shortened: message 2, tool" in shown
    assert "new handles: " in shown


@pytest.mark.parametrize("records", ["{}", "{text: true}"])
async def test_verify_accepts_records_as_they_were_written(
    lab: Lab, capsys: pytest.CaptureFixture[str], records: str
) -> None:
    path = await recorded(lab, records)
    code, shown, _ = await run(capsys, "verify", "--config", path)
    assert code == 0
    assert shown.endswith("8 records as written\n")
    assert len(shown.splitlines()) == 3
    _, exported, _ = await run(capsys, "show", "--json", "--config", path)
    (lab.folder / "ledger.jsonl").write_text(exported)
    assert (await run(capsys, "verify", lab.folder / "ledger.jsonl"))[:2] == (0, shown)


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
async def test_verify_finds_a_changed_record(
    lab: Lab, capsys: pytest.CaptureFixture[str], change: str, fault: str
) -> None:
    path = await recorded(lab)
    assert database(path).execute(change).rowcount == 1
    code, shown, faults = await run(capsys, "verify", "--config", path)
    assert (code, shown) == (1, "")
    assert fault in faults


@pytest.mark.parametrize(
    "change",
    [
        "DELETE FROM requests WHERE turn = 7",
        "UPDATE requests SET row = json_set(row, '$.changes', json('[]')) WHERE turn = 7",
    ],
)
async def test_a_head_proves_the_end_of_a_chain(lab: Lab, capsys: pytest.CaptureFixture[str], change: str) -> None:
    path = await recorded(lab)
    heads = [line.split()[-1] for line in (await run(capsys, "verify", "--config", path))[1].splitlines()[:-1]]
    known = [word for head in heads for word in ("--head", head)]
    assert (await run(capsys, "verify", *known, "--config", path))[0] == 0
    assert database(path).execute(change).rowcount == 1
    assert (await run(capsys, "verify", "--config", path))[0] == 0  # nothing behind an entry proves it
    code, _, faults = await run(capsys, "verify", *known, "--config", path)
    assert code == 1
    assert faults.startswith("penstock: no entry has the hash ")


async def test_a_restarted_process_begins_a_new_chain(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    await recorded(lab)
    path = await recorded(lab)
    code, shown, _ = await run(capsys, "verify", "--config", path)
    assert code == 0
    assert len({line.split()[0] for line in shown.splitlines()[:-1]}) == 4


async def test_a_ledger_may_begin_late(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    path = await recorded(lab)
    assert database(path).execute("DELETE FROM requests WHERE turn < 4").rowcount == 4
    assert (await run(capsys, "verify", "--config", path))[0] == 0


async def test_verify_fails_without_a_ledger(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "config.yaml"
    path.write_text("upstreams: {e: {kind: echo}}\nmodels: [{match: e, upstream: e}]\nstate: {kind: memory}\n")
    assert (await run(capsys, "verify", "--config", path))[::2] == (
        1,
        "penstock: these records end with their process; set state.directory, or Redis, to keep a ledger\n",
    )
    (tmp_path / "other.jsonl").write_bytes(orjson.dumps([1]))
    code, _, faults = await run(capsys, "verify", tmp_path / "other.jsonl")
    assert (code, "no ledger" in faults) == (1, True)
