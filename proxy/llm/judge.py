"""The judge of texts at an upstream, whose verdicts are cached by content and computed in the background.

Each pair has a call of its own, so that no text can influence another verdict.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from proxy.chat import Message
from proxy.config.settings import JudgeSettings
from proxy.context import Identity, Pair, Question
from proxy.llm.client import SmallModel
from proxy.state.background import BackgroundWork
from proxy.state.cache import Cache
from proxy.telemetry.metrics import Metrics
from proxy.text.tables import table
from proxy.upstreams.routing import Routes

_log = logging.getLogger("penstock.judge")

_REMEMBERED = 50_000
"""Largest number of verdicts in memory: some 10 MB."""
_LONGEST = 600
"""Characters of each text that are judged."""
_AT_ONCE = 4
_WAITING, _WAITING_OF_ONE = 256, 64
"""Largest number of pairs that wait, in all and of one tenant. Further pairs are not judged."""
_AGAIN = 10.0
"""Pause in seconds after a failure or a timeout of a tenant's call."""
_TENANTS = 1024

_FORMS: Mapping[Question, Any] = table("small_models")["judge"]
"""The prompt of each question, the tags of its two texts, and the confidence that each answer stands for."""

Key = tuple[str, Question, Pair]
"""Tenant, question and pair of texts."""


class UpstreamJudge:
    """A judge that asks the configured model. Failures count per tenant, because tenants may send their own keys.

    For use on one event loop.
    """

    def __init__(
        self, settings: JudgeSettings, routes: Routes, metrics: Metrics, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._settings = settings
        self._model = SmallModel(
            settings, routes, partial(metrics.of, "judge_tokens"), _log, "no verdict of the judge; rules alone decide"
        )
        self._metrics = metrics
        self._clock = clock
        self._free = asyncio.Semaphore(_AT_ONCE)
        self._paused: Cache[str, str] = Cache(_TENANTS, age=_AGAIN, clock=clock)
        self._known: Cache[Key, float] = Cache(_REMEMBERED)
        self._work = BackgroundWork[Key]()
        self.authorization, self.aclose = self._model.authorization, self._work.aclose

    def bind(self, who: Identity, headers: Mapping[str, str]) -> "BoundJudge":
        return BoundJudge(self, who.tenant, headers)

    def forget(self, tenant: str) -> int:
        self._work.forget(tenant)
        return self._known.forget(tenant)

    async def of(
        self, tenant: str, question: Question, pairs: Sequence[Pair], wait: float, headers: Mapping[str, str]
    ) -> list[float | None]:
        """Return the confidence of the model for each pair, None where there is none after `wait` seconds."""
        keys: list[Key] = [(tenant, question, (one[:_LONGEST], two[:_LONGEST])) for one, two in pairs]
        until = asyncio.get_running_loop().time() + wait
        new = [key for key in dict.fromkeys(keys) if key not in self._known and key not in self._work]
        waiting = sum(key[0] == tenant for key in self._work)
        for key in new[: max(0, min(_WAITING - len(self._work), _WAITING_OF_ONE - waiting))]:
            self._work.begin(self._judge(key, headers, until), key)
        await self._work.wait(keys, wait)
        return self._known.get_each(keys)

    async def _judge(self, key: Key, headers: Mapping[str, str], until: float) -> None:
        """Ask the model, unless nobody waits for its answer any more."""
        tenant, question, pair = key
        async with self._free:
            now = self._clock()
            if asyncio.get_running_loop().time() >= until or tenant in self._paused:
                self._metrics.of("judge_verdicts", "dropped").inc()
                return
            sure, outcome = await self._model.run(self._verdict(question, pair, headers))
            self._metrics.of("judge_verdicts", outcome).inc()
            self._metrics.observe(self._clock() - now, "judge_duration_seconds")
            if outcome in ("failed", "timeout"):  # other outcomes may be due to the texts
                self._paused.put(tenant, outcome)
            if sure is not None:
                self._known.put(key, sure)

    async def _verdict(self, question: Question, pair: Pair, headers: Mapping[str, str]) -> tuple[float | None, str]:
        profile = await self._model.profile()
        answer, outcome = await self._model.ask(prompt(question, *pair), self._settings.max_tokens, profile, headers)
        if answer is None:
            return None, outcome
        sure = verdict(question, answer)
        return sure, "unusable" if sure is None else "judged"


class BoundJudge:
    """The `Judge` of a request's context."""

    def __init__(self, service: UpstreamJudge, tenant: str, headers: Mapping[str, str]) -> None:
        self.contradictions = partial(service.of, tenant, "contradicts", headers=headers)
        self.replacements = partial(service.of, tenant, "replaces", headers=headers)


def prompt(question: Question, first: str, second: str) -> list[Message]:
    """Return the messages for the small model. Neither text can close the tag that it is in."""
    form = _FORMS[question]
    inner = [" ".join(text.split()).replace("<", "‹").replace(">", "›") for text in (first, second)]
    texts = [f"<{tag}>{text}</{tag}>" for tag, text in zip(form["tags"], inner, strict=True)]
    user = "\n".join([*texts, f"One word: {', '.join(word.upper() for word in form['words'])}."])
    return [Message({"role": "system", "content": form["instructions"]}), Message({"role": "user", "content": user})]


def verdict(question: Question, answer: str) -> float | None:
    """Return the confidence of an answer, from 0 to 1; None for anything but one of the expected words."""
    words: Mapping[str, float] = _FORMS[question]["words"]
    return words.get(answer.strip().strip("\"'`*.").casefold())
