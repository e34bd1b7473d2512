"""The Dockerfile, what it leaves out, and compose.yaml. `.ci/image` builds the image and runs it; this is what is quick."""

import json
import re
import shutil
import subprocess
import sys
import tomllib
from fnmatch import fnmatch
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest
import yaml

import proxy
from proxy.config import load
from proxy.state_settings import StateSettings

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


def test_versions_agree() -> None:
    assert re.findall(r"^ARG VERSION=(.*)$", FINAL, re.MULTILINE) == [proxy.__version__]
    assert COMPOSE["services"]["penstock"]["image"] == f"penstock:{proxy.__version__}"
    assert re.search(r"^ARG PYTHON=3\.11\.\d+-slim-bookworm$", DOCKERFILE, re.MULTILINE)


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
    needed = {name.partition(".")[0] for name in package["tool"]["setuptools"]["packages"]}
    needed |= {"pyproject.toml", "config.yaml", package["project"]["readme"]}
    needed |= set(re.findall(r"^COPY (.*) \./$", DOCKERFILE, re.MULTILINE)[0].split())
    assert needed <= sent
    assert not any(fnmatch(name, pattern) for name in (".git", ".env", "state", "tests", "docs") for pattern in sent)


class Health(BaseHTTPRequestHandler):
    status = 200
    asked: list[str]

    def do_GET(self) -> None:
        self.asked.append(self.path)
        self.send_response(self.status)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.mark.parametrize(("status", "healthy"), [(200, True), (503, False), (None, False)])
def test_the_health_check_asks_for_health(status: int | None, healthy: bool) -> None:
    check = json.loads(instruction(r"HEALTHCHECK .* CMD"))
    asked: list[str] = []
    handler = type("Handler", (Health,), {"status": status, "asked": asked})
    server = HTTPServer(("127.0.0.1", 0), handler)
    thread = Thread(target=server.serve_forever, daemon=True)
    if status is None:
        server.server_close()
    else:
        thread.start()
    # a proxy for outgoing calls must not be asked about the container itself
    environment = {"PENSTOCK_PORT": str(server.server_port), "http_proxy": "http://127.0.0.1:9"}
    assert check[0] == "python"
    ran = subprocess.run([sys.executable, *check[1:]], env=environment, capture_output=True, timeout=180)
    if status is not None:
        server.shutdown()
        thread.join()
        server.server_close()
        assert asked == ["/healthz"]
    assert (ran.returncode == 0) is healthy


def test_compose_closes_what_can_be_closed() -> None:
    service = COMPOSE["services"]["penstock"]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["volumes"] == ["state:/var/lib/penstock"]
    # from other machines nothing is reached without a decision
    assert all(port.startswith("127.0.0.1:") for port in service["ports"])
    assert all("ports" not in each for name, each in COMPOSE["services"].items() if name != "penstock")
    for name, each in COMPOSE["services"].items():
        assert ":" in each["image"].rpartition("/")[2], f"{name} has no version"
        assert name == "penstock" or "healthcheck" in each
    used = {volume.partition(":")[0] for each in COMPOSE["services"].values() for volume in each["volumes"]}
    assert used == set(COMPOSE["volumes"])


def test_the_configuration_of_compose_loads(tmp_path: Path) -> None:
    text = COMPOSE["configs"]["penstock"]["content"]
    assert not re.search(r"(?<!\$)(\$\$)*\$(?!\$)", text), "compose itself would fill this in"
    (tmp_path / "config.yaml").write_text(text.replace("$$", "$"))
    settings = load(tmp_path / "config.yaml", {}).settings
    shipped = load(ROOT / "config.yaml", {}).settings
    assert [name for name, _ in settings.chains["default"]] == [name for name, _ in shipped.chains["default"]]
    grace = int(COMPOSE["services"]["penstock"]["stop_grace_period"].removesuffix("s"))
    assert settings.server.drain + 10 <= grace
    hosts = set(re.findall(r"//(\w+):\d+", text))
    assert hosts <= set(COMPOSE["services"])
