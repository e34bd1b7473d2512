"""Prompts that Ollama cuts without a word: noticed, and without false alarms."""

import logging
from typing import Any

import pytest

from proxy.context import TokenCount
from proxy.testing import CharTokens, profile
from proxy.upstreams.ollama import Ollama
from tests.e2e.conftest import Lab
from tests.scripted import read
from tests.upstreams.ollama.conftest import MODEL, ask, call, counted, ollama
from tests.upstreams.ollama.fake_ollama import FakeOllama, size_of

CONFIG = """
upstreams: {local: {kind: ollama, base_url: "{url}"}}
models: [{match: "*", upstream: local, num_ctx: 2048}]
chains: {default: [consolidate_system: {}]}
"""
LONG = " ".join(f"u{'x' * 400}" for _ in range(40))
"""About 4000 of the fake's tokens."""


@pytest.mark.parametrize("stream", [False, True])
async def test_a_cut_prompt_is_noticed(
    fake: FakeOllama, upstream: Ollama, stream: bool, caplog: pytest.LogCaptureFixture
) -> None:
    fake.window = 2048
    with caplog.at_level(logging.WARNING, "penstock.ollama"):
        reply = await upstream.send(call(ask(LONG, stream=stream), counted=counted(4000), profile=profile(2048)))
        if stream:
            assert "truncated" not in reply.facts
        said = await read(reply) if stream else reply.body or b""

    assert reply.facts["truncated"] is True
    assert b'"finish_reason":"length"' in said
    assert b'"finish_reason":"stop"' not in said
    (record,) = caplog.records
    assert record.getMessage() == "prompt was truncated by the server"
    evaluated = reply.facts["prompt_tokens"]
    assert vars(record)["fields"] == {"model": MODEL, "counted": 4000, "evaluated": evaluated, "window": 2048}
    assert "xxxx" not in caplog.text


@pytest.mark.parametrize(("count", "fields", "is_cut"), [
    pytest.param(counted(4000), {}, None, id="as many tokens as we counted"),
    pytest.param(counted(5500), {}, None, id="an estimate may be off"),
    pytest.param(counted(5500, exact=True), {}, True, id="an exact count is not"),
    pytest.param(counted(9000), {"profile": profile(32768, source="ollama")}, None, id="far from a full window"),
    pytest.param(None, {}, None, id="nothing counted"),
])  # fmt: skip
async def test_no_false_alarm(
    fake: FakeOllama, upstream: Ollama, count: TokenCount | None, fields: Any, is_cut: bool | None
) -> None:
    assert (await upstream.send(call(ask(LONG), counted=count, **fields))).facts.get("truncated") is is_cut


@pytest.mark.parametrize(("window", "told"), [(2048, True), (32768, None)])
async def test_a_prompt_that_no_chain_has_counted_is_counted_where_it_may_be_cut(
    fake: FakeOllama, upstream: Ollama, window: int, told: bool | None
) -> None:
    fake.window = 2048
    seen = call(ask(LONG), body=ask(LONG).encode(), tokens=CharTokens(), profile=profile(window, source="ollama"))

    assert (await upstream.send(seen)).facts.get("truncated") is told


async def test_an_unknown_count_and_images_prove_nothing(fake: FakeOllama, upstream: Ollama) -> None:
    fake.window = 2048
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}
    request = ask(LONG)
    seen = request.with_messages([request.messages[0].with_changes(content=[image]), *request.messages[1:]])
    assert "truncated" not in (await upstream.send(call(seen, counted=counted(4000)))).facts

    fake.figures = False
    assert "truncated" not in (await upstream.send(call(request, counted=counted(4000)))).facts


@pytest.mark.parametrize("limited", [False, True])
async def test_a_window_filled_to_the_last_token(fake: FakeOllama, limited: bool) -> None:
    upstream = ollama(fake.url, 4096)
    prompt = size_of([{"content": word} for word in LONG.split()])
    fake.last["eval_count"] = 4096 - prompt
    fields = {"max_tokens": 4096 - prompt} if limited else {}

    reply = await upstream.send(call(ask(LONG, **fields)))

    assert reply.facts.get("truncated", False) is not limited
    await upstream.aclose()


@pytest.mark.parametrize("bypass", ["false", "true"])
async def test_the_client_is_told_that_its_prompt_was_cut(fake: FakeOllama, lab: Lab, bypass: str) -> None:
    fake.window = 2048
    client = await lab.client(CONFIG, url=fake.url)
    said = [{"role": "user", "content": f"Note {n}: the quick brown fox jumps. " * 12} for n in range(40)]
    answer = await client.chat(model=MODEL, messages=said, headers={"x-penstock-bypass": bypass})

    assert (answer.status, answer.headers["x-penstock-truncated"]) == (200, "true")
    assert answer.json["choices"][0]["finish_reason"] == "length"
