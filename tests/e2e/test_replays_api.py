"""Two chains on recorded conversations, compared from the page: over real sockets, in a process of its own."""

import asyncio
import json
import time
from typing import Any

from tests.e2e.conftest import Lab
from tests.e2e.served import served
from tests.e2e.servers import answering, until_ready

CONFIG = """
upstreams: {{main: {{kind: openai, base_url: "{url}"}}}}
models: [{{match: m, upstream: main, window: 8192, prices: {{input: 2, output: 8}}, cache: {{read: 0.2, ttl: 600}}}}]
chains:
  default: [window_history: {{keep_turns: 1, stride: 1, summary: false}}]
  lean: [compact_tool_results: {{}}]
vectors: none
records: {{text: {text}}}
"""
FILLER = "and some more of it, which takes room in the window of the model "


def conversation(name: str, turns: int) -> list[dict[str, Any]]:
    talk: list[dict[str, Any]] = []
    for n in range(turns):
        talk += [{"role": "user", "content": f"{name} asks for part {n}: {FILLER * 60}"}]
        talk += [{"role": "assistant", "content": "hi"}]
    return talk[:-1]


async def record(lab: Lab, base: str, name: str, turns: int = 4) -> None:
    for n in range(1, turns + 1):
        body = {"model": "m", "messages": conversation(name, n)}
        assert (await lab.chat(base, body, {"x-penstock-session": name}))[0] == 200


async def ask(lab: Lab, base: str, method: str = "GET", body: Any = None, headers: Any = None) -> tuple[int, Any]:
    async with lab.http.request(method, f"{base}/admin/replays", json=body, headers=headers) as response:
        return response.status, await response.json()


async def ended(lab: Lab, base: str) -> Any:
    async with asyncio.timeout(120):
        while (told := (await ask(lab, base))[1])["state"] in (
            "running",
            "none",
        ):  # of a worker that is too busy to say
            await asyncio.sleep(0.05)
    return told


async def test_an_empty_chain_is_compared_with_the_default_one(lab: Lab) -> None:
    lab.behind.respond = answering(b'{"choices":[{"index":0,"message":{"role":"assistant","content":"hi"}}]}')
    base = await lab.start(CONFIG.format(url=lab.behind.url, text="true"))
    assert (await ask(lab, base))[1]["state"] == "none"
    for name in ("ann", "bob", "eve"):
        await record(lab, base, name)
    sent = len(lab.behind.received)
    status, begun = await ask(lab, base, "POST", {"chain": "default", "against": None, "newest": 2})
    assert (status, begun["state"]) == (202, "running")
    assert (await ask(lab, base, "POST", {}))[1]["error"]["code"] == "replay_running"
    slowest = 0.0
    while (await ask(lab, base))[1]["state"] == "running":
        began = time.perf_counter()
        await lab.get(f"{base}/healthz")
        slowest = max(slowest, time.perf_counter() - began)
    assert slowest < 1, "the loop goes on"
    told = await ended(lab, base)
    assert (told["state"], told["error"], told["played"], told["requests"]) == ("done", None, 16, 16), told
    rows, (ours, theirs) = told["report"]["conversations"], told["report"]["total"]
    assert len(rows) == 2
    assert [row["error"] for row in rows] == [None, None]
    assert all(side["requests"] == 4 for row in rows for side in row["sides"])
    assert ours["requests"] == theirs["requests"] == 8
    assert ours["tokens"]["after"] < theirs["tokens"]["after"] == theirs["tokens"]["before"]
    assert ours["messages"]["removed"] > 0 == theirs["messages"]["removed"]
    assert theirs["usd"] == theirs["usd_unchanged"] == ours["usd_unchanged"]
    assert theirs["cached"]["tokens"] > 0, "by the rules, whatever was reported"
    assert FILLER not in json.dumps(told)
    assert len(lab.behind.received) == sent, "nothing is sent"

    (listed, *_) = (await lab.get(f"{base}/admin/conversations"))[1]["conversations"]
    body = {"chain": "lean", "against": "default", "ids": [listed["id"], "nobody"]}
    assert (await ask(lab, base, "POST", body))[0] == 202
    told = await ended(lab, base)
    assert ([row["id"] for row in told["report"]["conversations"]], told["without_text"]) == ([listed["id"]], 1)


async def test_all_workers_know_of_the_one_that_compares(lab: Lab) -> None:
    async with served(CONFIG.format(url=lab.behind.url, text="true"), lab.folder, "--workers", "2") as running:
        base = running.base
        await until_ready(base)
        await record(lab, base, "ann")
        assert (await ask(lab, base, "POST", {"chain": "default"}))[0] == 202
        for _ in range(4):  # each over a connection of its own, to any worker
            status, told = await ask(lab, base, "POST", {"chain": "default"})
            assert (status, told["error"]["code"]) == (409, "replay_running")
        assert (await ended(lab, base))["report"]["total"][0]["requests"] == 4
        assert {(await ask(lab, base))[1]["state"] for _ in range(6)} == {"done"}
        assert (await ask(lab, base, "POST", {"chain": "default"}))[0] == 202
        assert {(await ask(lab, base, "DELETE"))[1]["state"] for _ in range(6)} == {"cancelled"}
        at_once = await asyncio.gather(*(ask(lab, base, "POST", {"chain": "default"}) for _ in range(12)))
        assert sorted(status for status, _ in at_once) == [202, *[409] * 11]


async def test_without_text_it_says_so(lab: Lab) -> None:
    base = await lab.start(CONFIG.format(url=lab.behind.url, text="false"))
    await record(lab, base, "ann", 1)
    status, told = await ask(lab, base, "POST", {"chain": "default"})
    assert (status, told["error"]["code"]) == (403, "records_without_text")
    assert "records: {text: true}" in told["error"]["message"]
    assert (await ask(lab, base))[1]["text"] is False


async def test_wrong_questions_and_other_pages_start_nothing(lab: Lab) -> None:
    base = await lab.start(CONFIG.format(url=lab.behind.url, text="true"))
    for body, param in (
        ({"chain": "nope"}, "chain"), ({"chain": ["default"]}, "chain"), ({"against": "<b>"}, "against"), ({"ids": "x"}, "ids"), ({"ids": [1]}, "ids"),
        ({"ids": ["x"] * 51}, "ids"), ({"newest": 0}, "newest"), ({"newest": "2"}, "newest"),
    ):  # fmt: skip
        status, told = await ask(lab, base, "POST", body)
        assert (status, told["error"]["param"]) == (400, param)
    for text in ("", "{", "[]", '{"ids": ["\\ud800"]}'):
        headers = {"content-type": "application/json"}
        async with lab.http.post(f"{base}/admin/replays", data=text, headers=headers) as no:
            assert (no.status, (await no.json())["error"]["code"]) == (400, "invalid_json")
    for method in ("POST", "DELETE"):
        assert (await ask(lab, base, method, {}, {"origin": "http://evil.example"}))[0] == 403
    assert (await ask(lab, base, "POST", {"chain": "default"}))[0] == 202
    assert "no text is kept" in (await ended(lab, base))["error"]
