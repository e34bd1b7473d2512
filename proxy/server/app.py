"""The composition root: from settings to services to an ASGI app. Services are built here, by `proxy.server.build`."""

import asyncio
import gc
import linecache
import logging
import re
import sys
import time
from collections import Counter
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route as HttpRoute
from starlette.types import Receive, Scope, Send

from proxy.access.browsers import Browsers, open_to
from proxy.access.exchange import Intake
from proxy.access.gate import Gate, Handler
from proxy.access.limits import KeyLimits
from proxy.access.metering import Meter
from proxy.chat.errors import PenstockError, error_body
from proxy.chat.parse import Body
from proxy.config.load import Config, load
from proxy.config.settings import KeysAuth, Settings
from proxy.context import Conditions, Identity
from proxy.gateway.chain import run
from proxy.gateway.pilot import Pilot
from proxy.gateway.pipeline import Pipeline
from proxy.gateway.saving import Saving
from proxy.http.client import tls
from proxy.http.headers import Headers, request_id
from proxy.llm.judge import UpstreamJudge
from proxy.models import Models
from proxy.policy import Policy
from proxy.server.admin import Admin
from proxy.server.api.chat import WIRES, Api
from proxy.server.api.compress import Sidecar
from proxy.server.api.endpoint import NO_STORE, Answer, Endpoint, as_fault, by_method
from proxy.server.api.erase import Forgetting
from proxy.server.api.keys import UsageApi
from proxy.server.api.memories import MemoriesApi
from proxy.server.api.models import ModelsApi
from proxy.server.api.requests import RecordsApi
from proxy.server.api.share import Sharing
from proxy.server.build import build_index, build_services, build_stores, build_upstreams, build_writing, reusable
from proxy.server.explain import Explaining
from proxy.server.health import Draining, Health
from proxy.server.malloc import bound_arenas, give_back_free_memory, trim
from proxy.server.reload import Generation, Reloading
from proxy.state.background import BackgroundWork
from proxy.state.cache import SharedLimit
from proxy.state.store import StoreError
from proxy.state.workers import Peers
from proxy.telemetry import logs
from proxy.telemetry.observation import Telemetry
from proxy.testing import chat, context, lifelike, profile
from proxy.text import arrays
from proxy.upstreams.base import Upstream
from proxy.upstreams.routing import Routes

_log = logging.getLogger("penstock.config")

_METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")
CHAT = "/v1/chat/completions"
_FOR_CLIENTS = ("/v1", "/chat/", "/models")


async def answer_http_error(request: Request, error: Any) -> Response:
    """Answer the framework's own 404 and 405, an `HTTPException`, with OpenAI's error body."""
    known = {
        404: ("not_found", f"there is no {request.method} {request.url.path[:200]}; the API is under /v1"),
        405: ("method_not_allowed", f"{request.method} is not allowed here"),
    }
    code, message = known.get(error.status_code, ("http_error", str(error.detail)))
    body = error_body(message, "invalid_request_error", None, code)
    headers = {"x-request-id": request_id(request.headers.get("x-request-id")), **(error.headers or {})}
    if "Allow" in headers:  # the framework takes it from a set
        headers["Allow"] = ", ".join(sorted(headers["Allow"].split(", ")))
    return Response(body, error.status_code, headers, "application/json")


async def answer_own_error(request: Request, error: Any) -> Response:
    """Answer an error of an endpoint for operators, `PenstockError` or `StoreError`."""
    fault = as_fault(error)
    return Response(fault.body(), fault.status, {**NO_STORE, **fault.headers}, "application/json")


ERRORS = {HTTPException: answer_http_error, PenstockError: answer_own_error, StoreError: answer_own_error}
"""Answers to what Starlette's endpoints raise."""


def create(
    path: Path, host: str, admin_port: int | None, save: Path | None, redact: Sequence[str], meeting: Path | None = None
) -> "App":
    """Return the app of a file, in its process. `meeting` is the folder where workers meet. Raise `ConfigError`."""
    bound_arenas()
    saving = None if save is None else Saving(save, redact)
    app = App(load(path), saving, Peers(meeting), host, admin_port)
    # what is alive now lives for ever: leave it out of collections, which otherwise stop the loop for tens of
    # milliseconds, and let a parsed request of some thousand objects pass without one
    linecache.clearcache()  # the docstrings of settings were read from sources
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)
    return app


class App:
    """The services that outlive a configuration, and the generation of each configuration over them.

    Chat does not go through Starlette's router, a tenth of the time of a small request.
    """

    def __init__(
        self,
        config: Config,
        saving: Saving | None = None,
        peers: Peers | None = None,
        host: str | None = None,
        admin_port: int | None = None,
    ) -> None:
        """Build everything, connect nothing. `host` and `admin_port` are given where they differ from the settings'."""
        settings, self.saving, self.headers = config.settings, saving, Headers()
        self.stores = stores = build_stores(settings)
        records = stores.records if settings.records.keep else None
        self.telemetry = Telemetry.open(settings.telemetry, records, SharedLimit(settings.server.remember_mib * 2**20))
        self.index, metrics = build_index(settings, self.telemetry), self.telemetry.metrics
        self.services = services = build_services(settings, stores.store, self.index, self.telemetry)
        self.meter, self.slots = Meter(stores.counters, patience=stores.patience), Counter[str]()
        self.peers = peers = peers or Peers(None)
        self.records = RecordsApi(stores.records, peers, services.archives)
        self.pilot, self.background = Pilot(settings.pilot, metrics), BackgroundWork[str]()
        self.intake = Intake(sys.maxsize, sys.maxsize, lambda reason: metrics.of("limited_requests", reason).inc())
        self.reloading = reloading = Reloading(config, self.generation, metrics, self.apply)
        self._ends = 0.0
        """When the time to stop is over, on the monotonic clock; 0 without a signal."""
        self.draining = Draining(self._stop, lambda: self.background.begin(reloading.reload("SIGHUP")))
        outside = {"state": stores.store, "vectors": self.index, "embedding": services.embedding}
        self.health = Health(reloading, self.draining, services.threads, peers, outside)
        forgetting = Forgetting(stores, services, self.index, peers, [reloading.forget, self.pilot.forget])
        self.admin = Admin(reloading, self.records, peers, metrics, forgetting, self.meter, host)
        self._own_port, probes = admin_port or settings.server.admin_port, self.health.routes()
        for_all = [*probes, *(() if self._own_port is not None else self.admin.routes(own_port=False))]
        for_operators = [*probes, *self.admin.routes(own_port=True)]
        self._rest = Starlette(routes=for_all, exception_handlers=ERRORS, lifespan=self._life)
        self._operators = Starlette(routes=for_operators, exception_handlers=ERRORS)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one exchange. A client's exchange keeps the generation that is current when it begins."""
        if scope["type"] != "http":
            await self._rest(scope, receive, send)
            return
        if self._own_port is not None and (scope.get("server") or ("", 0))[1] == self._own_port:
            await self._operators(scope, receive, send)
            return
        path = scope["path"]
        if "//" in path or path.endswith("/"):  # of a base URL with a slash at its end
            plain = re.sub("//+", "/", path).rstrip("/")
            if plain.startswith(_FOR_CLIENTS):
                path, scope = plain, {**scope, "path": plain}
        if path == CHAT and scope["method"] == "POST":
            await self.reloading.current(scope, receive, send, is_chat=True)
        elif path.startswith(_FOR_CLIENTS):
            await self.reloading.current(scope, receive, send)
        else:
            await self._rest(scope, receive, send)

    def _stop(self) -> float:
        self.headers.append((b"connection", b"close"))
        server = self.reloading.settings.server
        self._ends = time.monotonic() + server.drain_delay + server.drain
        return server.drain_delay

    @asynccontextmanager
    async def _life(self, app: Starlette) -> AsyncGenerator[None, None]:
        """Start the work beside requests; at the end close everything, each service behind those that use it."""
        background, stores = self.background, self.stores
        self.apply(self.reloading.current.config)
        self.draining.install()
        await self.peers.open()
        degraded = self.telemetry.metrics.degraded
        for work in (self.reloading.watch(), stores.records.write(), self.meter.share(), self.health.watch(degraded)):
            background.begin(work)
        background.begin(give_back_free_memory())
        try:
            yield
        finally:
            self.draining.remove()
            for each in (self.admin.replays, self.pilot, self.peers, background):
                await each.aclose()
            await stores.records.aclose(self._ends - time.monotonic())
            users, used = (self.reloading, self.services, self.index), (self.meter, stores.counters, stores.store)
            for service in (*users, *used, self.telemetry):
                if service is not None:
                    await service.aclose()
            if self.saving is not None:
                await asyncio.to_thread(self.saving.close)

    def apply(self, config: Config) -> None:
        settings, services = config.settings, self.services
        logs.configure(settings.telemetry)
        self.telemetry.warn_at, self.pilot.settings = settings.telemetry.warn_at, settings.pilot
        limits, twice = settings.limits, int(2 * settings.server.max_body_mib * 2**20)
        bounds = (limits.incomplete_mib, limits.incomplete_mib_per_address, limits.bodies_mib)
        self.intake.bound(*(max(twice, mib * 2**20) for mib in bounds))
        if settings.records.keep and settings.records.text:
            _log.warning("records keep the text of prompts and answers; operators can read it")
        for warning in config.warnings:
            _log.warning("configuration", extra={"fields": {"warning": warning}})
        steps = [step for chain in settings.chains.values() for _, step in chain]
        # the first request should not wait for lists of models and a vocabulary; start-up must not either
        self.background.begin(self.health.until(self._load(settings)))
        if services.embedding is not None and any("embedding" in step.needs for step in steps):
            services.embedding.warm()
        if any("memories" in step.needs for step in steps):
            self.background.begin(self._warm())

    async def _load(self, settings: Settings) -> None:
        """Load what all requests need, and with `server.warm` all that the chains need."""
        services, models = self.services, Models()
        await asyncio.to_thread(import_module, "encodings.idna")  # the first host name that is resolved needs it
        await asyncio.get_running_loop().getaddrinfo("127.0.0.1", None)  # and the threads of the event loop
        if any((getattr(each, "base_url", None) or "").startswith("https:") for each in settings.upstreams.values()):
            await asyncio.to_thread(tls)
        await asyncio.to_thread(models.encodings, settings.models)
        await asyncio.to_thread(models.resolve, "gpt-4o")  # the lists are read when the first model is found in them
        encodings = models.encodings(entry for entry in settings.models if settings.chains[entry.chain])
        await services.tokens.warm(encodings)
        if any(settings.chains.values()):
            await asyncio.to_thread(arrays.numpy)
        await self._rehearse(settings, min(encodings, default="chars"))
        await asyncio.to_thread(trim)

    async def _rehearse(self, settings: Settings, encoding: str) -> None:
        """Load code and tables of the steps: run each chain over a made-up conversation; if warm, in need of a cut."""
        services, is_warm, window, patience = self.services, settings.server.warm, profile().window, 0.0
        request, tokens = chat("u1"), services.tokens.bind(_WHO, profile(encoding=encoding))
        if is_warm:
            request, patience = lifelike(), Conditions().patience
            window = (await tokens.count(request)).total
        # policies of others may ask servers or count requests: unasked, they do not run
        runs = [[each for each in chain if is_warm or _is_own(each[1])] for chain in settings.chains.values()]
        for steps in filter(None, runs):
            # a guard may ask a server that is away: no start waits long
            once = services.once.bind(_WHO)
            await run(steps, context(request, window=window, tokens=tokens, once=once, patience=patience))
        needs_embedding = is_warm and any("embedding" in step.needs for steps in runs for _, step in steps)
        if services.embedding is not None and needs_embedding:
            await services.embedding.ready()
            await services.embedding.bind(_WHO).floor("What was it?", wait=_WAIT)
            services.embedding.forget(_WHO.tenant)
        services.once.forget(_WHO.tenant)

    async def _warm(self) -> None:
        """Load the search over memories, and measure its results, before the first question."""
        if self.index is not None:
            await self.index.warm()
        await self.services.memories.warm()

    def generation(self, config: Config, upstreams: Mapping[str, Upstream], before: Settings | None) -> Generation:
        """Return the generation of a configuration. It shares the `upstreams` whose settings are as they were."""
        settings, telemetry = config.settings, self.telemetry
        for chain in settings.chains.values():
            for name, policy in chain:
                telemetry.metrics.declare(name, type(policy))
        upstreams = build_upstreams(settings, telemetry, reusable(settings, before, upstreams))
        routes = Routes(settings, upstreams)
        drafts = build_writing(settings, routes, self.stores.store, telemetry.metrics)
        judge = None if settings.judge is None else UpstreamJudge(settings.judge, routes, telemetry.metrics)
        services = replace(self.services, drafts=drafts, judge=judge)
        limits = KeyLimits(settings.limits, self.stores.counters, telemetry.metrics, patience=self.stores.patience)
        gate = Gate(settings, limits, self.slots, self.meter)
        pipeline = Pipeline(settings, routes, services, self.saving, self.pilot if settings.pilot.is_on else None)
        api, sidecar = Api(settings, routes, pipeline), Sidecar(routes, pipeline, services)
        memories, sharing, models = MemoriesApi(settings, services.memories), Sharing(services), ModelsApi(routes)
        # only where clients have keys of Penstock: with others the path is an upstream's
        usage = UsageApi(settings, limits, self.meter) if isinstance(settings.auth, KeysAuth) else None
        browsers = None if isinstance(settings.auth, KeysAuth) else Browsers(settings.server)  # no page has a key
        explaining = Explaining(config, routes, services, self.stores.store)
        generation = Generation(
            config, upstreams, services, explaining, telemetry, gate, self.intake, browsers, self.headers
        )

        def endpoint(
            path: str, handler: Handler, methods: Sequence[str], route: str = "", **options: bool
        ) -> HttpRoute:
            route = route or path.replace(":path}", "}")
            return HttpRoute(path, Endpoint(handler, route, generation, **options), methods=list(methods))

        def answers(path: str, route: str = "", *, spends: bool = True, **by: Answer) -> HttpRoute:
            # of all methods: what belongs to no upstream must not be forwarded to one
            return endpoint(path, by_method(**by), _METHODS, route, spends=spends)

        chat = endpoint(CHAT, api.wire(Body), ["POST"])
        rest = Starlette(
            routes=[
                chat,
                endpoint("/chat/completions", api.wire(Body), ["POST"], CHAT),
                *(endpoint(path, api.wire(kind), ["POST"]) for path, kind in WIRES.items() if path != CHAT),
                endpoint("/v1/models", by_method(GET=models.find), ["GET"]),
                endpoint("/models", by_method(GET=models.find), ["GET"], "/v1/models"),
                endpoint("/v1/models/{model:path}", by_method(GET=models.get), ["GET"]),
                endpoint("/models/{model:path}", by_method(GET=models.get), ["GET"], "/v1/models/{model}"),
                answers("/v1/compress", POST=sidecar.compress),
                answers("/v1/retrieve", "/v1/retrieve/{handle}", GET=sidecar.retrieve),
                answers("/v1/retrieve/{handle:path}", GET=sidecar.retrieve),
                answers("/v1/context/share", POST=sharing.give, GET=sharing.received),
                answers("/v1/context/share/{id:path}", GET=sharing.get, DELETE=sharing.take_back),
                answers("/v1/explain", POST=explaining.serve),
                answers("/v1/explain/{request_id:path}", GET=self.records.explain),
                answers("/v1/memories", POST=memories.add, GET=memories.find, DELETE=memories.forget),
                answers("/v1/memories/import", POST=memories.load),
                answers("/v1/memories/aggregate", POST=memories.aggregate),
                answers("/v1/memories/{id:path}", GET=memories.get, DELETE=memories.delete),
                *(() if usage is None else [answers("/v1/usage", spends=False, GET=usage.report)]),
                endpoint("/v1/{path:path}", api.forward, _METHODS, takes_forms=True),
            ],
            exception_handlers=ERRORS,
        )
        rest.router.redirect_slashes = False  # to an address made of the client's own Host header
        origins = settings.server.cors_origins
        telemetry.metrics.has_upstreams(upstreams)
        generation.chat, generation.rest = open_to(origins, chat.app), open_to(origins, rest)
        return generation


_WHO = Identity("rehearsal")
_WAIT = 30.0
"""Seconds that the vectors of small talk may take."""


def _is_own(policy: Policy) -> bool:
    return type(policy).__module__.startswith("policies.")
