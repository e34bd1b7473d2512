"""A policy of an operator's own chooses the model: with the chain, window and keys of that model, on each wire."""

import json
from dataclasses import dataclass
from typing import Any

import pytest

from proxy.config.keys_file import hash_of
from tests.e2e.conftest import Client, Lab
from tests.e2e.servers import Upstream

CONFIG = """
upstreams:
  main: {kind: openai, base_url: "{url}", api_key: sk-of-main}
  other: {kind: openai, base_url: "{other}", api_key: sk-of-other}
  dead: {kind: openai, base_url: "http://127.0.0.1:9/v1", keyless: true}
  chat-only: {kind: ollama, base_url: "{other}"}
models:
  - {match: large, upstream: main, chain: routing, window: 8000}
  - {match: small, upstream: other, model: small-there, chain: small, window: 4000}
  - {match: dead, upstream: dead, fallbacks: [small]}
  - {match: local, upstream: chat-only}
  - {match: to-nobody, upstream: main, chain: to-nobody}
  - {match: to-itself, upstream: main, chain: to-itself}
  - {match: to-dead, upstream: main, chain: to-dead}
  - {match: to-each-other, upstream: main, chain: to-large}
  - {match: to-chat-only, upstream: main, chain: to-chat-only}
chains:
  default: []
  routing: [{route}: {model: small, most: 60}, consolidate_system: {}]
  small: [consolidate_system: {}, reject_oversize: {}]
  to-nobody: [{route}: {model: nobody}]
  to-itself: [{route}: {model: to-itself}]
  to-dead: [{route}: {model: dead}]
  to-large: [{route}: {model: large}]
  to-chat-only: [{route}: {model: local}]
auth:
  kind: keys
  keys: [{name: all, hash: {all}}, {name: large-only, hash: {large}, models: [large]},
    {name: poor, hash: {poor}, requests_per_minute: 2}]
"""
ALL, LARGE, POOR = "penstock-all", "penstock-large", "penstock-poor"
ROUTE = "tests.examples.route_by_size"
CHOSEN = f"small; reason=policy {ROUTE}"


@dataclass
class World:
    """A client of a proxy with two upstreams behind it."""

    client: Client
    main: Upstream
    other: Upstream

    async def ask(self, model: str, content: str = "hi", **options: Any) -> tuple[int, str | None]:
        """The status, and which other model has answered why."""
        answer = await self.client.chat(content, model, **options)
        return answer.status, answer.headers.get("x-penstock-fallback")

    @property
    def models(self) -> tuple[list[str], list[str]]:
        """The models that each upstream was asked for."""
        main, other = ([json.loads(each.body)["model"] for each in got.received] for got in (self.main, self.other))
        return main, other


@pytest.fixture
async def world(lab: Lab) -> World:
    other = await lab.upstream()
    keys = {"all": hash_of(ALL), "large": hash_of(LARGE), "poor": hash_of(POOR)}
    return World(await lab.client(CONFIG, ALL, other=other.url, route=ROUTE, **keys), lab.behind, other)


async def test_a_short_question_goes_to_the_model_that_the_policy_chose(world: World) -> None:
    system = [{"role": "system", "content": text} for text in ("Be brief.", "Be kind.")]
    talk = [*system, {"role": "user", "content": "hi"}]
    assert await world.ask("large", messages=talk) == (200, CHOSEN)
    assert world.models == ([], ["small-there"])
    (sent,) = world.other.received
    assert sent.header("authorization") == "Bearer sk-of-other"
    assert len(json.loads(sent.body)["messages"]) == 2, "the chain of the chosen model has merged them"


@pytest.mark.parametrize(
    ("model", "content", "key"),
    [
        pytest.param("large", "word " * 100, ALL, id="a long question"),
        pytest.param("to-nobody", "hi", ALL, id="to a model that is not there"),
        pytest.param("to-itself", "hi", ALL, id="to the same model"),
        pytest.param("large", "hi", LARGE, id="to a model that its key may not use"),
    ],
)
async def test_a_request_stays_where_it_cannot_go_elsewhere(world: World, model: str, content: str, key: str) -> None:
    assert await world.ask(model, content, key=key) == (200, None)
    assert world.models == ([model], [])


async def test_a_request_is_sent_on_and_counted_once(world: World) -> None:
    assert await world.ask("to-each-other") == (200, f"large; reason=policy {ROUTE}")
    assert world.models == (["large"], [])
    assert [await world.ask("large", key=POOR) for _ in range(3)] == [(200, CHOSEN), (200, CHOSEN), (429, None)]


async def test_the_chosen_model_has_its_own_fallbacks(world: World) -> None:
    status, told = await world.ask("to-dead")
    assert (status, world.models) == (200, ([], ["small-there"]))
    assert told == "small; reason=upstream_unreachable"


async def test_a_policy_chooses_on_each_wire_whatever_the_upstream_speaks(world: World) -> None:
    await world.ask("large", path="/v1/responses", input="hi", messages=None)
    await world.ask("large", path="/v1/messages", max_tokens=50)
    assert world.models == ([], ["small-there"] * 2)
    await world.ask("to-chat-only", path="/v1/responses", input="hi", messages=None)
    assert world.models[0] == []
