"""Tables of words and patterns that ship with Penstock, as YAML."""

from importlib.resources import files
from typing import Any

import yaml


def table(name: str) -> Any:
    """What `data/NAME.yaml` says."""
    return yaml.safe_load((files("proxy") / "data" / f"{name}.yaml").read_text(encoding="utf-8"))
