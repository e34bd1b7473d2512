"""The small model that judges texts: each pair in a call of its own, so that no text can speak for another pair."""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping

from proxy.config.settings import JudgeSettings
from proxy.context import Pair, Question
from proxy.llm.client import SmallModel
from proxy.llm.judgement import prompt, verdict
from proxy.llm.verdicts import Asker, VerdictService
from proxy.state.cache import Cache
from proxy.telemetry.series import Series
from proxy.upstreams.base import Upstream
from proxy.upstreams.routing import Routes

_log = logging.getLogger("penstock.judge")

_AT_ONCE = 4
_WAITING, _WAITING_OF_ONE = 256, 64
_AGAIN = 10.0
"""Seconds for which a model that failed, or answered too late, is not asked again for the same tenant."""
_TENANTS = 1024


class UpstreamJudge(VerdictService):
    """Asks the configured model. What fails for one tenant says nothing about another's key."""

    def __init__(
        self,
        settings: JudgeSettings,
        routes: Routes,
        series: Series,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(most=_WAITING, most_of_one=_WAITING_OF_ONE)
        self._settings = settings
        self._model = SmallModel(
            settings, routes, series.judge_tokens, _log, "no verdict of the judge; rules alone decide"
        )
        self._series = series
        self._clock = clock
        self._free = asyncio.Semaphore(_AT_ONCE)
        self._left_alone: Cache[str, str] = Cache(_TENANTS, age=_AGAIN, clock=clock)

    def authorization(self, upstream: Upstream, headers: Mapping[str, str]) -> Mapping[str, str]:
        return self._model.authorization(upstream, headers)

    async def judged(self, asker: Asker, question: Question, pair: Pair) -> float | None:
        """How sure the model is of a pair; one that nobody waits for any more is not asked about."""
        async with self._free:
            now = self._clock()
            if asyncio.get_running_loop().time() >= asker.until or asker.tenant in self._left_alone:
                self._series.judged.of("dropped").inc()
                return None
            sure, outcome = await self._model.run(self._verdict(question, pair, asker.headers))
            self._series.judged.of(outcome).inc()
            self._series.judge_duration.observe(self._clock() - now)
            if outcome in ("failed", "timeout"):  # anything else may be the texts' doing
                self._left_alone.put(asker.tenant, outcome)
            return sure

    async def _verdict(self, question: Question, pair: Pair, headers: Mapping[str, str]) -> tuple[float | None, str]:
        profile = await self._model.profile()
        answer, outcome = await self._model.ask(prompt(question, *pair), self._settings.max_tokens, profile, headers)
        if answer is None:
            return None, outcome
        sure = verdict(question, answer)
        return sure, "unusable" if sure is None else "judged"
