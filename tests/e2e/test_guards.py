"""A guard through a running proxy: what it takes out goes nowhere, whatever the client asks for and whatever fails."""

import json
from typing import Any

import pytest

from tests.e2e.conftest import Client
from tests.e2e.servers import Upstream

CONFIG = """
models:
  - {match: guarded, upstream: main, window: 2000, reserve: 0, fallbacks: [open]}
  - {match: open, upstream: main, chain: open}
chains:
  default: [tests.examples.redact_emails: {}, offload_content: {}, compress_history: {}, pin_context: {},
    recall_history: {}, offer_recall: {}, reject_oversize: {}]
  open: []
"""
ADDRESS = "ana.ruiz@example.com"
CONVERSATION: list[dict[str, Any]] = [
    {"role": "system", "content": f"Write to {ADDRESS} in case of doubt."},
    {"role": "user", "content": f"Busca a {ADDRESS}, por favor."},
    {"role": "assistant", "content": None, "tool_calls": [
        {"id": "c1", "type": "function", "function": {"name": "find", "arguments": json.dumps({"who": ADDRESS})}}]},
    {"role": "tool", "tool_call_id": "c1", "content": json.dumps([{"name": "Ana", "mail": ADDRESS}])},
    {"role": "assistant", "content": f"Found {ADDRESS}.", "reasoning_content": f"It is {ADDRESS}."},
    {"role": "user", "content": [
        {"type": "text", "text": f"Now mail {ADDRESS} 👍"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}]},
]  # fmt: skip


@pytest.mark.parametrize("headers", [{"x-penstock-bypass": "true"}, {"x-penstock-chain": "open"}])
async def test_no_header_skips_it(client: Client, behind: Upstream, headers: dict[str, str]) -> None:
    assert (await client.chat(model="guarded", messages=CONVERSATION, headers=headers)).status == 200
    assert ADDRESS.encode() not in behind.last.body


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(json.dumps({"model": "guarded", "prompt": ADDRESS}).encode(), id="a path that it cannot read"),
        pytest.param(json.dumps({"prompt": ADDRESS}).encode(), id="it names no model"),
        pytest.param(json.dumps({"Model": "guarded", "prompt": ADDRESS}).encode(), id="it names one in another case"),
        pytest.param(json.dumps({"model": "guarded", "prompt": ADDRESS}).encode("utf-16"), id="in another encoding"),
    ],
)
async def test_an_upstream_that_may_choose_a_model_gets_nothing(client: Client, behind: Upstream, body: bytes) -> None:
    json_body = {"content-type": "application/json"}
    assert (await client.send("POST", "/v1/completions", json_body, data=body)).refusal == (403, "guarded")
    assert behind.received == []
    assert (await client.post("/v1/completions", {"model": "open", "prompt": ADDRESS})).status == 200
    assert (await client.get("/v1/files")).status == 200


@pytest.mark.parametrize("second", ['name="model"', "name=model", 'x=y;\r\n NAME="model"', "name*=utf-8''model"])
async def test_a_form_names_one_model(client: Client, behind: Upstream, second: str) -> None:
    head = "--b\r\nContent-Disposition: form-data;"
    one, two = f'{head} name="model"\r\n\r\nopen\r\n', f"{head} {second}\r\n\r\nguarded\r\n"
    prompt = f'{head} name="prompt"\r\n\r\nname="model"\r\n\r\n{ADDRESS}\r\n'
    form = {"content-type": "multipart/form-data; boundary=b"}
    for parts, status in ((one, 200), (one + two, 400), (two + one, 400), (prompt + one, 200)):
        data = f"{parts}--b--\r\n".encode()
        assert (await client.send("POST", "/v1/audio/transcriptions", form, data=data)).status == status
    assert len(behind.received) == 2
