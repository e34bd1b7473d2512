import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.e2e.served import Served, served
from tests.e2e.servers import Upstream, filled, proxy, until, upstream

CONFIG = """
upstreams:
  main: {kind: openai, base_url: "{url}", wires: [responses, messages]}
  keyed: {kind: openai, base_url: "{url}", api_key: sk-operators-own, headers: {x-org: acme}}
  asking: {kind: openai, base_url: "{url}", ask_usage: true}
  echo: {kind: echo}
models:
  - {match: echo, upstream: echo, window: 8192}
  - {match: "keyed-*", upstream: keyed, chain: empty}
  - {match: "asking-*", upstream: asking, chain: empty}
  - {match: alias, upstream: main, model: the-real-name, chain: empty}
  - {match: ["chain-*", "org/chain-*"], upstream: main, window: 8192, reserve: 0}
  - {match: "tiny-*", upstream: main, window: 60, reserve: 0}
  - {match: "plain-*", upstream: main, chain: empty}
chains:
  default:
    - consolidate_system: {}
    - window_history: {keep_turns: 4, stride: 2, summary: false}
    - reject_oversize: {}
  empty: []
  observed:
    - window_history: {keep_turns: 1, stride: 1, summary: false, mode: observe}
server: {max_body_mib: 1}
auth: {kind: pass-through, paths: "/audio/*"}
"""


@dataclass
class Answer:
    """An answer as a client gets it."""

    status: int
    headers: Any
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def refusal(self) -> tuple[int, Any]:
        """The status, and the code of the error."""
        return self.status, self.json["error"]["code"]


@dataclass
class Client:
    """Sends requests to a proxy, with a key of its own unless the request names another one."""

    base: str
    http: aiohttp.ClientSession
    key: str = ""

    async def send(
        self,
        method: str,
        path: str,
        headers: Mapping[str, str] | None = None,
        *,
        key: str | None = None,
        **options: Any,
    ) -> Answer:
        """Send a request. Options are aiohttp's: `json`, `data`, `params`."""
        bearer = self.key if key is None else key
        sent = {**({"authorization": f"Bearer {bearer}"} if bearer else {}), **(headers or {})}
        async with self.http.request(method, self.base + path, headers=sent, **options) as response:
            return Answer(response.status, response.headers, await response.read())

    async def get(self, path: str, headers: Mapping[str, str] | None = None, **options: Any) -> Answer:
        return await self.send("GET", path, headers, **options)

    async def post(self, path: str, body: Any, headers: Mapping[str, str] | None = None, **options: Any) -> Answer:
        return await self.send("POST", path, headers, json=body, **options)

    async def chat(
        self,
        content: str = "hi",
        model: str = "m",
        *,
        path: str = "/v1/chat/completions",
        headers: Mapping[str, str] | None = None,
        key: str | None = None,
        **fields: Any,
    ) -> Answer:
        """Send a chat request with one message of the user, unless fields have other `messages`."""
        body = {"model": model, "messages": [{"role": "user", "content": content}], **fields}
        return await self.post(path, body, headers, key=key)

    async def record(self, answer: Answer) -> Any:
        """What was done with a request."""
        return (await self.get(f"/v1/explain/{answer.headers['x-request-id']}")).json

    async def metrics(self) -> str:
        return (await self.get("/metrics")).body.decode()

    async def metric(self, name: str) -> float:
        """The sum of all series whose line begins so."""
        lines = (await self.metrics()).splitlines()
        return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(name))

    async def until(self, line: str) -> None:
        """Wait until the metrics have this line: what becomes of a request is counted behind its answer."""
        await until(self.metrics, lambda lines: line in lines)


@pytest.fixture
async def behind() -> AsyncGenerator[Upstream, None]:
    """An upstream, for proxies that a test starts by itself."""
    async with upstream() as made:
        yield made


@pytest.fixture
async def http() -> AsyncGenerator[aiohttp.ClientSession, None]:
    """A client whose every request has a connection of its own, so that any worker may take it."""
    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(force_close=True), auto_decompress=False
    ) as session:
        yield session


COMMON = """
upstreams: {main: {kind: openai, base_url: "{url}"}}
models: [{match: "*", upstream: main, window: 100000}]
"""
"""What stands in a configuration that has no such sections of its own."""


@dataclass
class Lab:
    """Where a test starts its proxies: a folder, an upstream behind them, and a client in front."""

    folder: Path
    behind: Upstream
    http: aiohttp.ClientSession
    stack: AsyncExitStack

    def config(self, text: str, **values: Any) -> str:
        """A configuration with the address of the upstream, and with values in the place of their names in braces."""
        sections = {line.partition(":")[0] for line in text.splitlines()}
        more = [line for line in COMMON.splitlines() if line.partition(":")[0] not in sections]
        return filled("\n".join([text, *more, ""]), **{"url": self.behind.url, **values})

    async def start(self, text: str, name: str = "", **values: Any) -> str:
        """Start a proxy that runs until the end of the test, in a folder of this name; its base URL."""
        folder = self.folder / name
        folder.mkdir(exist_ok=True)
        return await self.stack.enter_async_context(proxy(self.config(text, **values), folder))

    async def client(self, text: str, key: str = "", name: str = "", **values: Any) -> Client:
        """Start a proxy, and have a client of it."""
        return Client(await self.start(text, name, **values), self.http, key)

    def served(self, text: str, *arguments: str, **values: Any) -> AbstractAsyncContextManager[Served]:
        """A proxy in a process of its own, in the folder of the test."""
        return served(self.config(text, **values), self.folder, *arguments)

    async def upstream(self) -> Upstream:
        """Start another upstream."""
        return await self.stack.enter_async_context(upstream())

    async def two(self, text: str, **values: Any) -> list[str]:
        """Start two proxies of one configuration; their base URLs."""
        return [await self.start(text, name, **values) for name in ("first", "second")]


@pytest.fixture
async def lab(tmp_path: Path, behind: Upstream, http: aiohttp.ClientSession) -> AsyncGenerator[Lab, None]:
    async with AsyncExitStack() as stack:
        yield Lab(tmp_path, behind, http, stack)


@pytest.fixture
async def client(lab: Lab, request: pytest.FixtureRequest) -> Client:
    """A client of a proxy with the `CONFIG` of the test's module, with its `KEY` if it has one."""
    module = vars(request.module)
    return await lab.client(module["CONFIG"], module.get("KEY", ""))
