"""Generations: which settings they keep, when they end, and whose upstreams are closed."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from starlette.types import Receive, Scope, Send

from proxy.config.load import Config, load
from proxy.config.settings import Settings
from proxy.server.build import build_upstreams
from proxy.server.reload import FIXED, Generation, Reloading, in_force, needs_restart
from proxy.telemetry.metrics import Metrics
from proxy.upstreams.base import Upstream

CONFIG = """
upstreams: {{one: {{kind: echo}}, two: {{kind: echo}}}}
models: [{{match: "{match}", upstream: one}}]
{more}
"""


class Closing:
    """An upstream that says when it is closed."""

    def __init__(self, name: str, closed: list[str]) -> None:
        self.name, self._closed = name, closed

    async def aclose(self) -> None:
        self._closed.append(self.name)


class World:
    """A configuration file, and a `Reloading` whose generations share the upstream `kept`."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "config.yaml"
        self.write("m0")
        self.closed: list[str] = []
        self.applied: list[Config] = []
        self.made = 0
        self.fails: Exception | None = None
        self.under_way: list[asyncio.Event] = []
        self.forgotten: list[str] = []
        self.reloading = Reloading(load(self.path, {}), self.make, Metrics("1"), self.applied.append)

    def write(self, match: str, more: str = "") -> None:
        # at once: the watch must not find it half written
        new = self.path.with_suffix(".new")
        new.write_text(CONFIG.format(match=match, more=more))
        new.rename(self.path)

    def make(self, config: Config, upstreams: Mapping[str, Upstream], before: Settings | None) -> Generation:
        if self.fails is not None:
            raise self.fails
        name = f"of {self.made}"
        self.made += 1
        kept: Any = upstreams.get("kept") or Closing("kept", self.closed)
        own: Any = Closing(name, self.closed)
        services: Any = SimpleNamespace(judge=None, drafts=None, forget=self.forgotten.append)
        unused: Any = None
        made = Generation(config, {"kept": kept, name: own}, services, unused, unused, unused)
        made.chat = made.rest = self.serve
        return made

    async def serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.under_way.append(asyncio.Event())
        await self.under_way[-1].wait()


async def nothing(*_: object) -> Any:
    return None


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


async def settled() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def test_an_old_generation_ends_with_its_last_exchange_and_closes_what_it_alone_had(world: World) -> None:
    first = world.reloading.current
    exchanges = [asyncio.ensure_future(first({}, nothing, nothing)) for _ in range(2)]
    await settled()
    world.write("m1")
    assert await world.reloading.reload("test") == "applied"
    assert world.reloading.current is not first
    assert world.reloading.detail()["generations"] == 2
    for event in world.under_way:
        assert world.closed == []
        event.set()
        await settled()
    await asyncio.gather(*exchanges)
    assert world.closed == ["of 0"]
    assert world.reloading.detail()["generations"] == 1
    await world.reloading.aclose()
    assert sorted(world.closed) == ["kept", "of 0", "of 1"]


async def test_all_generations_forget_a_tenant_and_are_closed_with_the_app(world: World) -> None:
    exchange = asyncio.ensure_future(world.reloading.current({}, nothing, nothing))
    await settled()
    world.write("m1")
    await world.reloading.reload("test")
    world.reloading.forget("tenant")
    assert world.forgotten == ["tenant", "tenant"]
    await world.reloading.aclose()
    assert sorted(world.closed) == ["kept", "of 0", "of 1"]
    exchange.cancel()
    await asyncio.gather(exchange, return_exceptions=True)


async def test_an_exchange_that_breaks_is_over_as_well(world: World) -> None:
    first = world.reloading.current
    exchange = asyncio.ensure_future(first({}, nothing, nothing))
    await settled()
    exchange.cancel()
    world.write("m1")
    await world.reloading.reload("test")
    await settled()
    assert world.closed == ["of 0"]
    await world.reloading.aclose()


@pytest.mark.parametrize("fault", [RuntimeError("sk-secret"), ImportError("sk-secret")])
async def test_whatever_goes_wrong_the_old_one_stays(world: World, fault: Exception) -> None:
    first = world.reloading.current
    world.write("m1")
    world.fails = fault
    assert await world.reloading.reload("test") == "refused"
    assert world.reloading.current is first
    assert world.reloading.detail()["refused"]["error"] == f"config.yaml: {type(fault).__name__} while it was loaded"
    world.path.unlink()
    assert await world.reloading.reload("test") == "refused"
    assert world.reloading.detail()["refused"]["error"].startswith("config.yaml: cannot be read")
    world.write("m0")
    assert await world.reloading.reload("test") == "unchanged"
    assert "refused" not in world.reloading.detail()
    assert world.closed == []


async def test_the_watch_tries_each_content_once(world: World) -> None:
    watching = asyncio.ensure_future(world.reloading.watch(every=0.01))
    reloads: list[str] = []
    reload = world.reloading.reload

    async def counted(cause: str) -> Any:
        reloads.append(await reload(cause))
        return reloads[-1]

    world.reloading.reload = counted  # type: ignore[method-assign]
    contents = (("m1", "", "applied"), ("m1", "wrong: 1", "refused"), ("m2", "", "applied"))
    for number, (match, more, outcome) in enumerate(contents):
        world.write(match, more)
        async with asyncio.timeout(60):
            while len(reloads) == number:
                await asyncio.sleep(0.01)
        assert reloads[-1] == outcome
        for _ in range(30):
            await asyncio.sleep(0.01)
        assert len(reloads) == number + 1
    watching.cancel()
    await asyncio.gather(watching, return_exceptions=True)
    await world.reloading.aclose()


def test_what_cannot_change_keeps_its_value(tmp_path: Path) -> None:
    def of(match: str, more: str) -> Settings:
        path = tmp_path / "config.yaml"
        path.write_text(CONFIG.format(match=match, more=more))
        return load(path, {}).settings

    running = of("m", "state: {max_mib: 64}")
    wanted = of("n", "state: {max_mib: 65}\nserver: {port: 5, drain: 7}\ntelemetry: {log_level: debug, sample: 0.5}")
    assert needs_restart(running, wanted) == ("server.port", "server.drain", "state", "telemetry.sample")
    merged = in_force(running, wanted)
    assert merged.state == running.state
    assert merged.models == wanted.models
    assert merged.server.drain == 7
    assert merged.telemetry.log_level == "debug"
    assert needs_restart(running, running) == ()
    for name in FIXED:
        assert name.partition(".")[0] in Settings.model_fields


def test_upstreams_with_the_same_settings_stay(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(CONFIG.format(match="m", more=""))
    settings = load(path, {}).settings
    first = build_upstreams(settings)
    second = build_upstreams(settings, shared={"one": first["one"]})
    assert second["one"] is first["one"]
    assert second["two"] is not first["two"]
