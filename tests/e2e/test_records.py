"""Conversations as operators see them: over sockets, as clients make them."""

import asyncio
import json
from contextlib import AsyncExitStack
from typing import Any

import pytest

from proxy.testing import lifelike
from tests.e2e import servers
from tests.e2e.conftest import Client, Lab
from tests.e2e.servers import Upstream, plainly, say
from tests.scripted import answer

CONFIG = """
models:
  - match: m
    upstream: main
    window: 8192
    prices: {input: 2, output: 8}
    cache: {read: 0.1, ttl: 300}
  - {match: free, upstream: main, window: 8192}
  - {match: plain, upstream: main, chain: none}
chains:
  default: [compact_tool_results: {over: 600, read_again: 0}, window_history: {keep_turns: 3, stride: 2, summary: false}, offer_recall: {}]
  none: []
server: {admin_key: s3cret}
records: {records}
"""
SECRET = "my grandmother's recipe"
RESULT = json.dumps([{"name": f"item {n}", "size": n * 1000, "owner": SECRET} for n in range(200)], indent=1)
CALL = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
TOOLS = [{"type": "function", "function": {"name": "look", "description": "Looks.", "parameters": {"type": "object"}}}]

Message = dict[str, Any]
SHORTENED: list[Message] = [
    {"role": "user", "content": "Look."},
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "c1", "content": RESULT},
    {"role": "assistant", "content": "I see."},
    {"role": "user", "content": "Good."},
]


async def running(lab: Lab, records: str = "{}") -> Client:
    return await lab.client(CONFIG, "k", records=records)


async def sent(client: Client, name: str = "", **fields: Any) -> Any:
    """Send a request with an id; return the headers of its answer."""
    headers = {**({"x-request-id": name} if name else {}), **fields.pop("headers", {})}
    answer = await client.chat(**fields, headers=headers)
    assert answer.status == 200, answer.body
    return answer.headers


async def told(client: Client, path: str) -> Any:
    answer = await client.get(f"/admin{path}", key="s3cret")
    assert answer.status == 200, answer.body
    return answer.json


def kept(lab: Lab) -> bytes:
    """Return all that records have written."""
    return b"".join(each.read_bytes() for each in (lab.folder / "state" / "records").iterdir())


async def talk(client: Client, turns: int, model: str = "m", *, key: str = "k", **names: str) -> None:
    """Have a conversation, request by request."""
    messages: list[Message] = [{"role": "system", "content": "You help."}]
    for turn in range(turns):
        messages.append({"role": "user", "content": f"{SECRET}, part {turn}: " + "and so on " * 20})
        headers = {f"x-penstock-{kind}": name for kind, name in names.items()}
        await sent(client, f"{key}-{turn}", model=model, messages=messages, key=key, headers=headers)
        messages.append({"role": "assistant", "content": "Fine."})
        await asyncio.sleep(0.002)  # records end at different milliseconds


async def test_a_conversation_is_seen_turn_by_turn(lab: Lab) -> None:
    client = await running(lab)
    await talk(client, 6)
    (listed,) = (await told(client, "/conversations"))["conversations"]
    whole = await told(client, f"/conversations/{listed['id']}")
    requests = whole["requests"]
    assert [each["turn"] for each in requests] == [1, 2, 3, 4, 5, 6]
    assert {each["conversation"] for each in requests} == {listed["id"]}
    assert (listed["turns"], listed["models"], listed["chains"]) == (6, ["m"], ["default"])
    assert listed["tokens"] == [each["tokens_after"] for each in requests]
    assert listed["tokens_unchanged"] == [each["tokens_before"] for each in requests]
    assert listed["usd_saved"] == pytest.approx(sum(each["usd_saved"] for each in requests))
    assert listed["input_tokens"] == 6 * 9
    for each in requests:
        for when, total in (("before", each["tokens_before"]), ("after", each["tokens_after"])):
            assert sum(each["sections"][when].values()) == total
            assert sum(change[f"tokens_{when}"] for change in each["changes"]) == pytest.approx(total, abs=6)
    cut = next(each for each in requests if each["steps"][1]["verdict"] == "rewrite")
    assert cut["turn"] == 5
    assert cut["prefix_broken"]["step"] == "window_history"
    assert (cut["prefix_broken"]["message"], cut["prefix_broken"]["at"]) == (1, cut["sections"]["after"]["system"])
    assert cut["prefix_broken"]["lost"] == requests[3]["tokens_after"] - cut["prefix_broken"]["at"] - 3
    assert [each["turn"] for each in requests if each["prefix_broken"]] == [5]
    assert listed["problems"]["prefix_breaks"] == 1
    kinds = [(change["kind"], change["count"], change["step"]) for change in cut["changes"]]
    assert kinds == [("unchanged", 1, None), ("removed", 4, "window_history"), ("unchanged", 5, None)]
    assert SECRET not in json.dumps(whole)


async def test_a_request_that_nobody_answered_costs_nothing(lab: Lab) -> None:
    client = await running(lab)
    await talk(client, 1)
    lab.behind.respond = servers.answering(b"{}", status=503)
    for content in ("another", "y " * 900):
        assert (await client.chat(content)).status == 503
    (group,) = (await told(client, "/periods?by=model"))["groups"]
    (cost,) = (each["usd"] for each in (await told(client, "/requests"))["requests"] if each["status"] == 200)
    assert sum(each["errors"] for each in group["periods"]) == 2
    assert sum(each["usd"] for each in group["periods"]) == pytest.approx(cost)
    listed = (await told(client, "/conversations"))["conversations"]
    assert sum(each["usd"] or 0 for each in listed) == pytest.approx(cost)


async def test_a_shortened_result_is_told_with_its_handle_and_its_step(lab: Lab) -> None:
    client = await running(lab)
    await sent(client, "one", model="free", messages=SHORTENED, tools=TOOLS)
    one = await told(client, "/requests/one")
    assert [change["kind"] for change in one["changes"]] == ["unchanged", "shortened", "unchanged"]
    short = one["changes"][1]
    assert (short["before"], short["after"], short["role"], short["step"]) == (2, 2, "tool", "compact_tool_results")
    assert short["tokens_after"] < short["tokens_before"]
    assert (await client.get(f"/v1/retrieve/{short['handle']}")).json["content"] == RESULT
    assert one["sections"]["after"]["tools"] > one["sections"]["before"]["tools"], "recall is offered"


@pytest.mark.parametrize("model", ["m", "plain"])
async def test_a_conversation_has_the_name_that_its_client_gives_it(lab: Lab, model: str) -> None:
    client = await running(lab)
    names = {"session": "s-1", "task": "t"}
    await talk(client, 2, model, agent="ann", **names)
    await talk(client, 2, model, agent="bob", **names)
    await talk(client, 1, model, agent="ann", **names, key="other")
    found = (await told(client, "/conversations"))["conversations"]
    requests = (await told(client, "/requests"))["requests"]
    assert sorted(each["turns"] for each in found) == [1, 2, 2]
    assert len({each["session"] for each in found}) == 1, "one name; each agent and each tenant has a conversation"
    assert sorted((each["agent"], each["task"]) for each in found) == sorted(
        {each["conversation"]: (each["agent"], each["task"]) for each in requests}.values()
    )
    assert all(each["session"].startswith("named-") and each["agent"] and each["task"] for each in requests)
    assert "s-1" not in json.dumps(found)


async def test_lists_take_filters_and_pages(lab: Lab) -> None:
    client = await running(lab)
    await talk(client, 2, key="k1")
    await talk(client, 2, "plain", key="k2")
    await client.chat(messages=[1], headers={"x-request-id": "bad"}, key="")
    requests = (await told(client, "/requests"))["requests"]
    tenant, middle = requests[-1]["tenant"], requests[2]["ended"]

    async def listed(query: str) -> list[str]:
        return [each["request_id"] for each in (await told(client, f"/requests?{query}"))["requests"]]

    assert await listed("") == ["bad", "k2-1", "k2-0", "k1-1", "k1-0"]
    assert await listed(f"tenant={tenant}") == ["k1-1", "k1-0"]
    assert await listed("model=plain") == ["k2-1", "k2-0"]
    assert await listed("chain=none&limit=1") == ["k2-1"]
    assert await listed("status=error") == ["bad"]
    assert await listed(f"status=ok&since={middle}") == ["k2-1", "k2-0"]
    assert await listed(f"until={middle}") == ["k2-0", "k1-1", "k1-0"]
    first = await told(client, "/conversations?limit=1")
    assert (len(first["conversations"]), first["more"]) == (1, True)
    rest = await told(client, f"/conversations?before={first['conversations'][0]['ended']}")
    assert (len(rest["conversations"]), rest["more"]) == (1, False)
    assert rest["conversations"][0]["tenant"] == tenant
    policies = (await told(client, "/policies"))["policies"]
    assert {each["requests"] for each in policies} == {2}
    assert {each["name"] for each in policies} == {"compact_tool_results", "window_history", "offer_recall"}
    assert (await told(client, "/policies?model=plain"))["policies"] == []
    assert len((await told(client, f"/policies?tenant={tenant}&status=ok&chain=default"))["policies"]) == 3
    await talk(client, 1, key="k1")  # an id may come again
    newer, older = await told(client, "/requests/k1-0"), await told(client, f"/requests/k1-0?until={middle}")
    assert newer["ended"] > middle > older["ended"]


async def test_all_workers_write_and_a_restart_loses_nothing(lab: Lab) -> None:
    async with lab.served(CONFIG, "--workers", "2", records="{}") as made:
        client = Client(made.base, lab.http, "k")
        for n in range(8):
            await sent(client, f"{n}", content=f"{n}")
        before = (await told(client, "/requests"))["requests"]
        for n in range(8):  # whichever worker had it
            assert (await told(client, f"/requests/{n}"))["model"] == "m"
    assert (await told(await running(lab), "/requests"))["requests"] == before
    # two workers may end theirs in the same millisecond
    assert sorted(before, key=lambda each: str(each["ended"]), reverse=True) == before
    assert sorted(each["request_id"] for each in before) == [f"{n}" for n in range(8)]


async def test_a_stream_without_its_end_is_recorded_as_broken_off(lab: Lab) -> None:
    client = await running(lab)
    part = {"choices": [{"index": 0, "delta": {"content": "One,"}, "finish_reason": None}]}
    lab.behind.respond = servers.streaming(f"data: {json.dumps(part)}\n\n".encode())
    for model in ("m", "plain"):
        await sent(client, "cut", model=model, stream=True)
    found = (await told(client, "/requests"))["requests"]
    assert [(each["status"], each["error"]) for each in found] == [(200, "upstream_broke_off")] * 2
    metrics = (await client.get("/metrics", key="s3cret")).body.decode()
    assert 'penstock_upstream_errors_total{reason="upstream_broke_off",upstream="main"} 2.0' in metrics


async def test_records_can_be_off(lab: Lab) -> None:
    client = await running(lab, "off")
    assert "x-penstock-explain" not in await sent(client, "one", headers={"x-penstock-explain": "1"})
    for name in ("requests", "conversations", "policies"):
        answer = await told(client, f"/{name}")
        assert (answer[name], answer["on"]) == ([], False)
    for path, key in (("/admin/requests/one", "s3cret"), ("/v1/explain/one", "k")):
        refused = await client.get(path, key=key)
        assert refused.refusal == (404, "unknown_request")
        assert "records are off" in refused.json["error"]["message"]
    assert not (lab.folder / "state" / "records").exists()


async def test_a_request_may_ask_where_it_is_explained(lab: Lab) -> None:
    client = await running(lab)
    for model in ("m", "plain"):
        link = (await sent(client, model=model, headers={"x-penstock-explain": "1"}))["x-penstock-explain"]
        assert (await client.get(link)).json["model"] == model
        assert "x-penstock-explain" not in await sent(client, model=model)


async def test_records_that_cannot_be_read_are_a_503_and_requests_go_on(lab: Lab) -> None:
    (lab.folder / "state").mkdir()
    (lab.folder / "state" / "records").write_text("no directory")
    client = await running(lab)
    await talk(client, 1)
    for path, key in (("/admin/requests", "s3cret"), ("/v1/explain/k-0", "k")):
        assert (await client.get(path, key=key)).refusal == (503, "state_unavailable")
    (lab.folder / "state" / "records").unlink()
    assert len((await told(client, "/requests"))["requests"]) == 1


async def streaming(behind: Upstream, received: Any, writer: Any) -> None:
    """An answer piece by piece where one is asked for, and a call of a tool."""
    if json.loads(received.body).get("stream"):
        await say(writer, received, answer("Two words.", "look:c9"))
    else:
        await plainly(behind, received, writer)


async def test_the_text_is_kept_where_the_operator_wants_it(lab: Lab, caplog: pytest.LogCaptureFixture) -> None:
    lab.behind.respond = streaming
    body: dict[str, Any] = {"model": "free", "messages": SHORTENED, "tools": TOOLS}
    async with AsyncExitStack() as lab.stack:
        client = await running(lab, "{text: true}")
        assert "records keep the text of prompts and answers" in caplog.text
        await sent(client, "one", **body)
        went = json.loads(lab.behind.last.body)
        one = await told(client, "/requests/one")
        assert (one["text"]["before"], one["text"]["tools_before"]) == (SHORTENED, TOOLS)
        assert (one["text"]["after"], one["text"]["tools_after"]) == (went["messages"], went["tools"])
        assert went["messages"] != SHORTENED
        assert one["text"]["answer"] == {"role": "assistant", "content": "hi"}
        await sent(client, "two", **{**body, "stream": True, "messages": SHORTENED[:1]})
        call = {"type": "function", "function": {"name": "look", "arguments": '{"key":"c9"}'}}
        streamed = {"role": "assistant", "content": "Two words.", "tool_calls": [call]}
        assert (await told(client, "/requests/two"))["text"]["answer"] == streamed
        await sent(client, "three", model="plain", messages=SHORTENED)
        three = (await told(client, "/requests/three"))["text"]
        assert three["before"] == three["after"] == SHORTENED
        assert (await told(client, "/conversations"))["text"] is True
        handle = one["changes"][1]["handle"]
        assert await told(client, f"/requests/one/archive/{handle}") == {"text": RESULT}
        for path in (f"three/archive/{handle}", "one/archive/aaaaaaaaaaaaaaaaaaaa"):
            refused = await client.get(f"/admin/requests/{path}", key="s3cret")
            assert refused.refusal == (404, "unknown_handle")
        assert SECRET not in (await client.get("/v1/explain/one")).body.decode(), "clients get no more than before"
        forgotten = await client.send("DELETE", f"/admin/tenants/{one['tenant']}", key="s3cret")
        assert forgotten.json["forgotten"]["requests"] == 3
        assert (await told(client, "/requests"))["requests"] == []
    assert SECRET.encode() not in kept(lab)


async def test_no_text_is_kept_without_that(lab: Lab) -> None:
    client = await running(lab)
    await sent(client, "one", model="free", messages=SHORTENED, tools=TOOLS)
    one = await told(client, "/requests/one")
    assert "text" not in one
    refused = await client.get(f"/admin/requests/one/archive/{one['changes'][1]['handle']}", key="s3cret")
    assert refused.refusal == (403, "records_without_text")
    assert b"compact_tool_results" in kept(lab)
    assert SECRET.encode() not in kept(lab)


async def test_each_text_of_a_long_conversation_is_kept_once(lab: Lab) -> None:
    client = await running(lab, "{text: true}")
    await talk(client, 30)
    last, first = [(await told(client, f"/requests/k-{turn}"))["text"] for turn in (29, 0)]
    assert [each["role"] for each in last["before"]] == ["system", *["user", "assistant"] * 29, "user"]
    assert len(last["after"]) < len(last["before"])
    assert first["before"] == last["before"][:2]
    assert len(kept(lab)) < 1_000_000


async def test_a_lifelike_conversation_is_recorded_as_it_was_sent(lab: Lab) -> None:
    """Every change names a place of the client's request, and of the one that went upstream."""
    messages: list[Message] = [dict(each) for each in lifelike(24).messages]
    tools = [dict(each) for each in lifelike().tools]
    asked = [place for place, each in enumerate(messages, 1) if each["role"] == "user"]
    client = await running(lab)
    for number, end in enumerate(asked):
        await sent(client, f"{number}", messages=messages[:end], tools=tools)
        record = await told(client, f"/requests/{number}")
        went = json.loads(lab.behind.last.body)["messages"]
        came, left, kinds = [], [], set()
        for change in record["changes"]:
            for offset in range(change["count"]):
                came += [] if change["before"] is None else [change["before"] + offset]
                left += [] if change["after"] is None else [change["after"] + offset]
                if change["kind"] == "unchanged":
                    assert went[left[-1]] == messages[came[-1]]
            kinds.add(change["kind"])
        assert sorted(came) == list(range(end))
        assert left == list(range(len(went)))
    assert kinds == {"unchanged", "shortened"}
