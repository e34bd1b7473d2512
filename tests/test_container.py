"""The Dockerfile, what it leaves out, compose.yaml, what is pinned, and what a release says of itself."""

import asyncio
import json
import os
import re
import runpy
import shutil
import stat
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from contextlib import chdir, redirect_stderr, redirect_stdout
from fnmatch import fnmatch
from io import StringIO
from pathlib import Path
from types import MappingProxyType
from unittest.mock import patch

import aiohttp
import pytest
import yaml

import proxy
from proxy.__main__ import main
from proxy.config.load import load
from proxy.config.settings import StateSettings
from tests.e2e import servers
from tests.loopback import answering, free_port, listening

ROOT = Path(__file__).parent.parent
DOCKERFILE = (ROOT / "Dockerfile").read_text()
COMPOSE = yaml.safe_load((ROOT / "compose.yaml").read_text())
FINAL = DOCKERFILE.rpartition("\nFROM ")[2]
HADOLINT = Path(sys.executable).parent / "hadolint"


def instruction(name: str) -> str:
    """The one instruction of this name in the last stage."""
    (found,) = re.findall(rf"^{name} (.*)$", FINAL, re.MULTILINE)
    return str(found)


@pytest.mark.skipif(
    not (HADOLINT.exists() or shutil.which("hadolint")), reason="hadolint is NOT run: pip install '.[dev]'"
)
def test_hadolint_finds_nothing() -> None:
    program = str(HADOLINT) if HADOLINT.exists() else "hadolint"
    ran = subprocess.run([program, "--no-color", ROOT / "Dockerfile"], capture_output=True, text=True, timeout=180)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")


def test_it_runs_as_nobody_and_writes_to_one_volume() -> None:
    assert instruction("USER") == "65532:65532"
    assert instruction("VOLUME") == instruction("WORKDIR") == "/var/lib/penstock"
    # the root file system may be read-only: state is kept in the working directory, if the file says no other
    state = load(ROOT / "config.yaml", {}).settings.state
    assert isinstance(state, StateSettings)
    assert not Path(state.directory).is_absolute()


def test_it_starts_penstock_as_the_first_process() -> None:
    assert json.loads(instruction("ENTRYPOINT")) == ["penstock"]
    assert json.loads(instruction("CMD")) == ["serve", "--config", "/etc/penstock/config.yaml"]
    assert "COPY config.yaml /etc/penstock/config.yaml" in FINAL
    settings = load(ROOT / "config.yaml", {"PENSTOCK_HOST": "0.0.0.0", "PENSTOCK_PORT": instruction("EXPOSE")}).settings
    assert (settings.server.host, settings.server.port) == ("0.0.0.0", 4000)
    assert "PENSTOCK_HOST=0.0.0.0" in FINAL
    assert f"PENSTOCK_PORT={settings.server.port}" in FINAL


def test_versions_agree_and_the_chart_and_the_changelog_have_them() -> None:
    assert re.findall(r"^ARG VERSION=(.*)$", FINAL, re.MULTILINE) == [proxy.__version__]
    assert COMPOSE["services"]["penstock"]["image"] == f"penstock:{proxy.__version__}"
    assert re.search(r"^ARG PYTHON=3\.11\.\d+-slim-bookworm$", DOCKERFILE, re.MULTILINE)
    chart = yaml.safe_load((ROOT / "helm/penstock/Chart.yaml").read_text())
    assert chart["version"] == chart["appVersion"] == proxy.__version__
    released = [each for each in re.findall(r"^## (\S+)", CHANGELOG, re.MULTILINE) if each != "Unreleased"]
    assert not released or released[0] == proxy.__version__


def test_the_lines_that_the_build_edits_are_there() -> None:
    """`sed` does not complain where it finds nothing."""
    project = (ROOT / "pyproject.toml").read_text()
    assert len(re.findall(r"^torch==[^+\n]+$", (ROOT / "constraints.txt").read_text(), re.MULTILINE)) == 1
    data = tomllib.loads(project)
    # whatever brings torch is known to the Dockerfile, which must fetch its build for CPUs first
    extras = data["project"]["optional-dependencies"]
    assert [name for name, needs in extras.items() if any(need.startswith("torch") for need in needs)] == ["semantic"]
    assert "*,all,*|*,semantic,*" in DOCKERFILE


def test_only_what_the_image_needs_is_sent_to_the_build() -> None:
    lines = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if line and line[0] != "#"]
    assert lines[0] == "*"
    sent = {line[1:] for line in lines if line[0] == "!"}
    assert all((ROOT / name).exists() for name in sent)
    package = tomllib.loads((ROOT / "pyproject.toml").read_text())
    needed = {glob.rstrip("*") for glob in package["tool"]["setuptools"]["packages"]["find"]["include"]}
    needed |= {"pyproject.toml", "config.yaml", package["project"]["readme"]}
    needed |= set(re.findall(r"^COPY (.*) \./$", DOCKERFILE, re.MULTILINE)[0].split())
    assert needed <= sent
    assert not any(fnmatch(name, pattern) for name in (".git", ".env", "state", "tests", "docs") for pattern in sent)


@pytest.mark.parametrize(("status", "healthy"), [(200, True), (503, False), (None, False)])
async def test_the_health_check_asks_for_health(status: int | None, healthy: bool) -> None:
    check = json.loads(instruction(r"HEALTHCHECK .* CMD"))
    assert check[0] == "python"
    handle, got = answering(f"HTTP/1.1 {status} Status\r\ncontent-length: 0\r\n\r\n".encode())
    async with listening(handle) as url:
        # a proxy for outgoing calls must not be asked about the container itself
        port = str(url.port if status else free_port())
        environment = {"PENSTOCK_PORT": port, "http_proxy": "http://127.0.0.1:9"}
        command = [sys.executable, *check[1:]]
        ran = await asyncio.to_thread(subprocess.run, command, env=environment, capture_output=True, timeout=180)
    assert [head.split()[:2] for head in got] == [[b"GET", b"/healthz"]] * bool(status)
    assert (ran.returncode == 0) is healthy


def test_compose_closes_what_can_be_closed() -> None:
    service, key = COMPOSE["services"]["penstock"], COMPOSE["services"]["key"]
    for each in (service, key):
        assert each["read_only"] is True
        assert each["cap_drop"] == ["ALL"]
        assert each["security_opt"] == ["no-new-privileges:true"]
        assert each["volumes"] == ["state:/var/lib/penstock"]
    assert key["network_mode"] == "none"
    # from other machines nothing is reached without a decision
    published = {name: each["ports"] for name, each in COMPOSE["services"].items() if "ports" in each}
    assert published.keys() == {"penstock", "grafana"}
    assert all(port.startswith("127.0.0.1:") for ports in published.values() for port in ports)
    for name, each in COMPOSE["services"].items():
        assert ":" in each["image"].rpartition("/")[2], f"{name} has no version"
        assert name in ("penstock", "key") or "healthcheck" in each
    mounts = [volume.split(":") for each in COMPOSE["services"].values() for volume in each["volumes"]]
    assert {source for source, *_ in mounts if not source.startswith("./")} == set(COMPOSE["volumes"])
    for source, _, *mode in (mount for mount in mounts if mount[0].startswith("./")):
        assert (ROOT / source).exists()
        assert mode == ["ro"]


def test_monitoring_is_there_for_those_who_ask_for_it() -> None:
    services = COMPOSE["services"]
    monitoring = {name for name, each in services.items() if each.get("profiles") == ["monitoring"]}
    assert monitoring == {"prometheus", "grafana", "otel"}
    scraped = yaml.safe_load((ROOT / "deploy/prometheus/prometheus.yml").read_text())["scrape_configs"]
    targets = [target for each in scraped for group in each["static_configs"] for target in group["targets"]]
    assert {target.partition(":")[0] for target in targets} <= set(services)
    collector = yaml.safe_load((ROOT / "deploy/otel/collector.yaml").read_text())
    served = (services["penstock"]["ports"][0], collector["exporters"]["prometheus"]["endpoint"])
    assert {target.partition(":")[2] for target in targets} == {each.rpartition(":")[2] for each in served}
    for pipeline in collector["service"]["pipelines"].values():
        used = {name for names in pipeline.values() for name in names}
        parts = ("receivers", "processors", "connectors", "exporters")
        assert used <= {name for part in parts for name in collector[part]}
    (secret,) = services["prometheus"]["configs"]
    assert secret["target"] == scraped[0]["authorization"]["credentials_file"]
    datasource = yaml.safe_load((ROOT / "deploy/grafana/provisioning/datasources/prometheus.yaml").read_text())
    assert datasource["datasources"][0]["url"] == "http://prometheus:9090"


def composed(volume: Path, changes: Mapping[str, str] = MappingProxyType({})) -> str:
    """The configuration of compose, with its volume in a folder of the test."""
    text = COMPOSE["configs"]["penstock"]["content"]
    assert not re.search(r"(?<!\$)(\$\$)*\$(?!\$)", text), "compose itself would fill this in"
    for old, new in {"$$": "$", "/var/lib/penstock": str(volume), **changes}.items():
        assert old in text
        text = text.replace(old, new)
    return str(text)


def run(volume: Path, arguments: list[str], **environment: str) -> tuple[int, str]:
    """A command of the image's entry point, with the volume in a folder of the test: its exit code and its log."""
    command = [word.replace("/var/lib/penstock", str(volume)) for word in arguments]
    log = StringIO()
    with chdir(volume), patch.dict(os.environ, environment, clear=True), redirect_stdout(log), redirect_stderr(log):
        return main(command), log.getvalue()


def test_the_configuration_of_compose_loads(tmp_path: Path) -> None:
    text = composed(tmp_path)
    (tmp_path / "config.yaml").write_text(text)
    (tmp_path / "keys.yaml").write_text("keys: []\n")
    settings = load(tmp_path / "config.yaml", {}).settings
    shipped = load(ROOT / "config.yaml", {}).settings
    assert [name for name, _ in settings.chains["default"]] == [name for name, _ in shipped.chains["default"]]
    grace = int(COMPOSE["services"]["penstock"]["stop_grace_period"].removesuffix("s"))
    assert settings.server.drain + 10 <= grace
    hosts = set(re.findall(r"//(\w+):\d+", text))
    assert hosts <= set(COMPOSE["services"])
    # what it reads from its environment, compose puts there
    given = set(COMPOSE["services"]["penstock"]["environment"])
    assert set(re.findall(r"\$\{(\w+)", text)) == given - {"OTEL_EXPORTER_OTLP_ENDPOINT"}


def test_the_key_of_compose_is_made_before_penstock_starts_and_only_once(tmp_path: Path) -> None:
    service, key = COMPOSE["services"]["penstock"], COMPOSE["services"]["key"]
    assert service["depends_on"]["key"] == {"condition": "service_completed_successfully"}
    # the same image and so the same user, to whom the volume belongs; one service builds it
    assert key["image"] == service["image"]
    assert not {"entrypoint", "user", "build", "restart"} & set(key)
    (tmp_path / "config.yaml").write_text(composed(tmp_path))
    check = ["check", "--config", "config.yaml"]
    assert run(tmp_path, check)[0] == 1, "without the file of keys it does not start"
    code, log = run(tmp_path, key["command"])
    assert code == 0
    assert len(re.findall(r"^pk-[a-z2-7]{52}$", log, re.MULTILINE)) == 1
    made = tmp_path / "keys.yaml"
    content = made.read_bytes()
    assert stat.S_IMODE(made.stat().st_mode) == 0o600
    code, log = run(tmp_path, key["command"])
    assert (code, log) == (0, f"# {made} already has a key named 'first': nothing to do\n")
    assert made.read_bytes() == content
    for environment in ({}, {"OPENAI_API_KEY": ""}, {"OPENAI_API_KEY": "sk-1", "PENSTOCK_ADMIN_KEY": "adm"}):
        code, log = run(tmp_path, check, **environment)
        assert code == 0, log


async def test_the_key_of_compose_lets_clients_in_and_nothing_else_does(tmp_path: Path) -> None:
    command = COMPOSE["services"]["key"]["command"]

    def new_key(*words: str) -> str:
        code, log = run(tmp_path, [*words, *command[len(words) :]])
        assert code == 0, log
        return str(re.findall(r"^pk-.*$", log, re.MULTILINE)[0])

    # no Valkey, no Qdrant and no port of its own here; all else is as it stands
    state = f"{{kind: disk, directory: {tmp_path}/state}}"
    alone = {"redis://redis:6379/0": state, "http://qdrant:6333": "none", "0.0.0.0": "127.0.0.1"}
    key = new_key()
    body = {"model": "echo", "messages": [{"role": "user", "content": "hi"}]}
    config = composed(tmp_path, alone) + "embedding: {kind: none}\n"
    async with servers.proxy(config, tmp_path) as base, aiohttp.ClientSession() as client:

        async def status(bearer: str | None) -> int:
            headers = {} if bearer is None else {"authorization": f"Bearer {bearer}"}
            async with client.post(f"{base}/v1/chat/completions", json=body, headers=headers) as answer:
                await answer.read()
                return answer.status

        assert await status(key) == 200
        assert await status(None) == 401
        assert await status("sk-another") == 401
        another = new_key("keys", "new", "ann")
        await servers.until(lambda: status(another), lambda found: found == 200)
        assert await status(key) == 200


NEEDED = runpy.run_path(str(ROOT / ".ci/needed.py"))
ADVISORIES = runpy.run_path(str(ROOT / ".ci/advisories.py"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
HASHED = NEEDED["pinned"]((ROOT / "constraints.hashes.txt").read_text())
PINS = ADVISORIES["pins"]((ROOT / "constraints.txt").read_text())

WITHOUT = {"helm-sdkpy"}
"""The Makefile installs it beside the rest, for the tests of the chart; it is in no image."""


def test_entries_have_hashes_and_what_is_pinned_those_of_the_same_version() -> None:
    text = (ROOT / "constraints.hashes.txt").read_text()
    assert len(HASHED) == len(re.findall(r"^\w", text, re.MULTILINE))
    for entry in HASHED.values():
        assert re.fullmatch(r"[^\n]+ \\\n(    --hash=sha256:[0-9a-f]{64}( \\\n)?)+", entry), entry
    pins = {f"{name}=={version}" for name, version in PINS.items() if name not in WITHOUT}
    assert pins - HASHED.keys() == set(), "run `make hashes`"
    # what has hashes only is for other systems, or for torch's build for CUDA
    assert {pin.partition("==")[0] for pin in HASHED.keys() - pins} & PINS.keys() == set()


def test_an_extra_and_all_have_what_they_need() -> None:
    requirements = NEEDED["requirements"]
    assert list(requirements(PROJECT, "")) == PROJECT["dependencies"]
    assert list(requirements(PROJECT, "redis,vector")) == ["redis>=8,<9", "qdrant-client>=1.12,<2"]
    extras = PROJECT["optional-dependencies"]
    parts = re.findall(r"[a-z]+", extras["all"][0].partition("[")[2])
    assert set(requirements(PROJECT, "all")) == {need for name in parts for need in extras[name]}
    with pytest.raises(KeyError):
        list(requirements(PROJECT, "everything"))
    names = {pin.partition("==")[0] for pin in HASHED}
    for need in [*PROJECT["dependencies"], *NEEDED["requirements"](PROJECT, "all")]:
        name = re.match(r"[\w.-]+", need)
        assert name is not None
        assert name[0] in names


def test_advisories_concern_the_versions_that_they_name() -> None:
    database = {
        "Some.Package": [
            {"specs": ["<1.2", ">=2.0,<2.3"], "cve": "CVE-1", "id": "a", "advisory": "one\ntwo"},
            {"specs": ["<0.5"], "cve": None, "id": "b", "advisory": "three"},
        ],
        "other": [{"specs": [">=0"], "cve": None, "id": "c", "advisory": "four"}],
    }

    def found(version: str) -> list[str]:
        return list(ADVISORIES["concerning"]({"some-package": version}, database))

    assert found("2.2") == ["Some.Package 2.2: CVE-1: one two"]
    assert len(found("0.4")) == 2
    assert found("0.4")[1] == "Some.Package 0.4: b: three"
    assert found("1.2") == found("2.3") == []
    assert len(found("2.0rc1")) == 0
    assert len(found("2.1rc1")) == 1


CHANGELOG = (ROOT / "CHANGELOG.md").read_text()
WORKFLOW = yaml.safe_load((ROOT / ".github/workflows/release.yml").read_text())


@pytest.mark.parametrize(("tag", "fault"), [
    ("v99.0.0", "the tag is v99.0.0"),
    (f"v{proxy.__version__}", f"CHANGELOG.md has no section ## {proxy.__version__}"),
])  # fmt: skip
def test_no_release_is_built_of_a_tag_that_does_not_agree(tag: str, fault: str) -> None:
    if f"## {proxy.__version__}" in CHANGELOG and tag != "v99.0.0":
        pytest.skip("the changelog has this version")
    done = subprocess.run([ROOT / ".ci/release"], env={**os.environ, "TAG": tag}, capture_output=True, text=True)
    assert (done.returncode, fault in done.stderr) == (1, True)


def test_the_shipped_configuration_is_the_one_of_the_checkout() -> None:
    shipped = ROOT / "proxy/data/config.yaml"
    assert shipped.is_symlink()
    assert shipped.resolve() == ROOT / "config.yaml"


def test_each_job_of_a_release_has_only_the_rights_that_it_needs() -> None:
    assert WORKFLOW["permissions"] == {"contents": "read"}
    rights = {name: job["permissions"] for name, job in WORKFLOW["jobs"].items()}
    assert rights["pypi"] == {"id-token": "write"}  # a trusted publisher: no token of PyPI is stored
    assert "secrets." not in (ROOT / ".github/workflows/release.yml").read_text()
    assert {name for name, each in rights.items() if each.get("contents") == "write"} == {"github"}
