"""One generation of the app: all that one configuration builds and a reload swaps, and who still uses it."""

import asyncio
from collections.abc import Mapping
from operator import attrgetter

from starlette.types import ASGIApp, Receive, Scope, Send

from proxy.config.load import Config
from proxy.config.settings import Settings
from proxy.http.headers import Headers
from proxy.llm.drafts import DraftService
from proxy.llm.verdicts import VerdictService
from proxy.server.api.explain import Explaining
from proxy.upstreams.base import Upstream

FIXED = (
    "server.host",
    "server.port",
    "server.admin_host",
    "server.admin_port",
    "server.remember_mib",
    "server.keep_alive",
    "server.drain",
    "limits.max_header_bytes",
    "limits.header_timeout",
    "limits.body_timeout",
    "limits.write_timeout",
    "state",
    "vectors",
    "memories",
    "embedding",
    "records",
    "telemetry.endpoint",
    "telemetry.protocol",
    "telemetry.console",
    "telemetry.service_name",
    "telemetry.sample",
    "telemetry.spans",
)
"""Settings that cannot change while the process runs: sockets, connections, stores, the embedding model, traces."""


class Generation:
    """Serves exchanges with one configuration. It ends when it is replaced and its last exchange is over."""

    def __init__(
        self,
        config: Config,
        upstreams: Mapping[str, Upstream],
        headers: Headers,
        chat: ASGIApp,
        rest: ASGIApp,
        drafts: DraftService | None,
        judge: VerdictService | None,
        explaining: Explaining,
    ) -> None:
        """`headers` go out with every answer. `drafts` and `judge` work in the background."""
        self.config = config
        self.explaining = explaining
        self.upstreams = upstreams
        self._headers = headers
        self._chat = chat
        self._rest = rest
        self._drafts = drafts
        self._judge = judge
        self._users = 0
        self._unused: asyncio.Event | None = None

    def forget(self, tenant: str) -> int:
        """Drop what background work has in memory of a tenant. Return how much that was."""
        return sum(each.forget(tenant) for each in (self._drafts, self._judge) if each is not None)

    async def __call__(self, scope: Scope, receive: Receive, send: Send, *, is_chat: bool = False) -> None:
        self._users += 1
        try:
            await (self._chat if is_chat else self._rest)(scope, receive, send)
        finally:
            self._users -= 1
            if self._unused is not None and not self._users:
                self._unused.set()

    async def ended(self) -> None:
        """Wait until the last exchange is over. Call it once the generation gets no new ones."""
        if self._users:
            self._unused = asyncio.Event()
            await self._unused.wait()
        if self._judge is not None:
            await self._judge.aclose()  # nobody waits for its verdicts any more
        if self._drafts is not None:
            await self._drafts.drain()

    async def aclose(self) -> None:
        """Cancel the background work. The upstreams may be shared, so the reload closes them."""
        if self._judge is not None:
            await self._judge.aclose()
        if self._drafts is not None:
            await self._drafts.aclose()

    def close_connections(self) -> None:
        """From now on send `connection: close` with every answer."""
        if (b"connection", b"close") not in self._headers:
            self._headers.append((b"connection", b"close"))


def needs_restart(running: Settings, wanted: Settings) -> tuple[str, ...]:
    """Return the names of the settings of `wanted` that only a restart brings into force."""
    return tuple(name for name in FIXED if attrgetter(name)(running) != attrgetter(name)(wanted))


def in_force(running: Settings, wanted: Settings) -> Settings:
    """Return `wanted`, with the settings that cannot change taken from the present configuration."""
    names = [name for name in FIXED if "." not in name]
    return wanted.model_copy(update={name: getattr(running, name) for name in names})
