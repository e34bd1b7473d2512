"""Readiness while what counts tokens is being loaded: nobody is sent there yet, and who comes anyway is served."""

import asyncio
import threading
from collections.abc import Generator
from functools import partial
from typing import Any

import pytest

from policies.consolidate_system import ConsolidateSystem
from policies.redact_secrets import RedactSecrets
from proxy.chat import ChatRequest
from proxy.context import Context
from proxy.models.encodings import Encoder, characters
from proxy.models.tokens import TokenService
from proxy.policy import Decision, Keep
from tests.e2e.conftest import Client, Lab
from tests.e2e.servers import until_ready

CONFIG = """
models: [{match: "counted-*", upstream: main, tokenizer: cl100k_base}, {match: "*", upstream: main, chain: empty}]
chains: {default: {chain}, empty: []}
"""
STEPS = "[consolidate_system: {}]"


class Loading:
    """Loads a vocabulary when it may."""

    def __init__(self) -> None:
        self.go, self.error = threading.Event(), False
        self.asked: list[str] = []

    def __call__(self, name: str) -> Encoder:
        self.asked.append(name)
        assert self.go.wait(60)
        if self.error:
            raise LookupError
        return characters


@pytest.fixture
def loading(monkeypatch: pytest.MonkeyPatch) -> Generator[Loading, None, None]:
    made = Loading()
    monkeypatch.setattr("proxy.server.build.TokenService", partial(TokenService, load=made))
    yield made
    made.go.set()


async def ready(client: Client) -> tuple[int, Any]:
    answer = await client.get("/readyz")
    return answer.status, answer.json["status"]


@pytest.mark.parametrize("fails", [False, True])
async def test_it_is_not_ready_before_it_can_count_but_serves(lab: Lab, loading: Loading, fails: bool) -> None:
    loading.error = fails
    client = await lab.client(CONFIG, chain=STEPS)
    assert await ready(client) == (503, "starting")
    assert (await client.chat(model="other")).status == 200, "an empty chain counts nothing"
    early = asyncio.ensure_future(client.chat(model="counted-1"))
    assert await ready(client) == (503, "starting")
    assert (await client.get("/healthz")).status == 200
    loading.go.set()
    assert (await early).status == 200
    await until_ready(client.base)
    assert loading.asked == ["cl100k_base"], "what no chain counts with is not loaded"


async def test_without_a_chain_there_is_nothing_to_wait_for(lab: Lab, loading: Loading) -> None:
    base = await lab.start(CONFIG, chain="[]")
    await until_ready(base)
    assert loading.asked == []


async def test_it_can_count_when_it_is_ready_also_beside_a_provider_without_an_address(
    lab: Lab, loading: Loading
) -> None:
    loading.go.set()
    far = "upstreams: {far: {kind: foreign, provider: gemini}, main: {kind: openai, base_url: '{url}/v1'}}\n"
    await until_ready(await lab.start(CONFIG + far, chain=STEPS))
    assert loading.asked == ["cl100k_base"]


async def test_any_start_has_run_each_chain_over_a_short_request(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = list[int]()

    async def apply(self: ConsolidateSystem, request: ChatRequest, ctx: Context) -> Decision:
        seen.append(len(request.messages))
        return Keep("as it was")

    monkeypatch.setattr(ConsolidateSystem, "decide", apply)
    base = await lab.start(CONFIG, chain=STEPS)
    await until_ready(base)
    assert seen == [1]


async def test_a_guard_that_hangs_holds_a_start_up_for_its_timeout(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    async def apply(self: RedactSecrets, request: ChatRequest, ctx: Context) -> Decision:
        await asyncio.Event().wait()
        raise AssertionError("nothing ends it")

    monkeypatch.setattr(RedactSecrets, "decide", apply)
    base = await lab.start(CONFIG, chain="[redact_secrets: {timeout: 0.1}]")
    async with asyncio.timeout(20):
        await until_ready(base)


async def test_a_warm_start_has_run_each_chain_before_it_is_ready(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    go, seen = asyncio.Event(), list[tuple[int, int, bool]]()

    async def apply(self: ConsolidateSystem, request: ChatRequest, ctx: Context) -> Decision:
        total = (await ctx.tokens.count(request)).total
        seen.append((len(request.messages), len(request.tools), total >= ctx.model.usable(request)))
        await go.wait()
        return Keep("as it was")

    monkeypatch.setattr(ConsolidateSystem, "decide", apply)
    client = await lab.client(CONFIG + "server: {warm: true}\n", chain=STEPS)
    while not seen:
        await asyncio.sleep(0.01)
    assert await ready(client) == (503, "starting")
    go.set()
    await until_ready(client.base)
    ((messages, tools, is_full),) = seen
    assert messages > 80
    assert tools == 40
    assert is_full, "a cut is due"
    assert "penstock_requests_total{" not in await client.metrics(), "nobody has asked anything yet"
