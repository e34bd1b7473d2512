"""The composition root: from settings to services to an ASGI app. Only here are services built."""

import asyncio
import gc
import os
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from fnmatch import fnmatchcase
from pathlib import Path

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route as HttpRoute
from starlette.types import Receive, Scope, Send

from proxy.api import Api
from proxy.archive import Archives
from proxy.breaker import Breaker
from proxy.config import Config, load
from proxy.context import ModelProfile
from proxy.drafts import DEADLINES, DraftService
from proxy.embedding import EmbeddingService
from proxy.embedding.backend import Backend
from proxy.embedding_settings import NoEmbedding, OpenAIEmbedding, SentenceTransformersEmbedding
from proxy.endpoint import Endpoint, Handler
from proxy.errors import ConfigError, error_body
from proxy.guard import GuardedUpstream
from proxy.memory import Memos, StoredMemory
from proxy.models import Models
from proxy.once import OnceService
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

_METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")


def create() -> "App":
    """The app of the file that the environment names; for worker processes. Raises `ConfigError`."""
    app = build(load(Path(os.environ[CONFIG_VARIABLE])))
    # what is alive now lives for ever: leave it out of collections, which otherwise stop the loop for tens of
    # milliseconds, and let a parsed request of some thousand objects pass without one
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)
    return app


def build(config: Config) -> "App":
    """The app of a configuration. Nothing is connected or loaded before it starts."""
    settings = config.settings
    telemetry = Telemetry.open(settings.telemetry)
    upstreams = guarded(build_upstreams(settings), settings, telemetry)
    routes = Routes(settings, upstreams, profiles(Models()))
    tokens = TokenService()
    store = build_store(settings.state)
    archives, replay = Archives(store, ttl=settings.state.ttl), Replay(StoredMemory(store, ttl=settings.state.ttl))
    once, recalls = OnceService(), ThreadPoolExecutor(max_workers=2, thread_name_prefix="penstock-recall")
    memos, writing = Memos(store, ttl=settings.state.ttl), build_writing(settings, routes, store, telemetry)
    embedding = build_embedding(settings, store)
    services = Services(tokens, archives, replay, once, memos, recalls, writing, embedding)
    rewriting = Rewriting(settings, services)
    api, sidecar = Api(settings, routes, rewriting, services), Sidecar(settings, routes, rewriting, services)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncGenerator[None, None]:
        logs.configure(settings.telemetry)
        # the first request must not wait for a vocabulary; start-up must not either
        warming = asyncio.get_running_loop().create_task(tokens.warm()) if any(settings.chains.values()) else None
        if embedding is not None and any(
            step.needs_embedding for steps in settings.chains.values() for _, step in steps
        ):
            embedding.warm()
        try:
            yield
        finally:
            if warming is not None:
                warming.cancel()
            if writing is not None:
                await writing.drafts.aclose()
            await asyncio.gather(*(upstream.aclose() for upstream in upstreams.values()), return_exceptions=True)
            if embedding is not None:
                await embedding.aclose()
            await store.aclose()
            tokens.close()
            once.close()
            recalls.shutdown(wait=False, cancel_futures=True)
            await telemetry.aclose()

    def endpoint(path: str, handler: Handler, methods: Iterable[str], route: str = "") -> HttpRoute:
        shows_path = handler != sidecar.retrieve
        return HttpRoute(
            path, Endpoint(handler, telemetry, route or path, shows_path=shows_path), methods=list(methods)
        )

    chat = endpoint("/v1/chat/completions", api.chat, ["POST"])
    app = Starlette(
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
            endpoint("/v1/{path:path}", api.forward, _METHODS),
            HttpRoute("/healthz", _healthz, methods=["GET"]),
            HttpRoute("/readyz", _readyz, methods=["GET"]),
            HttpRoute("/metrics", _metrics(telemetry), methods=["GET"]),
        ],
        exception_handlers={HTTPException: _http_error},
        lifespan=lifespan,
    )
    app.router.redirect_slashes = False  # to an address made of the client's own Host header
    return App(app, chat)


class App:
    """The whole app: one path goes straight to its endpoint, all else by Starlette's router.

    The router and its two error handlers take a tenth of the time that a small request spends here.
    """

    def __init__(self, rest: Starlette, chat: HttpRoute) -> None:
        self._rest = rest
        self._path = chat.path
        self._chat = chat.app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a connection."""
        if scope["type"] == "http" and scope["path"] == self._path and scope["method"] == "POST":
            await self._chat(scope, receive, send)
        else:
            await self._rest(scope, receive, send)


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


def build_upstreams(settings: Settings) -> dict[str, Upstream]:
    """The upstreams by name; the code of a kind is only loaded if it is configured."""
    return {name: _upstream(name, each, settings.models) for name, each in settings.upstreams.items()}


def guarded(upstreams: Mapping[str, Upstream], settings: Settings, telemetry: Telemetry) -> dict[str, Upstream]:
    """The upstreams behind their bounds and breakers; but for those that cannot fail."""

    def behind(name: str, upstream: Upstream) -> Upstream:
        bounds = settings.upstreams[name]
        if isinstance(bounds, EchoUpstream):
            return upstream
        return GuardedUpstream(upstream, bounds, Breaker(bounds.breaker, told=telemetry.metrics.breaker(name)))

    return {name: behind(name, upstream) for name, upstream in upstreams.items()}


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


async def _healthz(request: Request) -> Response:
    """Alive: the event loop turns. Depends on no upstream and on no load."""
    return Response(b'{"status":"ok"}', media_type="application/json")


async def _readyz(request: Request) -> Response:
    """Ready: the configuration holds and all services are built."""
    return Response(b'{"status":"ready"}', media_type="application/json")


def _metrics(telemetry: Telemetry) -> Callable[[Request], object]:
    async def metrics(request: Request) -> Response:
        media_type, text = await asyncio.to_thread(telemetry.metrics.render, request.headers.get("accept", ""))
        return Response(text, headers={"content-type": media_type})

    return metrics


async def _http_error(request: Request, error: Exception) -> Response:
    """The framework's own 404 and 405, with OpenAI's body."""
    if not isinstance(error, HTTPException):
        raise error
    known = {
        404: ("not_found", f"there is no {request.method} {request.url.path[:200]}; the API is under /v1"),
        405: ("method_not_allowed", f"{request.method} is not allowed here"),
    }
    code, message = known.get(error.status_code, ("http_error", str(error.detail)))
    body = error_body(message, "invalid_request_error", None, code)
    return Response(body, error.status_code, {"content-type": "application/json", **(error.headers or {})})
