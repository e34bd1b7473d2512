"""The nearness of texts in meaning. Vectors are made in the background, and once for each content, model and tenant.

    similarities ─ memory ─ index ─ queue ─ one worker ─ backend (a thread with a model, or a server)

Until a vector is there its text has no similarity, and whoever asks ranks by words.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Hashable, Sequence
from functools import partial
from hashlib import blake2b
from typing import NamedTuple

from proxy.context import Identity
from proxy.state.background import BackgroundWork
from proxy.state.cache import Cache
from proxy.state.warnings import Warnings
from proxy.text import arrays, well_formed
from proxy.text.arrays import Array
from proxy.text.small_talk import phrases
from proxy.vectors.base import LONGEST, Backend, Scope
from proxy.vectors.index import IndexService
from proxy.vectors.making import ASKED, PREPARED, QUERY, Key, Making, Rank, VectorRequest
from proxy.vectors.packing import REFERENCE, Scale, Stack, dimension, listed, measured, of_language

logger = logging.getLogger("penstock.embedding")

INLINE = 512
"""Texts whose vectors are unpacked on the event loop: about a millisecond."""

_AT_ONCE = 256
_ENTRY = 300

_SHARED = "penstock: calibration"
"""Under whose name the vectors of the phrases are kept; a client's tenant is a hash, or `anonymous`."""
_LONGEST_WAIT = 3600.0
_MEASURING = 60.0
"""Seconds that the vectors of the pairs may take by which a model is measured."""
_ROLE = b"\0query"
_PRODUCTS = 16
"""Cosines that take as long as to unpack a text's vectors."""


class ComparedTexts(NamedTuple):
    """Texts that are compared with others."""

    tenant: str
    texts: Sequence[str]
    are_queries: bool = False
    """They are asked for first, and embedded as questions."""
    order: Sequence[int] | None = None
    """The places of the texts in the order in which missing vectors are made."""


def shared(texts: Sequence[str], *, are_queries: bool = False) -> ComparedTexts:
    """Return texts that are no tenant's."""
    return ComparedTexts(_SHARED, texts, are_queries)


class EmbeddingService:
    """Makes and remembers vectors, with one backend. For use on one event loop."""

    def __init__(
        self,
        backend: Backend,
        index: IndexService | None = None,
        *,
        max_bytes: int = 64 * 2**20,
        patient: bool = False,
        missing: Callable[[int], None] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """If `patient`, questions wait for all. With `missing`, which counts them, none are made."""
        self._patient, self._missing = patient, missing
        self.name = backend.name
        self.version = backend.version
        """The mark of all that vectors depend on besides the text: the model of their scope in the index."""
        self._has_roles = backend.has_roles
        self._scale = backend.scale
        self._warnings = Warnings(logger, "embedding failed", clock)
        self._index = None if backend.is_quick else index
        self._known: Cache[Key, bytes] = Cache(max_bytes)
        self._dimension: int | None = None  # of what was made last; not known before
        self._making = Making(backend, self._deliver, self._warnings, clock)
        self._pending: dict[Key, VectorRequest] = {}
        self._looking = BackgroundWork[Key]()
        self._writing = BackgroundWork[object]()
        self._measuring = BackgroundWork[str]()
        self._questions = 0
        # unpacked vectors of texts that were asked for together, as the tools of a request are turn by turn
        self._stacks: Cache[Hashable, Stack] = Cache(max_bytes // 4)
        self._inline = 0  # until numpy was imported, in a thread

    def bind(self, who: Identity) -> "BoundEmbedder":
        return BoundEmbedder(self, who.tenant)

    def warm(self) -> None:
        logger.info("texts are compared by meaning", extra={"fields": {"model": self.name}})
        self._making.load()
        self._begin_measuring()

    async def loaded(self) -> None:
        """Wait until the model is loaded, if it is loaded here."""
        if self._missing is None:
            await asyncio.wait({self._making.load()})

    async def ready(self) -> None:
        await self.loaded()
        await self._measured(_MEASURING)

    def forget(self, tenant: str) -> int:
        for key, pending in self._pending.items():
            if key.tenant == tenant:
                pending.answer(None)
        self._making.forget(tenant)
        self._stacks.forget(tenant)
        return self._known.forget(tenant)

    async def aclose(self) -> None:
        await self._measuring.aclose()
        await self._looking.aclose()
        await self._making.aclose()
        await self._writing.drain()

    async def table(
        self, texts: ComparedTexts, others: ComparedTexts, *, wait: float, whole: bool = False
    ) -> Array | None:
        """Return how near each text is to the others; None where all are missing, or if `whole` any."""
        until, groups = time.monotonic() + wait, (texts, others)
        self._begin_measuring()
        keys = [(each.tenant, tuple(each.texts), each.are_queries) for each in groups]  # strings know their hash
        known = [self._stacks.get(key) for key in keys]
        missing = [each for each, stack in zip(groups, known, strict=True) if stack is None]
        packed = iter(await self._made_of(missing, wait))
        scale = await self._measured(until - time.monotonic())
        if scale is None:
            return None

        def compared() -> tuple[list[Stack], Array | None]:
            stacks = [Stack(next(packed)) if stack is None else stack for stack in known]
            if any(each.is_empty or (whole and not each.is_whole) for each in stacks):
                return stacks, None
            return stacks, scale.of(stacks[0].table(stacks[1]))

        size = sum(len(each.texts) for each in missing) + len(texts.texts) * len(others.texts) // _PRODUCTS
        stacks, near = compared() if size <= self._inline else await asyncio.to_thread(compared)
        self._inline = INLINE
        for key, stack, before in zip(keys, stacks, known, strict=True):
            if before is None and stack.is_whole and len(key[1]) > 1:
                self._stacks.put(key, stack, _ENTRY + stack.size + 2 * sum(map(len, key[1])))
        return near

    @property
    def is_behind(self) -> bool:
        return self._making.is_busy or bool(self._looking)

    async def settled(self) -> None:
        while self._pending:
            await asyncio.wait({each.result for each in self._pending.values()})

    def _begin_measuring(self) -> None:
        if self._scale is None and _SHARED not in self._measuring:
            self._measuring.begin(self._measure(), _SHARED)

    async def _measured(self, wait: float) -> Scale | None:
        if self._scale is None:
            self._begin_measuring()
            await self._measuring.wait((_SHARED,), _LONGEST_WAIT if self._patient else max(0.0, wait))
        return self._scale

    async def _measure(self) -> None:
        english = of_language("en")
        questions, helping = [pair.query for pair in english], [pair.helps for pair in english]
        packed = await self._made_of([shared(questions, are_queries=True), shared(helping)], _MEASURING)
        if not all(map(all, packed)):  # the model is not there; the next question tries again
            return
        self._scale = await asyncio.to_thread(measured, *packed)
        if self._scale is None:
            self._warnings.warn(action="measure", cause="tells_nothing_apart")
            self._scale = REFERENCE

    async def _made_of(self, groups: Sequence[ComparedTexts], wait: float) -> list[list[bytes | None]]:
        """Return the packed vectors of texts; those of queries are made first."""
        self._questions += 1
        if self._patient:
            wait = _LONGEST_WAIT
            await self.loaded()
        keys = [[self._key(each.tenant, text, each.are_queries) for text in each.texts] for each in groups]
        # now: making the others may push them out of memory
        vectors = {key: self._known.get(key) for own in keys for key in own}
        wanted: dict[Key, VectorRequest] = {}
        for own, each in sorted(zip(keys, groups, strict=True), key=lambda pair: not pair[1].are_queries):
            ordered = [(own[place], each.texts[place]) for place in each.order or range(len(own))]
            wanted |= self._want(ordered, QUERY if each.are_queries else ASKED)
        if wanted:
            # a cancelled question leaves its texts being made: the next one will find them
            await asyncio.wait({each.result for each in wanted.values()}, timeout=max(0.0, min(wait, _LONGEST_WAIT)))
        vectors |= {key: each.result.result() for key, each in wanted.items() if each.result.done()}
        return [[vectors[key] for key in own] for own in keys]

    def prepare(self, tenant: str, texts: Sequence[str]) -> None:
        self._questions += 1
        self._want([(self._key(tenant, text, False), text) for text in texts], PREPARED)

    def _key(self, tenant: str, text: str, is_query: bool) -> Key:
        digest = blake2b(text[:LONGEST].encode(errors="surrogatepass"), digest_size=16)
        if is_query and self._has_roles:
            digest.update(_ROLE)
        return Key(tenant, digest.hexdigest())

    def _want(self, texts: Sequence[tuple[Key, str]], urgency: int) -> dict[Key, VectorRequest]:
        """Return those of the texts whose vectors are not in memory, each on its way."""
        wanted: dict[Key, VectorRequest] = {}
        new: list[VectorRequest] = []
        for place, (key, text) in enumerate(texts):
            if key in wanted or not text.strip() or self._known.get(key) is not None:
                continue
            rank = Rank(urgency, -self._questions, place)
            pending = self._pending.get(key)
            if pending is None:
                is_query = self._has_roles and urgency == QUERY
                pending = self._pending[key] = VectorRequest(key, well_formed(text[:LONGEST]), rank, is_query)
                pending.result.add_done_callback(partial(self._pending.pop, key))
                new.append(pending)
            pending.rank = min(pending.rank, rank)
            wanted[key] = pending
        if new:
            self._looking.begin(self._look_up(new))
        return wanted

    async def _look_up(self, wanted: list[VectorRequest]) -> None:
        """Get vectors from the index; texts that have none there go to the queue."""
        try:
            while wanted:
                batch = wanted[:_AT_ONCE]
                vectors = await self._recalled([each.key for each in batch])
                del wanted[:_AT_ONCE]
                for each, packed in zip(batch, vectors, strict=True):
                    if packed is None and self._missing is None:
                        self._making.add(each)
                    else:
                        each.answer(packed)
                asked = [each for each in batch if each.key.tenant != _SHARED and each.rank.urgency != PREPARED]
                if self._missing is not None:
                    self._missing(sum(each.result.result() is None for each in asked))
        finally:
            for each in wanted:
                each.answer(None)

    async def _recalled(self, keys: Sequence[Key]) -> list[bytes | None]:
        """Return the vectors that the index has of a tenant's texts, from now on in memory too."""
        if self._index is None:
            return [None] * len(keys)
        read = await self._index.vectors(Scope(keys[0].tenant, self.version), [key.digest for key in keys])
        usable = [packed if packed and self._fits(packed) else None for packed in read]
        for key, packed in zip(keys, usable, strict=True):
            if packed is not None:
                self._known.put(key, packed, _ENTRY + len(packed))
        return usable

    def _fits(self, packed: bytes) -> bool:
        width = dimension(packed)
        return width > 0 and self._dimension in (None, width)

    def _deliver(self, batch: Sequence[VectorRequest], vectors: Sequence[bytes]) -> None:
        """Remember vectors, write them, and tell who wait; another dimension ends what was known."""
        points: dict[str, dict[str, bytes]] = {}
        for each, packed in zip(batch, vectors, strict=True):
            if each.result.done():  # its tenant was forgotten meanwhile
                continue
            if packed:
                if not self._fits(packed):
                    self._known.clear()
                    self._stacks.clear()
                self._dimension = dimension(packed)
                points.setdefault(each.key.tenant, {})[each.key.digest] = packed
            self._known.put(each.key, packed, _ENTRY + len(packed))
            each.answer(packed)
        if self._index is not None:
            for tenant, some in points.items():
                self._writing.begin(self._index.put(Scope(tenant, self.version), some))


class BoundEmbedder:
    """The `Embedder` of a request's context: questions about one tenant's texts."""

    def __init__(self, service: EmbeddingService, tenant: str) -> None:
        self._service, self._tenant = service, tenant
        self.name = service.name
        self.prepare = partial(service.prepare, tenant)

    @property
    def is_behind(self) -> bool:
        return self._service.is_behind

    async def similarities(
        self, query: str, texts: Sequence[str], *, wait: float, order: Sequence[int] | None = None
    ) -> Sequence[float | None]:
        mine = ComparedTexts(self._tenant, texts, order=order)
        near = await self._service.table(mine, self._asked(query), wait=wait) if texts else None
        return [None] * len(texts) if near is None else listed(near[:, 0])

    async def floor(self, query: str, *, wait: float) -> float | None:
        near = await self._service.table(shared(phrases()), self._asked(query), wait=wait, whole=True)
        return None if near is None else float(arrays.numpy().nanmax(near))

    async def nearest(self, queries: Sequence[str], texts: Sequence[str], *, wait: float) -> Sequence[float | None]:
        mine = ComparedTexts(self._tenant, texts)
        near = await self._service.table(mine, shared(queries, are_queries=True), wait=wait)
        return [None] * len(queries) if near is None else listed(arrays.numpy().fmax.reduce(near, axis=0))

    async def noise(self, texts: Sequence[str], *, wait: float) -> float | None:
        mine = ComparedTexts(self._tenant, [text for text in texts if text.strip()])
        near = await self._service.table(mine, shared(phrases()), wait=wait, whole=True)
        if near is None:
            return None
        numpy = arrays.numpy()
        near = near[:, ~numpy.isnan(near).all(axis=0)]  # some phrases have no word that the model knows
        return float(numpy.sqrt(numpy.nanvar(near, axis=0).mean()))

    def _asked(self, query: str) -> ComparedTexts:
        return ComparedTexts(self._tenant, [query], are_queries=True)
