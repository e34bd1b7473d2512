"""The table of records in SQLite: one row a request, as JSON, and the questions of the page.

Columns that lists filter by and sums add up are generated from the row. Rows come many in one text: SQLite takes them
apart itself, without Python's lock. All functions run in the thread of the database.
"""

import re
import sqlite3
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import orjson

from proxy.state.database import used_bytes
from proxy.telemetry.record import KEY, TEXTS, date

_SUMMED = ("input_tokens", "cached_tokens", "written_tokens", "output_tokens", "usd_saved")
_PROBLEMS = ("errors", "refused", "failed_steps", "prefix_breaks")
_NAMES = (
    "request_id", "started", "ended", "tenant", "conversation", "session", "agent", "task", "turn", "model", "chain",
    "tokens_before", "tokens_after", "usd", "usd_estimated", *_SUMMED,
)  # fmt: skip
_PATHS = {name: name for name in _NAMES} | {name: f"problems.{name}" for name in _PROBLEMS}
_COLUMNS = ", ".join(f"{name} AS (json_extract(row, '$.{path}')) STORED" for name, path in _PATHS.items())
SCHEMA = f"""
CREATE TABLE IF NOT EXISTS requests (id INTEGER PRIMARY KEY, {_COLUMNS}, row TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS request_texts (
  tenant TEXT, key TEXT, text TEXT, last INTEGER, PRIMARY KEY (tenant, key)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS requests_by_end ON requests (ended);
CREATE INDEX IF NOT EXISTS requests_by_name ON requests (request_id);
CREATE INDEX IF NOT EXISTS requests_by_conversation ON requests (conversation);
"""

_IS_TEXT = "type = 'object' AND json_extract(value, '$.key') IS NOT NULL"
_LAST = "(SELECT max(id) FROM requests)"
_TEXT_KEY = "json_extract(value, '$.tenant'), json_extract(value, '$.key')"
_INSERT = (
    "INSERT INTO requests (row) SELECT value FROM json_each(?) WHERE type = 'object' AND "
    "json_extract(value, '$.ended') IS NOT NULL"
)
_INSERT_TEXTS = (
    f"UPDATE request_texts SET last = {_LAST} WHERE (tenant, key) IN "  # noqa: S608
    f"(SELECT {_TEXT_KEY} FROM json_each(?) WHERE {_IS_TEXT})",
    f"INSERT INTO request_texts SELECT {_TEXT_KEY}, json_extract(value, '$.text'), {_LAST} FROM json_each(?) "  # noqa: S608
    f"WHERE {_IS_TEXT} AND json_extract(value, '$.text') IS NOT NULL ON CONFLICT DO NOTHING",
)
_ORPHANS = "DELETE FROM request_texts WHERE last < coalesce((SELECT min(id) FROM requests), last + 1)"

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
_MOST_TEXTS = 20
"""Messages with the words of a search, the latest, whose conversations are listed."""
_NEVER = "9999"
_TEXT_LISTS = ("before", "after", "tools_before", "tools_after")
_FIGURE = re.compile(r"\d[\d,.]*")

_LIST = "json_group_array(DISTINCT {0}) FILTER (WHERE {0} IS NOT NULL)"
_USD = "sum(coalesce(usd, usd_estimated))"
_SUMS = f"""
SELECT conversation, json_object('id', conversation, 'tenant', max(tenant), 'title', max(json_extract(row, '$.title')),
  'keys', {_LIST.format("json_extract(row, '$.key')")}, 'session', max(session), 'agent', max(agent),
  'task', max(task), 'started', min(started), 'ended', max(ended), 'turns', coalesce(max(turn), count(*)),
  'recorded', count(*), 'models', {_LIST.format("model")}, 'chains', {_LIST.format("chain")},
  {", ".join(f"'{name}', sum({name})" for name in _SUMMED)}, 'usd', {_USD}, 'usd_unchanged', {_USD} + sum(usd_saved),
  'problems', json_object({", ".join(f"'{name}', sum({name})" for name in _PROBLEMS)}))
FROM requests WHERE conversation IN (%s) GROUP BY conversation ORDER BY max(ended) DESC, max(id) DESC
"""  # noqa: S608
_STEP = ("policy", "verdict", "why", "observed", "tokens_before", "tokens_after", "milliseconds", "usd_saved")
_STEPS = f"""
WITH steps (policy, verdict, why, observed, before, after, ms, usd) AS (
  SELECT {", ".join(f"json_extract(s.value, '$.{name}')" for name in _STEP)}
  FROM (SELECT row FROM requests WHERE %s ORDER BY ended DESC LIMIT ?) r, json_each(r.row, '$.steps') s
)
"""  # noqa: S608
_VERDICTS = """
SELECT policy, verdict, why, count(*), sum(CASE WHEN observed THEN 0 ELSE coalesce(before - after, 0) END), sum(usd)
FROM steps GROUP BY 1, 2, 3
"""
_TIMES = """
SELECT policy, min(CASE WHEN place >= 0.5 THEN ms END), min(CASE WHEN place >= 0.95 THEN ms END) FROM (
  SELECT policy, ms, cume_dist() OVER (PARTITION BY policy ORDER BY ms) AS place FROM steps WHERE verdict <> 'skip'
) GROUP BY policy
"""

_PERIOD_NAMES = ("start", "requests", "errors", "usd", "usd_saved", "input_tokens", "cached_tokens")
_PERIODS = """
SELECT %s, CAST(strftime('%%s', ended) AS INTEGER) / ? * ? AS start, count(*), sum(%s), sum(%s), sum(%s),
  sum(input_tokens), sum(cached_tokens)
FROM (%s) requests%s GROUP BY 1, 2 ORDER BY start
"""
_BY_REQUEST = ("errors", "coalesce(usd, usd_estimated)", "usd_saved", "")
_BY_STEP = (
    "json_extract(s.value, '$.verdict') = 'fail'", "NULL", "json_extract(s.value, '$.usd_saved')",
    ", json_each(requests.row, '$.steps') s",
)  # fmt: skip
GROUPS = {
    "model": ("coalesce(model, '')", *_BY_REQUEST),
    "key": ("coalesce(json_extract(row, '$.key'), tenant, '')", *_BY_REQUEST),
    "chain": ("coalesce(chain, '')", *_BY_REQUEST),
    "policy": ("json_extract(s.value, '$.policy')", *_BY_STEP),
}
"""Groups of a view over time: the expressions of the name, the errors, the costs, the saving, and the source.

A policy has no costs of its own. Its requests are its steps, of which a chain may have several, its errors failed ones.
"""


_SEARCHED = ("conversation", "request_id", "tenant", "session", "agent", "task", "model", "chain")
_NAMES_OF = " || ' ' || ".join(
    f"coalesce({name}, '')" for name in (*_SEARCHED, "json_extract(row, '$.key')", "json_extract(row, '$.title')")
)
_SEARCH = f"""(instr(lower({_NAMES_OF}), lower(?)) > 0 OR conversation IN (
  SELECT r.conversation FROM requests r, (
    SELECT tenant, key FROM request_texts WHERE instr(lower(text), lower(?)) > 0 ORDER BY last DESC LIMIT {_MOST_TEXTS}
  ) t WHERE r.tenant = t.tenant AND instr(r.row, t.key) > 0
))"""  # noqa: S608


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

    def where(self) -> tuple[str, list[Any]]:
        conditions = {
            "ended >= ?": None if self.since is None else date(self.since),
            "ended <= ?": None if self.until is None else date(self.until),
            "tenant = ?": self.tenant,
            "model = ?": self.model,
            "chain = ?": self.chain,
            "errors = ?": None if self.failed is None else int(self.failed),
            "conversation = ?": self.conversation,
            "request_id = ?": self.request_id,
        }
        chosen = {text: [value] for text, value in conditions.items() if value is not None}
        if self.words is not None:
            chosen[_SEARCH] = [self.words, self.words]
        return " AND ".join(chosen) or "1", [value for values in chosen.values() for value in values]


def insert(database: sqlite3.Connection, rows: Iterable[bytes], max_bytes: int, oldest: float) -> None:
    """Insert rows, and remove the oldest beyond a bound in bytes, and all that ended before a time."""
    text = (b"[" + b",".join(rows) + b"]").decode()
    for statement in (_INSERT, *(_INSERT_TEXTS if '"text":' in text else ())):
        database.execute(statement, (text,))
    if database.execute("DELETE FROM requests WHERE ended < ?", (date(oldest),)).rowcount:
        database.execute(_ORPHANS)
    while used_bytes(database) > max_bytes:
        (count,) = database.execute("SELECT count(*) FROM requests").fetchone()
        if not count:
            return
        part = max(1, count // 20)  # not each time: to make room costs more than to write
        database.execute("DELETE FROM requests WHERE id IN (SELECT id FROM requests ORDER BY ended LIMIT ?)", (part,))
        database.execute(_ORPHANS)


def latest(database: sqlite3.Connection, filters: Filters, limit: int, *, text: bool = False) -> list[dict[str, Any]]:
    """Return records, the newest first, with their texts on demand; null stands for a text that is gone."""
    where, values = filters.where()
    rows = database.execute(
        f"SELECT row FROM requests WHERE {where} ORDER BY ended DESC, id DESC LIMIT ?",  # noqa: S608
        (*values, limit),
    )
    return [_record(database, row, text=text) for (row,) in rows]


def rows(database: sqlite3.Connection, filters: Filters) -> list[bytes]:
    """Return the JSON of rows, the oldest first."""
    where, values = filters.where()
    chosen = database.execute(f"SELECT row FROM requests WHERE {where} ORDER BY id", values)  # noqa: S608
    return [row.encode() for (row,) in chosen]


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
    where, values = filters.where()
    chosen = database.execute(
        f"""SELECT conversation FROM requests WHERE conversation IN
        (SELECT conversation FROM requests WHERE conversation IS NOT NULL AND {where})
        GROUP BY conversation HAVING max(ended) < ? ORDER BY max(ended) DESC, max(id) DESC LIMIT ?""",  # noqa: S608
        (*values, _NEVER if before is None else date(before), limit),
    )
    ids = [id for (id,) in chosen]
    sums = database.execute(_SUMS % ", ".join("?" * len(ids)), ids).fetchall()
    return [{**orjson.loads(row), **_curve(database, id)} for id, row in sums]


def _curve(database: sqlite3.Connection, conversation: str) -> dict[str, list[int | None]]:
    """Return the tokens behind and in front of the chain of a conversation's turns, at most `POINTS` of them."""
    turns = database.execute(
        "SELECT tokens_before, tokens_after FROM requests WHERE conversation = ? AND tokens_after IS NOT NULL "
        "ORDER BY ended, id",
        (conversation,),
    ).fetchall()
    if len(turns) > POINTS:
        turns = [turns[place * (len(turns) - 1) // (POINTS - 1)] for place in range(POINTS)]
    return {"tokens": [after for _, after in turns], "tokens_unchanged": [before for before, _ in turns]}


def policies(database: sqlite3.Connection, filters: Filters) -> list[dict[str, Any]]:
    """Return the sums of each step in the latest requests that the filters let through, the most active first."""
    where, values = filters.where()
    steps, known = _STEPS % where, (*values, MOST_COUNTED)
    sums: dict[str, dict[str, Any]] = {}
    for policy, verdict, why, count, saved, usd in database.execute(steps + _VERDICTS, known):
        one = sums.setdefault(policy, _policy(policy))
        one["requests"] += count
        one["verdicts"][verdict] += count
        one["tokens_saved"] += saved
        one["usd_saved"] = one["usd_saved"] if usd is None else usd + (one["usd_saved"] or 0.0)
        reason = _FIGURE.sub("N", why), verdict
        one["whys"][reason] = one["whys"].get(reason, 0) + count
    for policy, middle, high in database.execute(steps + _TIMES, known):
        sums[policy] |= {"ms_p50": round(middle, 3), "ms_p95": round(high, 3)}
    for one in sums.values():
        one["whys"] = _most_often(one["whys"])
    return sorted(sums.values(), key=lambda each: -each["tokens_saved"])


def periods(database: sqlite3.Connection, filters: Filters, by: str) -> dict[str, Any]:
    """Return the sums of each period (in seconds since 1970) and group of `GROUPS`; those with most requests first."""
    where, values = filters.where()
    chosen = f"SELECT * FROM requests WHERE {where} ORDER BY ended DESC LIMIT {MOST_SUMMED}"  # noqa: S608
    ends = "SELECT CAST(strftime('%s', min(ended)) AS INTEGER), CAST(strftime('%s', max(ended)) AS INTEGER)"
    first, last = database.execute(f"{ends} FROM ({chosen})", values).fetchone()
    if first is None:
        return {"seconds": _LENGTHS[0], "groups": []}
    length = next((each for each in _LENGTHS if last // each - first // each < PERIODS), _LENGTHS[-1])
    groups: dict[str, list[dict[str, Any]]] = {}
    name_of, *summed, source = GROUPS[by]
    sql = _PERIODS % (name_of, *summed, chosen, source)
    for name, *sums in database.execute(sql, (length, length, *values)):
        groups.setdefault(name, []).append(dict(zip(_PERIOD_NAMES, sums, strict=True)))
    ordered = sorted(groups, key=lambda name: -sum(each["requests"] for each in groups[name]))[:_MOST_GROUPS]
    return {"seconds": length, "groups": [{"name": name, "periods": groups[name]} for name in ordered]}


def _policy(name: str) -> dict[str, Any]:
    verdicts = dict.fromkeys(("keep", "rewrite", "skip", "fail", "reject"), 0)
    sums = {"requests": 0, "verdicts": verdicts, "tokens_saved": 0, "usd_saved": None}
    return {"name": name, **sums, "ms_p50": None, "ms_p95": None, "whys": {}}


def _most_often(whys: Mapping[tuple[str, str], int]) -> list[list[Any]]:
    """Return the most frequent reasons, each with its count and its verdict; every verdict has one."""
    ordered = sorted(whys, key=lambda each: -whys[each])
    first = {verdict: place for place, (_, verdict) in reversed([*enumerate(ordered)])}
    chosen = sorted(range(len(ordered)), key=lambda place: place not in first.values())[:_MOST_WHYS]
    return [[why, whys[why, verdict], verdict] for why, verdict in (ordered[place] for place in sorted(chosen))]


def forget(database: sqlite3.Connection, tenant: str) -> int:
    """Remove the records of a tenant, and overwrite their place; return their number."""
    database.execute("PRAGMA secure_delete = ON")
    database.execute("DELETE FROM request_texts WHERE tenant = ?", (tenant,))
    count = database.execute("DELETE FROM requests WHERE tenant = ?", (tenant,)).rowcount
    database.execute("PRAGMA secure_delete = OFF")
    return count
