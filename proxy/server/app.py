"""The composition root: from settings to services to an ASGI app. Services are built here, by `proxy.server.build`."""

import asyncio
import gc
import logging
import os
from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from starlette.applications import Starlette
from starlette.routing import Route as HttpRoute

from proxy.access.browsers import Browsers, open_to
from proxy.access.exchange import Intake
from proxy.access.gate import Gate, Handler, Slots, is_needed
from proxy.access.limits import KeyLimits
from proxy.access.metering import Meter
from proxy.config.access_settings import KeysAuth
from proxy.config.load import Config, load
from proxy.config.settings import Settings
from proxy.gateway.pipeline import Pipeline
from proxy.gateway.prepare import Services
from proxy.gateway.saving import Saving
from proxy.memories.service import MemoryService
from proxy.models import Models
from proxy.server.admin import Admin
from proxy.server.api.chat import Api
from proxy.server.api.compress import Sidecar
from proxy.server.api.endpoint import Endpoint, Serving
from proxy.server.api.erase import Forgetting
from proxy.server.api.explain import Explaining
from proxy.server.api.memories import MemoriesApi
from proxy.server.api.requests import RecordsApi
from proxy.server.api.share import Sharing
from proxy.server.api.usage import UsageApi
from proxy.server.build import (
    build_counters,
    build_index,
    build_judge,
    build_records,
    build_services,
    build_store,
    build_upstreams,
    build_writing,
    patience,
    profiles,
    reusable,
)
from proxy.server.dispatch import CHAT, ERRORS, App
from proxy.server.generation import Generation
from proxy.server.health import Health, Starting, degraded, watch
from proxy.server.malloc import bound_arenas, give_back_free_memory
from proxy.server.rehearsal import rehearse
from proxy.server.reload import Reloading
from proxy.server.shutdown import Draining
from proxy.state.background import BackgroundWork
from proxy.state.counters import Counters
from proxy.state.store import Store
from proxy.state.workers import Peers
from proxy.telemetry import Telemetry, logs
from proxy.text import arrays
from proxy.upstreams.base import Upstream
from proxy.upstreams.routing import Routes
from proxy.vectors.base import IndexFailed
from proxy.vectors.index import IndexService

_log = logging.getLogger("penstock.config")

CONFIG_VARIABLE = "PENSTOCK_CONFIG"
"""Names the configuration file for worker processes, which are started without arguments."""

ADMIN_PORT_VARIABLE = "PENSTOCK_ADMIN_PORT"
"""Tells them the port for operators that was bound."""

HOST_VARIABLE = "PENSTOCK_HOST"
"""Tells them the address that was bound."""

_PREFIXES = 3000
"""Prefixes of prompts that are remembered, for each MiB of `server.remember_mib`."""

_METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")


def create() -> App:
    """Return the app of the file that the environment names; for worker processes. Raise `ConfigError`."""
    bound_arenas()
    port = os.environ.get(ADMIN_PORT_VARIABLE)
    config, saving = load(Path(os.environ[CONFIG_VARIABLE])), Saving.of_environment()
    host = os.environ.get(HOST_VARIABLE)
    app = build(config, admin_port=int(port) if port else None, host=host, saving=saving)
    # what is alive now lives for ever: leave it out of collections, which otherwise stop the loop for tens of
    # milliseconds, and let a parsed request of some thousand objects pass without one
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)
    return app


def build(
    config: Config, *, admin_port: int | None = None, host: str | None = None, saving: Saving | None = None
) -> App:
    """Return the app of a configuration. Nothing is connected or loaded before it starts.

    What comes in on `admin_port` is for operators; without one, the port that the configuration says. `host` is the
    address of the main port, if it is not the configuration's. `saving` writes what is served to a file.
    """
    settings = config.settings
    store = build_store(settings.state)
    records = build_records(settings, store)
    telemetry = Telemetry.open(settings.telemetry, records, settings.server.remember_mib * _PREFIXES)
    index = build_index(settings, telemetry)
    services = build_services(settings, store, index, telemetry)
    peers, counters = Peers.of_environment(), build_counters(settings.state, store)
    meter = Meter(counters, patience=patience(settings.state))
    told = RecordsApi(records, peers, services.archives)
    most, of_one, together = _most_of_bodies(settings)
    intake = Intake(most, of_one, lambda reason: telemetry.metrics.series.limited.of(reason).inc(), together)
    lasting = Lasting(services, store, telemetry, told, counters, meter, Slots(), intake, saving, index)
    background = BackgroundWork[str]()

    def make(config: Config, upstreams: Mapping[str, Upstream], before: Settings | None) -> Generation:
        kept = reusable(config.settings, before, upstreams)
        return build_generation(config, kept, lasting)

    starting = Starting()
    apply = partial(_apply, lasting, background, starting)
    reloading = Reloading(config, make, telemetry.metrics.config, apply)

    def stop() -> float:
        reloading.close_connections()
        return reloading.settings.server.drain_delay

    draining = Draining(stop, lambda: background.begin(reloading.reload("SIGHUP")))
    outside = {"state": store, "vectors": index, "embedding": services.embedding}
    health = Health(reloading, starting, draining, services.threads, peers, lambda: degraded(outside))
    here = [services.forget, reloading.forget]
    forgetting = Forgetting(store, services.archives, services.memories, index, peers, records=records, here=here)
    admin = Admin(reloading, told, peers, telemetry.metrics, forgetting, host)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncGenerator[None, None]:
        apply(reloading.current.config)
        draining.install()
        await peers.open()
        background.begin(reloading.watch())
        if records is not None:
            background.begin(records.write())
        background.begin(meter.share())
        background.begin(watch(outside, telemetry.metrics.degraded))
        background.begin(give_back_free_memory())
        try:
            yield
        finally:
            draining.remove()
            await peers.aclose()
            await background.aclose()
            if records is not None:
                await records.aclose()
            await reloading.aclose()
            await services.aclose()
            if index is not None:
                await index.aclose()
            await meter.aclose()
            await counters.aclose()
            await store.aclose()
            await telemetry.aclose()
            if saving is not None:
                await asyncio.to_thread(saving.close)

    own_port = admin_port or settings.server.admin_port
    for_all = [*health.routes(), *(() if own_port is not None else admin.routes(own_port=False))]
    for_operators = [*health.routes(), *admin.routes(own_port=True)]
    return App(
        reloading,
        Starlette(routes=for_all, exception_handlers=ERRORS, lifespan=lifespan),
        Starlette(routes=for_operators, exception_handlers=ERRORS),
        own_port,
    )


def _most_of_bodies(settings: Settings) -> tuple[int, int, int]:
    """Return the most bytes of incomplete bodies, in all and of one address, and of all bodies: twice the largest body
    at least, so that one always fits beside others."""
    least, limits = int(2 * settings.server.max_body_mib * 2**20), settings.limits
    bounds = limits.incomplete_mib, limits.incomplete_mib_per_address, limits.bodies_mib
    most, of_one, together = (max(least, bound * 2**20) for bound in bounds)
    return most, of_one, together


def _apply(lasting: "Lasting", background: BackgroundWork[str], starting: Starting, config: Config) -> None:
    """Bring what outlives generations in line with the configuration that is in force from now on."""
    settings, services, index = config.settings, lasting.services, lasting.index
    logs.configure(settings.telemetry)
    lasting.telemetry.warn_at = settings.telemetry.warn_at
    lasting.intake.bound(*_most_of_bodies(settings))
    if settings.records.keep and settings.records.text:
        _log.warning("records keep the text of prompts and answers; operators can read it")
    for warning in config.warnings:
        _log.warning("configuration", extra={"fields": {"warning": warning}})
    steps = [step for chain in settings.chains.values() for _, step in chain]
    # the first request should not wait for a vocabulary; start-up must not either
    served = [entry for entry in settings.models if settings.chains[entry.chain]]
    background.begin(starting.until(_load(settings, services, Models().encodings(served))))
    if services.embedding is not None and any("embedding" in step.needs for step in steps):
        services.embedding.warm()
    if any("memories" in step.needs for step in steps):
        background.begin(_warm(services.memories, index))


async def _load(settings: Settings, services: Services, encodings: Iterable[str]) -> None:
    """Load what requests count with and texts are ranked with, and with `server.warm` all that the chains need."""
    await services.tokens.warm(encodings)
    if any(settings.chains.values()):
        await asyncio.to_thread(arrays.numpy)
    if settings.server.warm:
        chains = [chain for chain in settings.chains.values() if chain]
        needs_embedding = any("embedding" in step.needs for chain in chains for _, step in chain)
        embedding = services.embedding if needs_embedding else None
        await rehearse(chains, services.tokens, services.once, embedding)


async def _warm(memories: MemoryService, index: IndexService | None) -> None:
    """Load what searches, and measure what it finds, before the first question."""
    if index is not None:
        with suppress(IndexFailed):
            await index.warm()
    await memories.warm()


@dataclass(frozen=True, slots=True)
class Lasting:
    """What outlives configurations."""

    services: Services
    store: Store
    telemetry: Telemetry
    records: RecordsApi
    counters: Counters
    meter: Meter
    slots: Slots
    intake: Intake
    saving: Saving | None = None
    index: IndexService | None = None


def build_generation(config: Config, kept: Mapping[str, Upstream], lasting: Lasting) -> Generation:
    """Return what a configuration makes, over what outlives it; `kept` are upstreams that it shares with another."""
    settings, telemetry, records = config.settings, lasting.telemetry, lasting.records
    for chain in settings.chains.values():
        for name, policy in chain:
            telemetry.metrics.declare(name, type(policy))
    upstreams = build_upstreams(settings, telemetry, kept)
    routes = Routes(settings, upstreams, profiles(Models()))
    writing = build_writing(settings, routes, lasting.store, telemetry)
    judge = build_judge(settings, routes, telemetry)
    services = replace(lasting.services, writing=writing, judge=judge)
    waits = patience(settings.state)
    limits = KeyLimits(settings.limits, lasting.counters, telemetry.metrics.series, patience=waits)
    gate = Gate(settings, limits, lasting.slots, lasting.meter) if is_needed(settings) else None
    pipeline = Pipeline(settings, routes, services, lasting.saving)
    api, sidecar = Api(settings, routes, pipeline), Sidecar(routes, pipeline, services)
    memories = MemoriesApi(settings, services.memories)
    sharing = Sharing(services)
    explaining = Explaining(config, routes, services, lasting.store, lasting.index)
    # only where clients have keys of Penstock: with others the path is an upstream's
    usage = UsageApi(settings, limits, lasting.meter) if isinstance(settings.auth, KeysAuth) else None
    headers = [(b"x-penstock-config", config.version.encode())]
    browsers = None if isinstance(settings.auth, KeysAuth) else Browsers(settings.server)  # no page has a key
    largest = int(settings.server.max_body_mib * 2**20)
    serving = Serving(telemetry, config.version, headers, gate, browsers, lasting.intake, largest)

    def endpoint(path: str, handler: Handler, methods: Iterable[str], route: str = "", **options: bool) -> HttpRoute:
        return HttpRoute(path, Endpoint(handler, route or path, serving, **options), methods=list(methods))

    chat = endpoint(CHAT, api.chat, ["POST"])
    rest = Starlette(
        routes=[
            chat,
            endpoint("/chat/completions", api.chat, ["POST"], "/v1/chat/completions"),
            endpoint("/v1/messages", api.messages, ["POST"]),
            endpoint("/v1/messages/count_tokens", api.count, ["POST"]),
            endpoint("/v1/models", api.models, ["GET"]),
            endpoint("/models", api.models, ["GET"], "/v1/models"),
            endpoint("/v1/models/{model:path}", api.model, ["GET"]),
            endpoint("/models/{model:path}", api.model, ["GET"], "/v1/models/{model}"),
            # of all methods and spellings: what belongs to no upstream must not be forwarded to one
            endpoint("/v1/compress", sidecar.compress, _METHODS),
            endpoint("/v1/compress/", sidecar.compress, _METHODS, "/v1/compress"),
            endpoint("/v1/retrieve", sidecar.retrieve, _METHODS, "/v1/retrieve/{handle}"),
            endpoint("/v1/retrieve/{handle:path}", sidecar.retrieve, _METHODS, "/v1/retrieve/{handle}"),
            endpoint("/v1/context/share", sharing.serve, _METHODS),
            endpoint("/v1/context/share/{id:path}", sharing.serve, _METHODS, "/v1/context/share/{id}"),
            endpoint("/v1/explain", explaining.serve, ["POST"]),
            endpoint("/v1/explain", records.explain, _METHODS, "/v1/explain/{request_id}"),
            endpoint("/v1/explain/{request_id:path}", records.explain, _METHODS, "/v1/explain/{request_id}"),
            endpoint("/v1/memories", memories.collection, _METHODS),
            endpoint("/v1/memories/", memories.collection, _METHODS, "/v1/memories"),
            endpoint("/v1/memories/import", memories.imports, _METHODS),
            endpoint("/v1/memories/aggregate", memories.aggregate, _METHODS),
            endpoint("/v1/memories/{id:path}", memories.one, _METHODS, "/v1/memories/{id}"),
            *(() if usage is None else [endpoint("/v1/usage", usage.serve, _METHODS, spends=False)]),
            endpoint("/v1/{path:path}", api.forward, _METHODS, takes_forms=True),
        ],
        exception_handlers=ERRORS,
    )
    rest.router.redirect_slashes = False  # to an address made of the client's own Host header
    drafts = None if writing is None else writing.drafts
    origins = settings.server.cors_origins
    telemetry.metrics.has_upstreams(upstreams)
    return Generation(
        config, upstreams, headers, open_to(origins, chat.app), open_to(origins, rest), drafts, judge, explaining
    )
