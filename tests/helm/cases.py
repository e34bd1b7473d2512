"""The values that the chart is tried with."""

from pathlib import Path
from typing import Any

import yaml

REDIS = {"state": {"kind": "redis", "url": "redis://:${REDIS_PASSWORD}@valkey:6379/0"}}
EVERYTHING: dict[str, Any] = {
    **REDIS,
    "image": {"repository": "registry.example/penstock", "digest": "sha256:" + "0" * 64, "pullPolicy": "Always"},
    "imagePullSecrets": [{"name": "pull"}],
    "workers": 2,
    "vectors": {"url": "http://qdrant:6333"},
    "secrets": {"OPENAI_API_KEY": "sk-one", "PENSTOCK_ADMIN_KEY": "42", "REDIS_PASSWORD": 'p"w: #\n$'},
    "admin": {"key": "PENSTOCK_ADMIN_KEY"},
    "extraFiles": {"words.txt": "one\ntwo\n"},
    "service": {"type": "LoadBalancer", "annotations": {"a/b": "c"}},
    "ingress": {
        "enabled": True,
        "className": "nginx",
        "annotations": {"nginx.ingress.kubernetes.io/proxy-buffering": "off"},
        "hosts": [{"host": "llm.example", "paths": [{"path": "/v1", "pathType": "Prefix"}]}],
        "tls": [{"secretName": "llm-tls", "hosts": ["llm.example"]}],
    },
    "httpRoute": {"enabled": True, "hostnames": ["llm.example"], "annotations": {"a/b": "c"}},
    "serviceAccount": {"name": "own", "annotations": {"a/b": "c"}},
    "autoscaling": {"enabled": True, "targetActiveRequests": 40},
    "networkPolicy": {
        "enabled": True,
        "clients": [{"namespaceSelector": {"matchLabels": {"team": "agents"}}}],
        "extraEgress": [{"to": [{"ipBlock": {"cidr": "10.0.0.0/8"}}]}],
    },
    "metrics": {
        "serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
        "prometheusRule": {
            "enabled": True,
            "labels": {"release": "prometheus"},
            "extraRules": [{"record": "penstock:requests", "expr": "sum(rate(penstock_requests_total[5m]))"}],
        },
        "dashboard": {"enabled": True, "annotations": {"folder": "LLM"}},
    },
    "podAnnotations": {"a/b": "c"},
    "podLabels": {"team": "platform"},
    "priorityClassName": "high",
    "nodeSelector": {"kubernetes.io/arch": "amd64"},
    "tolerations": [{"key": "llm", "operator": "Exists", "effect": "NoSchedule"}],
    "affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}},
    "topologySpreadConstraints": [],
    "extraEnv": [{"name": "OTEL_EXPORTER_OTLP_ENDPOINT", "value": "http://otel:4318"}],
    "extraEnvFrom": [{"configMapRef": {"name": "more"}}],
    "extraVolumes": [{"name": "ca", "secret": {"secretName": "ca"}}],
    "extraVolumeMounts": [{"name": "ca", "mountPath": "/etc/ca", "readOnly": True}],
    "test": {"keySecret": {"name": "client"}},
}

EXAMPLES: dict[str, dict[str, Any]] = {
    path.stem: yaml.safe_load(path.read_text())
    for path in sorted((Path(__file__).parent.parent.parent / "helm/examples").glob("*.yaml"))
}
"""The values that are shipped as examples, by the file's name."""

MATRIX: dict[str, dict[str, Any]] = {
    "defaults": {},
    "everything": EVERYTHING,
    "redis": {**REDIS, "replicaCount": 3},
    "redis, with settings": {"state": {**REDIS["state"], "settings": {"prefix": "llm", "ttl": 1000000}}},
    "redis over TLS, address from the environment": {"state": {"kind": "redis", "url": "${STATE_URL}"}},
    "qdrant, with settings": {"vectors": {"url": "http://qdrant:6333", "settings": {"api_key": "${QDRANT_API_KEY:-}"}}},
    "no index of vectors": {"vectors": {"settings": {"kind": "none"}}},
    "a volume of its own": {"state": {"persistence": {"enabled": True, "storageClass": "fast"}}},
    "a volume that is there": {"state": {"persistence": {"existingClaim": "mine"}}},
    "memory": {"state": {"kind": "memory", "settings": {"ttl": 60}}},
    "an existing secret": {"existingSecret": "keys", "admin": {"key": "ADMIN"}},
    "an existing configuration": {"existingConfigMap": "mine", "hotReload": False},
    "no hot reload": {"hotReload": False},
    "no admin port": {"admin": {"enabled": False}, "metrics": {"serviceMonitor": {"enabled": True}}},
    "no admin port, but a key": {
        "admin": {"enabled": False, "key": "ADMIN"},
        "existingSecret": "keys",
        "config": {
            "auth": {"kind": "keys", "keys": [{"name": "ann", "hash": "0" * 64}]},
            "upstreams": {"openai": {"api_key": "${OPENAI_API_KEY}"}},
        },
        "metrics": {"serviceMonitor": {"enabled": True}},
    },
    "other ports": {"service": {"port": 8080}, "admin": {"port": 9090}},
    "the full image": {"image": {"variant": "full"}},
    "little memory": {
        "config": {"embedding": {"kind": "none"}},
        "resources": {"requests": {"cpu": "100m", "memory": "192Mi"}, "limits": {"memory": "512Mi"}},
    },
    "ollama": {
        "config": {
            "upstreams": {"openai": None, "ollama": {"kind": "ollama", "base_url": "http://ollama:11434"}},
            "default_upstream": "ollama",
            "models": [
                {"match": "echo", "upstream": "echo"},
                {"match": "*", "upstream": "ollama", "num_ctx": 16384, "window": 1000000},
            ],
        }
    },
    "a budget by share": {
        **REDIS,
        "replicaCount": 4,
        "podDisruptionBudget": {"minAvailable": "50%", "maxUnavailable": None},
    },
    "a budget that leaves one over": {
        **REDIS,
        "replicaCount": 3,
        "podDisruptionBudget": {"minAvailable": "66%", "maxUnavailable": None},
    },
    "providers behind a gateway of our own": {
        "networkPolicy": {
            "enabled": True,
            "dns": [{"ipBlock": {"cidr": "10.0.0.10/32"}}],
            "egress": [{"ports": [8443], "to": [{"ipBlock": {"cidr": "10.1.0.0/16"}}]}],
        }
    },
    "an embedding elsewhere": {
        "config": {"embedding": {"kind": "openai", "base_url": "http://embed:8080/v1", "model": "m", "api_key": ""}}
    },
    "monitoring": {
        "metrics": {
            "serviceMonitor": {"enabled": True},
            "prometheusRule": {"enabled": True},
            "dashboard": {"enabled": True},
        }
    },
    "a closed network": {"networkPolicy": {"enabled": True}},
    "times": {"preStopSeconds": 0, "drainSeconds": 600, "terminationGracePeriodSeconds": 700},
    "long names": {"fullnameOverride": "p" * 80},
    "a session by cookie": {
        "httpRoute": {
            "enabled": True,
            "sessionPersistence": {
                "type": "Cookie",
                "absoluteTimeout": "1h",
                "cookieConfig": {"lifetimeType": "Permanent"},
            },
        }
    },
    **EXAMPLES,
}

REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "a misspelt value": ({"replicas": 2}, "additional properties 'replicas' not allowed"),
    "an address that is none": ({"state": {"kind": "redis", "url": "valkey"}}, "at '/state/url'"),
    "a privileged port": ({"service": {"port": 80}}, "at '/service/port': minimum: got 80, want 1,024"),
    "replicas without a shared state": (
        {"replicaCount": 3},
        "3 replicas need a state that they share: set state.kind to redis and state.url, or run one replica",
    ),
    "workers without a shared state": ({"workers": 2, "state": {"kind": "memory"}}, "several workers need a state"),
    "redis without an address": ({"state": {"kind": "redis"}}, "state.kind redis needs state.url"),
    "an address without redis": ({"state": {"url": "redis://x"}}, "state.url is for state.kind redis, which is disk"),
    "the chart's own settings": (
        {"config": {"server": {"port": 1}}},
        "config.server.port is set by the chart; use service.port",
    ),
    "state in the configuration": ({"config": {"state": {}}}, "config.state is set by the chart; use the value state"),
    "no default upstream": ({"config": {"default_upstream": None}}, "config.default_upstream must name one"),
    "too little grace": (
        {"terminationGracePeriodSeconds": 310},
        "terminationGracePeriodSeconds must be longer than preStopSeconds and drainSeconds together",
    ),
    "one port for both": ({"admin": {"port": 4000}}, "admin.port and service.port must differ"),
    "two secrets": ({"secrets": {"A": "b"}, "existingSecret": "c"}, "secrets and existingSecret exclude each other"),
    "a budget of two minds": (
        {**REDIS, "replicaCount": 2, "podDisruptionBudget": {"minAvailable": 1}},
        "exactly one of minAvailable and maxUnavailable",
    ),
    "autoscaling by nothing": (
        {**REDIS, "autoscaling": {"enabled": True, "targetCPUUtilization": 0}},
        "autoscaling needs targetCPUUtilization or targetActiveRequests",
    ),
    "a Prometheus that is asked nothing": (
        {**REDIS, "autoscaling": {"enabled": True, "prometheus": "http://prometheus:9090"}},
        "autoscaling.prometheus is for autoscaling.targetActiveRequests, which is 0",
    ),
    "metrics that nobody may read": (
        {
            "admin": {"enabled": False},
            "config": {"auth": {"kind": "keys"}},
            "metrics": {"serviceMonitor": {"enabled": True}},
        },
        "metrics.serviceMonitor needs admin.enabled or admin.key where config.auth.kind is keys",
    ),
    "a password in an address": (
        {"state": {"kind": "redis", "url": "redis://:hunter2@valkey:6379/0"}},
        "state.url has a secret in plain text, which would stand in a ConfigMap: put it into existingSecret or secrets",
    ),
    "a password with a user": (
        {"state": {"kind": "redis", "url": "rediss://ann:hun/ter2@valkey"}},
        "state.url has a secret",
    ),
    "a password as a default": (
        {"state": {"kind": "redis", "url": "redis://:${REDIS_PASSWORD:-hunter2}@valkey"}},
        "state.url has a secret",
    ),
    "a password beside an address": (
        {"state": {**REDIS["state"], "settings": {"password": "hunter2"}}},
        "state.settings.password has a secret",
    ),
    "a key of qdrant": (
        {"vectors": {"url": "http://qdrant:6333", "settings": {"api_key": "hunter2"}}},
        "vectors.settings.api_key has a secret",
    ),
    "a key of an upstream": (
        {"config": {"upstreams": {"openai": {"api_key": "hunter2"}}}},
        "config.upstreams.openai.api_key has a secret",
    ),
    "a wrong section": ({"config": {"chain": {}}}, "at '/config': additional properties 'chain' not allowed"),
    "a wrong setting of a policy": (
        {"config": {"chains": {"default": [{"reject_oversize": {"part": 1}}]}}},
        "additional properties 'part' not allowed",
    ),
    "a wrong key of the state": (
        {"state": {"settings": {"size": 1}}},
        "at '/state/settings': additional properties 'size' not allowed",
    ),
    "a budget that lets no pod leave": (
        {**REDIS, "replicaCount": 2, "podDisruptionBudget": {"maxUnavailable": 0}},
        "podDisruptionBudget.maxUnavailable 0 would block every drain",
    ),
    "a budget that wants all pods": (
        {**REDIS, "replicaCount": 2, "podDisruptionBudget": {"minAvailable": 2, "maxUnavailable": None}},
        "podDisruptionBudget.minAvailable 2 of 2 replicas would block every drain",
    ),
    "a budget whose share is all pods": (
        {**REDIS, "replicaCount": 3, "podDisruptionBudget": {"minAvailable": "67%", "maxUnavailable": None}},
        "podDisruptionBudget.minAvailable 67% of 3 replicas would block every drain",
    ),
    "a budget that wants what the autoscaler leaves": (
        {**REDIS, "autoscaling": {"enabled": True}, "podDisruptionBudget": {"minAvailable": 2, "maxUnavailable": None}},
        "podDisruptionBudget.minAvailable 2 of 2 replicas would block every drain",
    ),
    "an ingress for no host": ({"ingress": {"enabled": True, "hosts": []}}, "ingress.hosts is empty"),
    "an ingress for all hosts": (
        {"ingress": {"enabled": True, "hosts": [{"host": "", "paths": [{"path": "/", "pathType": "Prefix"}]}]}},
        "ingress.hosts has paths without a host (/)",
    ),
    "a route for all requests": (
        {"httpRoute": {"enabled": True, "path": "/"}},
        "httpRoute.path / without httpRoute.hostnames",
    ),
    "a route for a host without a name": (
        {"httpRoute": {"enabled": True, "hostnames": [""]}},
        "httpRoute.hostnames has an empty name",
    ),
    "calls to anybody": (
        {"networkPolicy": {"egress": [{"ports": [443], "to": []}]}},
        "at '/networkPolicy/egress/0/to'",
    ),
    "calls on any port": (
        {"networkPolicy": {"egress": [{"to": [{"ipBlock": {"cidr": "10.0.0.0/8"}}]}]}},
        "missing property 'ports'",
    ),
    "a second config.yaml": ({"extraFiles": {"config.yaml": ""}}, "extraFiles must not have a config.yaml"),
}
