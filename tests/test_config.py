"""Configuration: what holds is loaded, and each mistake is one line with its place and what would be right."""

import os
import re
import sys
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from pydantic import SecretStr

from proxy.access_settings import KeysAuth
from proxy.config import Config, load, policy_class, policy_names
from proxy.errors import ConfigError
from proxy.policy import Policy
from proxy.settings import ForeignUpstream, OpenAIUpstream

ROOT = Path(__file__).parent.parent

BASE = """
upstreams:
  echo: {kind: echo}
models:
  - {match: "*", upstream: echo}
"""
"""The smallest configuration that holds; what is added to it begins on line 6."""


def loaded(directory: Path, text: str, environment: Mapping[str, str] | None = None) -> Config:
    path = directory / "config.yaml"
    path.write_text(text, encoding="utf-8")
    return load(path, environment or {})


def refusal(directory: Path, text: str, environment: Mapping[str, str] | None = None) -> str:
    with pytest.raises(ConfigError) as caught:
        loaded(directory, text, environment)
    message = str(caught.value)
    assert "\n" not in message
    return message.replace(f"{directory}/", "")


# --- what holds -------------------------------------------------------------------------------------------------------


def test_the_smallest_configuration(tmp_path: Path) -> None:
    config = loaded(tmp_path, BASE)

    assert config.path == tmp_path / "config.yaml"
    assert config.settings.server.port == 4000
    assert config.settings.chains == {"default": ()}
    assert config.settings.models[0].match == ("*",)


def test_a_chain_is_its_policies_in_order_with_their_names(tmp_path: Path) -> None:
    text = (
        BASE
        + "chains:\n  default:\n    - reject_oversize: {share: 0.5}\n    - window_history\n    - reject_oversize:\n"
    )
    chain = loaded(tmp_path, text + "  other:\n").settings.chains["default"]

    assert [name for name, _ in chain] == ["reject_oversize", "window_history", "reject_oversize"]
    assert [type(policy).__name__ for _, policy in chain] == ["RejectOversize", "WindowHistory", "RejectOversize"]
    assert chain[0][1].model_dump()["share"] == 0.5
    assert loaded(tmp_path, text + "  other:\n").settings.chains["other"] == ()


def test_values_from_the_environment_become_what_they_must_be(tmp_path: Path) -> None:
    text = BASE + "server: {port: '${PORT}', max_body_mib: '${MIB}', may_bypass: '${BYPASS}'}"

    server = loaded(tmp_path, text, {"PORT": "8080", "MIB": "1.5", "BYPASS": "false"}).settings.server

    assert (server.port, server.max_body_mib, server.may_bypass) == (8080, 1.5, False)


def test_a_value_of_the_environment_cannot_add_settings(tmp_path: Path) -> None:
    hostile = "1.2.3.4\n  port: 1\nmodels: []\n# {["

    config = loaded(tmp_path, BASE + "server:\n  host: ${HOST}\n", {"HOST": hostile})

    assert config.settings.server.host == hostile
    assert config.settings.server.port == 4000


def test_the_environment_is_the_processs_own_unless_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_TEST_HOST", "h")
    (tmp_path / "config.yaml").write_text(BASE + "server: {host: '${PENSTOCK_TEST_HOST}'}")

    assert load(tmp_path / "config.yaml").settings.server.host == "h"


def test_the_version_is_that_of_the_text(tmp_path: Path) -> None:
    text = BASE + "server: {host: '${HOST:-a}'}\n"
    first = loaded(tmp_path, text)

    assert re.fullmatch(r"[0-9a-f]{12}", first.version)
    assert loaded(tmp_path, text, {"HOST": "b"}).version == first.version
    assert loaded(tmp_path, text + "# more\n").version != first.version


def test_addresses_lose_their_last_slash(tmp_path: Path) -> None:
    text = BASE.replace("echo: {kind: echo}", "echo: {kind: openai, base_url: 'http://h:1/v1/'}")

    upstream = loaded(tmp_path, text).settings.upstreams["echo"]

    assert isinstance(upstream, OpenAIUpstream)
    assert upstream.base_url == "http://h:1/v1"


# --- the shipped file -------------------------------------------------------------------------------------------------

SHIPPED = ROOT / "config.yaml"
VARIABLES = sorted(set(re.findall(r"\$\{([A-Z_]+)", SHIPPED.read_text(encoding="utf-8"))))
VALUES = {"PENSTOCK_PORT": "8080", "OPENAI_BASE_URL": "http://h:1/v1", "OLLAMA_HOST": "http://h:2"}


def test_the_shipped_configuration_needs_no_environment() -> None:
    settings = load(SHIPPED, {}).settings

    assert set(settings.upstreams) >= {"openai", "ollama", "echo"}
    assert settings.chains["default"]


@pytest.mark.parametrize("variable", VARIABLES)
def test_the_shipped_configuration_takes_each_variable(variable: str) -> None:
    value = VALUES.get(variable, "other")

    settings = load(SHIPPED, {variable: value}).settings

    assert value in settings.model_dump_json()
    assert settings != load(SHIPPED, {}).settings


# --- mistakes ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("added", "said"),
    [
        pytest.param("modls: []", "config.yaml:6: modls: unknown key; did you mean 'models'?", id="the top"),
        pytest.param("server:\n  prot: 1", "config.yaml:7: server.prot: unknown key; did you mean 'port'?", id="server"),
        pytest.param("telemetry: {zzz: 1}", "config.yaml:6: telemetry.zzz: unknown key; known: endpoint, protocol",
                     id="nothing similar"),
        pytest.param("chains:\n  default:\n    - window_history: {keep_turn: 1}",
                     "config.yaml:8: chains.default.0.window_history.keep_turn: unknown key; did you mean 'keep_turns'?",
                     id="a policy"),
        pytest.param("chains:\n  default:\n    - window_history:\n        when:\n          context_ovr: 1",
                     "config.yaml:10: chains.default.0.window_history.when.context_ovr: unknown key; did you mean 'context_over'?",
                     id="a condition"),
    ],
)  # fmt: skip
def test_an_unknown_key_is_met_with_the_right_one(tmp_path: Path, added: str, said: str) -> None:
    assert refusal(tmp_path, BASE + added).startswith(said)


@pytest.mark.parametrize(
    ("upstream", "model", "said"),
    [
        pytest.param("kind: openai\n    base_ulr: x", "", "config.yaml:5: upstreams.one.base_ulr: unknown key; did you mean 'base_url'?",
                     id="an upstream"),
        pytest.param("kind: echo", "windw: 1", "config.yaml:8: models.0.windw: unknown key; did you mean 'window'?",
                     id="a model"),
        pytest.param("kind: echo", "prices:\n      inptu: 1",
                     "config.yaml:9: models.0.prices.inptu: unknown key; did you mean 'input'?", id="prices"),
        pytest.param("kind: echo", "cache:\n      reed: 1",
                     "config.yaml:9: models.0.cache.reed: unknown key; did you mean 'read'?", id="cache rules"),
    ],
)  # fmt: skip
def test_so_it_is_in_upstreams_and_models(tmp_path: Path, upstream: str, model: str, said: str) -> None:
    text = f"version: 1\nupstreams:\n  one:\n    {upstream}\nmodels:\n  - match: '*'\n    upstream: one\n    {model}\n"

    assert refusal(tmp_path, text) == said


def test_a_key_that_is_needed_and_misspelt_is_named_as_it_is_written(tmp_path: Path) -> None:
    said = refusal(tmp_path, "upstreams:\n  echo: {kind: echo}\nmodels:\n  - {match: '*', upstrem: echo}\n")

    assert said == "config.yaml:4: models.0.upstrem: unknown key; did you mean 'upstream'?"


@pytest.mark.parametrize(
    ("added", "place", "right"),
    [
        pytest.param("version: 2", "config.yaml:6: version", "1", id="another version"),
        pytest.param("server: 4000", "config.yaml:6: server", "dictionary", id="a number for a section"),
        pytest.param("server:\n  port: http", "config.yaml:7: server.port", "integer", id="a word for a number"),
        pytest.param("server:\n  port: 70000", "config.yaml:7: server.port", "65535", id="a port beyond the last"),
        pytest.param("server:\n  drain: 0", "config.yaml:7: server.drain", "greater than 0", id="no time at all"),
        pytest.param("server:\n  may_bypass: perhaps", "config.yaml:7: server.may_bypass", "boolean", id="no boolean"),
        pytest.param("telemetry:\n  log_level: loud", "config.yaml:7: telemetry.log_level", "'debug', 'info'",
                     id="a word that is not one of some"),
        pytest.param("telemetry:\n  endpoint: host:4318", "config.yaml:7: telemetry.endpoint", "http:// or https://",
                     id="an address without a scheme"),
        pytest.param("default_upstream: ehco", "config.yaml:6: default_upstream", "did you mean 'echo'?",
                     id="a default that is not there"),
        pytest.param("chains: []", "config.yaml:6: chains", "names to lists of policies", id="chains that are a list"),
        pytest.param("chains:\n  default: window_history", "config.yaml:7: chains.default", "- window_history:",
                     id="a chain that is a word"),
        pytest.param("chains:\n  default: {window_history: {}}", "config.yaml:7: chains.default", "- window_history:",
                     id="a chain that is a mapping"),
        pytest.param("chains:\n  default:\n    - []", "config.yaml:8: chains.default.0", "- window_history:",
                     id="a step that is a list"),
        pytest.param("chains:\n  default:\n    -", "config.yaml:8: chains.default.0", "- window_history:",
                     id="a step that is nothing"),
        pytest.param("chains:\n  default:\n    - {}", "config.yaml:8: chains.default.0", "- window_history:",
                     id="a step without a name"),
        pytest.param("chains:\n  default:\n    - a: {}\n      b: {}", "config.yaml:8: chains.default.0",
                     "- window_history:", id="two policies in a step"),
        pytest.param("chains:\n  default:\n    - window_history\n    - window_histry: {}",
                     "config.yaml:9: chains.default.1", "did you mean 'window_history'?", id="an unknown policy"),
        pytest.param("chains:\n  default:\n    - window_history\n    - isolate_tasks",
                     "config.yaml:9: chains.default.1.isolate_tasks", "must stand before all other steps",
                     id="a step that must come first"),
        pytest.param("chains:\n  default:\n    - zzz", "config.yaml:8: chains.default.0", "window_history",
                     id="a policy that resembles none"),
        pytest.param("chains:\n  default:\n    - ''", "config.yaml:8: chains.default.0", "window_history",
                     id="an empty name"),
        pytest.param("chains:\n  default:\n    - window_history: [40]", "config.yaml:8: chains.default.0.window_history",
                     "dictionary", id="a list for settings"),
        pytest.param("chains:\n  default:\n    - window_history:\n        keep_turns: 0",
                     "config.yaml:9: chains.default.0.window_history.keep_turns", "greater than or equal to 1",
                     id="a setting out of its bounds"),
        pytest.param("chains:\n  default:\n    - window_history:\n        on_error: ignore",
                     "config.yaml:9: chains.default.0.window_history.on_error", "'skip' or 'reject'",
                     id="a setting that all policies have"),
        pytest.param("chains:\n  default:\n    - window_history: {keep_turns: 5, stride: 9}",
                     "config.yaml:8: chains.default.0.window_history", "stride", id="settings that contradict"),
        pytest.param("chains: {small: []}", "config.yaml:5: models.0.chain", "there is no 'default'; known: small",
                     id="no default chain"),
        pytest.param("models: []", "config.yaml:6: models", "twice", id="a section twice"),
        pytest.param("server: {host: '${NO_SUCH_VARIABLE}'}", "config.yaml:6: server.host",
                     "${NO_SUCH_VARIABLE:-default}", id="a variable that is not set"),
    ],
)  # fmt: skip
def test_a_mistake_is_one_line_with_its_place_and_what_would_be_right(
    tmp_path: Path, added: str, place: str, right: str
) -> None:
    said = refusal(tmp_path, BASE + added)

    assert said.startswith(f"{place}: ")
    assert right in said


@pytest.mark.parametrize(
    ("text", "place", "right"),
    [
        pytest.param("", "config.yaml: upstreams", "required", id="an empty file"),
        pytest.param("hello", "config.yaml:1", "must be a mapping that starts with `version: 1`", id="a word"),
        pytest.param("- a\n- b", "config.yaml:1", "must be a mapping that starts with `version: 1`", id="a list"),
        pytest.param("upstreams:\n  a: {kind: echo}", "config.yaml:1: models", "required", id="no models"),
        pytest.param("upstreams: {}\nmodels: [{match: a, upstream: b}]", "config.yaml:1: upstreams", "at least 1",
                     id="no upstream"),
        pytest.param("upstreams:\n  a: {kind: echo}\nmodels: []", "config.yaml:3: models", "at least 1",
                     id="an empty list of models"),
        pytest.param("upstreams:\n  a: {kind: opnai}\nmodels: [{match: x, upstream: a}]", "config.yaml:2: upstreams.a",
                     "'openai'", id="an unknown kind"),
        pytest.param("upstreams:\n  a: {base_url: http://h}\nmodels: [{match: x, upstream: a}]",
                     "config.yaml:2: upstreams.a", "kind", id="no kind"),
        pytest.param("upstreams:\n  a: openai\nmodels: [{match: x, upstream: a}]", "config.yaml:2: upstreams.a",
                     "dictionary", id="a word for an upstream"),
        pytest.param("upstreams:\n  a:\n    kind: openai\n    base_url: h:1\nmodels: [{match: x, upstream: a}]",
                     "config.yaml:4: upstreams.a.base_url", "http:// or https://", id="an address without a scheme"),
        pytest.param("upstreams:\n  a: {kind: foreign, provider: 'a b'}\nmodels: [{match: x, upstream: a}]",
                     "config.yaml:2: upstreams.a.provider", "[a-z0-9_]", id="a provider that is no name"),
        pytest.param("upstreams:\n  a: {kind: echo}\nmodels:\n  - match: x\n    upstream: b",
                     "config.yaml:5: models.0.upstream", "there is no 'b'; known: a", id="an unknown upstream"),
        pytest.param("upstreams:\n  a: {kind: echo}\nmodels:\n  - match: x\n    upstream: a\n    chain: defualt",
                     "config.yaml:6: models.0.chain", "did you mean 'default'?", id="an unknown chain"),
        pytest.param("upstreams:\n  a: {kind: echo}\nmodels:\n  - match: []\n    upstream: a",
                     "config.yaml:4: models.0.match", "at least 1", id="no glob"),
        pytest.param("upstreams:\n  a: {kind: echo}\nmodels:\n  - match: [x, 1]\n    upstream: a",
                     "config.yaml:4: models.0.match.1", "string", id="a number for a glob"),
        pytest.param("upstreams: [", "config.yaml:1: not valid YAML", "expected", id="no YAML"),
    ],
)  # fmt: skip
def test_so_is_a_mistake_in_what_every_file_needs(tmp_path: Path, text: str, place: str, right: str) -> None:
    said = refusal(tmp_path, text)

    assert said.startswith(f"{place}: ")
    assert right in said


def test_a_file_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="none.yaml: cannot be read: No such file"):
        load(tmp_path / "none.yaml", {})
    with pytest.raises(ConfigError, match="cannot be read: Is a directory"):
        load(tmp_path, {})


def test_a_file_that_is_not_utf8_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_bytes(BASE.encode() + b"# \xff")

    with pytest.raises(ConfigError, match="cannot be read: it is not UTF-8"):
        load(tmp_path / "config.yaml", {})


# --- secrets ----------------------------------------------------------------------------------------------------------

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


@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param(("api_key: ${KEY}\n    headers", "api_key: [\"${KEY}\"]\n    headers"), id="a list of keys"),
        pytest.param(("api_key: ${KEY}\n    headers", "api_key: {a: \"${KEY}\"}\n    headers"), id="a mapping of keys"),
        pytest.param(("api_key: ${KEY}\n    headers", "apikey: ${KEY}\n    headers"), id="a misspelt key"),
        pytest.param(("kind: openai", "kind: openai\n    base_url: ${KEY}"), id="a key for an address"),
        pytest.param(("kind: openai", "kind: openai\n    idle_timeout: ${KEY}"), id="a key for a number"),
        pytest.param(("provider: bedrock", "provider: ${KEY} !"), id="a key for a name"),
        pytest.param(("models:", "server: {port: \"${KEY}\"}\nmodels:"), id="a key for a port"),
        pytest.param(("models:", "telemetry: \"${KEY}\"\nmodels:"), id="a key for a section"),
        pytest.param(("models:", "chains: {default: [{window_history: {keep_turns: \"${KEY}\"}}]}\nmodels:"),
                     id="a key for a setting of a policy"),
        pytest.param(("models:", "other: ${KEY}\nmodels:"), id="a key for nothing"),
    ],
)  # fmt: skip
def test_an_error_never_quotes_a_secret(tmp_path: Path, wrong: tuple[str, str]) -> None:
    text = WITH_SECRETS.replace(*wrong)
    assert text != WITH_SECRETS

    assert "hunter2" not in refusal(tmp_path, text, {"KEY": "hunter2"})


# --- policies of one's own --------------------------------------------------------------------------------------------

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


@pytest.mark.parametrize(
    ("name", "said"),
    [
        pytest.param("own_policies.absent", "cannot be imported: No module named", id="a module that is not there"),
        pytest.param("absent.policies.mine", "cannot be imported: No module named", id="a package that is not there"),
        pytest.param("own_policies.none", "must define one policy class, not 0", id="a module that only imports one"),
        pytest.param("own_policies.two", "must define one policy class, not 2", id="a module with two"),
        pytest.param("os.path", "must define one policy class, not 0", id="a module of something else"),
        pytest.param("own_policies.broken", "cannot be imported", id="a module that is no Python"),
        pytest.param("own_policies.failing", "cannot be imported", id="a module that fails"),
        pytest.param(".mine", "cannot be imported", id="a relative path"),
        pytest.param("proxy.policy", "must define one policy class", id="the contract itself"),
    ],
)
def test_a_policy_that_cannot_be_had_is_one_line(tmp_path: Path, package: Path, name: str, said: str) -> None:
    message = refusal(tmp_path, BASE + f"chains:\n  default:\n    - {name}: {{}}\n")

    assert message.startswith("config.yaml:8: chains.default.0: policy ")
    assert said in message


def test_a_wrong_setting_of_such_a_policy_has_its_place(tmp_path: Path, package: Path) -> None:
    message = refusal(tmp_path, BASE + "chains:\n  default:\n    - own_policies.mine: {levle: 3}\n")

    assert message == ("config.yaml:8: chains.default.0.own_policies.mine.levle: unknown key; did you mean 'level'?")


def test_every_policy_that_comes_with_penstock_has_the_name_of_its_file() -> None:
    names = policy_names()

    assert names == sorted(names)
    assert {f"{name}.py" for name in names} == {
        entry for entry in os.listdir(ROOT / "policies") if entry.endswith(".py") and entry != "__init__.py"
    }
    for name in names:
        kind = policy_class(name)
        assert issubclass(kind, Policy)
        assert kind.__name__ == "".join(part.capitalize() for part in name.split("_"))
        assert kind()


def test_an_unknown_policy_is_looked_up_in_vain() -> None:
    with pytest.raises(LookupError, match="unknown policy 'x'; known: "):
        policy_class("x")


def test_a_misspelt_variable_is_not_sent_as_text(tmp_path: Path) -> None:
    for written in ("${NO-PE}", "${}", "a${VAR:default}"):
        with pytest.raises(ConfigError, match=r"a variable is written \$\{NAME\}"):
            loaded(tmp_path, BASE + f"default_upstream: '{written}'\n")


def test_an_empty_key_is_none(tmp_path: Path) -> None:
    text = BASE.replace("{kind: echo}", "{kind: openai, api_key: '${KEY:-}'}")
    (upstream,) = loaded(tmp_path, text).settings.upstreams.values()
    assert isinstance(upstream, OpenAIUpstream)
    assert upstream.api_key is None
    (keyed,) = loaded(tmp_path, text, {"KEY": "sk-1"}).settings.upstreams.values()
    assert isinstance(keyed, OpenAIUpstream)
    assert keyed.api_key is not None


# --- models that are asked instead ------------------------------------------------------------------------------------

SERVERS = """
upstreams:
  one: {kind: openai, base_url: "http://one/v1"}
  twin: {kind: openai, base_url: "http://one/v1"}
  keyed: {kind: openai, base_url: "http://keyed/v1", api_key: k}
  twin_of_keyed: {kind: openai, base_url: "http://keyed/v1"}
  in_a_header: {kind: openai, base_url: "http://keyed/v1", headers: {Authorization: k}}
  keyless: {kind: openai, base_url: "http://keyless/v1"}
  ollama: {kind: ollama}
  foreign: {kind: foreign, provider: anthropic}
  foreign_too: {kind: foreign, provider: anthropic}
  foreign_keyed: {kind: foreign, provider: anthropic, api_key: k}
  echo: {kind: echo}
"""


@pytest.mark.parametrize("field", ["fallbacks: [to]", "larger: to"])
@pytest.mark.parametrize(
    ("one", "other", "holds"),
    [
        ("one", "one", True),
        ("one", "twin", True),
        ("one", "keyed", True),
        ("one", "in_a_header", True),
        ("one", "ollama", True),
        ("one", "echo", True),
        ("one", "foreign_keyed", True),
        ("one", "keyless", False),
        ("one", "foreign", False),
        ("keyed", "twin_of_keyed", False),
        ("keyed", "one", False),
        ("ollama", "one", False),
        ("foreign", "foreign_too", False),
    ],
)
def test_no_fallback_may_need_a_key_that_is_not_meant_for_it(
    tmp_path: Path, field: str, one: str, other: str, holds: bool
) -> None:
    text = f"{SERVERS}models:\n  - {{match: m, upstream: {one}, {field}}}\n  - {{match: to, upstream: {other}}}\n"
    if holds:
        assert loaded(tmp_path, text).settings.models[0].upstream == one
    else:
        assert f"'to' goes to the upstream '{other}', which is another server and has no api_key" in refusal(
            tmp_path, text
        )


def test_a_fallback_must_be_routed(tmp_path: Path) -> None:
    text = f"{SERVERS}models:\n  - {{match: m, upstream: one, fallbacks: [nowhere]}}\n"
    assert "models.0.fallbacks.0: no entry of models matches 'nowhere'" in refusal(tmp_path, text)


KEYS = """
upstreams:
  main: {kind: openai, api_key: sk-operators}
models:
  - {match: "*", upstream: main}
chains: {default: [], local: []}
"""
"""Keys of Penstock come in line 7."""
_HASH = "a" * 64


def test_keys_stand_in_the_configuration_and_in_a_file_that_is_part_of_it(tmp_path: Path) -> None:
    (tmp_path / "keys.yaml").write_text(f"keys:\n- {{name: bob, hash: {'b' * 64}, chains: [local, bypass]}}\n")
    text = f"{KEYS}auth: {{kind: keys, file: keys.yaml, keys: [{{name: ann, hash: {_HASH}, expires: 2027-01-31}}]}}\n"
    config = loaded(tmp_path, text)
    assert isinstance(config.settings.auth, KeysAuth)
    assert [key.name for key in config.settings.auth.keys] == ["ann", "bob"]
    assert tmp_path / "keys.yaml" in config.files
    (tmp_path / "keys.yaml").write_text("keys: []\n")
    assert loaded(tmp_path, text).version != config.version
    assert tmp_path / "keys.yaml" not in loaded(tmp_path, BASE).files


@pytest.mark.parametrize(
    ("auth", "file", "error"),
    [
        (f"keys: [{{name: ann, hash: {_HASH[1:]}}}]", "", "config.yaml:7: auth.keys.0.hash: "),
        (f"keys: [{{name: a b, hash: {_HASH}}}]", "", "config.yaml:7: auth.keys.0.name: "),
        (f"keys: [{{name: ann, hsh: {_HASH}}}]", "", "config.yaml:7: auth.keys.0.hsh: unknown key; did you mean 'hash'?"),
        ("key: []", "", "config.yaml:7: auth.key: unknown key; did you mean 'keys'?"),
        ("file: keys.yaml", None, "keys.yaml: cannot be read: No such file or directory"),
        ("file: keys.yaml", "- x", "keys.yaml:1: input should be a valid dictionary or instance of KeysFile"),
        ("file: keys.yaml", f"keys:\n- {{name: ann, hsh: {_HASH}}}", "keys.yaml:2: keys.0.hsh: unknown key; did you mean"),
        (f"file: keys.yaml, keys: [{{name: ann, hash: {_HASH}}}]", f"keys:\n\n- {{name: ann, hash: {'b' * 64}}}",
         "keys.yaml:3: keys.0.name: another key is called 'ann' already"),
        (f"file: keys.yaml, keys: [{{name: ann, hash: {_HASH}}}]", f"keys:\n- {{name: bob, hash: {_HASH}}}",
         "keys.yaml:2: keys.0.hash: another key has this hash: each needs a key of its own"),
        ("file: keys.yaml", f"keys:\n- {{name: ann, hash: {_HASH}, chains: [locl]}}",
         "keys.yaml:2: keys.0.chains: there is no 'locl'; known: bypass, default, local"),
    ],
)  # fmt: skip
def test_a_key_that_is_wrong_is_told_with_its_place(tmp_path: Path, auth: str, file: str | None, error: str) -> None:
    if file is not None:
        (tmp_path / "keys.yaml").write_text(file)
    assert refusal(tmp_path, f"{KEYS}auth: {{kind: keys, {auth}}}\n").startswith(error)


@pytest.mark.parametrize(
    ("upstream", "holds"),
    [
        ("{kind: openai, api_key: sk-operators}", True),
        ("{kind: openai, keyless: true}", True),
        ("{kind: openai, headers: {Api-Key: sk-operators}}", True),
        ("{kind: echo}", True),
        ("{kind: ollama}", True),
        ("{kind: foreign, provider: bedrock}", True),
        ("{kind: foreign, provider: anthropic, api_key: sk-operators}", True),
        ("{kind: openai}", False),
        ("{kind: openai, api_key: '', headers: {x-team: a}}", False),
        ("{kind: foreign, provider: anthropic, options: {region: eu}}", False),
    ],
)
def test_with_keys_of_penstock_every_upstream_has_its_own(tmp_path: Path, upstream: str, holds: bool) -> None:
    text = KEYS.replace("{kind: openai, api_key: sk-operators}", upstream)
    loaded(tmp_path, text)
    if holds:
        loaded(tmp_path, f"{text}auth: {{kind: keys}}\n")
    else:
        told = refusal(tmp_path, f"{text}auth: {{kind: keys}}\n")
        assert told.startswith("config.yaml:3: upstreams.main: `auth` gives clients keys of Penstock")
