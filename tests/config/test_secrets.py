"""Secrets of a configuration: there for those who need them, shown nowhere."""

from pathlib import Path

import pytest
from pydantic import SecretStr

from proxy.chat.errors import ConfigError
from proxy.config.load import check, read_chain
from proxy.config.settings import ForeignUpstream, OpenAIUpstream
from tests.config.files import BASE, loaded, refusal

WITH_SECRETS = """
upstreams:
  a:
    kind: openai
    api_key: ${KEY}
    headers: {x-token: "${KEY}"}
  b:
    kind: foreign
    provider: bedrock
    api_key: ${KEY}
    options: {aws_secret_access_key: "${KEY}"}
  c: {kind: ollama, api_key: "${KEY}"}
models:
  - {match: "*", upstream: a}
"""


def test_secrets_are_there_and_do_not_show(tmp_path: Path) -> None:
    config = loaded(tmp_path, WITH_SECRETS, {"KEY": "hunter2"})
    first, second = config.settings.upstreams["a"], config.settings.upstreams["b"]

    assert isinstance(first, OpenAIUpstream)
    assert isinstance(second, ForeignUpstream)
    assert first.api_key == SecretStr("hunter2")
    assert first.headers["x-token"].get_secret_value() == "hunter2"
    assert second.options["aws_secret_access_key"].get_secret_value() == "hunter2"
    for shown in (repr(config), str(config), str(config.settings), config.settings.model_dump_json(), str(vars(first))):
        assert "hunter2" not in shown


@pytest.mark.parametrize("wrong", [
    pytest.param(("api_key: ${KEY}\n    headers", "api_key: [\"${KEY}\"]\n    headers"), id="a list of keys"),
    pytest.param(("api_key: ${KEY}\n    headers", "apikey: ${KEY}\n    headers"), id="a misspelt key"),
    pytest.param(("kind: openai", "kind: openai\n    base_url: ${KEY}"), id="a key for an address"),
    pytest.param(("kind: openai", "kind: openai\n    idle_timeout: ${KEY}"), id="a key for a number"),
    pytest.param(("provider: bedrock", "provider: ${KEY} !"), id="a key for a name"),
    pytest.param(("models:", "other: ${KEY}\nmodels:"), id="a key for nothing"),
])  # fmt: skip
def test_an_error_never_quotes_a_secret(tmp_path: Path, wrong: tuple[str, str]) -> None:
    text = WITH_SECRETS.replace(*wrong)
    assert text != WITH_SECRETS

    assert "hunter2" not in refusal(tmp_path, text, {"KEY": "hunter2"})


def test_what_is_only_checked_quotes_no_value_of_a_variable(tmp_path: Path) -> None:
    running = loaded(tmp_path, BASE, {"KEY": "sk-very-secret"})
    errors, warnings = check(BASE + "default_upstream: '${KEY}'\n", running)

    assert errors == ["config.yaml:6: default_upstream: there is no '${KEY}'; known: echo"]
    assert warnings == []


def test_a_chain_that_is_tried_reads_and_imports_nothing_new(tmp_path: Path) -> None:
    running = loaded(tmp_path, BASE, {"KEY": "sk-very-secret"})

    assert [name for name, _ in read_chain("- consolidate_system\n- window_history: {keep_turns: 3}\n", running)] == [
        "consolidate_system", "window_history"
    ]  # fmt: skip
    assert read_chain("", running) == ()
    for text, said in {
        "- tests.ui.telling": "chain:1: 0: 'tests.ui.telling' is not imported here",
        "- ${KEY}": "chain:1: 0: unknown policy '${KEY}'",
        "- window_history: {keep_turns: 0}\n- zzz": "chain:1: 0.window_history.keep_turns: input should be",
        "a: 1": "chain:1: must be a list of policies",
    }.items():
        with pytest.raises(ConfigError) as caught:
            read_chain(text, running)
        assert str(caught.value).startswith(said)
