"""What a guard refuses is refused on each wire, and counted by no upstream; nor is what a later step refuses unguarded."""

import json
from typing import Any

import pytest

from tests.e2e.conftest import Lab, Setup

CONFIG = """
upstreams: {{main: {{kind: openai, base_url: "{url}", keyless: true, wires: [responses, messages]}}}}
models: [{{match: "*", upstream: main, window: 4000}}]
chains: {{default: [tests.examples.refuse_project: {{}}, tests.examples.redact_emails: {{}}, reject_oversize: {{}}]}}
"""
NAMED, LONG = "What is Bluebird?", "Write to ana@example.com. " + "Some words here. " * 2500


@pytest.fixture
async def setup(lab: Lab) -> Setup:
    return Setup(await lab.start(CONFIG.format(url=lab.behind.url)), lab.behind, lab.http)


def said(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def bodies(text: str) -> list[tuple[str, dict[str, Any]]]:
    messages: dict[str, Any] = {"messages": [said("Hi."), {"role": "assistant", "content": "Hi."}, said(text)]}
    tools = [{"name": "x", "input_schema": {"type": "object"}}]
    return [
        ("chat/completions", messages),
        ("messages", {**messages, "system": "Be brief.", "max_tokens": 100}),
        ("messages", {**messages, "tools": tools, "max_tokens": 100_000}),
        ("messages/count_tokens", {**messages, "system": "Be brief."}),
        ("messages/count_tokens", messages),
        ("responses", {"input": text, "instructions": "Be brief."}),
        ("responses", {"input": [said(text)], "max_output_tokens": 100_000}),
        ("responses/input_tokens", {"input": text}),
        ("responses/input_tokens", {"input": [said(text)], "instructions": "Be brief."}),
    ]


async def ask(setup: Setup, path: str, body: dict[str, Any]) -> tuple[int, str]:
    headers = {"anthropic-version": "2023-06-01"} if "messages" in path else {}
    async with setup.session.post(f"{setup.base}/v1/{path}", json={"model": "m", **body}, headers=headers) as response:
        return response.status, await response.text()


@pytest.mark.parametrize(("path", "body"), bodies(NAMED))
async def test_a_refusal_is_one_on_each_wire(setup: Setup, path: str, body: dict[str, Any]) -> None:
    status, text = await ask(setup, path, body)

    assert (status, setup.upstream.received) == (403, []), text
    assert "project_named" in text


@pytest.mark.parametrize(("path", "body"), [each for each in bodies(LONG) if "tokens" in each[0]])
async def test_what_is_too_long_is_counted_as_guards_left_it(setup: Setup, path: str, body: dict[str, Any]) -> None:
    await ask(setup, path, body)

    (received,) = setup.upstream.received
    assert json.loads(received.body)
    assert b"ana@example.com" not in received.body
