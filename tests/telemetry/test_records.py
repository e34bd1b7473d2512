"""Records of requests: who reads them, what outlives a restart, how much is kept, and what happens when nothing can be."""

import asyncio
import logging
import threading
import tracemalloc
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from time import time
from typing import Any

import pytest

from proxy.config.settings import RecordsSettings
from proxy.context import Identity
from proxy.models.usage import Usage
from proxy.state.store import StoreError
from proxy.step import Step
from proxy.telemetry import record_table as table
from proxy.telemetry.bill import Bills, Effect
from proxy.telemetry.ledger import Ledger
from proxy.telemetry.metrics import Metrics
from proxy.telemetry.observation import Telemetry
from proxy.telemetry.record import LARGEST, Record, Rewriting, row_of
from proxy.telemetry.record_table import MOST_TURNS, POINTS, Filters
from proxy.telemetry.records import Records
from proxy.testing import chat, context
from tests.telemetry.recorded import request, step

DAY = 86400.0


def made(
    request_id: str, tenant: str = "ann", talk: str = "", *, when: float | None = None, why: str = "two turns", **fields: Any
) -> Record:  # fmt: skip
    """A record; of the conversation that opens with `talk`, if one is given."""
    known: dict[str, str | None] = {
        "request_id": request_id,
        "route": "/v1/chat/completions",
        "upstream": "main",
        "chain": "default",
    }
    rewriting = None
    if talk:
        came = chat(talk)
        ctx = context(came, identity=Identity(tenant, f"opening-{talk.split()[0]}"))
        rewriting = Rewriting(came, came, (), ctx, None, None)
    values: dict[str, Any] = {
        "when": time() if when is None else when, "seconds": 0.5,
        "asked": "m", "steps": [Step("window_history", "keep", why, 0.001, 1.0, 9, 9)], "before": 9, "after": 9,
        "window": 100, "status": 200, "rewriting": rewriting,
    }  # fmt: skip
    record = Record("v1", known, Bills())
    record.tenant = tenant
    vars(record).update(values | fields)
    return record


@asynccontextmanager
async def kept(file: Path | None = None, **settings: Any) -> AsyncGenerator[Records, None]:
    records = Records(RecordsSettings(**settings), file)
    task = asyncio.ensure_future(records.write())
    try:
        yield records
    finally:
        task.cancel()
        await asyncio.wait([task])
        await records.aclose()


def ids(found: Sequence[dict[str, Any]]) -> list[str]:
    return [each["request_id"] for each in found]


async def test_a_record_says_what_was_done() -> None:
    async with kept() as records:
        telemetry = Telemetry(Metrics("1"), records=records)
        request(telemetry, step(), usage=Usage(1000, 50, 900, written=80))
        telemetry.begin("GET", "/v1/models", {}, request_id="went-nowhere").end(200)
        (found,) = await records.latest(Filters(), 10)
    expected = {
        "request_id": "req_1", "model": "gpt-*", "upstream": "main", "chain": "default", "conversation": None,
        "tokens_before": 900, "tokens_after": 400, "window": 8192,
        "input_tokens": 1000, "cached_tokens": 900, "written_tokens": 80, "output_tokens": 50,
    }  # fmt: skip
    assert found.items() >= expected.items()
    (shown,) = found["steps"]
    assert shown == {**step(started=0.0).shown(), **Effect()._asdict()}


async def test_what_is_too_old_goes() -> None:
    async with kept(days=2) as records:
        records.add(made("old", when=time() - 3 * DAY))
        records.add(made("young", when=time() - DAY))
        assert ids(await records.latest(Filters(), 10)) == ["young"]


async def test_the_oldest_go_where_there_is_no_room(tmp_path: Path) -> None:
    async with kept(tmp_path / "records.db", max_mib=1) as records:
        for n in range(40):
            for m in range(10):
                records.add(made(f"{n}/{m}", why="x" * 8000))
            await records.flush()
        found = ids(await records.latest(Filters(), 1000))
        everything = [f"{n}/{m}" for n in range(40) for m in range(10)]
        assert found == everything[: -len(found) - 1 : -1], "the newest are there, without a gap"
        assert 60 < len(found) < 140
    assert (tmp_path / "records.db").stat().st_size < 1.4 * 2**20


async def test_a_large_record_keeps_its_sums_and_an_odd_one_holds_up_nobody() -> None:
    async with kept() as records:
        records.add(made("large", why="x" * LARGEST))
        records.add(made("odd", why="\ud800"))
        records.add(made("one"))
        assert ids(await records.latest(Filters(), 10)) == ["one", "large"]
        (found,) = await records.latest(Filters(request_id="large"), 1)
    assert (found["tokens_before"], found["steps"]) == (9, [])


async def test_adding_writes_nothing_and_writes_are_few(monkeypatch: pytest.MonkeyPatch) -> None:
    writes: list[int] = []
    async with kept() as records:
        insert = records._insert

        async def counted(rows: Sequence[bytes]) -> None:
            writes.append(len(rows))
            await insert(rows)

        monkeypatch.setattr(records, "_insert", counted)
        for n in range(500):
            records.add(made(f"{n}"))
        assert writes == []
        async with asyncio.timeout(60):
            while not writes:
                await asyncio.sleep(0.01)
        assert writes == [500]


async def test_under_load_only_so_many_are_recorded(caplog: pytest.LogCaptureFixture) -> None:
    async with kept(per_second=10) as records:
        now = time()
        records._clock = lambda: now
        telemetry = Telemetry(Metrics("1"), records=records)

        def serve(count: int, headers: dict[str, str] | None = None) -> None:
            for _ in range(count):
                request(telemetry, headers=headers)

        async def recorded() -> int:
            return len(await records.latest(Filters(), 1000))

        serve(100)
        assert await recorded() == 20, "a burst"
        now += 1
        serve(100)
        assert await recorded() == 30
        serve(5, {"x-penstock-explain": "1"})
        assert await recorded() == 35, "those that ask go before"
        serve(100, {"x-penstock-explain": "1"})
        assert await recorded() == 50, "within bounds"
        skipped = 80 + 90 + 85
        assert f"penstock_records_skipped_total {skipped}.0" in telemetry.metrics.render("")[1].decode()
    assert len([each for each in caplog.records if "not recorded" in each.getMessage()]) == 1


async def test_a_missing_disk_is_told_once_and_made_up_for(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "penstock.records")
    (tmp_path / "state").write_text("no directory")
    async with kept(tmp_path / "state" / "records.db") as records:
        for n in range(5):
            records.add(made(f"{n}"))
            await records.flush()
        with pytest.raises(StoreError):
            await records.latest(Filters(), 10)
        (tmp_path / "state").unlink()
        assert ids(await records.latest(Filters(), 10)) == ["4", "3", "2", "1", "0"]
    told = [(each.getMessage(), each.__dict__.get("fields")) for each in caplog.records]
    assert told == [("records are not kept", {"cause": "unreachable"}), ("records are kept again", {"lost": 0})]


async def test_a_process_that_ends_writes_what_is_ready_and_tells_the_rest(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def slow(record: Record, *rest: Any) -> bytes:
        if record.known["request_id"] == "5":
            await asyncio.Event().wait()
        return await row_of(record, *rest)

    records = Records(RecordsSettings(), tmp_path / "records.db")
    for n in range(8):
        records.add(made(f"{n}"))
    monkeypatch.setattr("proxy.telemetry.records._PATIENCE", 0.0)
    monkeypatch.setattr("proxy.telemetry.records.row_of", slow)
    await records.aclose(0.5)

    (told,) = caplog.records
    assert (told.levelname, vars(told)["fields"]) == ("ERROR", {"requests": 3})
    async with kept(tmp_path / "records.db") as again:
        assert ids(await again.latest(Filters(), 10)) == ["4", "3", "2", "1", "0"]


@pytest.mark.parametrize("when", ["queued", "under way"])
async def test_a_write_that_a_stop_interrupts_is_finished(tmp_path: Path, when: str) -> None:
    records, begun, go = Records(RecordsSettings(), tmp_path / "records.db"), asyncio.Event(), threading.Event()
    loop, insert = asyncio.get_running_loop(), table.insert

    def work(*given: Any, **known: Any) -> None:
        loop.call_soon_threadsafe(begun.set)
        go.wait(60)
        if "rows" in known:
            insert(*given, **known)

    if when == "queued":
        reading = asyncio.ensure_future(records._table.run(work))
    else:
        records._insert = lambda rows: records._table.run(partial(work, rows=rows, max_bytes=2**30, oldest=0))  # type: ignore[method-assign]
    records.add(made("1"))
    writing = asyncio.ensure_future(records.flush())
    await begun.wait()
    while records._waiting:
        await asyncio.sleep(0.01)
    await asyncio.sleep(0.01)
    writing.cancel()
    await asyncio.gather(writing, return_exceptions=True)
    go.set()
    await records.aclose()
    if when == "queued":
        await reading
    async with kept(tmp_path / "records.db") as again:
        assert ids(await again.latest(Filters(), 10)) == ["1"]


async def test_rows_without_a_write_are_told(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    class Log:
        async def append(self, rows: Sequence[tuple[str, bytes]]) -> None:
            await asyncio.Event().wait()

    monkeypatch.setattr("proxy.telemetry.records._PATIENCE", 0.05)
    records = Records(RecordsSettings(), log=Log())  # type: ignore[arg-type]
    for n in range(3):
        records.add(made(f"{n}"))
    await records.aclose()
    (lost,) = [vars(each)["fields"] for each in caplog.records if each.name == "penstock.records"]
    assert lost == {"requests": 3}


async def test_a_backlog_larger_than_the_room_is_kept_where_it_can_be_written(tmp_path: Path) -> None:
    async with kept(tmp_path / "records.db") as records:
        for n in range(600):
            records.add(made(f"{n}", why="x" * 10_000))
        await records.flush()
        assert len(await records.latest(Filters(), 1000)) == 600


async def test_what_waits_is_bounded(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("no directory")
    async with kept(tmp_path / "state" / "records.db") as records:
        for n in range(100):
            records.add(made(f"{n}", why="x" * 100_000))
            await records.flush()
        (tmp_path / "state").unlink()
        found = ids(await records.latest(Filters(), 100))
    assert found[0] == "99"
    assert 30 < len(found) < 45, "4 MiB of them, the newest"


async def test_a_conversation_is_summed_up() -> None:
    async with kept() as records:
        for n in range(3):
            talk = "sSystem " + " ".join(f"u{m} a{m}" for m in range(n)) + f" u{n}"
            steps = [Step("w", "fail" if n else "reject", "", 0.001, 1.0)]
            answers = [Usage(100 + n, 10, 50, written=5)]
            records.add(
                made(f"{n}", talk=talk, before=100 * n, after=50 * n, usd=0.5, saved=0.25, status=200 + 300 * (n == 1),
                     steps=steps, answers=answers)
            )  # fmt: skip
        records.add(made("other", "bob", talk="sSystem u0"))
        records.add(made("none"))
        bobs, anns = await records.ask(table.conversations, Filters(), 10)
        assert (bobs["tenant"], anns["tenant"], bobs["turns"]) == ("bob", "ann", 1)
        assert bobs["id"] != anns["id"], "the same opening of another tenant is another conversation"
        assert {name: anns[name] for name in ("turns", "recorded", "models", "chains", "session", "agent")} == {
            "turns": 3, "recorded": 3, "models": ["m"], "chains": ["default"], "session": None, "agent": None,
        }  # fmt: skip
        sums = ("input_tokens", "cached_tokens", "written_tokens", "output_tokens", "usd", "usd_unchanged", "usd_saved")
        assert [anns[name] for name in sums] == [303, 150, 15, 30, 1.5, 2.25, 0.75]
        assert anns["problems"] == {"errors": 1, "refused": 1, "failed_steps": 2, "prefix_breaks": 0}
        assert (anns["tokens"], anns["tokens_unchanged"]) == ([0, 50, 100], [0, 100, 200])
        whole = await records.conversation(anns["id"])
        assert whole is not None
        assert ids(whole["requests"]) == ["0", "1", "2"]
        assert [each["turn"] for each in whole["requests"]] == [1, 2, 3]
        assert {name: whole[name] for name in anns} == anns
        assert await records.conversation("none") is None
        (filtered,) = await records.ask(table.conversations, Filters(failed=True), 10)
        assert filtered == anns, "with all its requests"


async def test_conversations_are_listed_page_by_page() -> None:
    now = time()
    async with kept() as records:
        for n in range(7):
            records.add(made(f"{n}", talk=f"s{n} u", when=now - n))
            records.add(made(f"{n} more", talk=f"s{n} u", when=now - n - 100))
        seen: list[str] = []
        before: float | None = None
        while page := await records.ask(table.conversations, Filters(), 3, before):
            seen += [each["id"] for each in page]
            before = now - len(seen) + 1
        newest = {each["conversation"]: each["request_id"] for each in await records.latest(Filters(), 7)}
    assert [newest[id] for id in seen] == [f"{n}" for n in range(7)]


async def test_a_long_conversation_is_shown_in_part() -> None:
    async with kept() as records:
        for n in range(MOST_TURNS + 5):
            records.add(made(f"{n}", talk="s u", before=n, after=n))
        (found,) = await records.ask(table.conversations, Filters(), 10)
        whole = await records.conversation(found["id"])
    assert whole is not None
    assert ids(whole["requests"])[-1] == f"{MOST_TURNS + 4}"
    assert len(whole["requests"]) == MOST_TURNS
    assert (len(found["tokens"]), found["tokens"][0], found["tokens"][-1]) == (POINTS, 0, MOST_TURNS + 4)
    assert (found["turns"], found["recorded"]) == (1, MOST_TURNS + 5)


async def test_policies_are_summed_up() -> None:
    async with kept() as records:
        for n in range(20):
            cut = Step("cut", "rewrite", f"dropped {n} of 47 turns", 0.001 * (n + 1), 1.0, 100, 40)
            shadow = Step("cut", "rewrite", "dropped 1 turn", 0.001, 1.0, 100, 10, observed=True)
            records.add(made(f"{n}", steps=[cut, Step("wait", "skip", "few tokens", 0.0, 1.0), *[shadow][n:]]))
        cut_, wait = await records.ask(table.policies, Filters())
        assert await records.ask(table.policies, Filters(since=time() + 100)) == []
    assert cut_["name"] == "cut"
    assert (cut_["requests"], cut_["tokens_saved"]) == (21, 20 * 60)
    assert cut_["verdicts"] == {"keep": 0, "rewrite": 21, "skip": 0, "fail": 0, "reject": 0}
    assert cut_["whys"] == [["dropped N of N turns", 20, "rewrite"], ["dropped N turn", 1, "rewrite"]]
    assert wait["whys"] == [["few tokens", 20, "skip"]]
    assert (cut_["ms_p50"], cut_["ms_p95"]) == (pytest.approx(10), pytest.approx(19))
    assert (wait["verdicts"]["skip"], wait["ms_p50"], wait["usd_saved"]) == (20, None, None)


async def test_sums_over_time_are_those_of_each_period_and_group() -> None:
    start = time() // 3600 * 3600 - 7200
    async with kept() as records:
        for n in range(4):
            failed = Step("cut", "fail" if n == 3 else "keep", "it ran", 0.001, 1.0)
            status, model = (500 if n == 2 else 200), "big" if n == 3 else "m"
            when = start + 60 * (n + 1)
            steps = [failed, Step("wait", "keep", "", 0, 1)]
            records.add(made(f"{n}", when=when, asked=model, status=status, steps=steps))
        found = await records.ask(table.periods, Filters(), "model")
        by_policy = await records.ask(table.periods, Filters(), "policy")
        later = await records.ask(table.periods, Filters(since=start + 200), "chain")
        assert (await records.ask(table.periods, Filters(since=time() + 100), "key"))["groups"] == []
        records.add(made("week", when=start - 6 * DAY))
        wide = await records.ask(table.periods, Filters(), "key")
    assert found["seconds"] == 60
    small, big = found["groups"]
    assert (small["name"], big["name"]) == ("m", "big")
    assert [(each["start"], each["requests"], each["errors"]) for each in small["periods"]] == [
        (start + 60, 1, 0), (start + 120, 1, 0), (start + 180, 1, 1),
    ]  # fmt: skip
    assert big["periods"][0]["usd"] is None, "nothing is known of prices"
    failures = {each["name"]: sum(one["errors"] for one in each["periods"]) for each in by_policy["groups"]}
    assert failures == {"cut": 1, "wait": 0}
    assert [sum(one["requests"] for one in each["periods"]) for each in later["groups"]] == [1]
    (ann,) = wide["groups"]
    assert (ann["name"], wide["seconds"]) == ("ann", 4 * 3600)
    assert sum(each["requests"] for each in ann["periods"]) == 5


async def test_reasons_of_every_verdict_are_told() -> None:
    """What fails now and then is not hidden by what is kept all the time."""
    async with kept() as records:
        for n in range(30):
            often, seldom = (
                Step("cut", "keep", f"because {'abcdef'[n % 6]}", 0.1, 1.0),
                Step("cut", "fail", "late", 0.1, 1.0),
            )
            records.add(made(f"{n}", steps=[seldom if n == 7 else often]))
        (cut,) = await records.ask(table.policies, Filters())
    assert len(cut["whys"]) == 5
    assert cut["whys"][-1] == ["late", 1, "fail"]
    assert {verdict for _, _, verdict in cut["whys"][:-1]} == {"keep"}


def test_the_ends_of_chains_take_no_more_memory_than_their_bound() -> None:
    ledger = Ledger(2**20)
    tracemalloc.start()
    try:
        for number in range(3000):
            key = ("tenant", f"{number:032x}")
            ledger.add(key, ledger.link(key, []), b"entry")
        assert tracemalloc.get_traced_memory()[0] < 1.1 * 2**20
    finally:
        tracemalloc.stop()
