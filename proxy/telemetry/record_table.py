"""The table of records, and the questions of the page; `data/records.sql` has the statements.

All functions run in the thread of the database.
"""

import re
import sqlite3
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import orjson

from proxy.state.database import used_bytes
from proxy.telemetry.record import KEY, TEXTS, date
from proxy.text.tables import statements

_SQL = statements("records")
SCHEMA = _SQL["schema"]

POINTS = 60
PERIODS = 60
"""Periods of a view over time, at most."""
_LENGTHS = (60, 300, 900, 3600, 4 * 3600, 86400, 7 * 86400, 30 * 86400)
_MOST_GROUPS = 50
MOST_SUMMED = 20_000
"""Requests that are summed up over time, the latest."""
MOST_TURNS = 1000
"""Requests of one conversation that are shown, the latest."""
MOST_COUNTED = 5000
"""Requests that policies are summed up from, the latest."""
_MOST_WHYS = 5
_NEVER = "9999"
_TEXT_LISTS = ("before", "after", "tools_before", "tools_after")
_FIGURE = re.compile(r"\d[\d,.]*")
GROUPS = {
    "model": {"source": "known", "name": "coalesce(model, '')"},
    "key": {"source": "known", "name": "coalesce(key, tenant, '')"},
    "chain": {"source": "known", "name": "coalesce(chain, '')"},
    "policy": {"source": "steps", "name": "policy"},
}
"""Groups of a view over time, by what they are read from and called."""


class Filters(NamedTuple):
    """Conditions of a list; None for no condition. Times are in seconds since 1970."""

    since: float | None = None
    until: float | None = None
    tenant: str | None = None
    model: str | None = None
    chain: str | None = None
    failed: bool | None = None
    conversation: str | None = None
    request_id: str | None = None
    words: str | None = None
    """A part of a name, a title or a recorded text, in small or capital letters."""

    def ask(
        self, database: sqlite3.Connection, statement: str, parts: Mapping[str, str] | None = None, **values: Any
    ) -> list[Any]:
        """Return the rows of a statement for the requests that fulfil the conditions."""
        chosen = {name: value for name, value in self._asdict().items() if value is not None}
        where = " AND ".join(_CONDITIONS.get(name, f"{name} = :{name}") for name in chosen) or "1"
        chosen |= {name: date(chosen[name]) for name in ("since", "until") if name in chosen}
        return database.execute(_SQL[statement].format(where=where, **parts or {}), chosen | values).fetchall()


_CONDITIONS = {
    "since": "ended >= :since", "until": "ended <= :until", "failed": "errors = :failed", "words": _SQL["search"],
}  # fmt: skip


def insert(database: sqlite3.Connection, rows: Iterable[bytes], max_bytes: int, oldest: float) -> None:
    """Insert rows, and remove the oldest beyond a bound in bytes, and all that ended before a time."""
    text = (b"[" + b",".join(rows) + b"]").decode()
    for name in ("insert", *(("use_texts", "insert_texts") if '"text":' in text else ())):
        database.execute(_SQL[name], {"rows": text})
    if database.execute("DELETE FROM requests WHERE ended < ?", (date(oldest),)).rowcount:
        database.execute(_SQL["remove_orphans"])
    while used_bytes(database) > max_bytes:
        (count,) = database.execute("SELECT count(*) FROM requests").fetchone()
        if not count:
            return
        # not each time: to make room costs more than to write
        database.execute(_SQL["remove_oldest"], {"count": max(1, count // 20)})
        database.execute(_SQL["remove_orphans"])


def latest(database: sqlite3.Connection, filters: Filters, limit: int, *, text: bool = False) -> list[dict[str, Any]]:
    """Return records, the newest first, with their texts on demand; null stands for a text that is gone."""
    return [_record(database, row, text=text) for (row,) in filters.ask(database, "latest", limit=limit)]


def rows(database: sqlite3.Connection, filters: Filters) -> list[bytes]:
    """Return the JSON of rows, the oldest first."""
    return [row.encode() for (row,) in filters.ask(database, "rows")]


def _record(database: sqlite3.Connection, row: str, *, text: bool) -> dict[str, Any]:
    record: dict[str, Any] = orjson.loads(row)
    hashes = record.pop(TEXTS, None)
    if not text:
        return record
    if hashes is None:
        return {**record, "text": None}

    def texts(name: str) -> list[Any]:
        run = hashes[name] or ""
        return [_text(database, record["tenant"], run[at : at + KEY]) for at in range(0, len(run), KEY)]

    lists = {name: texts(name if hashes[name] is not None else name.replace("after", "before")) for name in _TEXT_LISTS}
    answer = texts("answer")
    return {**record, "text": {**lists, "answer": answer[0] if answer else None}}


def _text(database: sqlite3.Connection, tenant: str, key: str) -> Any:
    row = database.execute("SELECT text FROM request_texts WHERE tenant = ? AND key = ?", (tenant, key)).fetchone()
    try:
        return None if row is None else orjson.loads(row[0])
    except orjson.JSONDecodeError:
        return None


def conversations(
    database: sqlite3.Connection, filters: Filters, limit: int, before: float | None = None
) -> list[dict[str, Any]]:
    """Return conversations with a request that the filters let through, the latest first, if they ended `before`."""
    until = _NEVER if before is None else date(before)
    sums = [orjson.loads(row) for (row,) in filters.ask(database, "conversations", limit=limit, before=until)]
    return [{**each, **_curve(database, each["id"])} for each in sums]


def _curve(database: sqlite3.Connection, conversation: str) -> dict[str, list[int | None]]:
    """Return the tokens behind and in front of the chain of a conversation's turns, at most `POINTS` of them."""
    turns = database.execute(_SQL["curve"], {"id": conversation}).fetchall()
    if len(turns) > POINTS:
        turns = [turns[place * (len(turns) - 1) // (POINTS - 1)] for place in range(POINTS)]
    return {"tokens": [after for _, after in turns], "tokens_unchanged": [before for before, _ in turns]}


def policies(database: sqlite3.Connection, filters: Filters) -> list[dict[str, Any]]:
    """Return the sums of each step in the latest requests that the filters let through, the most active first."""
    sums: dict[str, dict[str, Any]] = {}
    for policy, verdict, why, count, saved, usd in filters.ask(database, "verdicts", most=MOST_COUNTED):
        one = sums.setdefault(policy, _policy(policy))
        one["requests"] += count
        one["verdicts"][verdict] += count
        one["tokens_saved"] += saved
        one["usd_saved"] = one["usd_saved"] if usd is None else usd + (one["usd_saved"] or 0.0)
        one["whys"][_FIGURE.sub("N", why), verdict] += count
    for policy, middle, high in filters.ask(database, "times", most=MOST_COUNTED):
        sums[policy] |= {"ms_p50": round(middle, 3), "ms_p95": round(high, 3)}
    for one in sums.values():
        one["whys"] = _most_often(one["whys"])
    return sorted(sums.values(), key=lambda each: -each["tokens_saved"])


def periods(database: sqlite3.Connection, filters: Filters, by: str) -> dict[str, Any]:
    """Return the sums of each period (in seconds since 1970) and group of `GROUPS`; those with most requests first."""
    ((first, last),) = filters.ask(database, "span", most=MOST_SUMMED)
    if first is None:
        return {"seconds": _LENGTHS[0], "groups": []}
    length = next((each for each in _LENGTHS if last // each - first // each < PERIODS), _LENGTHS[-1])
    groups: dict[str, list[dict[str, Any]]] = {}
    for name, sums in filters.ask(database, "periods", GROUPS[by], most=MOST_SUMMED, length=length):
        groups.setdefault(name, []).append(orjson.loads(sums))
    ordered = sorted(groups, key=lambda name: -sum(each["requests"] for each in groups[name]))[:_MOST_GROUPS]
    return {"seconds": length, "groups": [{"name": name, "periods": groups[name]} for name in ordered]}


def _policy(name: str) -> dict[str, Any]:
    verdicts = dict.fromkeys(("keep", "rewrite", "skip", "fail", "reject"), 0)
    sums = {"requests": 0, "verdicts": verdicts, "tokens_saved": 0, "usd_saved": None, "ms_p50": None, "ms_p95": None}
    return {"name": name, **sums, "whys": Counter[tuple[str, str]]()}


def _most_often(whys: Counter[tuple[str, str]]) -> list[list[Any]]:
    """Return the most frequent reasons, each with its count and its verdict; every verdict has one."""
    ordered = [[why, count, verdict] for (why, verdict), count in whys.most_common()]
    first = [next(each for each in ordered if each[2] == verdict) for verdict in {each[2] for each in ordered}]
    chosen = [*first, *(each for each in ordered if each not in first)][:_MOST_WHYS]
    return [each for each in ordered if each in chosen]


def forget(database: sqlite3.Connection, tenant: str) -> int:
    """Remove the records of a tenant, and overwrite their place; return their number."""
    database.execute("PRAGMA secure_delete = ON")
    database.execute("DELETE FROM request_texts WHERE tenant = ?", (tenant,))
    count = database.execute("DELETE FROM requests WHERE tenant = ?", (tenant,)).rowcount
    database.execute("PRAGMA secure_delete = OFF")
    return count
