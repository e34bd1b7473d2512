"""As much of a Kubernetes API server as `helm install` asks for: nothing is there, and everything may be created."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from aiohttp import web

from tests.loopback import serving

KINDS = {
    "v1": ("ConfigMap", "PersistentVolumeClaim", "Pod", "Secret", "ServiceAccount", "Service"),
    "apps/v1": ("Deployment",),
    "autoscaling/v2": ("HorizontalPodAutoscaler",),
    "policy/v1": ("PodDisruptionBudget",),
    "networking.k8s.io/v1": ("Ingress", "NetworkPolicy"),
    "keda.sh/v1alpha1": ("ScaledObject",),
    "gateway.networking.k8s.io/v1": ("HTTPRoute",),
    "monitoring.coreos.com/v1": ("PrometheusRule", "ServiceMonitor"),
}
MISSING = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404}


def discovered(path: str, minor: str) -> dict[str, Any] | None:
    """The answer to a question of what this server has; None for any other question."""
    group = path.removeprefix("apis/").removeprefix("api/")
    if group in KINDS:
        return {"kind": "APIResourceList", "groupVersion": group, "resources": [*map(_resource, KINDS[group])]}
    if path.endswith("/secrets"):
        return {"kind": "SecretList", "apiVersion": "v1", "metadata": {}, "items": []}
    known: dict[str, dict[str, Any]] = {
        "version": {"major": "1", "minor": minor, "gitVersion": f"v1.{minor}.0"},
        "api": {"kind": "APIVersions", "versions": ["v1"]},
        "apis": {"kind": "APIGroupList", "apiVersion": "v1", "groups": [_group(each) for each in KINDS if "/" in each]},
    }
    return known.get(path)


def _resource(kind: str) -> dict[str, Any]:
    name = kind.lower()
    plural = f"{name[:-1]}ies" if name.endswith("y") else f"{name}es" if name.endswith("s") else f"{name}s"
    verbs = ["create", "get", "list", "patch", "update"]
    return {"name": plural, "singularName": "", "namespaced": True, "kind": kind, "verbs": verbs}


def _group(each: str) -> dict[str, Any]:
    name, version = each.split("/")
    shown = {"groupVersion": each, "version": version}
    return {"name": name, "versions": [shown], "preferredVersion": shown}


@asynccontextmanager
async def kube_api(minor: str, folder: Path) -> AsyncIterator[Path]:
    """Serve an API of Kubernetes 1.`minor` on a free port of this machine; gives a kubeconfig for it in the folder."""

    async def answer(request: web.Request) -> web.Response:
        if request.method != "GET":
            # whatever it is, it is created as it was sent: JSON or, of Kubernetes's own kinds, protocol buffers
            sent = {"content-type": request.headers["content-type"]}
            return web.Response(status=201, body=await request.read(), headers=sent)
        found = discovered(request.path.strip("/"), minor)
        return web.json_response(found or MISSING, status=200 if found else 404)

    async with serving(answer) as base:
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "stub", "cluster": {"server": base}}],
            "users": [{"name": "stub", "user": {}}],
            "contexts": [{"name": "stub", "context": {"cluster": "stub", "user": "stub"}}],
            "current-context": "stub",
        }
        path = folder / f"kubeconfig-{minor}"
        path.write_text(json.dumps(config))
        yield path
