"""Configuration: what holds is loaded, with its environment, and so is the shipped file."""

import re
from pathlib import Path

import pytest

from proxy.config.load import load
from proxy.config.settings import OpenAIUpstream
from tests.config.files import BASE, ROOT, loaded


def test_a_chain_is_its_policies_in_order_with_their_names(tmp_path: Path) -> None:
    steps = "    - reject_oversize: {share: 0.5}\n    - window_history\n    - reject_oversize:\n"
    chains = loaded(tmp_path, f"{BASE}chains:\n  default:\n{steps}  other:\n").settings.chains
    named = [(name, type(policy).__name__) for name, policy in chains["default"]]

    oversize = ("reject_oversize", "RejectOversize")
    assert named == [oversize, ("window_history", "WindowHistory"), oversize]
    assert chains["default"][0][1].model_dump()["share"] == 0.5
    assert chains["other"] == ()


def test_values_from_the_environment_become_what_they_must_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = BASE + "server: {port: '${PORT}', max_body_mib: '${MIB}', may_bypass: '${BYPASS}'}"
    environment = {"PORT": "8080", "MIB": "1.5", "BYPASS": "false"}
    given = loaded(tmp_path, text, environment).settings.server
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert load(tmp_path / "config.yaml").settings.server == given, "the process's own, unless given"
    assert (given.port, given.max_body_mib, given.may_bypass) == (8080, 1.5, False)


def test_the_version_is_that_of_the_text(tmp_path: Path) -> None:
    text = BASE + "server: {host: '${HOST:-a}'}\n"
    first = loaded(tmp_path, text)

    assert re.fullmatch(r"[0-9a-f]{12}", first.version)
    assert loaded(tmp_path, text, {"HOST": "b"}).version == first.version
    assert loaded(tmp_path, text + "# more\n").version != first.version


def test_addresses_lose_their_last_slash_and_an_empty_key_is_none(tmp_path: Path) -> None:
    text = BASE.replace("{kind: echo}", "{kind: openai, base_url: 'http://h:1/v1/', api_key: '${KEY:-}'}")
    for environment, is_keyed in (({}, False), ({"KEY": "sk-1"}, True)):
        (upstream,) = loaded(tmp_path, text, environment).settings.upstreams.values()
        assert isinstance(upstream, OpenAIUpstream)
        assert (upstream.base_url, upstream.api_key is not None) == ("http://h:1/v1", is_keyed)


SHIPPED = ROOT / "config.yaml"
VARIABLES = sorted(set(re.findall(r"\$\{([A-Z_]+)", SHIPPED.read_text(encoding="utf-8"))))
ADDRESSES = {"OPENAI_BASE_URL": "http://h:1/v1", "OLLAMA_HOST": "http://h:2"}
VALUES = {"PENSTOCK_PORT": "8080", "PENSTOCK_WARM": "true", **ADDRESSES}


@pytest.mark.parametrize("variable", VARIABLES)
def test_the_shipped_configuration_takes_each_variable(variable: str) -> None:
    value = VALUES.get(variable, "other")

    settings = load(SHIPPED, {variable: value}).settings

    assert value in settings.model_dump_json()
    assert settings != load(SHIPPED, {}).settings
