"""The composition root: from settings to services to an ASGI app. Only here are services built."""

import gc
import os
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import replace
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from types import MappingProxyType

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.routing import Route as HttpRoute

from proxy.admin import Admin
from proxy.api import Api
from proxy.archive import Archives
from proxy.background import Background
from proxy.breaker import Breaker
from proxy.config import Config, load
from proxy.context import ModelProfile
from proxy.dispatch import CHAT, App, http_error
from proxy.drafts import DEADLINES, DraftService
from proxy.draining import Draining
from proxy.embedding import EmbeddingService
from proxy.embedding.backend import Backend
from proxy.embedding_settings import NoEmbedding, OpenAIEmbedding, SentenceTransformersEmbedding
from proxy.endpoint import Endpoint, Handler
from proxy.errors import ConfigError
from proxy.generation import Generation
from proxy.guard import GuardedUpstream
from proxy.health import Health, degraded
from proxy.memory import Memos, StoredMemory
from proxy.models import Models
from proxy.once import OnceService
from proxy.peers import Peers
from proxy.records import Records
from proxy.reload import Reloading
from proxy.replay import Replay
from proxy.rewriting import Rewriting, Services, Writing
from proxy.routing import Routes
from proxy.settings import (
    EchoUpstream,
    ForeignUpstream,
    ModelSettings,
    OllamaUpstream,
    OpenAIUpstream,
    Settings,
    UpstreamSettings,
)
from proxy.sidecar import Sidecar
from proxy.state_settings import RedisStateSettings, StateSettings
from proxy.stores import MemoryStore, Store
from proxy.telemetry import Telemetry, logs
from proxy.tokens import TokenService
from proxy.upstream import Upstream
from proxy.writer import Writer

CONFIG_VARIABLE = "PENSTOCK_CONFIG"
"""Names the configuration file for worker processes, which are started without arguments."""

ADMIN_PORT_VARIABLE = "PENSTOCK_ADMIN_PORT"
"""Tells them the port for operators that was bound."""

_METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")


def create() -> App:
    """The app of the file that the environment names; for worker processes. Raises `ConfigError`."""
    port = os.environ.get(ADMIN_PORT_VARIABLE)
    app = build(load(Path(os.environ[CONFIG_VARIABLE])), admin_port=int(port) if port else None)
    # what is alive now lives for ever: leave it out of collections, which otherwise stop the loop for tens of
    # milliseconds, and let a parsed request of some thousand objects pass without one
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)
    return app


def build(config: Config, *, admin_port: int | None = None) -> App:
    """The app of a configuration. Nothing is connected or loaded before it starts.

    What comes in on `admin_port` is for operators; without one, the port that the configuration says.
    """
    settings = config.settings
    telemetry = Telemetry.open(settings.telemetry)
    tokens = TokenService()
    store = build_store(settings.state)
    archives, replay = Archives(store, ttl=settings.state.ttl), Replay(StoredMemory(store, ttl=settings.state.ttl))
    once, recalls = OnceService(), ThreadPoolExecutor(max_workers=2, thread_name_prefix="penstock-recall")
    memos, embedding = Memos(store, ttl=settings.state.ttl), build_embedding(settings, store)
    services = Services(tokens, archives, replay, once, memos, recalls, None, embedding)
    peers = Peers.of_environment()
    records = Records(telemetry.recent, peers)
    background = Background()

    def make(config: Config, upstreams: Mapping[str, Upstream], before: Settings | None) -> Generation:
        kept = _reusable(config.settings, before, upstreams)
        return build_generation(config, kept, services, store, telemetry, records)

    apply = partial(_apply, services, background)
    reloading = Reloading(config, make, telemetry.metrics.config, apply)

    def stop() -> float:
        reloading.close_connections()
        return reloading.settings.server.drain_delay

    draining = Draining(stop, lambda: background.begin(reloading.reload("SIGHUP")))
    health = Health(reloading, draining, lambda: degraded({"state": store, "embedding": embedding}))
    admin = Admin(reloading, records, peers, telemetry.metrics)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncGenerator[None, None]:
        apply(reloading.settings)
        draining.install()
        await peers.open()
        background.begin(reloading.watch())
        try:
            yield
        finally:
            draining.remove()
            await peers.aclose()
            await background.aclose()
            await reloading.aclose()
            if embedding is not None:
                await embedding.aclose()
            await store.aclose()
            tokens.close()
            once.close()
            recalls.shutdown(wait=False, cancel_futures=True)
            await telemetry.aclose()

    own_port = admin_port or settings.server.admin_port
    errors = {HTTPException: http_error}
    for_all = [*health.routes(), *(() if own_port is not None else admin.routes(own_port=False))]
    for_operators = [*health.routes(), *admin.routes(own_port=True)]
    return App(
        reloading,
        Starlette(routes=for_all, exception_handlers=errors, lifespan=lifespan),
        Starlette(routes=for_operators, exception_handlers=errors),
        own_port,
    )


def _apply(services: Services, background: Background, settings: Settings) -> None:
    """Bring what outlives generations in line with the settings that are in force from now on."""
    logs.configure(settings.telemetry)
    steps = [step for chain in settings.chains.values() for _, step in chain]
    # the first request must not wait for a vocabulary; start-up must not either
    if steps:
        background.begin(services.tokens.warm())
    if services.embedding is not None and any(step.needs_embedding for step in steps):
        services.embedding.warm()


def build_generation(
    config: Config,
    kept: Mapping[str, Upstream],
    services: Services,
    store: Store,
    telemetry: Telemetry,
    records: Records,
) -> Generation:
    """What a configuration makes, over services that outlive it; `kept` are upstreams that it shares with another."""
    settings = config.settings
    upstreams = build_upstreams(settings, telemetry, kept)
    routes = Routes(settings, upstreams, profiles(Models()))
    writing = build_writing(settings, routes, store, telemetry)
    services = replace(services, writing=writing)
    rewriting = Rewriting(settings, services)
    api, sidecar = Api(settings, routes, rewriting, services), Sidecar(settings, routes, rewriting, services)
    headers = [(b"x-penstock-config", config.version.encode())]

    def endpoint(path: str, handler: Handler, methods: Iterable[str], route: str = "") -> HttpRoute:
        shows_path = handler != sidecar.retrieve
        made = Endpoint(
            handler, telemetry, route or path, shows_path=shows_path, headers=headers, config=config.version
        )
        return HttpRoute(path, made, methods=list(methods))

    chat = endpoint(CHAT, api.chat, ["POST"])
    rest = Starlette(
        routes=[
            chat,
            endpoint("/chat/completions", api.chat, ["POST"], "/v1/chat/completions"),
            endpoint("/v1/models", api.models, ["GET"]),
            endpoint("/models", api.models, ["GET"], "/v1/models"),
            endpoint("/v1/models/{model:path}", api.model, ["GET"]),
            endpoint("/models/{model:path}", api.model, ["GET"], "/v1/models/{model}"),
            # of all methods and spellings: what belongs to no upstream must not be forwarded to one
            endpoint("/v1/compress", sidecar.compress, _METHODS),
            endpoint("/v1/compress/", sidecar.compress, _METHODS, "/v1/compress"),
            endpoint("/v1/retrieve", sidecar.retrieve, _METHODS, "/v1/retrieve/{handle}"),
            endpoint("/v1/retrieve/{handle:path}", sidecar.retrieve, _METHODS, "/v1/retrieve/{handle}"),
            endpoint("/v1/explain", records.explain, _METHODS, "/v1/explain/{request_id}"),
            endpoint("/v1/explain/{request_id:path}", records.explain, _METHODS, "/v1/explain/{request_id}"),
            endpoint("/v1/{path:path}", api.forward, _METHODS),
        ],
        exception_handlers={HTTPException: http_error},
    )
    rest.router.redirect_slashes = False  # to an address made of the client's own Host header
    drafts = None if writing is None else writing.drafts
    return Generation(config, upstreams, headers, chat.app, rest, drafts)


def build_store(settings: StateSettings | RedisStateSettings) -> Store:
    """Where originals are kept. Nothing is opened before it is needed. Raises `ConfigError` without its library."""
    if isinstance(settings, RedisStateSettings):
        return _redis_store(settings)
    if settings.kind == "memory":
        return MemoryStore(settings.max_mib * 2**20)
    from proxy.disk import DiskStore

    return DiskStore(Path(settings.directory).expanduser() / "archive", settings.max_mib * 2**20)


def _redis_store(settings: RedisStateSettings) -> Store:
    try:
        from proxy.redis_server import RedisServer
    except ImportError:
        raise ConfigError("state on Redis needs redis-py: pip install 'penstock[redis]'") from None
    from proxy.redis_state import RedisStore

    server = RedisServer(
        settings.url.get_secret_value(),
        password=None if settings.password is None else settings.password.get_secret_value(),
        ca_file=settings.ca_file,
        prefix=settings.prefix,
        timeout=settings.timeout,
        connections=settings.connections,
    )
    return RedisStore(server, largest=int(settings.largest_mib * 2**20))


def build_writing(settings: Settings, routes: Routes, store: Store, telemetry: Telemetry) -> Writing | None:
    """What writes summaries in the background, if a model is configured for it."""
    if settings.writer is None:
        return None
    writer = Writer(settings.writer, routes, telemetry.metrics.writer)
    deadline = DEADLINES * settings.writer.timeout
    return Writing(writer, DraftService(store, writer.write, ttl=settings.state.ttl, deadline=deadline))


def build_embedding(settings: Settings, store: Store | None) -> EmbeddingService | None:
    """What compares texts by meaning. Nothing is loaded or connected before it is needed."""
    if isinstance(settings.embedding, NoEmbedding):
        return None
    max_bytes = settings.embedding.memory_mib * 2**20
    return EmbeddingService(_backend(settings.embedding), store, ttl=settings.state.ttl, max_bytes=max_bytes)


def _backend(settings: SentenceTransformersEmbedding | OpenAIEmbedding) -> Backend:
    if isinstance(settings, OpenAIEmbedding):
        from proxy.embedding.remote import Remote

        return Remote(settings)
    from proxy.embedding.sentences import Sentences

    return Sentences(settings)


def build_upstreams(
    settings: Settings, telemetry: Telemetry | None = None, kept: Mapping[str, Upstream] = MappingProxyType({})
) -> dict[str, Upstream]:
    """The upstreams by name, made unless they are `kept`; with telemetry, behind their bounds and breakers.

    The code of a kind is only loaded if it is configured.
    """

    def made(name: str, bounds: UpstreamSettings) -> Upstream:
        upstream = _upstream(name, bounds, settings.models)
        if telemetry is None or isinstance(bounds, EchoUpstream):  # the echo cannot fail
            return upstream
        return GuardedUpstream(upstream, bounds, Breaker(bounds.breaker, told=telemetry.metrics.breaker(name)))

    return {name: kept.get(name) or made(name, each) for name, each in settings.upstreams.items()}


def _reusable(settings: Settings, before: Settings | None, upstreams: Mapping[str, Upstream]) -> dict[str, Upstream]:
    """The upstreams of the settings `before` that these would make the same: their connections stay open."""
    if before is None:
        return {}
    same_models = settings.models == before.models  # Ollama's take context sizes from there
    return {
        name: upstreams[name]
        for name, each in settings.upstreams.items()
        if before.upstreams.get(name) == each and (same_models or not isinstance(each, OllamaUpstream))
    }


def _upstream(name: str, settings: object, models: Iterable[ModelSettings]) -> Upstream:
    match settings:
        case OpenAIUpstream():
            from proxy.upstreams.openai import OpenAI

            return OpenAI(name, settings)
        case OllamaUpstream():
            from proxy.upstreams.ollama import Ollama

            return Ollama(name, settings, _num_ctx(name, models))
        case ForeignUpstream():
            from proxy.upstreams.foreign import Foreign

            return Foreign(name, settings)
        case EchoUpstream():
            from proxy.upstreams.echo import Echo

            return Echo(name)
    raise TypeError(f"no upstream for {type(settings).__name__}")


def _num_ctx(upstream: str, models: Iterable[ModelSettings]) -> Callable[[str], int | None]:
    """The context size that the configuration gives a model of this upstream."""
    entries = [entry for entry in models if entry.upstream == upstream]

    def of(model: str) -> int | None:
        serving = (e for e in entries if e.model == model or any(fnmatchcase(model, glob) for glob in e.match))
        return next((entry.num_ctx for entry in serving), None)

    return of


def profiles(models: Models) -> Callable[[str, ModelSettings, Upstream], ModelProfile]:
    """How a route finds what is known about its model."""
    return lambda name, entry, upstream: models.resolve(name, entry, ollama=upstream.provider == "ollama")
