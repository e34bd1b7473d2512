"""`config` in the schema of the chart's values is the schema of `config.yaml`, so that Helm refuses what is wrong there.

`python -m tests.helm.values_schema` writes it, and copies what the chart has from outside; `make docs` does that too.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from proxy.server.reference import config_schema
from tests.helm.helm import CHART

PATH = CHART / "values.schema.json"

_DEPLOY = CHART.parent.parent / "deploy"
COPIES = {
    CHART / "rules/penstock.rules.yaml": _DEPLOY / "prometheus/penstock.rules.yaml",
    CHART / "dashboards/penstock.json": _DEPLOY / "grafana/penstock.json",
}
"""What the chart has from outside, by the place of the copy: Helm reads only files of the chart."""

OWN = {"server": ("host", "port", "admin_port", "admin_key", "drain", "watch"), "": ("state", "vectors")}
"""What the chart sets by itself, by section; its templates refuse it and name the value to use."""

_WORDS = {"title", "description", "default", "format", "writeOnly"}
"""What a schema says besides what it demands. Helm keeps the chart with every release, in a Secret of 1 MiB."""


def values_schema(written: dict[str, Any]) -> dict[str, Any]:
    """The schema of the values, with what comes from Penstock's classes made again.

    Its dialect stays draft 7, which every Helm 3 and 4 knows; the classes' keywords mean the same in both.
    """
    schema = json.loads(json.dumps(written))
    complete = json.loads(config_schema())
    config = _bare(complete, complete["$defs"])
    definitions = schema["$defs"] = config.pop("$defs")
    config.pop("$schema")
    for section, keys in OWN.items():
        for key in keys:
            (definitions["ServerSettings"] if section else config)["properties"][key] = {}
    state = [definitions.pop(name) for name in ("StateSettings", "RedisStateSettings")]
    vectors = [definitions.pop(name) for name in ("EmbeddedVectors", "QdrantVectors", "NoVectors")]
    schema["properties"]["config"] = config
    schema["properties"]["state"]["properties"]["settings"] = _union(state, without=("kind", "url", "directory"))
    schema["properties"]["vectors"]["properties"]["settings"] = _union(vectors, without=("url",))
    schema["properties"]["vectors"]["properties"]["settings"]["properties"]["kind"] = {"enum": ["embedded", "none"]}
    return dict(schema)


def _bare(node: Any, definitions: Mapping[str, Any]) -> Any:
    """A schema without words, and with choices by a key so that an error tells of the chosen one only."""
    if isinstance(node, list):
        return [_bare(item, definitions) for item in node]
    if not isinstance(node, dict):
        return node
    made: dict[str, Any] = {}
    for key, value in node.items():
        if key in ("properties", "patternProperties", "$defs"):
            made[key] = {name: _bare(schema, definitions) for name, schema in value.items()}
        elif key not in _WORDS:
            made[key] = _bare(value, definitions)
    chosen = made.pop("discriminator", None)
    if chosen is None:
        return made
    key, mapping = chosen["propertyName"], chosen["mapping"]
    if not all(key in definitions[each.rpartition("/")[2]].get("required", ()) for each in mapping.values()):
        return made
    ways = [
        {"if": {"required": [key], "properties": {key: {"const": kind}}}, "then": {"$ref": reference}}
        for kind, reference in mapping.items()
    ]
    return {"type": "object", "required": [key], "properties": {key: {"enum": sorted(mapping)}}, "allOf": ways}


def _union(kinds: Iterable[dict[str, Any]], *, without: Iterable[str]) -> dict[str, Any]:
    """Any of the keys that objects of several kinds have."""
    properties: dict[str, Any] = {}
    for kind in kinds:
        for key, value in kind["properties"].items():
            if key not in without:
                known = properties.setdefault(key, value)
                properties[key] = known if known == value else {"anyOf": [known, value]}
    return {"type": "object", "additionalProperties": False, "properties": properties}


def text() -> str:
    """The file as it should be."""
    return json.dumps(values_schema(json.loads(PATH.read_text())), indent=2) + "\n"


if __name__ == "__main__":
    PATH.write_text(text())
    for copy, plain in COPIES.items():
        copy.write_text(plain.read_text())
