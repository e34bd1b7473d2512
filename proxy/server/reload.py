"""Generations: all that one configuration builds, and its replacement while requests run."""

import asyncio
import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from operator import attrgetter
from typing import Any, Literal

from starlette.types import ASGIApp, Receive, Scope, Send

from proxy.access.browsers import Browsers
from proxy.access.exchange import Intake
from proxy.access.gate import Gate
from proxy.chat.errors import ConfigError
from proxy.config.load import Config, hashes
from proxy.config.settings import Settings
from proxy.gateway.prepare import Services
from proxy.http.headers import Headers
from proxy.server.explain import Explaining
from proxy.state.background import BackgroundWork
from proxy.telemetry.metrics import Metrics
from proxy.telemetry.observation import Telemetry
from proxy.upstreams.base import Upstream

FIXED = (
    "server.host", "server.port", "server.admin_host", "server.admin_port", "server.remember_mib", "server.keep_alive",
    "server.drain", "limits.max_header_bytes", "limits.header_timeout", "limits.body_timeout", "limits.write_timeout",
    "state", "vectors", "memories", "embedding", "records", "telemetry.endpoint", "telemetry.protocol",
    "telemetry.console", "telemetry.service_name", "telemetry.sample", "telemetry.spans",
)  # fmt: skip
"""Settings that cannot change while the process runs: sockets, connections, stores, the embedding model, traces."""


@dataclass(eq=False)
class Generation:
    """A server of exchanges with one configuration. It ends when it is replaced and its last exchange is over."""

    config: Config
    upstreams: Mapping[str, Upstream]
    services: Services
    explaining: Explaining
    telemetry: Telemetry
    gate: Gate
    intake: Intake | None = None
    browsers: Browsers | None = None
    """The refusals of web pages."""
    headers: Headers = field(default_factory=list)
    """The headers that go out with every answer, of this generation or another."""
    chat: ASGIApp = field(init=False)
    rest: ASGIApp = field(init=False)
    _users: int = 0
    _unused: asyncio.Event = field(default_factory=asyncio.Event)

    async def __call__(self, scope: Scope, receive: Receive, send: Send, *, is_chat: bool = False) -> None:
        self._users += 1
        self._unused.clear()
        try:
            await (self.chat if is_chat else self.rest)(scope, receive, send)
        finally:
            self._users -= 1
            if not self._users:
                self._unused.set()

    async def aclose(self, *, waits: bool = False) -> None:
        """Close what only this generation has; if it `waits`, once its last exchange is over and drafts are written.

        Nobody waits for the judge's verdicts any more.
        """
        if waits and self._users:
            await self._unused.wait()
        if self.services.judge is not None:
            await self.services.judge.aclose()
        if (drafts := self.services.drafts) is not None:
            await (drafts.drain() if waits else drafts.aclose())


def needs_restart(running: Settings, wanted: Settings) -> tuple[str, ...]:
    """Return the names of the settings of `wanted` that only a restart brings into force."""
    return tuple(name for name in FIXED if attrgetter(name)(running) != attrgetter(name)(wanted))


def in_force(running: Settings, wanted: Settings) -> Settings:
    """Return `wanted`, with the settings that cannot change taken from the present configuration."""
    names = [name for name in FIXED if "." not in name]
    return wanted.model_copy(update={name: getattr(running, name) for name in names})


Outcome = Literal["applied", "unchanged", "refused"]

EVERY = 2.0
"""Seconds between two checks of the files. Contents are compared: that notices a ConfigMap's swapped link, and works
on network file systems, which send no events."""

_SETTLE = 0.2
"""Seconds for which a file must stay as it is: an editor may still be writing it."""

_log = logging.getLogger("penstock.config")

Make = Callable[[Config, Mapping[str, Upstream], Settings | None], Generation]
"""Builds a generation. It uses the previous upstreams again whose settings did not change."""


class Reloading:
    """The generation in force, and its replacement."""

    def __init__(self, config: Config, make: Make, metrics: Metrics, applied: Callable[[Config], None]) -> None:
        self.current = make(config, {}, None)
        self._running, self._make, self._metrics, self._applied = config.settings, make, metrics, applied
        self._seen = config.files
        self._live = [self.current]
        self._ending = BackgroundWork[str]()
        self._one_at_a_time = asyncio.Lock()
        self._since = _now()
        self._refused: dict[str, str] | None = None
        self._waiting: tuple[str, ...] = ()
        metrics.has_config(config.version)

    @property
    def settings(self) -> Settings:
        return self.current.config.settings

    def brief(self) -> dict[str, Any]:
        """Return the state of the configuration for everybody, without its text."""
        state: dict[str, Any] = {"version": self.current.config.version, "since": self._since}
        if self._refused is not None:
            state["refused"] = {name: self._refused[name] for name in ("when", "where")}
        if self._waiting:
            state["needs_restart"] = self._waiting
        return state

    def detail(self) -> dict[str, Any]:
        refused = {} if self._refused is None else {"refused": self._refused}
        return {**self.brief(), **refused, "generations": len(self._live)}

    def forget(self, tenant: str) -> None:
        for generation in self._live:
            generation.services.forget(tenant)

    async def reload(self, cause: str) -> Outcome:
        """Load the file as it is now, and put it into force unless it is wrong. `cause` is for the log."""
        async with self._one_at_a_time:
            try:
                outcome = await self._reloaded(cause)
            except Exception as error:  # a policy of the operator's own may do anything when it is loaded
                if not isinstance(error, ConfigError):
                    error = ConfigError(f"{self.current.config.path}: {type(error).__name__} while it was loaded")
                self._refuse(error)
                outcome = "refused"
            self._metrics.reloaded(outcome)
            return outcome

    async def _reloaded(self, cause: str) -> Outcome:
        before = self.current
        config = await asyncio.to_thread(before.config.again)
        self._seen = config.files
        if config.files == before.config.files:
            self._refused = None
            return "unchanged"
        waiting = needs_restart(self._running, config.settings)
        config = replace(config, settings=in_force(self._running, config.settings))
        self.current = self._make(config, before.upstreams, before.config.settings)
        self._live.append(self.current)
        self._since, self._refused, self._waiting = _now(), None, waiting
        self._metrics.has_config(config.version)
        self._applied(config)
        self._ending.begin(self._ended(before))
        fields: dict[str, object] = {"version": config.version, "before": before.config.version, "cause": cause}
        _log.info("configuration reloaded", extra={"fields": fields})
        if waiting:
            _log.warning("settings need a restart", extra={"fields": {"settings": ", ".join(waiting)}})
        return "applied"

    def _refuse(self, error: ConfigError) -> None:
        path = self.current.config.path
        self._seen = {**self.current.config.files, **(error.files or hashes([path]))}
        message = str(error).replace(str(path), path.name).removeprefix(path.name)
        line = re.match(r":\d+", message)
        where = path.name + (line[0] if line else "")
        self._refused = {"when": _now(), "where": where, "error": path.name + message}
        fields = {"error": self._refused["error"], "version": self.current.config.version}
        _log.error("configuration refused; the previous one stays in force", extra={"fields": fields})

    async def _ended(self, old: Generation, *, waits: bool = True) -> None:
        """Close a generation, and the upstreams that no other one has."""
        await old.aclose(waits=waits)
        self._live.remove(old)
        used = {id(upstream) for each in self._live for upstream in each.upstreams.values()}
        unused = [upstream for upstream in old.upstreams.values() if id(upstream) not in used]
        await asyncio.gather(*(upstream.aclose() for upstream in unused), return_exceptions=True)

    async def watch(self, every: float = EVERY) -> None:
        """Reload whenever a file of the configuration has changed. Runs until it is cancelled."""
        while True:
            await asyncio.sleep(every)
            if self.settings.server.watch and await self._have_changed():
                await self.reload("the file changed")

    async def _have_changed(self) -> bool:
        known = self._seen
        paths = tuple(known)
        found = await asyncio.to_thread(hashes, paths)
        if found == known:
            return False
        await asyncio.sleep(_SETTLE)
        return self._seen is known and await asyncio.to_thread(hashes, paths) == found

    async def aclose(self) -> None:
        await self._ending.aclose()
        await asyncio.gather(*(self._ended(each, waits=False) for each in [*self._live]), return_exceptions=True)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
