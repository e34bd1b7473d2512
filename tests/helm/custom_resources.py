"""Checks custom resources of the chart against `custom_resources.yaml`."""

from pathlib import Path
from typing import Any

import jsonschema
import yaml

SHAPES: dict[str, Any] = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text())
LEAVES: dict[str, Any] = {
    "any": {},
    "text": {"type": "string"},
    "texts": {"type": "object", "additionalProperties": {"type": "string"}},
    "integer": {"type": "integer"},
    "duration": {"type": "string", "pattern": "^([0-9]+(ms|s|m|h))+$"},
}


def schema(shape: Any) -> Any:
    """The JSON schema of a shape."""
    if isinstance(shape, str):
        return LEAVES[shape]
    if isinstance(shape, list):
        return {"type": "array", "minItems": 1, "items": schema(shape[0])}
    fields = {name: each for name, each in shape.items() if name != "="}
    if not fields:
        return shape["="]
    properties = {name.rstrip("!"): schema(each) for name, each in fields.items()}
    required = [name.rstrip("!") for name in fields if name.endswith("!")]
    closed = {"type": "object", "required": required, "properties": properties, "additionalProperties": False}
    return closed | shape.get("=", {})


def validate(manifest: dict[str, Any]) -> None:
    """Raises `jsonschema.ValidationError`, or `KeyError` for a kind that is not known here."""
    jsonschema.validate(manifest["spec"], schema(SHAPES[f"{manifest['apiVersion']} {manifest['kind']}"]))
    assert set(manifest) == {"apiVersion", "kind", "metadata", "spec"}
