"""Another configuration takes the place of the one in force while requests run."""

import asyncio
import io
import json
import os
import signal
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.e2e.conftest import Lab
from tests.e2e.served import served
from tests.e2e.servers import DEFAULT_ANSWER, Respond, Upstream, answering, proxy, until_ready, upstream

ADMIN = {"authorization": "Bearer admin"}
CONFIG = """
# {n}
upstreams: {{a: {{kind: openai, base_url: "{a}"}}, b: {{kind: openai, base_url: "{b}"}}}}
models: [{{match: m, upstream: {to}, window: 8192, chain: {chain}}}]
chains: {{empty: [], full: [consolidate_system: {{}}]}}
server: {{watch: false, admin_key: admin}}
state: {{directory: "{folder}", max_mib: {mib}}}
embedding: {{kind: none}}
telemetry: {{log_level: info}}
"""
SECRET = "my grandmother's recipe"
BODY = {"model": "m", "messages": [{"role": "user", "content": SECRET}]}


def named(name: str) -> Respond:
    """Answers with a name."""
    return answering(DEFAULT_ANSWER.replace(b'"hi"', b'"%s"' % name.encode()))


class Setup:
    """A configuration file between two upstreams, `a` of the even ones and `b` of the odd ones."""

    def __init__(self, a: Upstream, b: Upstream, folder: Path, http: aiohttp.ClientSession) -> None:
        self.a, self.b, self.path, self.http = a, b, folder / "config.yaml", http
        self.base = ""

    def config(self, n: int, *, mib: int = 64) -> str:
        to, chain = ("a", "empty") if n % 2 == 0 else ("b", "full")
        folder = self.path.parent / "state"
        return CONFIG.format(n=n, a=self.a.url, b=self.b.url, to=to, chain=chain, folder=folder, mib=mib)

    async def ask(self) -> tuple[str, str, bool]:
        """Who answered, under which version, and whether the chain of the odd ones ran."""
        async with self.http.post(f"{self.base}/v1/chat/completions", json=BODY) as response:
            answer = await response.json()
            assert response.status == 200, answer
            counted = not response.headers["x-penstock-context"].startswith("-")
            return answer["choices"][0]["message"]["content"], response.headers["x-penstock-config"], counted

    async def reload(self) -> dict[str, Any]:
        async with self.http.post(f"{self.base}/admin/reload", headers=ADMIN) as response:
            answer: dict[str, Any] = await response.json()
            assert response.status == (422 if answer["outcome"] == "refused" else 200)
            return answer

    async def get(self, path: str) -> Any:
        async with self.http.get(self.base + path, headers=ADMIN) as response:
            assert response.status == 200
            text = await response.text()
            return json.loads(text) if response.content_type == "application/json" else text

    async def until(self, holds: Callable[[], Awaitable[bool]]) -> None:
        async with asyncio.timeout(60):
            while not await holds():
                await asyncio.sleep(0.05)


@pytest.fixture
async def setup(tmp_path: Path, http: aiohttp.ClientSession) -> Any:
    async with upstream() as a, upstream() as b:
        a.respond, b.respond = named("a"), named("b")
        yield Setup(a, b, tmp_path, http)


async def test_no_request_fails_or_sees_two_configurations(lab: Lab, setup: Setup) -> None:
    expected: dict[str, tuple[str, bool]] = {}
    seen: list[str] = []
    done = asyncio.Event()

    async def client() -> None:
        while not done.is_set():
            name, version, counted = await setup.ask()
            assert (name, counted) == expected[version]
            seen.append(version)

    async with proxy(setup.config(0), lab.folder) as setup.base, asyncio.TaskGroup() as clients:
        version = (await setup.get("/admin/config"))["version"]
        expected[version] = ("a", False)
        for _ in range(20):
            clients.create_task(client())
        for n in range(1, 6):
            before = len(seen)
            await setup.until(partial(_more_than, seen, before + 30))
            setup.path.write_text(setup.config(n))
            expected[_version(setup.path)] = ("b", True) if n % 2 else ("a", False)
            assert (await setup.reload())["outcome"] == "applied"
        before = len(seen)
        await setup.until(partial(_more_than, seen, before + 30))
        done.set()
    assert set(seen) == set(expected)
    assert len(expected) == 6


async def _more_than(seen: list[str], many: int) -> bool:
    return len(seen) > many


def _version(path: Path) -> str:
    from proxy.config.load import load

    return load(path, {}).version


async def test_a_wrong_file_is_refused_and_told(lab: Lab, setup: Setup, capsys: pytest.CaptureFixture[str]) -> None:
    async with proxy(setup.config(0), lab.folder) as setup.base:
        await until_ready(setup.base)
        name, version, _ = await setup.ask()
        setup.path.write_text(setup.config(1).replace("upstream: b", "upstream: c, x: {sk-secret: 1}"))
        answer = await setup.reload()
        assert answer["outcome"] == "refused"
        assert "sk-secret" not in str(answer)
        assert await setup.ask() == (name, version, False)

        ready = await setup.get("/readyz")
        assert ready["status"] == "ready"
        assert ready["config"]["version"] == version
        assert ready["config"]["refused"]["where"] == "config.yaml:4"
        assert "error" not in ready["config"]["refused"]
        error = (await setup.get("/admin/config"))["refused"]["error"]
        assert error.startswith("config.yaml:4: models.0.x: unknown key")
        metrics = await setup.get("/metrics")
        assert 'penstock_config_reloads_total{outcome="refused"} 1.0' in metrics
        assert "penstock_config_last_reload_successful 0.0" in metrics
        assert f'penstock_config_info{{version="{version}"}} 1.0' in metrics
        said = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
        told = [line for line in said if line["event"] == "configuration refused; the previous one stays in force"]
        assert [line["error"] for line in told] == [error]

        setup.path.write_text(setup.config(1))
        assert (await setup.reload())["outcome"] == "applied"
        assert (await setup.ask())[0] == "b"
        assert "refused" not in (await setup.get("/readyz"))["config"]
        metrics = await setup.get("/metrics")
        assert "penstock_config_last_reload_successful 1.0" in metrics
        assert f'version="{version}"' not in metrics
        assert (await setup.reload())["outcome"] == "unchanged"


async def test_what_outlives_a_configuration_takes_over_its_settings(lab: Lab, setup: Setup) -> None:
    text = setup.config(0).replace("telemetry: {", "telemetry: {warn_at: 1, ").replace("chain: empty", "chain: full")
    text = text.replace("server: {", "server: {max_body_mib: 0.2, ") + "limits: {incomplete_mib_per_address: 1}\n"
    large = {"model": "m", "messages": [{"role": "user", "content": "word " * 2**18}]}

    async def status(body: object) -> int:
        data, headers = io.BytesIO(json.dumps(body).encode()), {"content-type": "application/json"}
        async with setup.http.post(f"{setup.base}/v1/chat/completions", data=data, headers=headers) as response:
            return response.status

    async with proxy(text, lab.folder) as setup.base:
        assert (await status(BODY), await status(large)) == (200, 413)
        assert "penstock_context_warnings_total{" not in await setup.get("/metrics")
        text = text.replace("max_body_mib: 0.2", "max_body_mib: 4").replace("warn_at: 1", "warn_at: 0.0001")
        setup.path.write_text(text)
        assert (await setup.reload())["outcome"] == "applied"
        assert (await status(BODY), await status(large)) == (200, 200)
        assert 'penstock_context_warnings_total{level="warn",model="m"} 2.0' in await setup.get("/metrics")


async def test_a_hang_up_reloads_all_workers(setup: Setup, tmp_path: Path) -> None:
    async with served(setup.config(0), tmp_path, "--workers", "2") as running:
        setup.base = running.base
        await setup.until(lambda: _has_workers(setup, 2))
        before = await _processes(setup)
        setup.path.write_text(setup.config(1))
        os.kill(running.process.pid, signal.SIGHUP)
        version = _version(setup.path)

        async def is_swapped() -> bool:
            return set((await _processes(setup)).values()) == {version}

        await setup.until(is_swapped)
        assert (await _processes(setup)).keys() == before.keys(), "no process was replaced"
        assert (await setup.ask())[0] == "b"
        metrics = await setup.get("/metrics")
        assert f'penstock_config_info{{version="{version}"}} 2.0' in metrics
        setup.path.write_text(setup.config(2))
        answer = await setup.reload()
        assert [each["outcome"] for each in (answer, *answer["workers"])] == ["applied", "applied"]


async def _has_workers(setup: Setup, workers: int) -> bool:
    return len(await _processes(setup)) == workers


async def _processes(setup: Setup) -> dict[int, str]:
    answer = await setup.get("/admin/config")
    return {each["process"]: each["version"] for each in (answer, *answer["workers"])}


async def test_a_hang_up_while_it_starts_does_no_harm(setup: Setup, tmp_path: Path) -> None:
    async with served(setup.config(0), tmp_path) as running:
        os.kill(running.process.pid, signal.SIGHUP)
        setup.base = running.base
        assert (await setup.ask())[0] == "a"
