"""The values that the chart is tried with: those of `cases.yaml`, and the examples that are shipped."""

from pathlib import Path
from typing import Any

import yaml

_HERE = Path(__file__).parent
_CASES = yaml.safe_load((_HERE / "cases.yaml").read_text())

MATRIX: dict[str, dict[str, Any]] = _CASES["matrix"]
MATRIX |= {path.stem: yaml.safe_load(path.read_text()) for path in sorted(_HERE.glob("../../helm/examples/*.yaml"))}
REFUSED: dict[str, tuple[dict[str, Any], str]] = _CASES["refused"]
"""Values that are refused, with words of the error."""
