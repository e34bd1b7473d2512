"""Another configuration takes the place of the one in force while requests run."""

import asyncio
import io
import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from proxy.config.load import load
from tests.e2e.conftest import Client, Lab
from tests.e2e.served import served
from tests.e2e.servers import DEFAULT_ANSWER, Respond, Upstream, answering, filled, proxy, until_ready

CONFIG = """
# {n}
upstreams: {a: {kind: openai, base_url: "{a}"}, b: {kind: openai, base_url: "{b}"}}
models: [{match: m, upstream: {to}, window: 8192, chain: {chain}}]
chains: {empty: [], full: [consolidate_system: {}]}
server: {watch: false, admin_key: admin}
state: {directory: "{folder}", max_mib: 64}
telemetry: {log_level: info}
"""
SECRET = "my grandmother's recipe"
BODY = {"model": "m", "messages": [{"role": "user", "content": SECRET}]}


def named(name: str) -> Respond:
    """Answers with a name."""
    return answering(DEFAULT_ANSWER.replace(b'"hi"', b'"%s"' % name.encode()))


class Setup:
    """A configuration file between two upstreams, `a` of the even ones and `b` of the odd ones."""

    def __init__(self, lab: Lab, other: Upstream) -> None:
        self.a, self.b, self.path = lab.behind, other, lab.folder / "config.yaml"
        self.a.respond, self.b.respond = named("a"), named("b")
        self.client = Client("", lab.http, "admin")

    def config(self, n: int) -> str:
        to, chain = ("a", "empty") if n % 2 == 0 else ("b", "full")
        return filled(CONFIG, n=n, a=self.a.url, b=self.b.url, to=to, chain=chain, folder=self.path.parent / "state")

    async def ask(self) -> tuple[str, str, bool]:
        """Return who answered, under which version, and whether the chain of the odd ones ran."""
        answer = await self.client.chat(SECRET, key="")
        assert answer.status == 200, answer.body
        counted = not answer.headers["x-penstock-context"].startswith("-")
        return answer.json["choices"][0]["message"]["content"], answer.headers["x-penstock-config"], counted

    async def reload(self) -> dict[str, Any]:
        answer = await self.client.send("POST", "/admin/reload")
        assert answer.status == (422 if answer.json["outcome"] == "refused" else 200)
        return dict(answer.json)

    async def get(self, path: str) -> Any:
        answer = await self.client.get(path)
        assert answer.status == 200
        return answer.json

    async def processes(self) -> dict[int, str]:
        """Return the version of each process."""
        answer = await self.get("/admin/config")
        return {each["process"]: each["version"] for each in (answer, *answer["workers"])}

    @property
    def version(self) -> str:
        """The version of the file."""
        return load(self.path, {}).version


@pytest.fixture
async def setup(lab: Lab) -> Setup:
    return Setup(lab, await lab.upstream())


async def test_no_request_fails_or_sees_two_configurations(lab: Lab, setup: Setup) -> None:
    expected: dict[str, tuple[str, bool]] = {}
    seen: list[str] = []
    done = asyncio.Event()

    async def client() -> None:
        while not done.is_set():
            name, version, counted = await setup.ask()
            assert (name, counted) == expected[version]
            seen.append(version)

    async with proxy(setup.config(0), lab.folder) as setup.client.base, asyncio.TaskGroup() as clients:
        expected[setup.version] = ("a", False)
        for _ in range(20):
            clients.create_task(client())
        for n in range(1, 7):
            enough = len(seen) + 30
            while len(seen) <= enough:
                await asyncio.sleep(0.05)
            if n < 6:
                setup.path.write_text(setup.config(n))
                expected[setup.version] = ("b", True) if n % 2 else ("a", False)
                assert (await setup.reload())["outcome"] == "applied"
        done.set()
    assert set(seen) == set(expected)
    assert len(expected) == 6


async def test_a_wrong_file_is_refused_and_told(lab: Lab, setup: Setup, capsys: pytest.CaptureFixture[str]) -> None:
    async with proxy(setup.config(0), lab.folder) as setup.client.base:
        await until_ready(setup.client.base)
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
        metrics = await setup.client.metrics()
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
        metrics = await setup.client.metrics()
        assert "penstock_config_last_reload_successful 1.0" in metrics
        assert f'version="{version}"' not in metrics
        assert (await setup.reload())["outcome"] == "unchanged"


async def test_what_outlives_a_configuration_takes_over_its_settings(lab: Lab, setup: Setup) -> None:
    text = setup.config(0).replace("telemetry: {", "telemetry: {warn_at: 1, ").replace("chain: empty", "chain: full")
    text = text.replace("server: {", "server: {max_body_mib: 0.2, ") + "limits: {incomplete_mib_per_address: 1}\n"
    large = {"model": "m", "messages": [{"role": "user", "content": "word " * 2**18}]}

    async def statuses() -> list[int]:
        bodies, headers = (
            [io.BytesIO(json.dumps(body).encode()) for body in (BODY, large)],
            {"content-type": "application/json"},
        )
        return [(await setup.client.send("POST", "/v1/chat/completions", headers, data=each)).status for each in bodies]

    async with proxy(text, lab.folder) as setup.client.base:
        assert await statuses() == [200, 413]
        assert "penstock_context_warnings_total{" not in await setup.client.metrics()
        text = text.replace("max_body_mib: 0.2", "max_body_mib: 4").replace("warn_at: 1", "warn_at: 0.0001")
        setup.path.write_text(text)
        assert (await setup.reload())["outcome"] == "applied"
        assert await statuses() == [200, 200]
        assert 'penstock_context_warnings_total{level="warn",model="m"} 2.0' in await setup.client.metrics()


async def test_a_hang_up_reloads_all_workers(setup: Setup, tmp_path: Path) -> None:
    async with served(setup.config(0), tmp_path, "--workers", "2") as running, asyncio.timeout(120):
        setup.client.base = running.base
        while len(before := await setup.processes()) < 2:
            await asyncio.sleep(0.05)
        setup.path.write_text(setup.config(1))
        os.kill(running.process.pid, signal.SIGHUP)
        while {*(after := await setup.processes()).values()} != {setup.version}:
            await asyncio.sleep(0.05)
        assert after.keys() == before.keys(), "no process was replaced"
        assert (await setup.ask())[0] == "b"
        assert f'penstock_config_info{{version="{setup.version}"}} 2.0' in await setup.client.metrics()
        setup.path.write_text(setup.config(2))
        answer = await setup.reload()
        assert [each["outcome"] for each in (answer, *answer["workers"])] == ["applied", "applied"]


async def test_a_hang_up_while_it_starts_does_no_harm(setup: Setup, tmp_path: Path) -> None:
    async with served(setup.config(0), tmp_path) as running:
        os.kill(running.process.pid, signal.SIGHUP)
        setup.client.base = running.base
        assert (await setup.ask())[0] == "a"
