"""A cross-encoder for natural-language inference in this process: how sure it is that one text contradicts another."""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any

from proxy.embedding.backend import EmbeddingFailed
from proxy.embedding.sentences import libraries
from proxy.embedding_settings import JudgeSettings

logger = logging.getLogger("penstock.judge")

Pair = tuple[str, str]

_REMEMBERED = 50_000
"""Verdicts in memory: some 10 MB."""
_WAITING = 512
"""Pairs that may wait for the model; more are not judged."""
_AT_ONCE = 16
_LONGEST = 600
"""Characters of each text that are read."""
_AGAIN = 60.0
"""Seconds for which a model that failed is left alone."""


class JudgeService:
    """A model and its thread; verdicts are remembered by content, for each tenant. For use on one event loop."""

    def __init__(self, settings: JudgeSettings) -> None:
        self._settings = settings
        self._model: Any = None
        self._contradiction = 0
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="penstock-judge")
        self._known: OrderedDict[tuple[str, Pair], float] = OrderedDict()
        self._waiting: dict[tuple[str, Pair], asyncio.Task[None]] = {}
        self._broken_until = 0.0

    def bound(self, tenant: str) -> "BoundJudge":
        """The judge of a request's context."""
        return BoundJudge(self, tenant)

    def warm(self) -> None:
        """Begin to load the model."""
        self._start([])

    async def aclose(self) -> None:
        """Drop what waits; what the thread is doing cannot be interrupted."""
        tasks = set(self._waiting.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def contradictions(self, tenant: str, pairs: Sequence[Pair], wait: float) -> list[float | None]:
        """How sure the model is of each pair; None for those of which it is not known within `wait` seconds."""
        keys = [(tenant, (fact[:_LONGEST], said[:_LONGEST])) for fact, said in pairs]
        self._start([key for key in dict.fromkeys(keys) if key not in self._known and key not in self._waiting])
        pending = {self._waiting[key] for key in keys if key in self._waiting}
        if pending:
            await asyncio.wait(pending, timeout=wait)
        return [self._known.get(key) for key in keys]

    def _start(self, keys: Sequence[tuple[str, Pair]]) -> None:
        if monotonic() < self._broken_until or (self._model is not None and not keys):
            return
        keys = keys[: max(0, _WAITING - len(self._waiting))]
        for start in range(0, max(1, len(keys)), _AT_ONCE):
            some = keys[start : start + _AT_ONCE]
            task = asyncio.get_running_loop().create_task(self._judge(some))
            slots = some or [("", ("", ""))]
            self._waiting.update(dict.fromkeys(slots, task))
            task.add_done_callback(partial(self._ended, slots))

    def _ended(self, keys: Sequence[tuple[str, Pair]], _: asyncio.Task[None]) -> None:
        for key in keys:
            self._waiting.pop(key, None)

    async def _judge(self, keys: Sequence[tuple[str, Pair]]) -> None:
        try:
            sure = await asyncio.get_running_loop().run_in_executor(self._thread, self._judged, [p for _, p in keys])
        except EmbeddingFailed as error:
            self._fail(error.cause, lasting=error.lasting)
            return
        except Exception as error:  # whatever a model's own code runs into, no request depends on it
            self._fail(type(error).__name__, lasting=False)
            return
        for key, each in zip(keys, sure, strict=True):
            self._known[key] = each
            if len(self._known) > _REMEMBERED:
                self._known.popitem(last=False)

    def _fail(self, cause: str, *, lasting: bool) -> None:
        self._broken_until = float("inf") if lasting else monotonic() + _AGAIN
        logger.warning("no judge of facts; rules alone decide", extra={"fields": {"cause": cause}})

    def _judged(self, pairs: Sequence[Pair]) -> list[float]:
        if self._model is None:
            self._model, self._contradiction = self._loaded()
        if not pairs:
            return []
        rows = self._model.predict(
            list(pairs), batch_size=_AT_ONCE, apply_softmax=True, convert_to_numpy=True, show_progress_bar=False
        )
        return [float(row[self._contradiction]) for row in rows]

    def _loaded(self) -> tuple[Any, int]:
        path = Path(self._settings.model).expanduser()
        if not path.is_dir():
            raise EmbeddingFailed("no_such_model", lasting=True)
        torch, library = libraries()
        torch.set_num_threads(self._settings.threads)
        model = library.CrossEncoder(str(path), device="cpu", local_files_only=True, trust_remote_code=False)
        labels: dict[int, str] = model.config.id2label
        place = next((n for n, label in labels.items() if label.lower().startswith("contradict")), None)
        if place is None or len(labels) < 2:
            raise EmbeddingFailed("no_label_contradiction", lasting=True)
        return model, place


class BoundJudge:
    """The `Judge` of a request's context."""

    __slots__ = ("_service", "_tenant")

    def __init__(self, service: JudgeService, tenant: str) -> None:
        self._service, self._tenant = service, tenant

    async def contradictions(self, pairs: Sequence[Pair], *, wait: float) -> Sequence[float | None]:
        """How sure the model is, from 0 to 1, that the second text of each pair contradicts the first."""
        return await self._service.contradictions(self._tenant, pairs, wait)
