"""A guard through a running proxy: what it takes out goes nowhere, whatever the client asks for and whatever fails."""

import json
from typing import Any

import pytest

from tests.e2e.conftest import Lab, Setup

CONFIG = """
upstreams: {{main: {{kind: openai, base_url: "{url}"}}}}
models:
  - {{match: guarded, upstream: main, window: 2000, reserve: 0, fallbacks: [open]}}
  - {{match: open, upstream: main, chain: open}}
chains:
  default:
    - tests.examples.redact_emails: {{}}
    - offload_content: {{}}
    - compress_history: {{}}
    - pin_context: {{}}
    - recall_history: {{}}
    - offer_recall: {{}}
    - reject_oversize: {{}}
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


@pytest.fixture
async def setup(lab: Lab) -> Setup:
    return Setup(await lab.start(CONFIG.format(url=lab.behind.url)), lab.behind, lab.http)


async def post(
    setup: Setup, messages: list[dict[str, Any]], model: str = "guarded", path: str = "chat/completions", **headers: str
) -> tuple[int, dict[str, Any]]:
    body = {"model": model, "messages": messages}
    async with setup.session.post(f"{setup.base}/v1/{path}", json=body, headers=headers) as response:
        return response.status, await response.json()


@pytest.mark.parametrize("headers", [{"x-penstock-bypass": "true"}, {"x-penstock-chain": "open"}])
async def test_no_header_skips_it(setup: Setup, headers: dict[str, str]) -> None:
    status, _ = await post(setup, CONVERSATION, **headers)

    assert status == 200
    assert ADDRESS.encode() not in setup.upstream.last.body


async def test_other_paths_that_it_cannot_read_are_closed(setup: Setup) -> None:
    status, answer = await post(setup, CONVERSATION, path="completions")

    assert (status, answer["error"]["code"]) == (403, "guarded")
    assert (await post(setup, CONVERSATION, "open", path="completions"))[0] == 200
    assert len(setup.upstream.received) == 1


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(json.dumps({"prompt": ADDRESS}).encode(), id="it names no model"),
        pytest.param(json.dumps({"Model": "guarded", "prompt": ADDRESS}).encode(), id="it names one in another case"),
        pytest.param(json.dumps({"model": "guarded", "prompt": ADDRESS}).encode("utf-16"), id="in another encoding"),
    ],
)
async def test_an_upstream_that_may_choose_a_model_that_it_guards_gets_nothing(setup: Setup, body: bytes) -> None:
    url, headers = f"{setup.base}/v1/completions", {"content-type": "application/json"}
    async with setup.session.post(url, data=body, headers=headers) as response:
        assert (response.status, (await response.json())["error"]["code"]) == (403, "guarded")
    assert setup.upstream.received == []
    async with setup.session.get(f"{setup.base}/v1/files") as response:
        assert response.status == 200


@pytest.mark.parametrize("second", ['name="model"', "name=model", 'x=y;\r\n NAME="model"', "name*=utf-8''model"])
async def test_a_form_names_one_model(setup: Setup, second: str) -> None:
    head = "--b\r\nContent-Disposition: form-data;"
    one, two = f'{head} name="model"\r\n\r\nopen\r\n', f"{head} {second}\r\n\r\nguarded\r\n"
    prompt = f'{head} name="prompt"\r\n\r\nname="model"\r\n\r\n{ADDRESS}\r\n'
    url, headers = f"{setup.base}/v1/audio/transcriptions", {"content-type": "multipart/form-data; boundary=b"}
    for parts, status in ((one, 200), (one + two, 400), (two + one, 400), (prompt + one, 200)):
        async with setup.session.post(url, data=f"{parts}--b--\r\n".encode(), headers=headers) as response:
            assert response.status == status
    assert len(setup.upstream.received) == 2
