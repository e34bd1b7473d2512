"""Configuration: what holds is loaded, its secrets are there for those who need them and shown nowhere."""

import re
from pathlib import Path

import pytest
from pydantic import SecretStr

from proxy.chat.errors import ConfigError
from proxy.config.load import check, load, read_chain
from proxy.config.settings import ForeignUpstream, OpenAIUpstream
from proxy.server.admin import masked
from tests.config.files import BASE, ROOT, loaded, refusal


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


CONFIG = """# the keys: ${KEY} is set outside; sk-literal-key was here
server: {admin_key: "s3cret-of-admin"}
upstreams:
  main:  # comments stay
    kind: openai
    api_key: ${KEY}
    headers: {x-org: acme-secret, x-other: 'a "quoted" one'}
  other: {kind: anthropic, api_key: sk-literal-key}
models:
  - {match: "*", upstream: main}
state: redis://:hunter2-pass@127.0.0.1:${PORT:-6379}/0
"""


def shown(folder: Path, text: str) -> str:
    path = folder / "config.yaml"
    path.write_text(text)
    config = load(path, {"KEY": "sk-from-outside"})
    assert config.text == text
    return masked(config.text, config.settings)


def test_secrets_are_masked_and_all_else_stays(tmp_path: Path) -> None:
    assert shown(tmp_path, CONFIG) == (
        """# the keys: ${KEY} is set outside; *** was here
server: {admin_key: '***'}
upstreams:
  main:  # comments stay
    kind: openai
    api_key: ${KEY}
    headers: {x-org: '***', x-other: '***'}
  other: {kind: anthropic, api_key: '***'}
models:
  - {match: "*", upstream: main}
state: '***'
"""
    )


def test_passwords_in_addresses_are_masked_and_without_secrets_it_is_the_file(tmp_path: Path) -> None:
    text = (
        "upstreams: {e: {kind: echo}}\nmodels: [{match: '*', upstream: e}]\n"
        "vectors: ADDRESS\ntelemetry: {endpoint: 'http://otel:${KEY}@traces:4318'}\n"
    )
    address = "http://ann:hunter2@qdrant:6333"
    assert shown(tmp_path, text.replace("ADDRESS", address)) == text.replace("ADDRESS", "'***'")
    text = "upstreams: {e: {kind: echo}}  # é ✓\nmodels: [{match: '*', upstream: e}]\n"
    assert shown(tmp_path, text) == text
