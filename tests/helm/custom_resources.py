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


SESSION_PERSISTENCE = {
    **_of(
        (),
        absoluteTimeout={"type": "string", "pattern": "^([0-9]{1,5}(h|m|s|ms)){1,4}$"},
        cookieConfig=_of((), lifetimeType={"enum": ["Permanent", "Session"]}),
        sessionName={"type": "string", "maxLength": 128},
        type={"enum": ["Cookie", "Header"]},
    ),
    "if": {
        "properties": {
            "cookieConfig": {"properties": {"lifetimeType": {"const": "Permanent"}}, "required": ["lifetimeType"]}
        },
        "required": ["cookieConfig"],
    },
    "then": {"required": ["absoluteTimeout"]},
}
"""Of Gateway API 1.6.1, in whose experimental channel a rule of an HTTPRoute may have it."""

SPECS = {
    ("keda.sh/v1alpha1", "ScaledObject"): _of(
        ("scaleTargetRef", "triggers"),
        scaleTargetRef=_of(("name",), apiVersion=_TEXT, kind=_TEXT, name=_TEXT),
        minReplicaCount={"type": "integer"},
        maxReplicaCount={"type": "integer"},
        triggers=_list(
            {
                **_of(("type", "metadata"), type=_TEXT, metricType=_TEXT, metadata=_TEXTS),
                "oneOf": [
                    {"properties": {"type": {"const": "cpu"}, "metadata": _of(("value",), value=_TEXT)}},
                    {
                        "properties": {
                            "type": {"const": "prometheus"},
                            "metadata": _of(
                                ("serverAddress", "query", "threshold"),
                                serverAddress=_TEXT,
                                query=_TEXT,
                                threshold=_TEXT,
                            ),
                        }
                    },
                ],
            }
        ),
        advanced=_of(("horizontalPodAutoscalerConfig",), horizontalPodAutoscalerConfig=_of(("behavior",), behavior={})),
    ),
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
    ("gateway.envoyproxy.io/v1alpha1", "BackendTrafficPolicy"): _of(
        ("targetRefs", "loadBalancer"),
        targetRefs=_list(_of(("group", "kind", "name"), group=_TEXT, kind=_TEXT, name=_TEXT)),
        loadBalancer=_of(
            ("type", "consistentHash"),
            type={"const": "ConsistentHash"},
            consistentHash=_of(("type", "header"), type={"const": "Header"}, header=_of(("name",), name=_TEXT)),
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
                sessionPersistence=SESSION_PERSISTENCE,
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
