"""What a replay and the metrics tell of conversations is what their upstream saw: the same bytes, and the same reads from
its cache.

The upstream caches prefixes by bytes and reports what it read. The proxy saves what it serves; the saved file is played
again, and its figures are compared with those of the upstream.
"""

import asyncio
import json
import random
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import Any

import pytest

from proxy.chat import encode
from proxy.config.load import load
from proxy.gateway.saving import Saving
from proxy.server.replay import run as running
from proxy.server.replay.player import Explained, Player
from proxy.server.replay.reading import read
from proxy.server.replay.report import totals
from proxy.testing import lifelike
from tests.e2e.conftest import Client, Lab
from tests.e2e.servers import DEFAULT_ANSWER, Received, Upstream, answering, proxy, send
from tests.scripted import calls

Message = dict[str, Any]

CONFIG = """
models:
  - match: "*"
    upstream: main
    window: {window}
    reserve: 0
    tokenizer: chars
    prices: {input: 1, output: 1}
    cache: {read: 0.1, write: 1, minimum: 1024, ttl: 300}
chains:
  default:
    - isolate_tasks: {}
    - consolidate_system: {}
    - compact_tool_results: {}
    - offload_content: {}
    - compress_history: {}
    - pin_context: {}
    - recall_history: {}
    - include_shared: {}
    - filter_tools: {}
    - offer_recall: {}
    - reject_oversize: {share: 0.95}
state: {kind: memory}
"""
COST = 'penstock_prompt_cost_usd_total{{model="m",prompt="{}"'
SPANISH = [
    "Buenas tardes, el pedido {id} no ha llegado y lo necesito antes del {day} de marzo.",
    "¿Puede decirme en qué almacén está el paquete {id}? Lo pagué con la tarjeta que termina en {day}.",
    "Quiero cambiar la dirección del pedido {id}: ahora vivo en la calle Mayor, número {day}.",
    "El producto llegó roto; la foto es la {id} y la factura tiene el número {day}.",
]
WORDS = re.findall(
    r"\w+", "the printer on floor two shows a paper jam and the queue holds jobs that nobody has sent since the night"
)


def agent(steps: int = 60) -> Iterator[tuple[Message, ...]]:
    """An agent that calls a tool and reads a large result in each step."""
    dice = random.Random(7)
    yield ({"role": "system", "content": "You fix printers."}, {"role": "user", "content": "Find out what is wrong."})
    for step in range(steps):
        rows = [
            {"id": f"JOB-{step}-{row}", "state": "held", "note": " ".join(dice.choices(WORDS, k=12))}
            for row in range(12)
        ]
        yield (
            {"role": "assistant", "content": None, "tool_calls": calls(f"{lifelike().tools[0].name}:c{step}")},
            {"role": "tool", "tool_call_id": f"c{step}", "content": json.dumps(rows)},
        )


def support(turns: int = 75) -> Iterator[tuple[Message, ...]]:
    """A long talk in Spanish, about many orders."""
    dice = random.Random(8)
    yield ({"role": "system", "content": "Usted atiende a los clientes de una tienda. Sea breve."},)
    for turn in range(turns):
        asked = " ".join(dice.choice(SPANISH).format(id=f"PE-{turn}-{n}", day=dice.randint(1, 99)) for n in range(4))
        said = "Entendido: he revisado sus datos y le confirmo lo que pide. " * 3
        answered = () if turn == 0 else ({"role": "assistant", "content": f"{said} Turno {turn}."},)
        yield (*answered, {"role": "user", "content": asked})


TEAM: dict[str, Callable[[], Iterator[tuple[Message, ...]]]] = {
    "planner": partial(support, 40),
    "tester": partial(agent, 20),
}
"""Agents that work at the same time, in one session."""


@dataclass
class Cache:
    """A prompt cache of bytes, four of which are a token."""

    seen: list[bytes] = field(default_factory=list)
    cost: float = 0.0

    def read(self, body: Message) -> tuple[int, int]:
        """The tokens of a prompt, and those that are read from the cache."""
        prompt = b"".join(map(encode, (*body.get("tools", ()), *body["messages"])))
        same = max((_common(each, prompt) for each in self.seen), default=0) // 4
        cached, tokens = same - same % 128 if same >= 1024 else 0, len(prompt) // 4
        self.seen.append(prompt)
        self.cost += tokens - 0.9 * cached
        return tokens, cached


@dataclass
class Provider:
    """An upstream that reports what it read from its cache."""

    cache: Cache = field(default_factory=Cache)
    bodies: list[bytes] = field(default_factory=list)

    async def respond(self, behind: Upstream, received: Received, writer: asyncio.StreamWriter) -> None:
        self.bodies.append(received.body)
        tokens, cached = self.cache.read(json.loads(received.body))
        usage = {"prompt_tokens": tokens, "prompt_tokens_details": {"cached_tokens": cached}}
        answer = {"choices": [{"index": 0, "message": {"role": "assistant", "content": "x"}}], "usage": usage}
        await send(writer, 200, json.dumps(answer).encode())


def _common(one: bytes, other: bytes) -> int:
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if one[:middle] == other[:middle] else (low, middle - 1)
    return low


def in_turn(talks: Mapping[str, Callable[[], Iterator[tuple[Message, ...]]]]) -> Iterator[tuple[str, Message]]:
    """The requests of agents that talk one after the other, each with what it said before."""
    said: dict[str, list[Message]] = {name: [] for name in talks}
    for parts in zip_longest(*(talk() for talk in talks.values()), fillvalue=()):
        for (name, messages), more in zip(said.items(), parts, strict=True):
            messages += more
            if more and messages[-1]["role"] != "system":
                tools = [lifelike().tools[0]] if any("tool_calls" in each for each in messages) else []
                yield name, {"model": "m", "messages": messages, **({"tools": tools} if tools else {})}


@pytest.mark.parametrize(
    ("talks", "window"),
    [
        pytest.param({"": agent}, 100_000, id="agent"),
        pytest.param({"": agent}, 16_000, id="agent in a small window"),
        pytest.param({"": support}, 8_000, id="support"),
        pytest.param(TEAM, 4_000, id="team"),
    ],
)
async def test_a_replay_tells_what_the_upstream_saw(
    talks: Mapping[str, Callable[[], Iterator[tuple[Message, ...]]]],
    window: int,
    lab: Lab,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    provider, unchanged, saved = Provider(), Cache(), tmp_path / "saved.jsonl"
    lab.behind.respond = provider.respond
    async with proxy(lab.config(CONFIG, window=window), tmp_path, saving=Saving(saved)) as base:
        for name, request in in_turn(talks):
            unchanged.read(request)
            headers = {"x-penstock-session": "work", "x-penstock-agent": name} if name else {}
            assert (await Client(base, lab.http).chat(**request, headers=headers)).status == 200
        cost = [await Client(base, lab.http).metric(COST.format(prompt)) for prompt in ("sent", "unchanged")]
    settings = load(tmp_path / "config.yaml", {}).settings
    played: list[bytes | None] = []
    play = Player.play

    async def noted(self: Player, *given: Any, **more: Any) -> Explained:
        explained = await play(self, *given, **more)
        played.append(explained.body)
        return explained

    monkeypatch.setattr(Player, "play", noted)
    conversations = read(saved)
    assert len(conversations) == len(talks)
    found = totals(await running.replay(settings, conversations))
    assert [_messages(each) for each in played] == [_messages(each) for each in provider.bodies]
    assert found["cost"]["read 0.1"] == pytest.approx(provider.cache.cost / unchanged.cost, rel=0.02)
    assert cost[0] / cost[1] == pytest.approx(provider.cache.cost / unchanged.cost, rel=0.04), "a cut may cost more"
    calibration = found["calibration"]
    assert calibration["turns"] == len(provider.bodies)
    assert calibration["met"] >= 0.9 * calibration["turns"]
    assert found["values"]["lost"] == found["violations"]["requests"] == found["failed_steps"] == 0


def _messages(body: bytes | None) -> tuple[Any, Any]:
    assert body is not None
    read = json.loads(body)
    return read["messages"], read.get("tools")


async def test_a_cache_that_is_never_read_is_not_counted_on(lab: Lab) -> None:
    """An upstream that reports no reads charges for each prompt in full."""
    usage = {"prompt_tokens": 3000, "completion_tokens": 1, "prompt_tokens_details": {"cached_tokens": 0}}
    lab.behind.respond = answering(json.dumps({**json.loads(DEFAULT_ANSWER), "usage": usage}).encode())
    client = await lab.client(CONFIG, window=100_000)
    answers = [await client.chat(**request) for _, request in in_turn({"": partial(agent, 14)})]
    records = [await client.record(answer) for answer in answers]
    costs = [record["usd_estimated"] * 1e6 / record["tokens_after"] for record in records]
    assert sum(cost < 0.5 for cost in costs) == 3, "until that is known it is believed"
    assert costs[-1] == pytest.approx(1.0, rel=0.03)
    assert records[-1]["usd_saved"] == pytest.approx(records[-1]["usd_unchanged"] - records[-1]["usd_estimated"])
