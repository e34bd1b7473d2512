"""What one configuration makes of the app: all that a reload swaps, and who still uses it."""

import asyncio
from collections.abc import Iterator, Mapping

from starlette.types import ASGIApp, Receive, Scope, Send

from proxy.config.judge_settings import JudgeSettings
from proxy.config.load import Config
from proxy.config.settings import Settings
from proxy.http.headers import Headers
from proxy.llm.drafts import DraftService
from proxy.llm.verdicts import VerdictService
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
    "judge",
    "telemetry.endpoint",
    "telemetry.protocol",
    "telemetry.console",
    "telemetry.service_name",
    "telemetry.sample",
)
"""What is settled when the process starts: sockets and their connections, stores, the model of vectors, traces."""


class Generation:
    """Serves exchanges with one configuration, and ends when it was replaced and its last exchange is over."""

    def __init__(
        self,
        config: Config,
        upstreams: Mapping[str, Upstream],
        headers: Headers,
        chat: ASGIApp,
        rest: ASGIApp,
        drafts: DraftService | None,
        judge: VerdictService | None = None,
    ) -> None:
        """`headers` go out with every answer; `drafts` and a `judge` of its own work in the background."""
        self.config = config
        self.upstreams = upstreams
        self._headers = headers
        self._chat = chat
        self._rest = rest
        self._drafts = drafts
        self._judge = judge
        self._users = 0
        self._unused: asyncio.Event | None = None

    def forget(self, tenant: str) -> int:
        """Forget what its background work has in memory of a tenant; how much that was."""
        return sum(each.forget(tenant) for each in (self._drafts, self._judge) if each is not None)

    async def __call__(self, scope: Scope, receive: Receive, send: Send, *, is_chat: bool = False) -> None:
        """Serve one exchange."""
        self._users += 1
        try:
            await (self._chat if is_chat else self._rest)(scope, receive, send)
        finally:
            self._users -= 1
            if self._unused is not None and not self._users:
                self._unused.set()

    async def ended(self) -> None:
        """Wait until nothing uses it any more; to be called once it gets no further exchange."""
        if self._users:
            self._unused = asyncio.Event()
            await self._unused.wait()
        if self._judge is not None:
            await self._judge.aclose()  # nobody waits for its verdicts any more
        if self._drafts is not None:
            await self._drafts.drain()

    async def aclose(self) -> None:
        """Drop what it does in the background; its upstreams may be shared and are closed by whoever knows that."""
        if self._judge is not None:
            await self._judge.aclose()
        if self._drafts is not None:
            await self._drafts.aclose()

    def close_connections(self) -> None:
        """From now on tell each client that its connection ends with its answer."""
        if (b"connection", b"close") not in self._headers:
            self._headers.append((b"connection", b"close"))


def needs_restart(running: Settings, wanted: Settings) -> tuple[str, ...]:
    """The settings of `wanted` that only a restart brings into force."""
    return tuple(name for name in _fixed(running, wanted) if _value(running, name) != _value(wanted, name))


def in_force(running: Settings, wanted: Settings) -> Settings:
    """`wanted` with what cannot change while the process runs as it is."""
    names = [name for name in _fixed(running, wanted) if "." not in name]
    return wanted.model_copy(update={name: getattr(running, name) for name in names})


def _fixed(running: Settings, wanted: Settings) -> Iterator[str]:
    """The names of `FIXED`; a judge is one of them only where it is in this process, or is to be."""
    in_process = any(isinstance(each.judge, JudgeSettings) for each in (running, wanted))
    return (name for name in FIXED if name != "judge" or in_process)


def _value(settings: Settings, name: str) -> object:
    value: object = settings
    for part in name.split("."):
        value = getattr(value, part)
    return value
