"""The lines of constraints.hashes.txt that Penstock needs with some extras; what is installed already is left out.

    python .ci/needed.py EXTRAS PIP... > needed.txt     such as: python .ci/needed.py redis,vector .venv/bin/pip

PIP is asked what it would install, by constraints.txt; it installs nothing. Needs the standard library only.
"""

import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HASHES = Path("constraints.hashes.txt")


def requirements(project: dict[str, Any], extras: str) -> Iterator[str]:
    """Yield the requirements of a project, with those of the extras that its extras name."""
    yield from project["dependencies"] if not extras else ()
    for extra in filter(None, extras.split(",")):
        for need in project["optional-dependencies"][extra]:
            own = re.fullmatch(rf"{project['name']}\[(.*)\]", need)
            yield from requirements(project, own[1]) if own else (need,)


def pinned(text: str) -> dict[str, str]:
    """Return the entries of a file of requirements with hashes, by name and version."""
    entries = re.findall(r"^([\w.-]+==[^\s;]+)((?:.*\\\n)+.*)", text, re.MULTILINE)
    return {normal(pin): pin + rest for pin, rest in entries}


def normal(pin: str) -> str:
    """Return a name and version in their normal form."""
    name, _, version = pin.partition("==")
    return f"{re.sub(r'[-_.]+', '-', name).lower()}=={version}"


def main(extras: str, *pip: str) -> None:
    """Print the lines. Raises `KeyError` for what has no hash."""
    project = tomllib.loads(Path("pyproject.toml").read_text())["project"]
    wanted = [*requirements(project, ""), *requirements(project, extras)]
    command = [
        *pip,
        "install",
        "--dry-run",
        "--quiet",
        "--report",
        "-",
        "-c",
        "constraints.txt",
        *dict.fromkeys(wanted),
    ]
    plan = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)  # noqa: S603
    known = pinned(HASHES.read_text())
    for each in plan["install"]:
        print(known[normal(f"{each['metadata']['name']}=={each['metadata']['version']}")])


if __name__ == "__main__":
    main(*sys.argv[1:])
