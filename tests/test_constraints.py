"""What is pinned has hashes, and the programs in `.ci` that read the pins."""

import re
import runpy
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
NEEDED = runpy.run_path(str(ROOT / ".ci/needed.py"))
ADVISORIES = runpy.run_path(str(ROOT / ".ci/advisories.py"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
HASHED = NEEDED["pinned"]((ROOT / "constraints.hashes.txt").read_text())
PINS = ADVISORIES["pins"]((ROOT / "constraints.txt").read_text())

WITHOUT = {"helm-sdkpy"}
"""The Makefile installs it beside the rest, for the tests of the chart; it is in no image."""


def test_what_is_pinned_has_hashes_of_the_same_version() -> None:
    pins = {f"{name}=={version}" for name, version in PINS.items() if name not in WITHOUT}
    assert pins - HASHED.keys() == set(), "run `make hashes`"
    # what has hashes only is for other systems, or for torch's build for CUDA
    assert {pin.partition("==")[0] for pin in HASHED.keys() - pins} & PINS.keys() == set()


def test_every_entry_has_hashes() -> None:
    text = (ROOT / "constraints.hashes.txt").read_text()
    assert len(HASHED) == len(re.findall(r"^\w", text, re.MULTILINE))
    for entry in HASHED.values():
        assert re.fullmatch(r"[^\n]+ \\\n(    --hash=sha256:[0-9a-f]{64}( \\\n)?)+", entry), entry


def test_an_extra_needs_what_the_extras_in_it_need() -> None:
    requirements = NEEDED["requirements"]
    assert list(requirements(PROJECT, "")) == PROJECT["dependencies"]
    assert list(requirements(PROJECT, "redis,vector")) == ["redis>=8,<9", "qdrant-client>=1.12,<2"]
    extras = PROJECT["optional-dependencies"]
    parts = re.findall(r"[a-z]+", extras["all"][0].partition("[")[2])
    assert set(requirements(PROJECT, "all")) == {need for name in parts for need in extras[name]}
    with pytest.raises(KeyError):
        list(requirements(PROJECT, "everything"))


def test_what_all_needs_directly_has_hashes() -> None:
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
