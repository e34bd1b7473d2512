"""A cross-encoder for natural-language inference in this process: how sure it is that one text contradicts another."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import monotonic
from typing import Any

from proxy.config.judge_settings import JudgeSettings
from proxy.context.services import Pair, Question
from proxy.llm.verdicts import Asker, VerdictService
from proxy.vectors.backend import EmbeddingFailed
from proxy.vectors.sentence_transformers import libraries

logger = logging.getLogger("penstock.judge")

_WAITING = 512
"""Pairs that may wait for the model; more are not judged."""
_AT_ONCE = 16
_AGAIN = 60.0
"""Seconds for which a model that failed is left alone."""


class JudgeService(VerdictService):
    """A model and its thread. It knows one question: of two texts that contradict each other the second holds."""

    def __init__(
        self, settings: JudgeSettings, told: Callable[[str, int, float], None] = lambda outcome, pairs, seconds: None
    ) -> None:
        """`told` gets how each batch went, how many pairs it had, and the seconds that it took."""
        super().__init__(batch=_AT_ONCE, most=_WAITING, most_of_one=_WAITING)
        self._settings = settings
        self._told = told
        self._model: Any = None
        self._contradiction = 0
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="penstock-judge")
        self._broken_until = 0.0

    def warm(self) -> None:
        if self._model is None:
            self.begin(Asker("", {}, 0.0), ())

    async def aclose(self) -> None:
        """Drop what waits; what the thread is doing cannot be interrupted."""
        await super().aclose()
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def judged(self, asker: Asker, question: Question, pairs: Sequence[Pair]) -> Sequence[float | None]:
        """How sure the model is that the texts of each pair contradict each other, whatever is asked."""
        began = monotonic()
        if began < self._broken_until:
            self._told("dropped", len(pairs), 0.0)
            return [None] * len(pairs)
        try:
            sure = await asyncio.get_running_loop().run_in_executor(self._thread, self._judged, pairs)
        except EmbeddingFailed as error:
            self._fail(error.cause, lasting=error.lasting)
        except Exception as error:  # whatever a model's own code runs into, no request depends on it
            self._fail(type(error).__name__, lasting=False)
        else:
            self._told("judged", len(pairs), monotonic() - began)
            return sure
        self._told("broken", len(pairs), monotonic() - began)
        return [None] * len(pairs)

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
