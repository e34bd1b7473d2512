"""Schemas of the kinds that Kubernetes itself does not have: of their fields, those that the chart may use."""

from typing import Any

import jsonschema

_TEXT = {"type": "string"}
_DURATION = {"type": "string", "pattern": "^([0-9]+(ms|s|m|h))+$"}
_TEXTS = {"type": "object", "additionalProperties": _TEXT}


def _of(required: tuple[str, ...], **properties: Any) -> dict[str, Any]:
    return {"type": "object", "required": list(required), "properties": properties, "additionalProperties": False}


def _list(items: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "minItems": 1, "items": items}


SPECS = {
    ("monitoring.coreos.com/v1", "ServiceMonitor"): _of(
        ("selector", "endpoints"),
        jobLabel=_TEXT,
        selector=_of(("matchLabels",), matchLabels=_TEXTS),
        endpoints=_list(
            _of(
                ("port",),
                port=_TEXT,
                path=_TEXT,
                interval=_DURATION,
                scrapeTimeout=_DURATION,
                authorization=_of(("credentials",), credentials=_of(("name", "key"), name=_TEXT, key=_TEXT)),
            )
        ),
    ),
    ("monitoring.coreos.com/v1", "PrometheusRule"): _of(
        ("groups",),
        groups=_list(
            _of(
                ("name", "rules"),
                name=_TEXT,
                rules=_list(
                    {
                        **_of(
                            ("expr",),
                            alert=_TEXT,
                            record=_TEXT,
                            expr=_TEXT,
                            labels=_TEXTS,
                            annotations=_TEXTS,
                            **{"for": _DURATION},
                        ),
                        "oneOf": [{"required": ["alert"]}, {"required": ["record"]}],
                    }
                ),
            )
        ),
    ),
    ("gateway.networking.k8s.io/v1", "HTTPRoute"): _of(
        ("parentRefs", "rules"),
        parentRefs=_list(_of(("name",), name=_TEXT, namespace=_TEXT, sectionName=_TEXT)),
        hostnames=_list(_TEXT),
        rules=_list(
            _of(
                ("matches", "backendRefs"),
                matches=_list(_of(("path",), path=_of(("type", "value"), type={"const": "PathPrefix"}, value=_TEXT))),
                timeouts=_of((), request=_DURATION),
                backendRefs=_list(_of(("name", "port"), name=_TEXT, port={"type": "integer"})),
            )
        ),
    ),
}


def validate(manifest: dict[str, Any]) -> None:
    """Raises `jsonschema.ValidationError`, or `KeyError` for a kind that is not known here."""
    jsonschema.validate(manifest["spec"], SPECS[manifest["apiVersion"], manifest["kind"]])
    assert set(manifest) == {"apiVersion", "kind", "metadata", "spec"}
