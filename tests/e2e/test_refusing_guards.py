"""What a guard refuses is refused on each wire, and counted by no upstream; nor is what a later step refuses unguarded."""

import json
from typing import Any

from tests.e2e.conftest import Client
from tests.e2e.servers import Upstream

CONFIG = """
upstreams: {main: {kind: openai, base_url: "{url}", keyless: true, wires: [responses, messages]}}
models: [{match: "*", upstream: main, window: 4000}]
chains: {default: [tests.examples.refuse_project: {}, tests.examples.redact_emails: {}, reject_oversize: {}]}
"""
VERSION = {"anthropic-version": "2023-06-01"}
NAMED, LONG = "What is Bluebird?", "Write to ana@example.com. " + "Some words here. " * 2500


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


async def test_a_refusal_is_one_on_each_wire_and_of_what_is_too_long(client: Client, behind: Upstream) -> None:
    for path, body in bodies(NAMED):
        answer = await client.post(f"/v1/{path}", {"model": "m", **body}, VERSION)
        assert (answer.status, b"project_named" in answer.body, behind.received) == (403, True, []), path
    for path, body in bodies(LONG):
        if "tokens" in path:
            behind.reset()
            await client.post(f"/v1/{path}", {"model": "m", **body}, VERSION)
            (received,) = behind.received
            assert json.loads(received.body)
            assert b"ana@example.com" not in received.body
