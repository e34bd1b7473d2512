"""Policies of a configuration: those that come with Penstock, and those of one's own."""

import os
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from proxy.config.load import policy_class, policy_names
from proxy.policy import Policy
from tests.config.files import BASE, ROOT, loaded, refusal

OWN_POLICY = """
    from proxy.policy import Decision, Keep, Policy


    class Mine(Policy):
        \"\"\"Leaves every request as it is.\"\"\"

        level: int = 1

        async def apply(self, request, ctx):
            return Keep("as it was")
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A package of policies outside Penstock, importable as `own_policies`."""
    directory = tmp_path / "own_policies"
    directory.mkdir()
    (directory / "__init__.py").touch()
    (directory / "mine.py").write_text(textwrap.dedent(OWN_POLICY))
    (directory / "none.py").write_text("from own_policies.mine import Mine\n")
    (directory / "two.py").write_text(textwrap.dedent(OWN_POLICY) + "\n\nclass Other(Mine):\n    pass\n")
    (directory / "broken.py").write_text("def (:\n")
    (directory / "failing.py").write_text("raise ValueError('no licence')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield directory
    for name in [name for name in sys.modules if name.partition(".")[0] == "own_policies"]:
        del sys.modules[name]


def test_a_dotted_path_names_a_policy_elsewhere(tmp_path: Path, package: Path) -> None:
    text = BASE + "chains: {default: [own_policies.mine: {level: 3}]}"

    ((name, policy),) = loaded(tmp_path, text).settings.chains["default"]

    assert name == "own_policies.mine"
    assert policy.model_dump()["level"] == 3


@pytest.mark.parametrize(("name", "said"), [
    pytest.param("own_policies.absent", "cannot be imported: No module named", id="a module that is not there"),
    pytest.param("own_policies.none", "must define one policy class, not 0", id="a module that only imports one"),
    pytest.param("own_policies.two", "must define one policy class, not 2", id="a module with two"),
    pytest.param("own_policies.broken", "cannot be imported", id="a module that is no Python"),
    pytest.param("own_policies.failing", "cannot be imported", id="a module that fails"),
])  # fmt: skip
def test_a_policy_that_cannot_be_had_is_one_line(tmp_path: Path, package: Path, name: str, said: str) -> None:
    message = refusal(tmp_path, BASE + f"chains:\n  default:\n    - {name}: {{}}\n")

    assert message.startswith("config.yaml:8: chains.default.0: policy ")
    assert said in message


def test_a_policy_may_stand_beside_the_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    folder = tmp_path / "beside_policies"
    folder.mkdir()
    (folder / "mine.py").write_text(textwrap.dedent(OWN_POLICY))

    ((name, _),) = loaded(tmp_path, BASE + "chains: {default: [beside_policies.mine]}").settings.chains["default"]

    assert name == "beside_policies.mine"
    assert sys.path[-1] == str(tmp_path)


@pytest.mark.parametrize(("name", "said"), [
    pytest.param("acme.mine", None, id="a class"),
    pytest.param("acme.module", None, id="a module"),
    pytest.param("acme.nothing", "its entry point names no policy class", id="something else"),
    pytest.param("acme.mien", "No module named 'acme'", id="misspelt"),
    pytest.param("acme", "did you mean 'acme.mine'?", id="without a dot"),
])  # fmt: skip
def test_an_installed_package_may_bring_policies(tmp_path: Path, package: Path, name: str, said: str | None) -> None:
    about = tmp_path / "acme-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: acme\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(
        "[penstock.policies]\nacme.mine = own_policies.mine:Mine\nacme.module = own_policies.mine\n"
        "acme.nothing = own_policies.mine:Keep\nacme = own_policies.mine:Mine\n"
    )
    text = BASE + f"chains:\n  default:\n    - {name}: {{}}\n"
    if said is not None:
        assert said in refusal(tmp_path, text)
        return
    ((_, policy),) = loaded(tmp_path, text).settings.chains["default"]
    assert type(policy).__name__ == "Mine"


def test_every_policy_that_comes_with_penstock_has_the_name_of_its_file() -> None:
    names = policy_names()

    assert names == sorted(names)
    entries = {entry.removesuffix(".py") for entry in os.listdir(ROOT / "policies")}
    assert set(names) == entries - {"__init__", "__pycache__"}
    for name in names:
        kind = policy_class(name)
        assert issubclass(kind, Policy)
        assert kind.__name__ == "".join(part.capitalize() for part in name.split("_"))
        assert kind()


@pytest.mark.parametrize(("chains", "more", "line", "told"), [
    pytest.param("[{G: {on_error: skip}}]", "", 6, "`on_error: skip` lets a request pass", id="open on a fault"),
    pytest.param("[{validate_content: {action: reject}}]", "", 6, "`on_error: skip` lets", id="one that refuses"),
    pytest.param("[{validate_content: {action: reject, on_error: reject}}]", "", None, "", id="and fails closed"),
    pytest.param("[validate_content]", "", None, "", id="one that only marks"),
    pytest.param("[{G: {mode: observe}}]", "", 6, "`mode: observe` only reports", id="shadow mode"),
    pytest.param("[{G: {when: {has_tools: true}}}]", "", 6, "that do not meet `when`", id="only sometimes"),
    pytest.param("[offload_content, G]", "", 6, "'offload_content' stands before it", id="behind another step"),
    pytest.param("[isolate_tasks, G, offload_content, G]", "", None, "", id="once in front and once behind"),
    pytest.param("[G], open: []", "fallbacks: [open]", 5, "'open' may be asked instead, without", id="a fallback"),
    pytest.param("[G], open: [G]", "fallbacks: [open]", None, "", id="a fallback with a guard of its own"),
    pytest.param("[G], open: []", "larger: open", 5, "'open' may be asked instead, without", id="a larger model"),
])  # fmt: skip
def test_a_guard_that_lets_pass_is_told_of(tmp_path: Path, chains: str, more: str, line: int | None, told: str) -> None:
    entries = f'- {{match: open, upstream: echo, chain: open}}\n  - {{match: "*", upstream: echo, {more}}}'
    base = BASE.replace('- {match: "*", upstream: echo}', entries) if more else BASE
    chains = chains.replace("G", "tests.examples.redact_emails")

    warnings = loaded(tmp_path, f"{base}chains: {{default: {chains}}}").warnings

    assert len(warnings) == (line is not None)
    assert all(told in warning and f"config.yaml:{line + bool(more)}: " in warning for warning in warnings if line)
