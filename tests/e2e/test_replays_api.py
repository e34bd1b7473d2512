"""Two chains on recorded conversations, compared from the page: over real sockets, in a process of its own."""

import asyncio
import json
import time
from typing import Any

from tests.e2e.conftest import Answer, Client, Lab
from tests.e2e.servers import Upstream, answering, until_ready

CONFIG = """
models: [{match: m, upstream: main, window: 8192, prices: {input: 2, output: 8}, cache: {read: 0.2, ttl: 600}}]
chains:
  default: [window_history: {keep_turns: 1, stride: 1, summary: false}]
  lean: [compact_tool_results: {}]
vectors: none
records: {text: true}
"""
FILLER = "and some more of it, which takes room in the window of the model "


def conversation(name: str, turns: int) -> list[dict[str, Any]]:
    talk: list[dict[str, Any]] = []
    for n in range(turns):
        talk += [{"role": "user", "content": f"{name} asks for part {n}: {FILLER * 60}"}]
        talk += [{"role": "assistant", "content": "hi"}]
    return talk[:-1]


async def record(client: Client, name: str, turns: int = 4) -> None:
    for n in range(1, turns + 1):
        answer = await client.chat(messages=conversation(name, n), headers={"x-penstock-session": name})
        assert answer.status == 200


async def state(client: Client) -> Any:
    return (await client.get("/admin/replays")).json


async def begin(client: Client, **fields: Any) -> Answer:
    return await client.post("/admin/replays", fields)


async def ended(client: Client) -> Any:
    async with asyncio.timeout(120):
        # "none" is of a worker that is too busy to say
        while (told := await state(client))["state"] in ("running", "none"):
            await asyncio.sleep(0.05)
    return told


async def test_an_empty_chain_is_compared_with_the_default_one(client: Client, behind: Upstream) -> None:
    behind.respond = answering(b'{"choices":[{"index":0,"message":{"role":"assistant","content":"hi"}}]}')
    assert (await state(client))["state"] == "none"
    for name in ("ann", "bob", "eve"):
        await record(client, name)
    sent = len(behind.received)
    begun = await begin(client, chain="default", against=None, newest=2)
    assert (begun.status, begun.json["state"]) == (202, "running")
    assert (await begin(client)).json["error"]["code"] == "replay_running"
    slowest = 0.0
    while (await state(client))["state"] == "running":
        began = time.perf_counter()
        await client.get("/healthz")
        slowest = max(slowest, time.perf_counter() - began)
        await asyncio.sleep(0.02)  # what is compared needs the processor
    assert slowest < 1, "the loop goes on"
    told = await ended(client)
    assert (told["state"], told["error"], told["played"], told["requests"]) == ("done", None, 16, 16), told
    rows, (ours, theirs) = told["report"]["conversations"], told["report"]["total"]
    assert [row["error"] for row in rows] == [None, None]
    assert all(side["requests"] == 4 for row in rows for side in row["sides"])
    assert ours["requests"] == theirs["requests"] == 8
    assert ours["tokens"]["after"] < theirs["tokens"]["after"] == theirs["tokens"]["before"]
    assert ours["messages"]["removed"] > 0 == theirs["messages"]["removed"]
    assert theirs["usd"] == theirs["usd_unchanged"] == ours["usd_unchanged"]
    assert theirs["cached"]["tokens"] > 0, "by the rules, whatever was reported"
    assert FILLER not in json.dumps(told)
    assert len(behind.received) == sent, "nothing is sent"

    (listed, *_) = (await client.get("/admin/conversations")).json["conversations"]
    assert (await begin(client, chain="lean", against="default", ids=[listed["id"], "nobody"])).status == 202
    told = await ended(client)
    assert ([row["id"] for row in told["report"]["conversations"]], told["without_text"]) == ([listed["id"]], 1)


async def test_requests_without_input_end_no_comparison(client: Client, behind: Upstream) -> None:
    await record(client, "ann", 1)
    behind.respond = answering(b"{}")
    for _ in range(2):
        headers = {"x-penstock-session": "bob"}
        assert (await client.post("/v1/responses", {"model": "m", "prompt": {"id": "pmpt_1"}}, headers)).status == 200
    assert (await begin(client, chain="default")).status == 202
    told = await ended(client)
    assert (told["error"], told["without_text"], told["report"]["total"][0]["requests"]) == (None, 1, 1)


async def test_all_workers_know_of_the_one_that_compares(lab: Lab) -> None:
    async with lab.served(CONFIG, "--workers", "2") as made:
        await until_ready(made.base)
        client = Client(made.base, lab.http)
        await record(client, "ann")
        assert (await begin(client, chain="default")).status == 202
        for _ in range(4):  # each over a connection of its own, to any worker
            assert (await begin(client, chain="default")).refusal == (409, "replay_running")
        assert (await ended(client))["report"]["total"][0]["requests"] == 4
        assert {(await state(client))["state"] for _ in range(6)} == {"done"}
        assert (await begin(client, chain="default")).status == 202
        cancelled = {(await client.send("DELETE", "/admin/replays")).json["state"] for _ in range(6)}
        assert cancelled == {"cancelled"}
        at_once = await asyncio.gather(*(begin(client, chain="default") for _ in range(12)))
        assert sorted(each.status for each in at_once) == [202, *[409] * 11]


async def test_without_text_it_says_so(lab: Lab) -> None:
    client = await lab.client(CONFIG.replace("text: true", "text: false"))
    await record(client, "ann", 1)
    refused = await begin(client, chain="default")
    assert refused.refusal == (403, "records_without_text")
    assert "records: {text: true}" in refused.json["error"]["message"]
    assert (await state(client))["text"] is False


async def test_other_pages_start_nothing_and_without_text_there_is_nothing_to_compare(client: Client) -> None:
    for method in ("POST", "DELETE"):
        foreign = {"origin": "http://evil.example"}
        assert (await client.send(method, "/admin/replays", foreign, json={})).status == 403
    assert (await begin(client, chain="default")).status == 202
    assert "no text is kept" in (await ended(client))["error"]
