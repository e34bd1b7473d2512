"""The environments of the clients, made once: two for Python, as openai 2 and 3 exclude each other, one for Node."""

import hashlib
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent
SCRATCH = Path(os.environ.get("PENSTOCK_CLIENTS_DIR", HERE.parents[1] / ".cache" / "clients")).resolve()
NODE = SCRATCH / "node"

_MADE = "made-of"
_INSTALLED_IN = 900


def python_environment(name: str) -> Path:
    """The folder with the programs of an environment. Raises `CalledProcessError` where it cannot be made."""
    wanted, folder = HERE / f"requirements-{name}.txt", SCRATCH / name
    if not _is_made_of(folder, wanted):
        shutil.rmtree(folder, ignore_errors=True)
        _run([sys.executable, "-m", "venv", str(folder)], what=f"{name}: environment")
        _run([str(folder / "bin" / "pip"), "install", "-qq", "-r", str(wanted)], what=f"{name}: packages")
        _note(folder, wanted)
    return folder / "bin"


def node_environment() -> Path:
    """The folder with `node_modules`, and in it the suites, which find their packages there."""
    wanted = HERE / "package-lock.json"
    if not _is_made_of(NODE, wanted):
        shutil.rmtree(NODE, ignore_errors=True)
        NODE.mkdir(parents=True)
        for name in ("package.json", "package-lock.json"):
            shutil.copy(HERE / name, NODE)
        _run(["npm", "ci", "--no-audit", "--no-fund", "--loglevel=error"], what="node: packages", folder=NODE)
        _note(NODE, wanted)
    for suite in (HERE / "suites").glob("*.mjs"):
        shutil.copy(suite, NODE)
    return NODE


def _is_made_of(folder: Path, wanted: Path) -> bool:
    note = folder / _MADE
    return note.exists() and note.read_text() == _digest(wanted)


def _note(folder: Path, wanted: Path) -> None:
    (folder / _MADE).write_text(_digest(wanted))


def _digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def _run(command: list[str], *, what: str, folder: Path | None = None) -> None:
    started = time.monotonic()
    subprocess.run(command, cwd=folder, check=True, timeout=_INSTALLED_IN, stdout=subprocess.DEVNULL)
    print(f"made {what} in {time.monotonic() - started:.0f} s", flush=True)
