"""The queue of texts to embed, and its one worker: small batches, the most urgent first."""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from heapq import nsmallest
from typing import NamedTuple

from proxy.state.warnings import Warnings
from proxy.vectors.base import Backend, EmbeddingFailed

QUERY, ASKED, PREPARED = range(3)
"""The urgency of a text: somebody waits for this one vector, for these and others, or nobody yet."""

MOST = 2048
"""Texts that may wait; when there are more, the least urgent and oldest quarter is dropped."""

_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 60.0
"""Seconds after a failure in which nothing is tried; doubled with each further one."""


class Key(NamedTuple):
    """A text: whose it is, and the hash of its content."""

    tenant: str
    digest: str


class Rank(NamedTuple):
    """The order of work: by urgency, then what was asked for last, then by place in the question."""

    urgency: int
    age: int
    place: int


@dataclass(slots=True, eq=False)
class VectorRequest:
    """A text whose vectors are on their way."""

    key: Key
    text: str
    rank: Rank
    is_query: bool = False
    result: "asyncio.Future[bytes | None]" = field(default_factory=lambda: asyncio.get_running_loop().create_future())

    def answer(self, vector: bytes | None) -> None:
        if not self.result.done():
            self.result.set_result(vector)


class Making:
    """A bounded queue and its worker. After a failure all that waits is given up, and new texts are for a while.

    There is no timer: the first text after the pause is the next try.
    """

    def __init__(
        self,
        backend: Backend,
        hand_on: Callable[[Sequence[VectorRequest], Sequence[bytes]], None],
        warnings: Warnings,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._backend, self._hand_on, self._warnings, self._clock = backend, hand_on, warnings, clock
        self._queue: dict[Key, VectorRequest] = {}
        self._worker: asyncio.Task[None] | None = None
        self._paused_until = float("-inf")
        self._pause = _FIRST_PAUSE
        self._closed = False

    def add(self, wanted: VectorRequest) -> None:
        if self.is_pausing or wanted.result.done():
            wanted.answer(None)
            return
        self._queue[wanted.key] = wanted
        if len(self._queue) > MOST:
            for last in sorted(self._queue.values(), key=lambda waiting: waiting.rank)[MOST * 3 // 4 :]:
                self._queue.pop(last.key).answer(None)
        self.load()

    def forget(self, tenant: str) -> None:
        self._queue = {key: wanted for key, wanted in self._queue.items() if key.tenant != tenant}

    def load(self) -> "asyncio.Task[None]":
        if self._worker is None or self._worker.done():
            self._worker = asyncio.get_running_loop().create_task(self._work())
        return self._worker

    @property
    def is_pausing(self) -> bool:
        return self._closed or self._clock() < self._paused_until

    @property
    def is_busy(self) -> bool:
        return self._worker is not None and not self._worker.done() and not self.is_pausing

    async def aclose(self) -> None:
        self._closed = True
        if self._worker is not None:
            self._worker.cancel()
            await asyncio.wait({self._worker})
        self._give_up()
        await self._backend.aclose()

    async def _work(self) -> None:
        try:
            await self._backend.load()
            while self._queue:
                batch = self._next()
                try:
                    texts = [wanted.text for wanted in batch]
                    vectors = await self._backend.embed(texts, query=batch[0].is_query)
                    self._hand_on(batch, vectors)
                finally:
                    for wanted in batch:
                        wanted.answer(None)
                self._pause = _FIRST_PAUSE
        except EmbeddingFailed as error:
            self._failed(error.cause, lasting=error.lasting)
        except Exception as error:  # whatever a library raises: the chain goes on without vectors
            self._failed(type(error).__name__)

    def _next(self) -> list[VectorRequest]:
        """Take the next batch out of the queue, of equal urgency and role: queries wait for nothing else."""
        batch: list[VectorRequest] = []
        room = self._backend.characters
        for wanted in nsmallest(self._backend.batch, self._queue.values(), key=lambda waiting: waiting.rank):
            room -= len(wanted.text)
            alike = not batch or (wanted.rank.urgency, wanted.is_query) == (batch[0].rank.urgency, batch[0].is_query)
            if batch and (room < 0 or not alike):
                break
            batch.append(self._queue.pop(wanted.key))
        return batch

    def _failed(self, cause: str, *, lasting: bool = False) -> None:
        self._paused_until = float("inf") if lasting else self._clock() + self._pause
        self._pause = min(2 * self._pause, _LONGEST_PAUSE)
        self._give_up()
        self._warnings.warn(action="embed", cause=cause)

    def _give_up(self) -> None:
        for wanted in self._queue.values():
            wanted.answer(None)
        self._queue.clear()
