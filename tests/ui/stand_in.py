"""A server with the page, Penstock's own endpoints of records over made-up conversations, and scripted other endpoints."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from proxy.chat import encode
from proxy.config.settings import RecordsSettings
from proxy.server.admin import page, to_page
from proxy.server.api.requests import RecordsApi
from proxy.server.app import ERRORS
from proxy.state.workers import Peers
from proxy.telemetry.record import date
from proxy.telemetry.record_table import Filters, insert
from proxy.telemetry.records import Records
from tests.scripted import calls

Json = dict[str, Any]
PRICES = {"input": 2.5, "output": 10.0, "read": 0.25, "write": 2.5}
CHAIN = "- compact_tool_results: {}\n- compress_history: {}\n- recall_history: {}\n- offer_recall: {}\n"
CONFIG = f"""version: 1
upstreams: {{openai: {{kind: openai, api_key: '***'}}}}
models: [{{match: gpt-4o, upstream: openai, prices: {{input: 2.5, output: 10}}}}]
chains:
  default:
{"".join("  " + line + chr(10) for line in CHAIN.splitlines())}  empty: []
"""
HOSTILE = '<img src=x onerror="window.pwned = 1"><script>window.pwned = 1</script>'
UNSEEN = "\u202egnp.txt \u2066isolated \u200f\u061c \x1b[31mred\x1b]0;title\x07 \x00 \r\n\t\u2028 \u200b" + "a" * 5000
"""Characters that a page must not show, and a word that pushes it apart."""
TENANT = "7d3f" * 8
CONVERSATIONS = {"c0ffee21": 60, "5eed0042": 18, "0ddba115": 5}
"""The turns of each."""
FILES = ("billing/invoice.py", "billing/tax.py", "api/routes.py", "tests/test_invoice.py", "billing/rounding.py")


def step(policy: str, verdict: str, why: str, before: int, after: int, ms: float, **facts: Any) -> Json:
    """A step as records have it."""
    return {
        "policy": policy, "verdict": verdict, "why": why, "observed": False, "tokens_before": before,
        "tokens_after": after, "milliseconds": ms, "facts": facts, "findings": [],
    }  # fmt: skip


def change(
    kind: str, before: int | None, after: int | None, tokens: tuple[int, int], *, role: str = "user", by: str | None = None,
    count: int = 1, handle: str | None = None,
) -> Json:  # fmt: skip
    """A change as records have it."""
    return {"kind": kind, "before": before, "after": after, "role": role, "tokens_before": tokens[0],
            "tokens_after": tokens[1], "step": by, "handle": handle, "count": count}  # fmt: skip


def agent_messages(turn: int) -> list[Json]:
    """The messages that an agent sends in a turn: it reads files, and is told to mend a test."""
    made: list[Json] = [
        {"role": "system", "content": "You are a careful software engineer. Work in small steps, and run the tests."},
        {"role": "user", "content": "The totals of invoices are off by a cent. Find out why, and mend it."},
    ]
    for n in range(turn - 1):
        lines = (f"{line:>3}  total = round(net * (1 + rate), 2)  # {FILES[n % len(FILES)]}" for line in range(1, 25))
        made += [
            {"role": "assistant", "content": None, "tool_calls": calls(f"read_file:call_{n}")},
            {"role": "tool", "tool_call_id": f"call_{n}", "content": "\n".join(lines)},
        ]
    return made


def changes_of(cut: int, shortened: int, recalled: int, messages: int) -> Iterator[Json]:
    """Yield the changes of a turn in which so many messages were cut and shortened, and tokens recalled."""
    yield change("unchanged", 0, 0, (420, 420), count=2)
    before = after = 2
    if cut:
        by, handle = "compress_history", "a2b3c4d5e6f7a2b3c4d5"
        yield change("removed", 2, None, (cut * 200, 0), role="assistant", by=by, count=cut, handle=handle)
        yield change("added", None, 2, (0, 140), by=by)
        before, after = 2 + cut, 3
    for _ in range(shortened):
        yield change("unchanged", before, after, (30, 30))
        place = (before + 1, after + 1, (380, 120))
        yield change("shortened", *place, role="tool", by="compact_tool_results", handle="d4e5f6g7d4e5f6g7d4e5")
        before, after = before + 2, after + 2
    if rest := messages - before:
        yield change("unchanged", before, after, (205 * rest, 205 * rest), count=rest)
    if recalled:
        yield change("added", None, after + rest, (0, recalled), by="recall_history")


def record(turn: int, *, conversation: str, minute: int) -> Json:
    """One turn of the agent: compact forms from turn 8 on, a cut at turns 21 and 41, a recall at turn 33."""
    cut = 0 if turn < 21 else 30 if turn < 41 else 70
    shortened = max(0, turn - 8 - cut // 2)
    came = 420 + 410 * (turn - 1)
    recalled = 180 if turn >= 33 else 0
    sized = came - shortened * 260
    left = sized - cut * 200
    went = max(420, left + recalled)
    is_cut = turn in (21, 41)
    cached = 0 if turn == 1 else 380 if is_cut else int(went * 0.93)
    written, output = went - cached, 60 + 37 * turn % 90
    usd_unchanged = (came * 0.93 * 0.25 + came * 0.07 * 2.5 if turn > 1 else came * 2.5) / 1e6
    estimated = (cached * 0.25 + written * 2.5) / 1e6
    time = date(datetime(2026, 11, 23, 9, minute, tzinfo=UTC).timestamp() + turn)
    steps = [
        step("compact_tool_results", "rewrite" if shortened else "keep", f"shortened {shortened} results" if shortened else "nothing behind the reading head", came, sized, 0.8, shortened_results=shortened),
        step("compress_history", "rewrite" if cut else "keep", f"dropped {cut} messages, summary of 140 tokens" if cut else "below the mark", sized, left, 2.1),
        step("recall_history", "rewrite" if recalled else "keep", "brought back 2 passages" if recalled else "nothing left the context", left, went, 6.4),
        step("offer_recall", "fail" if turn == 52 else "keep", "TimeoutError" if turn == 52 else "no new marker", went, went, 0.2),
    ]  # fmt: skip
    for each in steps:
        less = each["tokens_before"] - each["tokens_after"]
        net = 0.1 * less - (0.72 * went if is_cut and each["policy"] == "compress_history" else 0)
        later = int(1 - net / (0.1 * less)) if less > 0 else None
        each |= {"net_tokens": net, "usd_saved": net * 2.5 / 1e6, "pays_after": 0 if net >= 0 else later}
    return {
        "request_id": f"{conversation}-{turn:03}", "started": time, "ended": time,
        "tenant": TENANT, "config": "6a0db5b8f6a1", "route": "/v1/chat/completions", "model": "gpt-4o",
        "upstream": "openai", "chain": "default", "ignored": None, "status": 200, "error": None, "stream": True,
        "milliseconds": 900.0 + 13 * turn, "tokens_before": came, "tokens_after": went, "window": 123904,
        "input_tokens": went, "output_tokens": output, "cached_tokens": cached, "written_tokens": 0 if turn % 2 else written // 2,
        "usd": estimated + output * 10 / 1e6, "usd_estimated": estimated, "usd_unchanged": usd_unchanged,
        "usd_saved": usd_unchanged - estimated, "cached_expected": cached, "trace_id": "4bf92f3577b34da6a3ce929d0e0e4736",
        "conversation": conversation, "title": "The totals of invoices are off by a cent", "key": "ann", "session": "fix-invoice-totals", "agent": None, "task": None, "turn": turn,
        "prices": PRICES,
        "sections": {"before": {"system": 120, "tools": 180, "messages": came - 300}, "after": {"system": 120, "tools": 180, "messages": went - 300}},
        "prefix_broken": {"at": 420, "message": 2, "lost": max(0, int(went * 0.8)), "step": "compress_history"} if is_cut else None,
        "changes": [*changes_of(cut, shortened, recalled, len(agent_messages(turn)))], "steps": steps,
        "problems": {"errors": 0, "refused": 0, "failed_steps": int(turn == 52), "prefix_breaks": int(is_cut)},
    }  # fmt: skip


def with_text(one: Json) -> Json:
    """A record with the text of its messages, as `records: {text: true}` keeps it."""
    before, after = agent_messages(one["turn"]), list[Json]()
    summary = "- goal: totals of invoices are exact\n- rounding happens per line in billing/tax.py"
    for each in one["changes"]:
        kept = [] if each["before"] is None else before[each["before"] :][: each["count"]]
        if each["kind"] == "shortened":
            text, mark = kept[0]["content"], f'[... 19 lines left out; recall("{each["handle"]}") ...]'
            after.append({**kept[0], "content": f"{text[:180]}\n{mark}\n{text[-90:]}"})
        elif each["kind"] == "added":
            left = '[stands for 30 messages; recall("a2b3c4d5e6f7a2b3c4d5")]'
            after.append({"role": "user", "content": f"Noted.\n{summary}\n{left}"})
        elif each["kind"] == "unchanged":
            after += kept
    tools = [
        {"type": "function", "function": {"name": name}} for name in ("read_file", "write_file", "run_tests", "recall")
    ]
    said = "The tax is rounded per line and again in the total. I round once, at the end."
    answer = {"role": "assistant", "content": said}
    return {
        **one,
        "text": {"before": before, "after": after, "tools_before": tools[:3], "tools_after": tools, "answer": answer},
    }


def hostile() -> Json:
    """A request in which all that a client can write is markup."""
    names = ("request_id", "model", "session", "title", "key", "chain", "upstream", "error")
    function = {"name": '<img onerror="window.pwned = 1" src=x>', "arguments": HOSTILE}
    said = [
        {"role": "user", "content": HOSTILE},
        {"role": "user", "content": UNSEEN},
        {"role": HOSTILE, "name": HOSTILE, "content": [{"type": "text", "text": HOSTILE}, {"type": HOSTILE}, {"type": "image_url", "image_url": {"url": f"javascript:{HOSTILE}"}}], "tool_calls": [{"id": "c", "type": "function", "function": function}]},
    ]  # fmt: skip
    return {
        **record(1, conversation="hostile", minute=1), **dict.fromkeys(names, HOSTILE),
        "status": 502, "steps": [step(HOSTILE, "rewrite", HOSTILE, 10, 9, 0.1, **{HOSTILE: HOSTILE})],
        "prefix_broken": {"at": 4, "message": 1, "lost": 4, "step": HOSTILE}, "ended": "2026-11-23T08:00:00.000Z", "started": "2026-11-23T08:00:00.000Z",
        "changes": [
            change("unchanged", 0, 0, (4, 4)),
            change("shortened", 1, 1, (5, 4), role=HOSTILE, by=HOSTILE, handle=HOSTILE),
            change(HOSTILE, None, 2, (0, 4), role=HOSTILE, by=HOSTILE),
        ],
        "text": {
            "before": said, "after": [*said, {"role": "user", "content": HOSTILE}], "tools_after": [],
            "tools_before": [{"type": "function", "function": {"name": function["name"]}}], "answer": {"role": "assistant", "content": HOSTILE},
        },
    }  # fmt: skip


class MadeUp(Records):
    """Records with the texts of messages that are no rows."""

    def __init__(self) -> None:
        super().__init__(RecordsSettings(text=True), clock=lambda: datetime(2026, 11, 24, tzinfo=UTC).timestamp())
        self.texts: dict[str, Json] = {}

    async def latest(self, filters: Filters, limit: int, *, text: bool = False) -> list[Json]:
        found = await super().latest(filters, limit)
        if not (text and self.settings.text):
            return found
        return [self.texts.get(one["request_id"]) or with_text(one) for one in found]


class Originals:
    """An archive that has all handles."""

    async def find(self, tenant: str, handle: str) -> str:
        return f"the whole of {handle}\n{HOSTILE}"


class StandIn:
    """What the server knows, for tests to change."""

    def __init__(self) -> None:
        self.records = MadeUp()
        self.replay: Json = {"state": "none", "started": 0, "text": True}
        self.locked: str | None = None
        self.keys = [self.key(name, nth) for nth, name in enumerate(("ann", "ci", "batch"))]
        self.asked: list[tuple[str, Json]] = []
        """Each question: its path, and its parameters or body."""

    async def add(self, *records: Json) -> None:
        """Add requests to those that are recorded."""
        self.records.texts |= {one["request_id"]: one for one in records if "text" in one}
        rows = [encode({name: value for name, value in one.items() if name != "text"}) for one in records]
        await self.records.ask(insert, rows, 2**30, 0.0)

    def routes(self) -> list[Route]:
        """The page, and the endpoints that it asks."""

        def route(path: str, answer: Callable[[Request, Json], Any], method: str = "GET") -> Route:
            async def endpoint(request: Request) -> Response:
                question = await request.json() if method == "POST" else dict(request.query_params)
                self.asked.append((request.url.path, question))
                made = answer(request, question)
                made = await made if isinstance(made, Coroutine) else made
                return made if isinstance(made, Response) else JSONResponse(made)

            return Route(path, endpoint, methods=[method])

        def of_records(path: str, answer: Callable[[Request], Any]) -> Route:
            return route(path, lambda request, _: answer(request))

        originals: Any = Originals()
        records = RecordsApi(self.records, Peers(None), originals)
        recorded = {
            "/admin/conversations": records.conversations,
            "/admin/conversations/{id}/export": records.export,
            "/admin/conversations/{id}": records.conversation,
            "/admin/requests": records.requests,
            "/admin/requests/{request_id:path}/archive/{handle}": records.original,
            "/admin/requests/{request_id:path}": records.request,
            "/admin/policies": records.policies,
            "/admin/periods": records.periods,
        }
        return [
            *(of_records(path, answer) for path, answer in recorded.items()),
            *(Route(path, served) for path, served in (("/", to_page), ("/ui", page), ("/ui/{name}", page))),
            route("/admin/config", lambda *_: {"version": "6a0db5b8f6a1", "since": "2026-11-23T08:00:00Z", "workers": [], "generations": 1, "text": CONFIG, "chains": {"default": CHAIN, "empty": "[]\n"}}),
            route("/admin/keys", lambda *_: {"kind": "keys", "locked": self.locked, "today": "2026-11-27", "keys": self.keys}),
            route("/admin/keys", self._make_key, "POST"),
            route("/admin/keys/{name}", self._revoke_key, "DELETE"),
            route("/admin/replays", lambda *_: self.replay),
            route("/admin/replays", self._begin_replay, "POST"),
            route("/admin/replays", self._end_replay, "DELETE"),
            route("/admin/check", lambda _, question: {"errors": ["config.yaml:3: chains: unknown key; did you mean 'chains'?"] if "chian" in question["yaml"] else [], "warnings": ["config.yaml:9: it stands behind a step that refuses"]}, "POST"),
            route("/admin/explain", self._explain, "POST"),
        ]  # fmt: skip

    def key(self, name: str, nth: int) -> Json:
        spent = {f"2026-11-{day:02}": (0.9 + 0.05 * (day % 7)) / (nth + 1) for day in range(10 + nth, 28)}
        days = [{"day": day, "requests": 40 - nth, "usd": usd} for day, usd in spent.items()]
        none = dict.fromkeys(("tokens_per_minute", "tokens_per_day", "max_output_tokens", "max_n", "max_concurrent"))
        limits = {**none, "requests_per_minute": 60, "budget_per_day": 5.0 / (5 * nth + 1)}
        used = {"today": spent["2026-11-27"], "month": sum(spent.values()), "last": "2026-11-27", "days": days}
        return {"name": name, "tenant": f"team {name}", "tenant_id": TENANT, "models": ["gpt-*", name], "chains": None, "expires": "2027-01-31T00:00:00Z" if nth else None,
                "limits": limits, "revocable": self.locked is None and nth > 0, "used": used if nth < 2 else {"today": 0, "month": 0, "last": None, "days": []}}  # fmt: skip

    def _make_key(self, request: Request, question: Json) -> Any:
        if question["name"] == "ann":
            return JSONResponse({"error": {"message": "name: a key is called 'ann' already"}}, 400)
        self.keys.append(self.key(question["name"], 2))
        made = {"object": "key", "name": question["name"], "key": "pk-" + 13 * "abcd", "in_force": True}
        return JSONResponse(made, 201)

    def _revoke_key(self, request: Request, question: Json) -> Json:
        name = request.path_params["name"]
        self.keys = [each for each in self.keys if each["name"] != name]
        return {"object": "key.revoked", "name": name, "in_force": True}

    def compared(self) -> Json:
        """A comparison that is over."""

        def side(share: float, cached: int, n: int) -> Json:
            values = {
                "needed": 60,
                "visible": int(20 + 40 * share),
                "retrievable": 38 - int(38 * share),
                "lost": int(3 * (1 - share)),
            }
            return {"requests": 60 * n, "usd": 0.8 * share * n, "usd_unchanged": 0.8 * n, "tokens": {"after": int(320_000 * share) * n}, "cached": {"tokens": cached * n},
                    "values": {name: each * n for name, each in values.items()},
                    "messages": {"removed": int(50 * (1 - share)) * n, "shortened": int(40 * (1 - share)) * n}}  # fmt: skip

        def sides(n: int) -> list[Json]:
            return [side(0.4, 90_000, n), side(1, 210_000, n)]

        rows = [{"id": name, "error": None, "sides": sides(1)} for name in CONVERSATIONS]
        return {"conversations": rows, "total": sides(3)}

    def _begin_replay(self, request: Request, question: Json) -> Json:
        self.replay = {"state": "running", "chain": question["chain"], "against": question["against"], "played": 80, "requests": 360, "without_text": 1, "error": None, "report": None, "text": True}  # fmt: skip
        return self.replay

    def _end_replay(self, request: Request, question: Json) -> Json:
        self.replay["state"] = "cancelled"
        return self.replay

    def _explain(self, request: Request, question: Json) -> Any:
        if "chian" in question["chain_yaml"]:
            return JSONResponse({"error": {"message": "unknown policy 'chian'; known: window_history"}}, 400)
        made = {**with_text(record(30, conversation="x", minute=1)), "rejected": None}
        empty = {"tokens_after": made["tokens_before"], "usd_estimated": made["usd_unchanged"], "steps": []}
        return {"explained": made, "against": {**made, **empty}}


@asynccontextmanager
async def stand_in() -> AsyncGenerator[tuple[StandIn, str], None]:
    """The server on a free port of loopback, and its address."""
    made = StandIn()
    for number, (name, turns) in enumerate(CONVERSATIONS.items()):
        minute = 40 - 10 * number
        await made.add(*(record(turn, conversation=name, minute=minute) for turn in range(1, turns + 1)))
    app = Starlette(routes=made.routes(), exception_handlers=ERRORS)
    server = uvicorn.Server(uvicorn.Config(app, port=0, lifespan="off", log_config=None, ws="none"))
    serving = asyncio.ensure_future(server.serve())
    while not server.started:
        await asyncio.sleep(0.01)
    try:
        yield made, f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        await serving
        await made.records.aclose()
