"""What steps find wrong in a request: told to the client with its answer, and to who asks for an explanation."""

import json
from typing import Any

import pytest

from tests.e2e.conftest import Lab

CONFIG = """
upstreams: {{main: {{kind: openai, base_url: "{url}"}}}}
models:
  - {{match: "strict-*", upstream: main, window: 8000, chain: strict}}
  - {{match: "*", upstream: main, window: 8000}}
chains:
  default:
    - check_facts: {{facts: ["The capital of Australia is Canberra."]}}
    - resolve_clashes: {{}}
  strict:
    - check_facts: {{facts: ["The capital of Australia is Canberra."], action: reject}}
state: {{kind: memory}}
"""
TALK = [
    {"role": "user", "content": "I prefer budget hotels."},
    {"role": "assistant", "content": "The capital of Australia is Sydney."},
    {"role": "user", "content": "I prefer luxury hotels."},
]
WRONG = 'messages[1] contradicts the trusted fact "The capital of Australia is Canberra."'


@pytest.fixture
async def base(lab: Lab) -> str:
    return await lab.start(CONFIG.format(url=lab.behind.url))


async def asked(lab: Lab, base: str, messages: Any, model: str = "m", id: str = "r") -> tuple[int, str | None, Any]:
    """The status, the findings as the header tells them, and the body."""
    headers = {"authorization": "Bearer k", "x-request-id": id}
    status, told, answer = await lab.chat(base, {"model": model, "messages": messages}, headers)
    return status, told.get("x-penstock-findings"), answer


async def explained(lab: Lab, base: str, id: str) -> list[Any]:
    return list((await lab.get(f"{base}/v1/explain/{id}", {"authorization": "Bearer k"}))[1]["steps"])


async def test_the_answer_and_its_explanation_tell_each_finding_with_its_reason(lab: Lab, base: str) -> None:
    status, header, _ = await asked(lab, base, TALK, id="found")
    assert status == 200
    facts, clash = json.loads(header or "")
    assert facts == {"policy": "check_facts", "finding": WRONG}
    assert clash["policy"] == "resolve_clashes"
    assert clash["finding"].startswith("messages[0] is superseded by messages[2]: ")
    steps = await explained(lab, base, "found")
    assert [step["findings"] for step in steps] == [[WRONG], [clash["finding"]]]


async def test_a_request_without_findings_has_no_such_header(lab: Lab, base: str) -> None:
    status, header, _ = await asked(lab, base, TALK[:1])
    assert (status, header) == (200, None)


async def test_a_refusal_says_what_was_found_and_where(lab: Lab, base: str) -> None:
    talk = [*TALK[:1], {"role": "user", "content": TALK[1]["content"]}]
    status, header, body = await asked(lab, base, talk, "strict-1", "refused")
    assert (status, lab.behind.received) == (400, [])
    assert (body["error"]["code"], body["error"]["param"]) == ("contradicts_trusted_fact", "messages[1]")
    assert "The capital of Australia is Canberra." in body["error"]["message"]
    assert json.loads(header or "") == [{"policy": "check_facts", "finding": WRONG}]
    assert (await explained(lab, base, "refused"))[0]["findings"] == [WRONG]
