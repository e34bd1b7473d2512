"""The small model that writes summaries."""

import asyncio
import logging
from collections.abc import Mapping

from proxy.config.settings import WriterSettings
from proxy.context import Material
from proxy.history import summary_prompt as written
from proxy.llm.client import SmallModel
from proxy.telemetry.series import Series
from proxy.upstreams.base import Upstream
from proxy.upstreams.routing import Routes

_log = logging.getLogger("penstock.writer")

_CHARACTERS = 2.5
"""Of a transcript for each token of the writer's window: as dense as text of many identifiers."""
_LARGEST = 400_000
"""Characters of a transcript at most, whatever the window."""
_OVERHEAD = 600
"""Tokens of the instructions."""
_DENSE = 2
"""Bytes that a token of an answer has at least."""


class Writer:
    """Writes summaries with the configured model. It never raises but for cancellation."""

    def __init__(self, settings: WriterSettings, routes: Routes, series: Series) -> None:
        self.settings = settings
        self._model = SmallModel(settings, routes, series.writer_tokens, _log, "no summary was written")
        self._series = series

    def authorization(self, upstream: Upstream, headers: Mapping[str, str]) -> dict[str, str]:
        """What of a client's headers the writer's call may carry: its key, if it goes where that is sent anyway."""
        return self._model.authorization(upstream, headers)

    async def write(self, material: Material, headers: Mapping[str, str]) -> str | None:
        """The summary of a material, or None where none came that may be used."""
        text, outcome = await self._model.run(self._written(material, headers))
        self._series.written.of(outcome).inc()
        return text

    async def _written(self, material: Material, headers: Mapping[str, str]) -> tuple[str | None, str]:
        profile = await self._model.profile()
        most = max(64, min(self.settings.max_tokens, material.size // _DENSE, profile.window // 4))
        room = int((profile.window - most - _OVERHEAD) * _CHARACTERS)
        shown = await asyncio.to_thread(
            written.transcript, material.messages, min(_LARGEST, room) - len(material.before)
        )
        prompt = written.prompt(material.before, shown, material.size)
        answer, outcome = await self._model.ask(prompt, most, profile, headers)
        if answer is None:
            return None, outcome
        text = await asyncio.to_thread(written.checked, answer, f"{material.before}\n{shown}", material.size)
        return text, "unusable" if text is None else "written"
