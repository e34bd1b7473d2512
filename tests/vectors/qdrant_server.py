"""A Qdrant server as far as the index needs one: Qdrant's REST in and out, its local mode behind.

It stands in for the real server, whose program cannot be had here. Requests are read with the library's own models, as
the server would, so a field that REST does not know is a 400; answers go out as the server writes them.
"""

import contextlib
import json
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from pydantic import BaseModel, TypeAdapter
from qdrant_client import QdrantClient, models

from tests.loopback import free_port


class QdrantServer:
    """Runs in a thread of its own, on a free port; `with` ends it."""

    def __init__(self, port: int = 0, state: "QdrantClient | None" = None) -> None:
        self.client = state or QdrantClient(":memory:")
        self.lock = threading.Lock()
        self.requests: list[tuple[str, str]] = []
        self.keys: set[str | None] = set()
        self.indexes: dict[str, dict[str, Any]] = {}
        self.connections: list[socket.socket] = []
        self.status = 200
        """Another one is the answer to everything."""
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def setup(self) -> None:
                super().setup()
                outer.connections.append(self.connection)

            def _serve(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length") or 0))
                status, result = outer.answer(self.command, self.path, body, self.headers.get("api-key"))
                data = json.dumps({"result": result, "status": "ok", "time": 0.0}).encode()
                try:
                    self.send_response(status)
                    self.send_header("content-type", "application/json")
                    self.send_header("content-length", str(len(data)))
                    self.end_headers()
                    self.wfile.write(data)
                except OSError:
                    self.close_connection = True  # who asked has left

            do_GET = do_PUT = do_POST = do_DELETE = _serve

            def log_message(self, format: str, *args: Any) -> None:
                pass

        class Listening(ThreadingHTTPServer):
            allow_reuse_address = True
            daemon_threads = True

        self._http = Listening(("127.0.0.1", port or free_port()), Handler)
        self.port = self._http.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()

    def __enter__(self) -> "QdrantServer":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End it; the port refuses connections from now on."""
        self._http.shutdown()
        self._thread.join()
        self._http.server_close()
        for each in self.connections:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def flush(self) -> None:
        """Lose everything."""
        with self.lock:
            for each in self.client.get_collections().collections:
                self.client.delete_collection(each.name)

    def answer(self, method: str, path: str, body: bytes, key: str | None) -> tuple[int, Any]:
        path = path.partition("?")[0]
        self.requests.append((method, path))
        self.keys.add(key)
        if self.status != 200:
            return self.status, None
        parts = path.strip("/").split("/")
        with self.lock:
            try:
                return self._collections(method, parts, json.loads(body) if body else {})
            except ValueError as error:
                return (404 if "not found" in str(error) else 400), None

    def _collections(self, method: str, parts: list[str], body: dict[str, Any]) -> tuple[int, Any]:
        client = self.client
        if parts == ["collections"]:
            return 200, _plain(client.get_collections())
        name, what = parts[1], "/".join(parts[2:])
        if method == "PUT" and not what:
            if client.collection_exists(name):
                return 409, None
            asked = _read(models.CreateCollection, body)
            client.create_collection(name, vectors_config=asked.vectors)
            return 200, True
        if not client.collection_exists(name):
            return 404, None
        if not what:
            return 200, _plain(client.get_collection(name)) if method == "GET" else client.delete_collection(name)
        if what == "index":
            field = _read(models.CreateFieldIndex, body)
            self.indexes.setdefault(name, {})[field.field_name] = field.field_schema
            return 200, _done()
        return 200, self._points(name, what, method, body)

    def _points(self, name: str, what: str, method: str, body: dict[str, Any]) -> Any:
        client = self.client
        if what == "points" and method == "PUT":
            client.upsert(name, _read(models.PointsList, body).points)
            return _done()
        if what == "points":
            wanted = _read(models.PointRequest, body)
            return _plain(client.retrieve(name, wanted.ids, wanted.with_payload, wanted.with_vector))
        if what == "points/delete":
            client.delete(name, TypeAdapter(models.PointsSelector).validate_python(body))
            return _done()
        raise ValueError(f"not supported: {what}")


def _read(kind: Any, body: dict[str, Any]) -> Any:
    return kind.model_validate(body)


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return [_plain(each) for each in value]
    assert isinstance(value, BaseModel)
    return value.model_dump(mode="json", exclude_none=True)


def _done() -> dict[str, Any]:
    return {"operation_id": 1, "status": "completed"}
