"""What steps find wrong in a request: told to the client with its answer, and to who asks for an explanation."""

import json

from tests.e2e.conftest import Client
from tests.e2e.servers import Upstream

CONFIG = """
models:
  - {match: "strict-*", upstream: main, window: 8000, chain: strict}
  - {match: "*", upstream: main, window: 8000}
chains:
  default:
    - check_facts: {facts: ["The capital of Australia is Canberra."]}
    - resolve_clashes: {}
  strict:
    - check_facts: {facts: ["The capital of Australia is Canberra."], action: reject}
"""
KEY = "k"
TALK = [
    {"role": "user", "content": "I prefer budget hotels."},
    {"role": "assistant", "content": "The capital of Australia is Sydney."},
    {"role": "user", "content": "I prefer luxury hotels."},
]
WRONG = 'messages[1] contradicts the trusted fact "The capital of Australia is Canberra."'


async def test_the_answer_and_its_explanation_tell_each_finding_with_its_reason(client: Client) -> None:
    answer = await client.chat(messages=TALK)
    facts, clash = json.loads(answer.headers["x-penstock-findings"])
    assert (answer.status, facts) == (200, {"policy": "check_facts", "finding": WRONG})
    assert clash["policy"] == "resolve_clashes"
    assert clash["finding"].startswith("messages[0] is superseded by messages[2]: ")
    assert [step["findings"] for step in (await client.record(answer))["steps"]] == [[WRONG], [clash["finding"]]]
    assert "x-penstock-findings" not in (await client.chat(messages=TALK[:1])).headers


async def test_a_refusal_says_what_was_found_and_where(client: Client, behind: Upstream) -> None:
    answer = await client.chat(model="strict-1", messages=[TALK[0], {**TALK[1], "role": "user"}])
    assert (answer.refusal, behind.received) == ((400, "contradicts_trusted_fact"), [])
    assert answer.json["error"]["param"] == "messages[1]"
    assert "The capital of Australia is Canberra." in answer.json["error"]["message"]
    assert json.loads(answer.headers["x-penstock-findings"]) == [{"policy": "check_facts", "finding": WRONG}]
    assert (await client.record(answer))["steps"][0]["findings"] == [WRONG]
