import asyncio
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.e2e.servers import Upstream, proxy, upstream

CONFIG = """
upstreams:
  main: {{kind: openai, base_url: "{url}", wires: [responses, messages]}}
  keyed: {{kind: openai, base_url: "{url}", api_key: sk-operators-own, headers: {{x-org: acme}}}}
  asking: {{kind: openai, base_url: "{url}", ask_usage: true}}
  echo: {{kind: echo}}
models:
  - {{match: echo, upstream: echo, window: 8192}}
  - {{match: "keyed-*", upstream: keyed, chain: empty}}
  - {{match: "asking-*", upstream: asking, chain: empty}}
  - {{match: alias, upstream: main, model: the-real-name, chain: empty}}
  - {{match: ["chain-*", "org/chain-*"], upstream: main, window: 8192, reserve: 0}}
  - {{match: "tiny-*", upstream: main, window: 60, reserve: 0}}
  - {{match: "plain-*", upstream: main, chain: empty}}
chains:
  default:
    - consolidate_system: {{}}
    - window_history: {{keep_turns: 4, stride: 2, summary: false}}
    - reject_oversize: {{}}
  empty: []
  observed:
    - window_history: {{keep_turns: 1, stride: 1, summary: false, mode: observe}}
server: {{max_body_mib: 1}}
auth: {{kind: pass-through, paths: "/audio/*"}}
"""


@dataclass
class Setup:
    """A proxy, the upstream behind it, and a client session."""

    base: str
    upstream: Upstream
    session: aiohttp.ClientSession

    @property
    def url(self) -> str:
        return f"{self.base}/v1/chat/completions"


@pytest.fixture
async def setup(tmp_path: Path) -> AsyncGenerator[Setup, None]:
    async with (
        upstream() as behind,
        proxy(CONFIG.format(url=behind.url), tmp_path) as base,
        aiohttp.ClientSession(auto_decompress=False) as session,
    ):
        yield Setup(base, behind, session)


@pytest.fixture
async def behind() -> AsyncGenerator[Upstream, None]:
    """An upstream, for proxies that a test starts by itself."""
    async with upstream() as made:
        yield made


@pytest.fixture
async def http() -> AsyncGenerator[aiohttp.ClientSession, None]:
    """A client whose every request has a connection of its own, so that any worker may take it."""
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(force_close=True)) as session:
        yield session


@dataclass
class Lab:
    """Where a test starts its proxies: a folder, an upstream behind them, and a client in front."""

    folder: Path
    behind: Upstream
    http: aiohttp.ClientSession
    stack: AsyncExitStack

    async def start(self, config: str, name: str = "") -> str:
        """Start a proxy that runs until the end of the test, in a folder of this name; its base URL."""
        folder = self.folder / name
        folder.mkdir(exist_ok=True)
        return await self.stack.enter_async_context(proxy(config, folder))

    async def upstream(self) -> Upstream:
        """Start another upstream."""
        return await self.stack.enter_async_context(upstream())

    async def chat(self, base: str, body: Any, headers: Any = None) -> tuple[int, Any, Any]:
        """Send a chat request; the status, the headers and the JSON of its answer."""
        async with self.http.post(f"{base}/v1/chat/completions", json=body, headers=headers) as response:
            return response.status, response.headers, await response.json()

    async def explained(self, base: str, body: Any) -> Any:
        """Send a chat request, and ask what was done with it."""
        status, headers, told = await self.chat(base, body)
        assert status == 200, told
        return (await self.get(f"{base}/v1/explain/{headers['x-request-id']}"))[1]

    async def get(self, url: str, headers: Any = None) -> tuple[int, Any]:
        """The status and the JSON of what is there."""
        async with self.http.get(url, headers=headers) as response:
            return response.status, await response.json()

    async def metrics(self, base: str) -> str:
        async with self.http.get(f"{base}/metrics") as response:
            return await response.text()

    async def until(self, base: str, line: str) -> None:
        """Wait until the metrics have this line: what becomes of a request is counted behind its answer."""
        async with asyncio.timeout(60):
            while line not in await self.metrics(base):
                await asyncio.sleep(0.01)

    async def two(self, config: str) -> list[str]:
        """Start two proxies of one configuration; their base URLs."""
        return [await self.start(config, name) for name in ("first", "second")]


@pytest.fixture
async def lab(tmp_path: Path, behind: Upstream, http: aiohttp.ClientSession) -> AsyncGenerator[Lab, None]:
    async with AsyncExitStack() as stack:
        yield Lab(tmp_path, behind, http, stack)
