"""Conversations as operators see them: over sockets, as clients make them."""

import asyncio
import json
from typing import Any

import pytest

from proxy.testing import lifelike
from tests.e2e.conftest import Lab
from tests.e2e.served import served
from tests.e2e.servers import Upstream, plainly, proxy, say
from tests.e2e.test_admin import ADMIN, Client
from tests.scripted import answer

CONFIG = """
upstreams: {{main: {{kind: openai, base_url: "{url}"}}}}
models:
  - match: m
    upstream: main
    window: 8192
    prices: {{input: 2, output: 8}}
    cache: {{read: 0.1, ttl: 300}}
  - {{match: free, upstream: main, window: 8192}}
  - {{match: plain, upstream: main, chain: none}}
chains:
  default: [compact_tool_results: {{over: 600, read_again: 0}}, window_history: {{keep_turns: 3, stride: 2, summary: false}}, offer_recall: {{}}]
  none: []
server: {{admin_key: s3cret}}
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


def config(behind: Upstream, records: str = "{}") -> str:
    return CONFIG.format(url=behind.url, records=records)


async def running(lab: Lab, records: str = "{}") -> Client:
    return Client(await lab.start(config(lab.behind, records)), lab.http)


async def sent(client: Client, body: Message, headers: dict[str, str] | None = None, key: str = "k") -> Any:
    """The headers of an answer."""
    given = {"authorization": f"Bearer {key}", **(headers or {})}
    async with client._http.post(f"{client.base}/v1/chat/completions", json=body, headers=given) as response:
        assert response.status == 200, await response.text()
        await response.read()
        return response.headers


async def told(client: Client, path: str) -> Any:
    status, answer = await client.ask("GET", f"/admin{path}", ADMIN)
    assert status == 200, answer
    return answer


async def talk(
    client: Client, turns: int, model: str = "m", *, headers: dict[str, str] | None = None, key: str = "k"
) -> None:
    """A conversation, request by request."""
    messages: list[Message] = [{"role": "system", "content": "You help."}]
    for turn in range(turns):
        messages.append({"role": "user", "content": f"{SECRET}, part {turn}: " + "and so on " * 20})
        given = {"x-request-id": f"{key}-{turn}", **(headers or {})}
        await sent(client, {"model": model, "messages": messages}, given, key)
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


async def test_a_shortened_result_is_told_with_its_handle_and_its_step(lab: Lab) -> None:
    client = await running(lab)
    await sent(client, {"model": "free", "messages": SHORTENED, "tools": TOOLS}, {"x-request-id": "one"})
    one = await told(client, "/requests/one")
    link = f"/v1/retrieve/{one['changes'][1]['handle']}"
    status, original = await client.ask("GET", link, {"authorization": "Bearer k"})
    assert [change["kind"] for change in one["changes"]] == ["unchanged", "shortened", "unchanged"]
    short = one["changes"][1]
    assert (short["before"], short["after"], short["role"], short["step"]) == (2, 2, "tool", "compact_tool_results")
    assert short["tokens_after"] < short["tokens_before"]
    assert (status, original["content"]) == (200, RESULT)
    assert one["sections"]["after"]["tools"] > one["sections"]["before"]["tools"], "recall is offered"


@pytest.mark.parametrize("model", ["m", "plain"])
async def test_a_conversation_has_the_name_that_its_client_gives_it(lab: Lab, model: str) -> None:
    client = await running(lab)
    names = {"x-penstock-session": "s-1", "x-penstock-agent": "ann", "x-penstock-task": "t"}
    await talk(client, 2, model, headers=names)
    await talk(client, 2, model, headers={**names, "x-penstock-agent": "bob"}, key="k")
    await talk(client, 1, model, headers=names, key="other")
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
    await client.ask("POST", "/v1/chat/completions", {"x-request-id": "bad"}, json={"model": "m", "messages": [1]})
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
    for wrong in ("since=yesterday", "status=bad", "limit=ten"):
        status, answer = await client.ask("GET", f"/admin/requests?{wrong}", ADMIN)
        assert (status, answer["error"]["code"]) == (400, "invalid_value")
        assert answer["error"]["param"] == wrong.split("=")[0]
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
    status, answer = await client.ask("GET", "/admin/conversations/none", ADMIN)
    assert (status, answer["error"]["code"]) == (404, "unknown_conversation")
    await talk(client, 1, key="k1")  # an id may come again
    newer, older = await told(client, "/requests/k1-0"), await told(client, f"/requests/k1-0?until={middle}")
    assert newer["ended"] > middle > older["ended"]


async def test_all_workers_write_and_a_restart_loses_nothing(lab: Lab) -> None:
    text = config(lab.behind)
    async with served(text, lab.folder, "--workers", "2") as made:
        client = Client(made.base, lab.http)
        for n in range(8):
            body = {"model": "m", "messages": [{"role": "user", "content": f"{n}"}]}
            await sent(client, body, {"x-request-id": f"{n}"})
        before = (await told(client, "/requests"))["requests"]
        for n in range(8):  # whichever worker had it
            assert (await told(client, f"/requests/{n}"))["model"] == "m"
    async with proxy(text, lab.folder) as base:
        assert (await told(Client(base, lab.http), "/requests"))["requests"] == before
    # two workers may end theirs in the same millisecond
    assert sorted(before, key=lambda each: str(each["ended"]), reverse=True) == before
    assert {each["request_id"] for each in before} == {f"{n}" for n in range(8)}
    assert len(before) == 8


async def test_records_can_be_off(lab: Lab) -> None:
    client = await running(lab, "off")
    body = {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}
    headers = await sent(client, body, {"x-request-id": "one", "x-penstock-explain": "1"})
    for path, name in (("requests", "requests"), ("conversations", "conversations"), ("policies", "policies")):
        answer = await told(client, f"/{path}")
        assert (answer[name], answer["on"]) == ([], False)
    for path, sent_by in (("/admin/requests/one", ADMIN), ("/v1/explain/one", {"authorization": "Bearer k"})):
        status, answer = await client.ask("GET", path, sent_by)
        assert (status, answer["error"]["code"]) == (404, "unknown_request")
        assert "records are off" in answer["error"]["message"]
    assert "x-penstock-explain" not in headers
    assert not (lab.folder / "state" / "records").exists()


async def test_a_request_may_ask_where_it_is_explained(lab: Lab) -> None:
    client = await running(lab)
    for model in ("m", "plain"):
        body = {"model": model, "messages": [{"role": "user", "content": "Hi"}]}
        link = (await sent(client, body, {"x-penstock-explain": "1"}))["x-penstock-explain"]
        status, record = await client.ask("GET", link, {"authorization": "Bearer k"})
        assert (status, record["model"]) == (200, model)
        assert "x-penstock-explain" not in await sent(client, body)


async def test_records_that_cannot_be_read_are_a_503_and_requests_go_on(lab: Lab) -> None:
    (lab.folder / "state").mkdir()
    (lab.folder / "state" / "records").write_text("no directory")
    client = await running(lab)
    await talk(client, 1)
    for path, headers in (("/admin/requests", ADMIN), ("/v1/explain/k-0", {"authorization": "Bearer k"})):
        status, answer = await client.ask("GET", path, headers)
        assert (status, answer["error"]["code"]) == (503, "state_unavailable")
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
    body = {"model": "free", "messages": SHORTENED, "tools": TOOLS}
    async with proxy(config(lab.behind, "{text: true}"), lab.folder) as base:
        client = Client(base, lab.http)
        assert "records keep the text of prompts and answers" in caplog.text
        await sent(client, body, {"x-request-id": "one"})
        went = json.loads(lab.behind.last.body)
        one = await told(client, "/requests/one")
        assert (one["text"]["before"], one["text"]["tools_before"]) == (SHORTENED, TOOLS)
        assert (one["text"]["after"], one["text"]["tools_after"]) == (went["messages"], went["tools"])
        assert went["messages"] != SHORTENED
        assert one["text"]["answer"] == {"role": "assistant", "content": "hi"}
        await sent(client, {**body, "stream": True, "messages": SHORTENED[:1]}, {"x-request-id": "two"})
        call = {"type": "function", "function": {"name": "look", "arguments": '{"key":"c9"}'}}
        assert (await told(client, "/requests/two"))["text"]["answer"] == {
            "role": "assistant", "content": "Two words.", "tool_calls": [call],
        }  # fmt: skip
        plain = {"model": "plain", "messages": SHORTENED}
        await sent(client, plain, {"x-request-id": "three"})
        three = (await told(client, "/requests/three"))["text"]
        assert three["before"] == three["after"] == SHORTENED
        assert (await told(client, "/conversations"))["text"] is True
        handle = one["changes"][1]["handle"]
        assert await told(client, f"/requests/one/archive/{handle}") == {"text": RESULT}
        for path in (f"three/archive/{handle}", "one/archive/aaaaaaaaaaaaaaaaaaaa"):
            status, refused = await client.ask("GET", f"/admin/requests/{path}", ADMIN)
            assert (status, refused["error"]["code"]) == (404, "unknown_handle")
        _, mine = await client.ask("GET", "/v1/explain/one", {"authorization": "Bearer k"})
        assert SECRET not in json.dumps(mine), "clients get no more than before"
        status, forgotten = await client.ask("DELETE", f"/admin/tenants/{one['tenant']}", ADMIN)
        assert (status, forgotten["forgotten"]["requests"]) == (200, 3)
        assert (await told(client, "/requests"))["requests"] == []
    assert SECRET.encode() not in b"".join(each.read_bytes() for each in (lab.folder / "state" / "records").iterdir())


async def test_no_text_is_kept_without_that(lab: Lab) -> None:
    client = await running(lab)
    await sent(client, {"model": "free", "messages": SHORTENED, "tools": TOOLS}, {"x-request-id": "one"})
    one = await told(client, "/requests/one")
    assert "text" not in one
    status, refused = await client.ask("GET", f"/admin/requests/one/archive/{one['changes'][1]['handle']}", ADMIN)
    assert (status, refused["error"]["code"]) == (403, "records_without_text")
    kept = b"".join(each.read_bytes() for each in (lab.folder / "state" / "records").iterdir())
    assert b"compact_tool_results" in kept
    assert SECRET.encode() not in kept


async def test_each_text_of_a_long_conversation_is_kept_once(lab: Lab) -> None:
    client = await running(lab, "{text: true}")
    await talk(client, 30)
    last = (await told(client, "/requests/k-29"))["text"]
    size = sum(each.stat().st_size for each in (lab.folder / "state" / "records").iterdir())
    first = (await told(client, "/requests/k-0"))["text"]
    assert [each["role"] for each in last["before"]] == ["system", *["user", "assistant"] * 29, "user"]
    assert len(last["after"]) < len(last["before"])
    assert first["before"] == last["before"][:2]
    assert size < 1_000_000


async def test_a_lifelike_conversation_is_recorded_as_it_was_sent(lab: Lab) -> None:
    """Every change names a place of the client's request, and of the one that went upstream."""
    messages: list[Message] = [dict(each) for each in lifelike(24).messages]
    tools = [dict(each) for each in lifelike().tools]
    asked = [place for place, each in enumerate(messages, 1) if each["role"] == "user"]
    client = await running(lab)
    for number, end in enumerate(asked):
        body = {"model": "m", "messages": messages[:end], "tools": tools}
        await sent(client, body, {"x-request-id": f"{number}"})
        record = await told(client, f"/requests/{number}")
        went = json.loads(lab.behind.last.body)["messages"]
        came, left, kinds = [], [], set()
        for change in record["changes"]:
            for offset in range(change["count"]):
                if change["before"] is not None:
                    came.append(change["before"] + offset)
                if change["after"] is not None:
                    left.append(change["after"] + offset)
                if change["kind"] == "unchanged":
                    assert went[left[-1]] == messages[came[-1]]
            kinds.add(change["kind"])
        assert sorted(came) == list(range(end))
        assert left == list(range(len(went)))
    assert kinds == {"unchanged", "shortened"}
