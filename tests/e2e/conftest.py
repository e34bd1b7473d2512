from collections.abc import AsyncGenerator
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import pytest

from tests.e2e.servers import Upstream, proxy, upstream

CONFIG = """
upstreams:
  main: {{kind: openai, base_url: "{url}"}}
  keyed: {{kind: openai, base_url: "{url}", api_key: sk-operators-own, headers: {{x-org: acme}}}}
  asking: {{kind: openai, base_url: "{url}", ask_usage: true}}
  dead: {{kind: openai, base_url: "http://127.0.0.1:9/v1", connect_timeout: 2}}
  impatient: {{kind: openai, base_url: "{url}", idle_timeout: 0.3}}
  echo: {{kind: echo}}
models:
  - {{match: echo, upstream: echo, window: 8192}}
  - {{match: "keyed-*", upstream: keyed, chain: empty}}
  - {{match: "asking-*", upstream: asking, chain: empty}}
  - {{match: "dead-*", upstream: dead}}
  - {{match: "impatient-*", upstream: impatient, chain: empty}}
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
telemetry: {{log_level: warning}}
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
