"""From settings to services: each is made here, and nothing is opened or loaded before it is needed."""

from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from proxy.access.limits import PATIENCE
from proxy.chat.errors import ConfigError
from proxy.config.settings import (
    AutoEmbedding,
    EmbeddedVectors,
    Guarded,
    NoEmbedding,
    NoVectors,
    OllamaUpstream,
    OpenAIEmbedding,
    QdrantVectors,
    SentenceTransformersEmbedding,
    Settings,
    StateSettings,
    StaticEmbedding,
)
from proxy.gateway.answer_notes import CorrectionService
from proxy.gateway.hidden import HiddenParts
from proxy.gateway.prepare import Services
from proxy.gateway.signed import Prefixes
from proxy.llm.writer import DEADLINES, DraftService, Write, Writer
from proxy.memories.relevance import MemoryRelevance
from proxy.memories.service import MemoryService
from proxy.memories.table import MemoryTable
from proxy.models.tokens import TokenService
from proxy.policy import ORIGINALS_WRITTEN
from proxy.state.archive import Archives
from proxy.state.cache import Cache, OnceService, SharedLimit
from proxy.state.decisions import Memos, StoredMemory
from proxy.state.inbox import Shares
from proxy.state.sqlite import SqliteCounters, SqliteStore
from proxy.state.store import Counters, Store
from proxy.state.threads import Threads
from proxy.telemetry.metrics import Metrics
from proxy.telemetry.observation import Telemetry
from proxy.telemetry.records import Records
from proxy.upstreams.base import Upstream
from proxy.upstreams.guard import Breaker, GuardedUpstream
from proxy.upstreams.routing import Routes
from proxy.vectors.base import Backend
from proxy.vectors.embedding import EmbeddingService
from proxy.vectors.index import IndexService


class Stores(NamedTuple):
    """The stores behind `state`. Nothing is opened before it is needed."""

    store: Store
    """Originals, decisions and memories."""
    counters: Counters
    """Clients' usage, counted by all who share the state."""
    records: Records
    """Without any where records are off."""
    patience: float
    """Seconds to wait for counts: longer than the server's own timeout, which finds out a hanging server."""


def build_stores(settings: Settings) -> Stores:
    """Return the stores of a configuration. Raise `ConfigError` without their library."""
    state, wanted = settings.state, settings.records
    if isinstance(state, StateSettings):
        folder = None if state.kind == "memory" else Path(state.directory).expanduser()
        records = Records(wanted, folder / "records" / "records.db" if folder and wanted.keep else None)
        store = SqliteStore(folder and folder / "archive", state.max_mib * 2**20)
        return Stores(store, SqliteCounters(folder and folder / "counters"), records, PATIENCE)
    try:
        from proxy.state.redis import RedisCounters, RedisLog, RedisServer, RedisStore
    except ImportError:
        raise ConfigError("state on Redis needs redis-py: pip install 'penstock[redis]'") from None
    server = RedisServer(
        state.url.get_secret_value(),
        password=None if state.password is None else state.password.get_secret_value(),
        ca_file=state.ca_file,
        prefix=state.prefix,
        timeout=state.timeout,
        connections=state.connections,
    )
    log = RedisLog(server, max_bytes=int(wanted.max_mib * 2**20), age=86400 * wanted.days)
    return Stores(
        RedisStore(server, largest=int(state.largest_mib * 2**20)),
        RedisCounters(server),
        Records(wanted, log=log if wanted.keep else None),
        PATIENCE + state.timeout,
    )


def build_services(
    settings: Settings,
    store: Store,
    index: IndexService | None,
    telemetry: Telemetry,
    *,
    patient: bool = False,
    missing: Callable[[int], None] | None = None,
) -> Services:
    """Return the services that outlive a configuration.

    With `missing`, no slow model of vectors is loaded: it gets the number of vectors that are not made.
    """
    threads, limit, embedding, model = Threads("recall", 2), telemetry.limit, None, settings.embedding
    if not isinstance(model, NoEmbedding):
        backend = build_backend(model)
        missing = None if backend.is_quick or isinstance(model, OpenAIEmbedding) else missing
        most = model.memory_mib * 2**20
        embedding = EmbeddingService(backend, index, max_bytes=most, patient=patient, missing=missing)
    return Services(
        tokens=TokenService(limit=limit),
        once=OnceService(limit),
        parsed=Cache(limit),
        recalls=threads,
        reports=telemetry.bills.reports,
        embedding=embedding,
        **_over(store, settings, embedding, threads, telemetry.metrics, limit),
    )


def services_over(services: Services, store: Store, settings: Settings, metrics: Metrics) -> Services:
    """Return the same services over another store: with loaded models, without stored data."""
    limit = SharedLimit(settings.server.remember_mib * 2**20)
    return replace(services, **_over(store, settings, services.embedding, services.recalls, metrics, limit))


def _over(
    store: Store,
    settings: Settings,
    embedding: EmbeddingService | None,
    threads: Executor,
    metrics: Metrics,
    limit: SharedLimit,
) -> dict[str, Any]:
    """Return the services that keep data in a store, by their names."""
    ttl, memories, count = settings.state.ttl, settings.memories, metrics.count_memories
    archives = Archives(store, ttl=ttl, limit=limit)
    archives.wrote = metrics.of_count(ORIGINALS_WRITTEN).inc
    table = MemoryTable(store, ttl=memories.ttl, max_users=memories.max_users, count=count)
    relevance, most = MemoryRelevance(embedding, threads), memories.max_per_user
    return {
        "archives": archives,
        "hidden": HiddenParts(StoredMemory(store, ttl=ttl), limit),
        "memos": Memos(store, ttl=ttl, limit=limit),
        "shares": Shares(store, ttl=ttl),
        "prefixes": Prefixes(StoredMemory(store, ttl=ttl, kind="prefix"), limit),
        "corrections": CorrectionService(store),
        "memories": MemoryService(table, relevance, threads, most=most, merge_at=memories.merge_at, count=count),
    }


def build_writing(
    settings: Settings, routes: Routes, store: Store, metrics: Metrics, write: Write | None = None
) -> DraftService | None:
    """Return the writer of summaries in the background, if a model is configured, or `write` in its place."""
    if settings.writer is None:
        return None
    writer = Writer(settings.writer, routes, metrics)
    deadline, write = DEADLINES * settings.writer.timeout, write or writer.write
    return DraftService(store, write, writer.authorization, ttl=settings.state.ttl, deadline=deadline)


def build_index(settings: Settings, telemetry: Telemetry | None = None) -> IndexService | None:
    """Return the index of vectors. Nothing is opened, imported or connected yet."""
    chosen = settings.vectors
    in_memory = isinstance(chosen, EmbeddedVectors) and settings.state.kind == "memory" and chosen.directory is None
    if isinstance(chosen, NoVectors) or in_memory:
        return None
    metrics = None if telemetry is None else telemetry.metrics
    failed = None if metrics is None else lambda *what: metrics.of("index_failures", *what).inc()
    degraded = None if metrics is None else metrics.of("index_degraded").set
    if isinstance(chosen, QdrantVectors):
        from proxy.vectors.qdrant_server import PointServer

        key = chosen.api_key.get_secret_value() if chosen.api_key is not None else None
        server, wait = PointServer(chosen.url, key, chosen.prefix, chosen.timeout), chosen.timeout
        return IndexService(server, timeout=wait, threads=4, failed=failed, degraded=degraded)
    from proxy.vectors.embedded import Embedded

    beside = settings.state.directory if isinstance(settings.state, StateSettings) else "state"
    directory = Path(chosen.directory or f"{beside}/vectors").expanduser()
    embedded = Embedded(directory, chosen.max_mib * 2**20, ttl=chosen.ttl, busy=chosen.timeout)
    return IndexService(embedded, timeout=chosen.timeout, failed=failed, degraded=degraded)


def build_backend(
    settings: AutoEmbedding | StaticEmbedding | SentenceTransformersEmbedding | OpenAIEmbedding,
) -> Backend:
    """Return the model of vectors. Nothing is loaded or connected yet."""
    if isinstance(settings, OpenAIEmbedding):
        from proxy.vectors.remote import Remote

        return Remote(settings)
    from proxy.vectors.sentence_transformers import Sentences, is_installed

    if isinstance(settings, AutoEmbedding) and is_installed():
        return Sentences(SentenceTransformersEmbedding(kind="sentence-transformers"))
    if isinstance(settings, SentenceTransformersEmbedding):
        return Sentences(settings)
    from proxy.vectors.static import Static

    return Static()


def build_upstreams(
    settings: Settings, telemetry: Telemetry | None = None, shared: Mapping[str, Upstream] = MappingProxyType({})
) -> dict[str, Upstream]:
    """Return the upstreams by name, those in `shared` as they are; with telemetry, behind bounds and breakers."""
    wanted = {name: each for name, each in settings.upstreams.items() if name not in shared}
    built: dict[str, Upstream] = {}
    for module in {each.module for each in wanted.values()}:
        kind = {name: each for name, each in wanted.items() if each.module == module}
        built |= import_module(module).build(kind, settings)
    if telemetry is not None:
        for name, each in wanted.items():
            if isinstance(each, Guarded):
                breaker = Breaker(each.breaker, on_change=telemetry.metrics.breaker(name))
                built[name] = GuardedUpstream(built[name], each, breaker)
    return {name: shared.get(name) or built[name] for name in settings.upstreams}


def reusable(settings: Settings, before: Settings | None, upstreams: Mapping[str, Upstream]) -> dict[str, Upstream]:
    """Return the upstreams of the settings `before` that these would make the same: their connections stay open."""
    if before is None:
        return {}
    same_models = settings.models == before.models  # Ollama's take context sizes from there
    return {
        name: upstreams[name]
        for name, each in settings.upstreams.items()
        if before.upstreams.get(name) == each and (same_models or not isinstance(each, OllamaUpstream))
    }
