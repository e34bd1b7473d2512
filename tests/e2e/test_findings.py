"""What steps find wrong in a request: told to the client with its answer, and to who asks for an explanation."""

import json
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.e2e.servers import Upstream, proxy

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
embedding: {{kind: none}}
state: {{kind: memory}}
telemetry: {{log_level: error}}
"""
TALK = [
    {"role": "user", "content": "I prefer budget hotels."},
    {"role": "assistant", "content": "The capital of Australia is Sydney."},
    {"role": "user", "content": "I prefer luxury hotels."},
]
WRONG = 'messages[1] contradicts the trusted fact "The capital of Australia is Canberra."'


@pytest.fixture
async def base(tmp_path: Path, behind: Upstream) -> AsyncGenerator[str, None]:
    async with proxy(CONFIG.format(url=behind.url), tmp_path) as made:
        yield made


async def asked(
    http: aiohttp.ClientSession, base: str, messages: Any, model: str = "m", id: str = "r"
) -> tuple[int, str | None, Any]:
    """The status, the findings as the header tells them, and the body."""
    headers = {"authorization": "Bearer k", "x-request-id": id}
    body = {"model": model, "messages": messages}
    async with http.post(f"{base}/v1/chat/completions", json=body, headers=headers) as response:
        return response.status, response.headers.get("x-penstock-findings"), await response.json()


async def explained(http: aiohttp.ClientSession, base: str, id: str) -> list[Any]:
    async with http.get(f"{base}/v1/explain/{id}", headers={"authorization": "Bearer k"}) as response:
        return list((await response.json())["steps"])


async def test_the_answer_and_its_explanation_tell_each_finding_with_its_reason(
    base: str, http: aiohttp.ClientSession
) -> None:
    status, header, _ = await asked(http, base, TALK, id="found")
    assert status == 200
    facts, clash = json.loads(header or "")
    assert facts == {"policy": "check_facts", "finding": WRONG}
    assert clash["policy"] == "resolve_clashes"
    assert clash["finding"].startswith("messages[0] is superseded by messages[2]: ")
    steps = await explained(http, base, "found")
    assert [step["findings"] for step in steps] == [[WRONG], [clash["finding"]]]


async def test_a_request_without_findings_has_no_such_header(base: str, http: aiohttp.ClientSession) -> None:
    status, header, _ = await asked(http, base, TALK[:1])
    assert (status, header) == (200, None)


async def test_a_refusal_says_what_was_found_and_where(
    base: str, http: aiohttp.ClientSession, behind: Upstream
) -> None:
    talk = [*TALK[:1], {"role": "user", "content": TALK[1]["content"]}]
    status, header, body = await asked(http, base, talk, "strict-1", "refused")
    assert (status, behind.received) == (400, [])
    assert (body["error"]["code"], body["error"]["param"]) == ("contradicts_trusted_fact", "messages[1]")
    assert "The capital of Australia is Canberra." in body["error"]["message"]
    assert json.loads(header or "") == [{"policy": "check_facts", "finding": WRONG}]
    assert (await explained(http, base, "refused"))[0]["findings"] == [WRONG]
