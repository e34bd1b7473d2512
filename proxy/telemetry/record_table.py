"""The table of records in SQLite: what is written, what makes room, and the questions that views ask.

Rows come as JSON arrays, many in one text: SQLite takes them apart itself, without Python's lock. All functions run in
the thread of the database.
"""

import re
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import orjson

from proxy.context import Identity
from proxy.telemetry.record import COLUMNS, KEY, date, milliseconds, shown

_WIDTH = len(COLUMNS)
SCHEMA = f"""
CREATE TABLE IF NOT EXISTS records (id INTEGER PRIMARY KEY, {", ".join(COLUMNS)});
CREATE TABLE IF NOT EXISTS rest (id INTEGER PRIMARY KEY, rest TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS texts (
  tenant TEXT, key TEXT, text TEXT, last INTEGER, PRIMARY KEY (tenant, key)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS by_end ON records (ended);
CREATE INDEX IF NOT EXISTS by_name ON records (request_id);
CREATE INDEX IF NOT EXISTS by_conversation ON records (conversation);
"""

_FIRST = "(SELECT coalesce(max(id), 0) + 1 FROM rest)"
_LAST = "(SELECT max(id) FROM rest)"
_ROWS = "FROM json_each(?) WHERE type = 'array'"
_TOLD = "FROM json_each(?) WHERE type = 'object'"


def _at(*places: int | str, of: str = "value") -> str:
    """What stands at places of a JSON array or object, in SQL."""
    paths = (f"[{place}]" if isinstance(place, int) else f".{place}" for place in places)
    return ", ".join(f"json_extract({of}, '${path}')" for path in paths)


_INSERT = (  # rest last: until then its ids are those that the rows are numbered from
    f"INSERT INTO records (id, {', '.join(COLUMNS)}) SELECT {_FIRST} + key, {_at(*range(_WIDTH))} {_ROWS}",
    f"INSERT INTO rest (id, rest) SELECT {_FIRST} + key, {_at(_WIDTH)} {_ROWS}",
)
_TEXTS = (
    f"UPDATE texts SET last = {_LAST} WHERE (tenant, key) IN (SELECT {_at('tenant', 'key')} {_TOLD})",  # noqa: S608
    f"INSERT INTO texts SELECT {_at('tenant', 'key', 'text')}, {_LAST} {_TOLD} AND {_at('text')} IS NOT NULL "
    "ON CONFLICT DO NOTHING",
)
_ORPHANS = "DELETE FROM texts WHERE last < coalesce((SELECT min(id) FROM records), last + 1)"
_ROW = f"SELECT {', '.join(f'r.{name}' for name in COLUMNS)}, rest FROM records r JOIN rest USING (id)"  # noqa: S608

POINTS = 60
"""Points of a conversation's curve."""
MOST_TURNS = 1000
"""Requests of one conversation that are shown, the latest."""
MOST_COUNTED = 5000
"""Requests that policies are summed up from, the latest."""
_MOST_WHYS = 5
_NEVER = 2**62
_TEXT_LISTS = ("before", "after", "tools_before", "tools_after")
_FIGURE = re.compile(r"\d[\d,.]*")

_SUMS = f"""
SELECT r.conversation, max(r.tenant), min(r.started), max(r.ended) AS last, max(r.turn), count(*),
  json_group_array(DISTINCT r.model), json_group_array(DISTINCT r.chain), sum(r.input), sum(r.cached), sum(r.written),
  sum(r.output), sum(coalesce(r.usd, {_at("usd_estimated", of="rest.rest")})), sum(r.usd_saved), sum(r.failed),
  sum(r.refused), sum(r.failed_steps), sum(r.broken), max({_at("who[0]", of="rest.rest")}),
  max({_at("who[1]", of="rest.rest")}), max({_at("who[2]", of="rest.rest")})
FROM records r JOIN rest USING (id) WHERE r.conversation IN (%s) GROUP BY r.conversation
ORDER BY last DESC, max(r.id) DESC
"""  # noqa: S608
_POLICIES = f"""
WITH told (policy, verdict, why, observed, before, after, seconds, usd) AS (
  SELECT {_at(*range(7), 10, of="s.value")}
  FROM (SELECT id FROM records WHERE %s ORDER BY ended DESC LIMIT ?) r JOIN rest USING (id),
    json_each(rest.rest, '$.steps') s
), steps AS (SELECT *, coalesce(before - after, 0) AS saved, seconds * 1000 AS ms FROM told)
"""  # noqa: S608
_VERDICTS = """
SELECT policy, verdict, why, count(*), sum(CASE WHEN observed THEN 0 ELSE saved END), sum(usd) FROM steps
GROUP BY 1, 2, 3
"""
_TIMES = """
SELECT policy, min(CASE WHEN place >= 0.5 THEN ms END), min(CASE WHEN place >= 0.95 THEN ms END) FROM (
  SELECT policy, ms, cume_dist() OVER (PARTITION BY policy ORDER BY ms) AS place FROM steps WHERE verdict <> 'skip'
) GROUP BY policy
"""


class Filters(NamedTuple):
    """What a list is about; None where it does not matter. Times are in seconds since 1970."""

    since: float | None = None
    until: float | None = None
    tenant: str | None = None
    model: str | None = None
    chain: str | None = None
    failed: bool | None = None
    conversation: str | None = None
    request_id: str | None = None

    def where(self) -> tuple[str, list[Any]]:
        """The condition in SQL, and its values."""
        named = {
            "ended >= ?": None if self.since is None else milliseconds(self.since),
            "ended <= ?": None if self.until is None else milliseconds(self.until),
            "tenant = ?": self.tenant,
            "model = ?": self.model,
            "chain = ?": self.chain,
            "failed = ?": None if self.failed is None else int(self.failed),
            "conversation = ?": self.conversation,
            "request_id = ?": self.request_id,
        }
        given = {text: value for text, value in named.items() if value is not None}
        return " AND ".join(given) or "1", list(given.values())


def insert(database: sqlite3.Connection, rows: Iterable[bytes], max_bytes: int, oldest: float) -> None:
    """Keep rows, and remove the oldest beyond a bound in bytes, and all that ended before a time."""
    text = (b"[" + b",".join(rows) + b"]").decode()
    for statement in (*_INSERT, *(_TEXTS if '"text":' in text else ())):
        database.execute(statement, (text,))
    end = (milliseconds(oldest),)
    database.execute("DELETE FROM rest WHERE id IN (SELECT id FROM records WHERE ended < ?)", end)
    if database.execute("DELETE FROM records WHERE ended < ?", end).rowcount:
        database.execute(_ORPHANS)
    while _used(database) > max_bytes:
        (count,) = database.execute("SELECT count(*) FROM records").fetchone()
        if not count:
            return
        some = max(1, count // 20)  # not each time: to make room costs more than to write
        database.execute("DELETE FROM rest WHERE id IN (SELECT id FROM records ORDER BY ended LIMIT ?)", (some,))
        database.execute("DELETE FROM records WHERE id IN (SELECT id FROM records ORDER BY ended LIMIT ?)", (some,))
        database.execute(_ORPHANS)


def latest(database: sqlite3.Connection, filters: Filters, limit: int, *, text: bool = False) -> list[dict[str, Any]]:
    """Records, the newest first, with their texts if these are asked for; null stands for one that is not kept."""
    where, values = filters.where()
    found = database.execute(f"{_ROW} WHERE {where} ORDER BY ended DESC, r.id DESC LIMIT ?", (*values, limit))
    return [_with_text(database, row) if text else shown(row) for row in found]


def _with_text(database: sqlite3.Connection, row: Any) -> dict[str, Any]:
    record, keys = shown(row), orjson.loads(row[_WIDTH]).get("text")
    if keys is None:
        return {**record, "text": None}

    def texts(name: str) -> list[Any]:
        run = keys[name] or ""
        return [_text(database, record["tenant"], run[at : at + KEY]) for at in range(0, len(run), KEY)]

    text = {name: texts(name if keys[name] is not None else name.replace("after", "before")) for name in _TEXT_LISTS}
    answer = texts("answer")
    return {**record, "text": {**text, "answer": answer[0] if answer else None}}


def _text(database: sqlite3.Connection, tenant: str, key: str) -> Any:
    found = database.execute("SELECT text FROM texts WHERE tenant = ? AND key = ?", (tenant, key)).fetchone()
    try:
        return None if found is None else orjson.loads(found[0])
    except orjson.JSONDecodeError:
        return None


def conversations(
    database: sqlite3.Connection, filters: Filters, limit: int, before: float | None = None
) -> list[dict[str, Any]]:
    """Conversations with a request that the filters let through, those that went on last first.

    `before` leaves out those that went on at that time or later.
    """
    where, values = filters.where()
    chosen = database.execute(
        f"""SELECT conversation FROM records WHERE conversation IN
        (SELECT conversation FROM records WHERE conversation IS NOT NULL AND {where})
        GROUP BY conversation HAVING max(ended) < ? ORDER BY max(ended) DESC, max(id) DESC LIMIT ?""",  # noqa: S608
        (*values, _NEVER if before is None else milliseconds(before), limit),
    )
    ids = [id for (id,) in chosen]
    found = database.execute(_SUMS % ", ".join("?" * len(ids)), ids)
    return [_summed(row, _curve(database, row[0])) for row in found]


def policies(database: sqlite3.Connection, filters: Filters) -> list[dict[str, Any]]:
    """What each step did in the latest requests that the filters let through, the most active first."""
    found: dict[str, dict[str, Any]] = {}
    where, values = filters.where()
    steps, known = _POLICIES % where, (*values, MOST_COUNTED)
    for policy, verdict, why, count, saved, usd in database.execute(steps + _VERDICTS, known):
        one = found.setdefault(policy, _policy(policy))
        one["requests"] += count
        one["verdicts"][verdict] += count
        one["tokens_saved"] += saved
        one["usd_saved"] = one["usd_saved"] if usd is None else usd + (one["usd_saved"] or 0.0)
        reason = _FIGURE.sub("N", why), verdict
        one["whys"][reason] = one["whys"].get(reason, 0) + count
    for policy, middle, high in database.execute(steps + _TIMES, known):
        found[policy] |= {"ms_p50": round(middle, 3), "ms_p95": round(high, 3)}
    for one in found.values():
        one["whys"] = _most_often(one["whys"])
    return sorted(found.values(), key=lambda each: -each["tokens_saved"])


def forget(database: sqlite3.Connection, tenant: str) -> int:
    """Remove the records of a tenant, and overwrite where they were; how many there were."""
    database.execute("PRAGMA secure_delete = ON")
    database.execute("DELETE FROM rest WHERE id IN (SELECT id FROM records WHERE tenant = ?)", (tenant,))
    database.execute("DELETE FROM texts WHERE tenant = ?", (tenant,))
    count = database.execute("DELETE FROM records WHERE tenant = ?", (tenant,)).rowcount
    database.execute("PRAGMA secure_delete = OFF")
    return count


def _most_often(whys: Mapping[tuple[str, str], int]) -> list[list[Any]]:
    """The reasons that were given most often, each with its count and its verdict; every verdict has one."""
    ordered = sorted(whys, key=lambda each: -whys[each])
    first = {verdict: place for place, (_, verdict) in reversed([*enumerate(ordered)])}
    chosen = sorted(range(len(ordered)), key=lambda place: place not in first.values())[:_MOST_WHYS]
    return [[why, whys[why, verdict], verdict] for why, verdict in (ordered[place] for place in sorted(chosen))]


def _policy(name: str) -> dict[str, Any]:
    verdicts = dict.fromkeys(("keep", "rewrite", "skip", "fail", "reject"), 0)
    sums = {"requests": 0, "verdicts": verdicts, "tokens_saved": 0, "usd_saved": None}
    return {"name": name, **sums, "ms_p50": None, "ms_p95": None, "whys": {}}


def _curve(database: sqlite3.Connection, conversation: str) -> Sequence[tuple[int | None, int | None]]:
    """Tokens before and after the chain of some turns, the first and the last among them."""
    turns = database.execute(
        "SELECT tokens_before, tokens_after FROM records WHERE conversation = ? AND tokens_after IS NOT NULL "
        "ORDER BY ended, id",
        (conversation,),
    ).fetchall()
    if len(turns) <= POINTS:
        return turns
    return [turns[place * (len(turns) - 1) // (POINTS - 1)] for place in range(POINTS)]


def _summed(row: Sequence[Any], curve: Sequence[tuple[int | None, int | None]]) -> dict[str, Any]:
    names = (
        "id", "tenant", "started", "ended", "turns", "recorded", "models", "chains", "input_tokens", "cached_tokens",
        "written_tokens", "output_tokens", "usd", "usd_saved", "errors", "refused", "failed_steps", "prefix_breaks",
        "session", "agent", "task",
    )  # fmt: skip
    at: Mapping[str, Any] = dict(zip(names, row, strict=True))
    usd, saved, session = at["usd"], at["usd_saved"], at["session"]
    return {
        **{name: at[name] for name in ("id", "tenant")},
        "session": session if session.startswith(Identity.NAMED) else None,
        "agent": at["agent"] or None,
        "task": at["task"] or None,
        "started": date(at["started"]),
        "ended": date(at["ended"]),
        "turns": at["turns"] or at["recorded"],
        "recorded": at["recorded"],
        **{name: [each for each in orjson.loads(at[name]) if each is not None] for name in ("models", "chains")},
        **{name: at[name] for name in ("input_tokens", "cached_tokens", "written_tokens", "output_tokens", "usd")},
        "usd_unchanged": None if usd is None or saved is None else usd + saved,
        "usd_saved": saved,
        "tokens": [after for _, after in curve],
        "tokens_unchanged": [before for before, _ in curve],
        "problems": {name: at[name] for name in ("errors", "refused", "failed_steps", "prefix_breaks")},
    }


def _used(database: sqlite3.Connection) -> int:
    """Bytes of the database that hold something."""
    pages, free, size = (
        database.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "freelist_count", "page_size")
    )
    return int((pages - free) * size)
