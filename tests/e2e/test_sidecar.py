"""Another gateway has a request compressed here, and gets back what left it; nothing of either reaches an upstream."""

import json
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from typing import Any

import pytest

from proxy.telemetry.observation import Telemetry
from tests.e2e.conftest import Client, Lab
from tests.e2e.servers import until_ready
from tests.e2e.test_recall import CONVERSATION, NEEDLE, TOOLS

CONFIG = """
models: [{match: "*", upstream: main, window: 100000, chain: default}]
server: {max_body_mib: 0.1}
chains:
  default:
    - compact_tool_results: {over: 600, read_again: 0}
    - offer_recall: {}
  strict:
    - reject_oversize: {share: 0.001}
  empty: []
"""
ORIGINAL = CONVERSATION[2]["content"]
NOWHERE = "a" * 20


@pytest.fixture
async def client(lab: Lab) -> AsyncGenerator[Client, None]:
    yield await lab.client(CONFIG, "k")
    assert not lab.behind.received, "nothing was sent to the upstream"


async def compressed(client: Client, key: str = "k", *, headers: Any = None, **fields: Any) -> Any:
    body = {"model": "m", "messages": CONVERSATION, **fields}
    answer = await client.post("/v1/compress", body, headers, key=key)
    assert answer.status == 200, answer.body
    return answer.json


async def test_a_request_is_compressed_and_its_original_comes_back(client: Client) -> None:
    answer = await compressed(client)
    assert [message["role"] for message in answer["messages"]] == [message["role"] for message in CONVERSATION]
    assert answer["messages"][:2] == CONVERSATION[:2]
    assert NEEDLE not in json.dumps(answer["messages"])
    assert answer["tokens_before"] > answer["tokens_after"] > 0
    assert answer["tokens_saved"] == answer["tokens_before"] - answer["tokens_after"]
    assert answer["compression_ratio"] == pytest.approx(answer["tokens_after"] / answer["tokens_before"], abs=1e-4)
    assert "tools" not in answer
    assert answer["chain"] == "default"
    assert [(step["policy"], step["verdict"]) for step in answer["steps"]] == [
        ("compact_tool_results", "rewrite"),
        ("offer_recall", "keep"),
    ]
    (handle,) = answer["handles"]
    assert f'recall("{handle}")' in answer["messages"][2]["content"]

    found = await client.get(f"/v1/retrieve/{handle}")
    assert (found.status, found.json) == (200, {"handle": handle, "content": ORIGINAL})
    assert found.headers["cache-control"] == "no-store"
    plain = await client.get(f"/v1/retrieve/{handle}", {"accept": "text/plain"})
    assert (plain.status, plain.body.decode()) == (200, ORIGINAL)
    assert plain.headers["content-type"] == "text/plain; charset=utf-8"


async def test_tools_come_back_with_recall_only_where_there_were_tools(client: Client) -> None:
    offered = (await compressed(client, tools=TOOLS))["tools"]
    assert [tool["function"]["name"] for tool in offered] == ["read_report", "recall"]
    assert "tools" not in await compressed(client, tools=[])


async def test_another_chain_may_be_chosen(client: Client) -> None:
    answer = await compressed(client, headers={"x-penstock-chain": "empty"})
    assert answer["messages"] == CONVERSATION
    assert answer["tokens_before"] == answer["tokens_after"] > 0
    assert (answer["compression_ratio"], answer["chain"], answer["steps"]) == (1.0, "empty", [])
    bypassed = await compressed(client, headers={"x-penstock-bypass": "true"})
    assert (bypassed["messages"], bypassed["chain"]) == (CONVERSATION, None)


async def test_a_part_of_what_left_and_half_of_an_emoji_come_back(client: Client) -> None:
    (handle,) = (await compressed(client))["handles"]
    for query, content in (
        ("first_line=2&last_line=2", "2: " + ORIGINAL.splitlines()[1]),
        ("pattern=code+w.rd", "61: " + ORIGINAL.splitlines()[60]),
        ("pattern=nowhere", "No line of the 120 fits."),
    ):
        assert (await client.get(f"/v1/retrieve/{handle}?{query}")).json["content"] == content
    nowhere = await client.get(f"/v1/retrieve/{handle}?path=a.b")
    assert nowhere.refusal == (400, "invalid_part"), "a path that finds nothing is a mistake"
    answer = await compressed(client, messages=[{"role": "user", "content": "half \ud83d"}], user="\ude00")
    assert (answer["messages"][0]["content"], answer["fields"]) == ("half \ufffd", {})


async def test_a_state_that_cannot_be_read_is_not_an_empty_one(lab: Lab) -> None:
    async with AsyncExitStack() as lab.stack:
        (handle,) = (await compressed(await lab.client(CONFIG)))["handles"]
    for each in (lab.folder / "state" / "archive").iterdir():
        each.write_bytes(b"this is no database" * 1000)
    client = await lab.client(CONFIG, "k")
    await until_ready(client.base)
    for session in ({}, {"x-penstock-session": "s"}):
        answer = await client.get(f"/v1/retrieve/{handle}", session)
        assert (answer.refusal, answer.headers["retry-after"]) == ((503, "state_unavailable"), "5")
    assert (await client.get("/readyz")).json["degraded"] == ["state: corrupted"]
    assert (await compressed(client))["messages"] == CONVERSATION
    assert "penstock_requests_without_state_total 1.0" in await client.metrics()


async def test_a_handle_is_in_no_telemetry(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[str] = []
    begin = Telemetry.begin

    def noting(self: Telemetry, method: str, route: str, *rest: Any, **named: Any) -> Any:
        begun.append(f"{route} {named.get('path')}")
        return begin(self, method, route, *rest, **named)

    monkeypatch.setattr(Telemetry, "begin", noting)
    await client.get(f"/v1/retrieve/{NOWHERE}")
    await client.get("/v1/compress")
    assert begun == ["/v1/retrieve/{handle} None", "/v1/compress /v1/compress"]


REMOVES = '''
from proxy.policy import Policy, Rewrite

class LeaveOut(Policy):
    """Leave out the user."""

    def apply(self, request, ctx):
        """Leave out the field."""
        return Rewrite(request.without("user"), "the user is left out")
'''


async def test_a_field_that_the_chain_removes_is_null(lab: Lab) -> None:
    (lab.folder / "removing").mkdir()
    (lab.folder / "removing" / "leave_out.py").write_text(REMOVES)
    config = CONFIG.replace("empty: []", "empty: []\n  bare: [removing.leave_out: {}]")
    client = await lab.client(config, "k")
    bare = await compressed(client, headers={"x-penstock-chain": "bare"}, user="ana", seed=1, tools=TOOLS)
    assert bare["fields"] == {"user": None}
    assert (await compressed(client, user="ana", seed=1))["fields"] == {}
