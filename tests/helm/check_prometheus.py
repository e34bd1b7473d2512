"""The shipped Prometheus files in a real Prometheus beside a running proxy. `make test-monitoring`; skipped where there is none.

It is no part of the tests of every day: Prometheus is large, and takes seconds to see what happens.
"""

import asyncio
import shutil
from asyncio.subprocess import DEVNULL, Process
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml

from tests.e2e.servers import proxy, upstream
from tests.helm.test_monitoring import DEPLOY, PANELS
from tests.loopback import free_port

PROMETHEUS = shutil.which("prometheus") or ""
pytestmark = pytest.mark.skipif(not PROMETHEUS, reason="there is no Prometheus: apt-get install prometheus")

KEY = "s3cret"
CONFIG = """
upstreams: {{main: {{kind: openai, base_url: "{url}"}}, dead: {{kind: openai, base_url: "http://127.0.0.1:9/v1"}}}}
models:
  - {{match: dead, upstream: dead, window: 8192}}
  - {{match: "*", upstream: main, window: 8192, prices: {{input: 1, output: 2}}}}
chains: {{default: [compact_tool_results: {{}}, window_history: {{}}, reject_oversize: {{}}]}}
server: {{admin_key: {key}, watch: false}}
state: {{kind: memory}}
vectors: none
embedding: {{kind: none}}
telemetry: {{log_level: error}}
"""
PATIENCE = 60.0


class Prometheus:
    """A running one."""

    def __init__(self, base: str, http: aiohttp.ClientSession) -> None:
        self.base, self._http = base, http

    async def ask(self, path: str, **query: str) -> Any:
        """What it answers below /api/v1; it takes every question."""
        async with self._http.get(f"{self.base}/api/v1/{path}", params=query) as answer:
            told = await answer.json()
        assert told["status"] == "success", (query, told)
        return told["data"]

    async def value(self, expression: str) -> float:
        """The value of an expression; 0 where it has none."""
        found = (await self.ask("query", query=expression))["result"]
        return float(found[0]["value"][1]) if found else 0.0

    async def firing(self) -> set[str]:
        """The alerts that fire."""
        return {each["labels"]["alertname"] for each in (await self.ask("alerts"))["alerts"]}

    async def rules(self) -> list[dict[str, Any]]:
        """The rules that it has loaded."""
        return [rule for group in (await self.ask("rules"))["groups"] for rule in group["rules"]]


@asynccontextmanager
async def prometheus(folder: Path, target: str, http: aiohttp.ClientSession) -> AsyncGenerator[Prometheus, None]:
    """The shipped files, but for addresses, and for times: it looks each second, and alerts do not wait."""
    config = yaml.safe_load((DEPLOY / "prometheus/prometheus.yml").read_text())
    rules = yaml.safe_load((DEPLOY / "prometheus/penstock.rules.yaml").read_text())
    for rule in (rule for group in rules["groups"] for rule in group["rules"]):
        rule.pop("for", None)
    (scraped,) = [each for each in config["scrape_configs"] if each["job_name"] == "penstock"]
    scraped["static_configs"][0]["targets"] = [target]
    scraped["authorization"]["credentials_file"] = str(folder / "key")
    config["scrape_configs"] = [scraped]
    config["rule_files"] = [str(folder / "rules.yaml")]
    config["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    (folder / "key").write_text(KEY)
    (folder / "rules.yaml").write_text(yaml.safe_dump(rules))
    (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
    port = free_port()
    process: Process = await asyncio.create_subprocess_exec(
        PROMETHEUS,
        f"--config.file={folder}/prometheus.yml",
        f"--storage.tsdb.path={folder}/data",
        f"--web.listen-address=127.0.0.1:{port}",
        stdout=DEVNULL,
        stderr=DEVNULL,
    )
    made = Prometheus(f"http://127.0.0.1:{port}", http)
    try:
        await until(lambda: ready(made, http))
        yield made
    finally:
        process.terminate()
        await process.wait()


async def ready(made: Prometheus, http: aiohttp.ClientSession) -> bool:
    try:
        async with http.get(f"{made.base}/-/ready") as answer:
            return answer.status == 200
    except aiohttp.ClientConnectionError:
        return False


async def until(true: Callable[[], Any]) -> None:
    """Wait until it is true. Raises `TimeoutError`."""
    async with asyncio.timeout(PATIENCE):
        while not await true():
            await asyncio.sleep(0.2)


async def target_is_up(watching: Prometheus) -> bool:
    return [each["health"] for each in (await watching.ask("targets"))["activeTargets"]] == ["up"]


async def has_seen(watching: Prometheus, requests: int) -> bool:
    counted = 'sum(penstock_requests_total{job="penstock",namespace="compose",pod="penstock"})'
    return await watching.value(counted) >= requests


async def has_evaluated(watching: Prometheus) -> bool:
    return all(rule["health"] != "unknown" for rule in await watching.rules())


async def is_told_down(watching: Prometheus) -> bool:
    return "PenstockDown" in await watching.firing()


async def chat(http: aiohttp.ClientSession, base: str, model: str) -> int:
    body = {"model": model, "messages": [{"role": "user", "content": "hi"}]}
    async with http.post(f"{base}/v1/chat/completions", json=body) as answer:
        await answer.read()
        return answer.status


async def figures(watching: Prometheus, expression: str) -> bool:
    """Whether there is something to draw."""
    for variable, value in (("$namespace", ".*"), ("$job", ".*"), ("$__rate_interval", "1m")):
        expression = expression.replace(variable, value)
    return bool((await watching.ask("query", query=expression))["result"])


async def test_prometheus_takes_the_shipped_files_and_alerts_when_something_is_wrong(tmp_path: Path) -> None:
    async with upstream() as behind, aiohttp.ClientSession() as http, AsyncExitStack() as running:
        base = await running.enter_async_context(proxy(CONFIG.format(url=behind.url, key=KEY), tmp_path))
        async with prometheus(tmp_path, base.removeprefix("http://"), http) as watching:
            await until(partial(target_is_up, watching))
            for requests in (10, 20):  # a rate needs two scrapes that differ
                assert {await chat(http, base, "m") for _ in range(10)} == {200}
                await until(partial(has_seen, watching, requests))
            await until(partial(has_evaluated, watching))
            rules = await watching.rules()
            assert len(rules) > 10
            assert {(rule["health"], rule.get("lastError", "")) for rule in rules} == {("ok", "")}
            assert await watching.firing() == set(), "nothing is wrong"
            drawn = [
                panel["title"] for panel in PANELS for each in panel["targets"] if await figures(watching, each["expr"])
            ]
            assert len(set(drawn)) > len(PANELS) / 2, drawn
            while not await watching.firing() >= {"PenstockErrors", "PenstockUpstreamFails"}:
                assert await chat(http, base, "dead") in (502, 503)
                await asyncio.sleep(0.1)
            await running.aclose()
            await until(partial(is_told_down, watching))
