"""Configuration files that tests write, and the line that a wrong one is refused with."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from proxy.chat.errors import ConfigError
from proxy.config.load import Config, load

ROOT = Path(__file__).parent.parent.parent

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
