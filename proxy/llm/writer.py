"""The writer of summaries: a small model at an upstream."""

import asyncio
import logging
from collections.abc import Mapping

from proxy.config.settings import WriterSettings
from proxy.context import Material
from proxy.history import summary_prompt
from proxy.llm.client import SmallModel
from proxy.telemetry.series import Series
from proxy.upstreams.base import Upstream
from proxy.upstreams.routing import Routes

_log = logging.getLogger("penstock.writer")

_CHARACTERS = 2.5
"""Characters per token of a transcript: few, because identifiers take many tokens."""
_LARGEST = 400_000
"""Characters of the longest transcript, in a window of any size."""
_OVERHEAD = 600
"""Tokens of the instructions."""
_DENSE = 2
"""Least number of bytes per token of a summary."""


class Writer:
    """A writer that asks the configured model. It raises nothing but cancellation."""

    def __init__(self, settings: WriterSettings, routes: Routes, series: Series) -> None:
        self.settings = settings
        self._model = SmallModel(settings, routes, series.writer_tokens, _log, "no summary was written")
        self._series = series

    def authorization(self, upstream: Upstream, headers: Mapping[str, str]) -> dict[str, str]:
        """Return the client's key if the writer is at the upstream that receives this key anyway."""
        return self._model.authorization(upstream, headers)

    async def write(self, material: Material, headers: Mapping[str, str]) -> str | None:
        """Return the summary of a material, or None without a usable one."""
        text, outcome = await self._model.run(self._written(material, headers))
        self._series.written.of(outcome).inc()
        return text

    async def _written(self, material: Material, headers: Mapping[str, str]) -> tuple[str | None, str]:
        profile = await self._model.profile()
        most = max(64, min(self.settings.max_tokens, material.size // _DENSE, profile.window // 4))
        room = int((profile.window - most - _OVERHEAD) * _CHARACTERS)
        shown = await asyncio.to_thread(
            summary_prompt.transcript, material.messages, min(_LARGEST, room) - len(material.before)
        )
        prompt = summary_prompt.prompt(material.before, shown, material.size)
        answer, outcome = await self._model.ask(prompt, most, profile, headers)
        if answer is None:
            return None, outcome
        text = await asyncio.to_thread(summary_prompt.checked, answer, f"{material.before}\n{shown}", material.size)
        return text, "unusable" if text is None else "written"
