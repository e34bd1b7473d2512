"""A configuration as operators see it: as it was written, without its secrets."""

from pathlib import Path

from proxy.config.load import load
from proxy.server.admin import masked

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


def test_passwords_in_addresses_are_masked(tmp_path: Path) -> None:
    text = (
        "upstreams: {e: {kind: echo}}\nmodels: [{match: '*', upstream: e}]\n"
        "vectors: ADDRESS\ntelemetry: {endpoint: 'http://otel:${KEY}@traces:4318'}\n"
    )
    address = "http://ann:hunter2@qdrant:6333"
    assert shown(tmp_path, text.replace("ADDRESS", address)) == text.replace("ADDRESS", "'***'")


def test_without_secrets_it_is_the_file(tmp_path: Path) -> None:
    text = "upstreams: {e: {kind: echo}}  # é ✓\nmodels: [{match: '*', upstream: e}]\n"
    assert shown(tmp_path, text) == text
