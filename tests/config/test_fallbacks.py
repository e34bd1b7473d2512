"""Models that are asked instead: routed, and with a key that is meant for their server."""

from pathlib import Path

import pytest

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
def test_no_fallback_may_need_a_key_that_is_not_meant_for_it(
    tmp_path: Path, field: str, one: str, other: str, holds: bool
) -> None:
    text = f"{SERVERS}models:\n  - {{match: m, upstream: {one}, {field}}}\n  - {{match: to, upstream: {other}}}\n"
    if holds:
        assert loaded(tmp_path, text).settings.models[0].upstream == one
        return
    told = f"'to' goes to the upstream '{other}', which is another server and has no api_key"
    assert told in refusal(tmp_path, text)


def test_a_fallback_must_be_routed(tmp_path: Path) -> None:
    text = f"{SERVERS}models:\n  - {{match: m, upstream: one, fallbacks: [nowhere]}}\n"
    assert "models.0.fallbacks.0: no entry of models matches 'nowhere'" in refusal(tmp_path, text)
