"""Requests are played as served; what a model of meaning does meanwhile is not the chain's."""

import asyncio
from pathlib import Path
from typing import ClassVar

import pytest

from proxy.chat import ChatRequest, encode
from proxy.config.load import load
from proxy.config.settings import Settings
from proxy.context import Context
from proxy.policy import Decision, Keep, Need, Policy
from proxy.server.replay.player import open_player
from tests.vectors.scripted import Scripted

CONFIG = """
upstreams: {e: {kind: echo}}
models: [{match: m, upstream: e, window: 8192}, {match: tiny, upstream: e, window: 8192}]
chains: {default: [tests.server.replay.test_player: {}]}
judge: {model: tiny}
vectors: none
state: {kind: memory}
"""


class Asking(Policy):
    """Asks the judge, and for vectors."""

    asked: ClassVar[int] = 0

    @property
    def needs(self) -> frozenset[Need]:
        return frozenset({"embedding", "judge"})

    async def apply(self, request: ChatRequest, ctx: Context) -> Decision:
        """Keep the request."""
        Asking.asked += 1
        assert ctx.services.judge is not None
        assert ctx.services.embedder is not None
        await ctx.services.judge.replacements([("a", "b")], wait=0)
        await ctx.services.embedder.similarities("a", ["a"], wait=0)
        ctx.services.embedder.prepare(["b"])
        return Keep("asked")


class Slow(Scripted):
    async def load(self) -> None:
        if not self.loads:
            await asyncio.sleep(0.2)
        await super().load()


BODY = encode({"model": "m", "messages": [{"role": "user", "content": "Hi"}]})


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    (tmp_path / "config.yaml").write_text(CONFIG)
    monkeypatch.setattr("proxy.server.build.build_backend", lambda settings: Slow())
    return load(tmp_path / "config.yaml").settings


async def test_a_model_that_loads_costs_a_chain_no_time(settings: Settings) -> None:
    async with open_player(settings) as player:
        played = await player.play(BODY)
    assert played.seconds < 0.2
    assert played.unasked == {"judge": 1}
    assert Asking.asked == 1


async def test_texts_that_are_compared_after_a_request_count_for_no_step(settings: Settings) -> None:
    async with open_player(settings, loads=False) as player:
        for _ in range(2):
            played = await player.play(BODY, conversation="c")
            assert played.unasked == {"judge": 1, "vectors": 1}
            await player.commit(played)
