"""The model of the extra `semantic` by each library that computes it, and under a name of a hub, for real.

`make test-backends` installs ONNX Runtime and OpenVINO beside it and runs this. The hub is a server on this machine
that answers as the Hugging Face hub does; what asks it are that hub's own libraries.
"""

import asyncio
import json
import os
import sys
from collections.abc import AsyncGenerator, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from proxy.vectors.sentence_transformers import built_in_model

MODEL = built_in_model() or Path()
NAME = "made-up/small-model"
COMMIT = "0123456789abcdef0123456789abcdef01234567"

QUERY = "How do I give a customer the money back?"
TEXTS = ["Refunds are paid within three days.", "The cat sleeps on the sofa.", "Invoices are sent on Mondays."]

LOADER = f"""
import asyncio, json, sys
from proxy.config.settings import SentenceTransformersEmbedding
from proxy.vectors.base import EmbeddingFailed
from tests.vectors.made import similarities
from proxy.vectors.sentence_transformers import Sentences

async def main():
    model = Sentences(SentenceTransformersEmbedding(kind="sentence-transformers", **json.loads(sys.argv[1])))
    try:
        (query,) = await model.embed([{QUERY!r}], query=True)
        print(json.dumps(similarities(query, await model.embed({TEXTS!r}))))
    except EmbeddingFailed as error:
        print(json.dumps(error.cause))

asyncio.run(main())
"""


async def loaded(settings: Mapping[str, Any], **environment: str) -> Any:
    """What a process gives that loads a model: cosines, or why there are none."""
    taken = {name: value for name, value in os.environ.items() if not name.startswith("HF_")}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", LOADER, json.dumps(settings)),
        stdout=asyncio.subprocess.PIPE,
        env={**taken, **environment},
    )
    told, _ = await process.communicate()
    return json.loads(told.splitlines()[-1])


@pytest.mark.parametrize("backend", ["onnx", "openvino"])
async def test_a_backend_gives_the_vectors_of_torch(backend: str) -> None:
    expected = await loaded({"model": str(MODEL), "precision": "float32"})
    assert expected[0] > max(expected[1:]) + 0.2
    assert await loaded({"model": str(MODEL), "backend": backend}) == pytest.approx(expected, abs=0.005)


@pytest.fixture
async def hub() -> AsyncGenerator[tuple[str, list[str]]]:
    """The address of a hub that has the model, and the files that were downloaded."""
    downloaded: list[str] = []
    files = {str(path.relative_to(MODEL)): path for path in MODEL.rglob("*") if path.is_file()}

    async def file(request: web.Request) -> web.StreamResponse:
        path = files.get(request.match_info["path"])
        if path is None:
            return web.Response(status=404, headers={"X-Error-Code": "EntryNotFound", "X-Repo-Commit": COMMIT})
        headers = {"X-Repo-Commit": COMMIT, "ETag": f'"{sha256(path.read_bytes()).hexdigest()}"'}
        if request.method == "GET":
            downloaded.append(request.match_info["path"])
        return web.FileResponse(path, headers=headers)

    async def about(request: web.Request) -> web.Response:
        return web.json_response({"id": NAME, "sha": COMMIT, "siblings": [{"rfilename": name} for name in files]})

    async def nothing(request: web.Request) -> web.Response:
        return web.Response(status=404, headers={"X-Error-Code": "EntryNotFound"})

    app = web.Application()
    app.router.add_get(f"/{NAME}/resolve/{{revision}}/{{path:.+}}", file)
    app.router.add_get(f"/api/models/{NAME}", about)
    app.router.add_get(f"/api/models/{NAME}/revision/{{revision}}", about)
    app.router.add_get("/{path:.*}", nothing)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    yield f"http://{host}:{port}", downloaded
    await runner.cleanup()


async def test_a_model_is_downloaded_only_where_that_is_allowed(hub: tuple[str, list[str]], tmp_path: Path) -> None:
    address, downloaded = hub
    cached = {"HF_ENDPOINT": address, "HF_HOME": str(tmp_path)}
    assert await loaded({"model": NAME}, **cached) == "not_downloaded"
    assert downloaded == []
    found = await loaded({"model": NAME, "download": True}, **cached)
    assert found == await loaded({"model": str(MODEL)})
    assert "model.safetensors" in downloaded
    downloaded.clear()
    assert await loaded({"model": NAME}, **cached) == found, "from the cache"
    assert downloaded == []
