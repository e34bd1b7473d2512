"""Keys that come and go while requests run, in files mounted as Kubernetes mounts a ConfigMap."""

import asyncio
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from proxy.config.keys_file import hash_of
from tests.e2e.conftest import Client, Lab
from tests.e2e.served import served
from tests.e2e.servers import Received, Upstream, begin_stream, filled, send_chunk, until, until_ready

ANN, BOB = "pk-ann", "pk-bob"
CONFIG = """
upstreams: {main: {kind: openai, base_url: "{url}", api_key: "${file:{secret}}"}}
models: [{match: "*", upstream: main, window: 8192}]
auth: {kind: keys, file: keys.yaml}
limits: {header_timeout: {patience}}
state: {directory: "{state}", max_mib: 8}
embedding: {kind: none}
telemetry: {log_level: info}
"""


class Mount:
    """A folder whose files are links through `..data`, which is turned to another folder with each change."""

    def __init__(self, folder: Path, behind: Upstream) -> None:
        self.folder, self._url, self._state, self._made = folder / "mount", behind.url, folder / "state", 0
        self.folder.mkdir()
        for name in ("keys.yaml", "secret"):
            (self.folder / name).symlink_to(f"..data/{name}")

    def put(self, keys: str, secret: str = "sk-one", patience: float = 30) -> str:
        """Swap to these keys; the configuration that refers to them."""
        old, self._made = self.folder / f"..{self._made}", self._made + 1
        new = self.folder / f"..{self._made}"
        new.mkdir()
        config = filled(CONFIG, url=self._url, secret=self.folder / "secret", state=self._state, patience=patience)
        for name, text in (("config.yaml", config), ("keys.yaml", keys), ("secret", secret)):
            (new / name).write_text(text)
        (self.folder / "..new").symlink_to(new.name)
        (self.folder / "..new").rename(self.folder / "..data")
        for path in old.iterdir() if old.exists() else ():
            path.unlink()
        return config


def keys(*names: str, more: str = "") -> str:
    hashes = {"ann": hash_of(ANN), "bob": hash_of(BOB)}
    return "keys:\n" + "".join(f"  - {{name: {name}, hash: {hashes[name]}{more}}}\n" for name in names)


@pytest.fixture
def mount(tmp_path: Path, behind: Upstream) -> Mount:
    return Mount(tmp_path, behind)


async def statuses(client: Client) -> list[int]:
    """Return the statuses that Ann and Bob get."""
    return [(await client.chat("hi", key=key)).status for key in (ANN, BOB)]


async def config_of(client: Client) -> Any:
    return (await client.get("/readyz")).json["config"]


async def test_a_key_that_is_taken_out_is_refused_and_its_stream_ends_as_it_began(lab: Lab, mount: Mount) -> None:
    go_on = asyncio.Event()

    async def slowly(upstream: Upstream, received: Received, writer: asyncio.StreamWriter) -> None:
        await begin_stream(writer)
        await send_chunk(writer, b'data: {"choices":[]}\n\n')
        await go_on.wait()
        await send_chunk(writer, b"data: [DONE]\n\n")
        await send_chunk(writer, b"")

    plain = lab.behind.respond
    config = mount.put(keys("ann"))
    (mount.folder / "config.yaml").symlink_to("..data/config.yaml")
    async with served(config, mount.folder) as proxy:
        await until_ready(proxy.base)
        client = Client(proxy.base, lab.http)
        assert await statuses(client) == [200, 401]
        lab.behind.respond = slowly
        url = f"{proxy.base}/v1/chat/completions"
        body = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "stream": True}
        async with lab.http.post(url, headers={"authorization": f"Bearer {ANN}"}, json=body) as response:
            await response.content.readany()
            lab.behind.respond = plain
            mount.put(keys("bob"), "sk-two")
            await until(partial(statuses, client), [401, 200].__eq__)
            go_on.set()
            assert (await response.read()).endswith(b"data: [DONE]\n\n")
        assert lab.behind.last.header("authorization") == "Bearer sk-two"

        # a file of keys that is wrong takes nobody's access, and gives none
        mount.put(keys("bob", "ann", more=", no_such_limit: 1"), "sk-two")
        await until(partial(config_of, client), lambda told: "refused" in told)
        assert await statuses(client) == [401, 200]
        assert any("keys.yaml:2" in line and "no_such_limit" in line for line in proxy.log)
        assert hash_of(BOB) not in "".join(proxy.log)

        # what connections may take is settled at the start, and that is told; the keys are taken over
        mount.put(keys("ann"), "sk-two", patience=20)
        await until(partial(statuses, client), [200, 401].__eq__)
        assert (await config_of(client))["needs_restart"] == ["limits.header_timeout"]
