"""Keys of Penstock in a configuration: where they stand, what is wrong with them, what they need."""

from pathlib import Path

import pytest

from proxy.config.settings import KeysAuth
from tests.config.files import BASE, loaded, refusal

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


@pytest.mark.parametrize(("auth", "file", "error"), [
    (f"keys: [{{name: ann, hash: {_HASH[1:]}}}]", "", "config.yaml:7: auth.keys.0.hash: "),
    (f"keys: [{{name: a b, hash: {_HASH}}}]", "", "config.yaml:7: auth.keys.0.name: "),
    (f"keys: [{{name: ann, hsh: {_HASH}}}]", "", "config.yaml:7: auth.keys.0.hsh: unknown key; did you mean 'hash'?"),
    ("key: []", "", "config.yaml:7: auth.key: unknown key; did you mean 'keys'?"),
    ("file: keys.yaml", None, "keys.yaml: cannot be read: No such file or directory"),
    ("file: keys.yaml", "- x", "keys.yaml:1: input should be a mapping"),
    ("file: keys.yaml", f"keys:\n- {{name: ann, hsh: {_HASH}}}", "keys.yaml:2: keys.0.hsh: unknown key; did you mean"),
    (f"file: keys.yaml, keys: [{{name: ann, hash: {_HASH}}}]", f"keys:\n\n- {{name: ann, hash: {'b' * 64}}}",
     "keys.yaml:3: keys.0.name: another key is called 'ann' already"),
    (f"file: keys.yaml, keys: [{{name: ann, hash: {_HASH}}}]", f"keys:\n- {{name: bob, hash: {_HASH}}}",
     "keys.yaml:2: keys.0.hash: another key has this hash: make a new key for each client"),
    ("file: keys.yaml", f"keys:\n- {{name: ann, hash: {_HASH}, chains: [locl]}}",
     "keys.yaml:2: keys.0.chains: there is no 'locl'; known: bypass, default, local"),
])  # fmt: skip
def test_a_key_that_is_wrong_is_told_with_its_place(tmp_path: Path, auth: str, file: str | None, error: str) -> None:
    if file is not None:
        (tmp_path / "keys.yaml").write_text(file)
    assert refusal(tmp_path, f"{KEYS}auth: {{kind: keys, {auth}}}\n").startswith(error)


@pytest.mark.parametrize(("upstream", "holds"), [
    ("{kind: openai, api_key: sk-operators}", True),
    ("{kind: openai, keyless: true}", True),
    ("{kind: openai, headers: {Api-Key: sk-operators}}", True),
    ("{kind: ollama}", True),
    ("{kind: foreign, provider: bedrock}", True),
    ("{kind: foreign, provider: anthropic, api_key: sk-operators}", True),
    ("{kind: openai}", False),
    ("{kind: openai, api_key: '', headers: {x-team: a}}", False),
    ("{kind: foreign, provider: anthropic, options: {region: eu}}", False),
])  # fmt: skip
def test_with_keys_of_penstock_every_upstream_has_its_own(tmp_path: Path, upstream: str, holds: bool) -> None:
    text = KEYS.replace("{kind: openai, api_key: sk-operators}", upstream)
    loaded(tmp_path, text)
    if holds:
        loaded(tmp_path, f"{text}auth: {{kind: keys}}\n")
        return
    told = "config.yaml:3: upstreams.main: with `auth: {kind: keys}` clients have no key for this upstream"
    assert refusal(tmp_path, f"{text}auth: {{kind: keys}}\n").startswith(told)
