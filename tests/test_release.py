"""What a release says of itself: one version everywhere, a changelog of it, and programs that stop where it is not so."""

import os
import re
import subprocess
from pathlib import Path

import pytest
import yaml

import proxy

ROOT = Path(__file__).parent.parent
CHANGELOG = (ROOT / "CHANGELOG.md").read_text()
WORKFLOW = yaml.safe_load((ROOT / ".github/workflows/release.yml").read_text())


def test_the_chart_and_the_changelog_are_of_the_version() -> None:
    chart = yaml.safe_load((ROOT / "helm/penstock/Chart.yaml").read_text())
    assert chart["version"] == chart["appVersion"] == proxy.__version__
    released = [each for each in re.findall(r"^## (\S+)", CHANGELOG, re.MULTILINE) if each != "Unreleased"]
    assert not released or released[0] == proxy.__version__


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
