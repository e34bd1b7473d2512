"""As much of a Kubernetes API server as `helm install` asks for: nothing is there, and everything may be created."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

RESOURCES: dict[str, list[tuple[str, str]]] = {
    "v1": [
        ("configmaps", "ConfigMap"),
        ("persistentvolumeclaims", "PersistentVolumeClaim"),
        ("pods", "Pod"),
        ("secrets", "Secret"),
        ("serviceaccounts", "ServiceAccount"),
        ("services", "Service"),
    ],
    "apps/v1": [("deployments", "Deployment")],
    "autoscaling/v2": [("horizontalpodautoscalers", "HorizontalPodAutoscaler")],
    "policy/v1": [("poddisruptionbudgets", "PodDisruptionBudget")],
    "networking.k8s.io/v1": [("ingresses", "Ingress"), ("networkpolicies", "NetworkPolicy")],
    "keda.sh/v1alpha1": [("scaledobjects", "ScaledObject")],
    "gateway.networking.k8s.io/v1": [("httproutes", "HTTPRoute")],
    "monitoring.coreos.com/v1": [("prometheusrules", "PrometheusRule"), ("servicemonitors", "ServiceMonitor")],
}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # one packet an answer: two would each wait 40 ms for the other side's word that the first has come
    wbufsize = 65536
    minor = "31"

    def do_GET(self) -> None:
        path = self.path.partition("?")[0].strip("/")
        found = self._discovery(path)
        if found is None and path.endswith("/secrets"):
            found = {"kind": "SecretList", "apiVersion": "v1", "metadata": {}, "items": []}
        if found is None:
            missing = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404}
            return self._answer(404, missing)
        return self._answer(200, found)

    def do_POST(self) -> None:
        # whatever it is, it is created as it was sent: JSON or, of Kubernetes's own kinds, protocol buffers
        self._send(201, self.headers["content-type"], self.rfile.read(int(self.headers["content-length"])))

    do_PUT = do_PATCH = do_POST

    def _discovery(self, path: str) -> dict[str, Any] | None:
        if path == "version":
            return {"major": "1", "minor": self.minor, "gitVersion": f"v1.{self.minor}.0"}
        if path == "api":
            return {"kind": "APIVersions", "versions": ["v1"]}
        if path == "apis":
            groups = [tuple(group.split("/")) for group in RESOURCES if "/" in group]
            return {"kind": "APIGroupList", "apiVersion": "v1", "groups": [_group(*group) for group in groups]}
        group = path.removeprefix("apis/").removeprefix("api/")
        if group not in RESOURCES:
            return None
        verbs = ["create", "get", "list", "patch", "update"]
        found = [
            {"name": name, "singularName": "", "namespaced": True, "kind": kind, "verbs": verbs}
            for name, kind in RESOURCES[group]
        ]
        return {"kind": "APIResourceList", "groupVersion": group, "resources": found}

    def _answer(self, status: int, body: dict[str, Any]) -> None:
        self._send(status, "application/json", json.dumps(body).encode())

    def _send(self, status: int, content_type: str, data: bytes) -> None:
        self.send_response(status)
        self.send_header("content-type", content_type)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        pass


def _group(name: str, version: str) -> dict[str, Any]:
    shown = {"groupVersion": f"{name}/{version}", "version": version}
    return {"name": name, "versions": [shown], "preferredVersion": shown}


@contextmanager
def kube_api(minor: str, folder: Path) -> Iterator[Path]:
    """Serve an API of Kubernetes 1.`minor` on a free port of this machine; gives a kubeconfig for it in the folder."""
    handler = type("Handler", (_Handler,), {"minor": minor})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "stub", "cluster": {"server": f"http://127.0.0.1:{server.server_port}"}}],
        "users": [{"name": "stub", "user": {}}],
        "contexts": [{"name": "stub", "context": {"cluster": "stub", "user": "stub"}}],
        "current-context": "stub",
    }
    path = folder / f"kubeconfig-{minor}"
    path.write_text(json.dumps(config))
    try:
        yield path
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
