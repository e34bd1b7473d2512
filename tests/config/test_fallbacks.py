"""Models that are asked instead, and where the shipped configurations send names of models."""

from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.config.files import loaded, refusal

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
@pytest.mark.parametrize(("one", "other", "holds"), [
    *(("one", other, True) for other in ("one", "twin", "keyed", "in_a_header", "ollama", "echo", "foreign_keyed")),
    *(("one", other, False) for other in ("keyless", "foreign")),
    *(("keyed", other, False) for other in ("twin_of_keyed", "one")),
    ("ollama", "one", False),
    ("foreign", "foreign_too", False),
])  # fmt: skip
def test_no_fallback_may_need_anothers_key(tmp_path: Path, field: str, one: str, other: str, holds: bool) -> None:
    text = f"{SERVERS}models:\n  - {{match: m, upstream: {one}, {field}}}\n  - {{match: to, upstream: {other}}}\n"
    if holds:
        assert loaded(tmp_path, text).settings.models[0].upstream == one
        return
    told = f"'to' goes to the upstream '{other}', which is another server and has no api_key"
    assert told in refusal(tmp_path, text)


def test_a_fallback_must_be_routed(tmp_path: Path) -> None:
    text = f"{SERVERS}models:\n  - {{match: m, upstream: one, fallbacks: [nowhere]}}\n"
    assert "models.0.fallbacks.0: no entry of models matches 'nowhere'" in refusal(tmp_path, text)


ROOT = Path(__file__).parent.parent.parent


def shipped() -> dict[str, list[dict[str, Any]]]:
    """Return the entries of `models` in each file that users start with."""
    compose = yaml.safe_load((ROOT / "compose.yaml").read_text())["configs"]["penstock"]["content"]
    chart = yaml.safe_load((ROOT / "helm/penstock/values.yaml").read_text())["config"]
    plain = yaml.safe_load((ROOT / "config.yaml").read_text())
    return {"config.yaml": plain["models"], "compose.yaml": yaml.safe_load(compose)["models"], "chart": chart["models"]}


ENTRIES = shipped()
NAMES = {
    "openai": [
        "gpt-4o", "gpt-5.6-sol", "gpt-4.1-mini", "gpt-image-1", "gpt-realtime", "o1", "o3-mini", "o4-mini-deep-research",
        "chatgpt-4o-latest", "codex-mini-latest", "computer-use-preview", "text-embedding-3-small",
        "omni-moderation-latest", "dall-e-3", "sora-2", "tts-1-hd", "whisper-1", "ft:gpt-4o-mini-2024-07-18:acme::Ab1",
        "ft:gpt-4.1:acme:name:Ab1:ckpt-step-80",
    ],
    "ollama": [
        "deepseek-r1:8b", "qwen2.5:7b", "gpt-oss:20b", "phi4", "phi4:latest", "gpt-oss", "qwen3", "llama3.2", "gemma3:4b",
        "mistral-nemo", "deepseek-r1", "hf.co/org/model:Q4_K_M", "olmo2:7b", "openchat:latest",
    ],
    "anthropic": ["claude-sonnet-4-5", "claude-3-haiku-20240307"],
    "echo": ["echo", "echo-2"],
    None: ["orca-mini", "openchat", "olmo2", "grok-4", "gemini-2.5-pro", "command-r", "secret-model", "", "GPT-4o"],
}  # fmt: skip


@pytest.mark.parametrize("file", ENTRIES)
@pytest.mark.parametrize(
    ("upstream", "name"), [(upstream, name) for upstream, names in NAMES.items() for name in names]
)
def test_a_name_goes_to_its_vendor_or_to_nobody(file: str, upstream: str | None, name: str) -> None:
    entries = ENTRIES[file]
    globs = [(glob, entry["upstream"]) for entry in entries for glob in _listed(entry["match"])]
    expected = upstream if upstream in {entry["upstream"] for entry in entries} else None
    assert next((to for glob, to in globs if fnmatchcase(name, glob)), None) == expected


@pytest.mark.parametrize("file", ENTRIES)
def test_the_built_in_model_is_the_last_entry(file: str) -> None:
    assert [entry["upstream"] for entry in ENTRIES[file]].index("echo") == len(ENTRIES[file]) - 1


def _listed(globs: Any) -> list[str]:
    return [globs] if isinstance(globs, str) else globs
