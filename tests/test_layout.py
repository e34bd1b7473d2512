"""The shape of the tree: what import-linter cannot say."""

import ast
import subprocess
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FILES = [*ROOT.glob("proxy/**/*.py"), *ROOT.glob("policies/**/*.py")]


@pytest.mark.parametrize("path", [*ROOT.glob("policies/[a-z]*")], ids=lambda path: path.stem)
def test_every_policy_has_its_own_test(path: Path) -> None:
    assert (ROOT / f"tests/policies/test_{path.stem}.py").exists()


def test_a_stranger_finds_every_room_and_each_name_stands_for_one_class() -> None:
    """Few modules lie flat in `proxy/`, and there are few packages; nested ones belong to theirs."""
    flat = [path.stem for path in ROOT.glob("proxy/*.py") if not path.stem.startswith("__")]
    assert len(flat) <= 8
    assert len([*ROOT.glob("proxy/*/__init__.py")]) <= 19
    assert not {path.stem for path in FILES} & {"utils", "helpers", "common", "misc", "manager", "util"}
    trees = [ast.parse(path.read_text()) for path in FILES]
    names = Counter(node.name for tree in trees for node in tree.body if isinstance(node, ast.ClassDef))
    assert {name for name, times in names.items() if times > 1} == set()


LARGE = {
    "proxy/data/static/vectors.npy",
    "proxy/data/static/tokens.txt",
    "proxy/data/tiktoken/9b5ad71b2ce5302211f9c61530b329a4922fc6a4",
    "proxy/data/tiktoken/fb374d419588a4632f3f557e76b4b70aebbca790",
    "docs/config.schema.json",
    "constraints.hashes.txt",
}
"""The tracked files over 200 KB: models, vocabularies, what is generated."""


FOLDERS = {".ci", ".github", "benchmarks", "deploy", "docs", "helm", "policies", "proxy", "tests"}
"""The folders of the tree. A run that leaves its state in another one is found here."""


@pytest.fixture
def tracked() -> list[Path]:
    listing = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listing.returncode:
        pytest.skip("no checkout of git")
    return [Path(name) for name in listing.stdout.split("\0") if name and (ROOT / name).is_file()]


def test_tracked_files_lie_in_known_folders_and_are_small_except_those_listed(tracked: list[Path]) -> None:
    assert {path.parts[0] for path in tracked if len(path.parts) > 1} == FOLDERS
    assert {str(path) for path in tracked if (ROOT / path).stat().st_size > 200_000} == LARGE
