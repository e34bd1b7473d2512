"""The window that a server runs a model with, which may be smaller than the trained one, and prompts that it cut.

Ollama drops old messages, or the middle of a long one, and answers 200.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from proxy.context import TokenCount
from proxy.state.cache import Cache
from proxy.text.json_values import json_objects

UNTOLD = 4096
"""The window that Ollama falls back to on a small machine; a guess that is too large would be cut silently."""

FRESH = 60.0
"""Seconds for which what the server said is believed."""

RETRY = 5.0
"""Seconds until a server that did not answer in full, or does not know the model, is asked again."""

PATIENCE = 1.0
"""Seconds that a request waits for the server's word on a model."""

REMEMBERED = 256
"""Models that are remembered; clients choose names, so there must be an end."""

_NUM_CTX = re.compile(r"^num_ctx\s+([0-9]{1,9})\s*$", re.MULTILINE)

Ask = Callable[[str, str, Any], Awaitable[Mapping[str, Any] | None]]
"""Method, path and JSON body to a JSON answer; None where there is none. Never raises."""


@dataclass(frozen=True, slots=True)
class ReportedWindow:
    """The last report on a model, in tokens; None for unknown values."""

    loaded: int | None = None
    """The context that it runs the model with, or ran it with when it was last seen running (`/api/ps`)."""
    modelfile: int | None = None
    """The `num_ctx` of the model's own parameters (`/api/show`)."""
    trained: int | None = None
    """The context that the model was trained for (`/api/show`)."""
    is_ours: bool = False
    """The server has answered a request of ours for the model, and so runs it as we asked."""
    until: float = field(default=0.0, compare=False)
    """The time of the event loop at which it is too old."""


def effective(report: ReportedWindow, *, configured: int | None, otherwise: int | None) -> int:
    """Return the window of the next request, in tokens.

    With a configured `num_ctx` every request carries it, so it counts, up to the trained length: a model that runs with
    another context is loaded anew. A smaller one that runs is the server's limit where a request of ours has loaded it,
    or where the trained length is not known. Without `num_ctx` the running context counts, else the model's own
    parameter, else `otherwise`, else 4096.
    """
    window = configured or report.loaded or report.modelfile or otherwise or UNTOLD
    if report.loaded is not None and (report.is_ours or report.trained is None):
        window = min(window, report.loaded)
    return min(window, report.trained or window)


def loaded(answer: Mapping[str, Any] | None) -> dict[str, int]:
    """Return the contexts of the running models by their full names, from `GET /api/ps`."""
    found: dict[str, int] = {}
    for model in json_objects((answer or {}).get("models")):
        if length := positive(model.get("context_length")):
            found |= {full_name(model[key]): length for key in ("name", "model") if isinstance(model.get(key), str)}
    return found


def full_name(model: str) -> str:
    """Return a model's name in a form that can be compared.

    Ollama leaves out its own registry and library, and the tag `latest`.
    """
    name = model.lower().removeprefix("registry.ollama.ai/").removeprefix("library/")
    return name if ":" in name.rpartition("/")[2] else f"{name}:latest"


def positive(value: Any) -> int | None:
    """Return a number above 0; None for any other value."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


class Windows:
    """A server's reports on its models, remembered for a minute. One question is asked at a time."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._known: Cache[str, ReportedWindow] = Cache(REMEMBERED)
        self._asking = asyncio.Lock()

    async def report(self, model: str) -> ReportedWindow:
        """Return the report on a model; an empty one if the server does not answer within a second. Never raise."""
        if self._last(model).until <= _now():
            async with self._asking:
                if self._last(model).until <= _now():
                    await self._look_up(model)
        return self._last(model)

    def _last(self, model: str) -> ReportedWindow:
        return self._known.get(model) or ReportedWindow()

    def answered(self, model: str) -> None:
        """Note that the server has answered. The first answer may have loaded the model, so earlier reports expire."""
        if not (last := self._last(model)).is_ours:
            self._known.put(model, replace(last, is_ours=True, until=0.0))

    async def _look_up(self, model: str) -> None:
        try:
            async with asyncio.timeout(PATIENCE):
                running, shown = await asyncio.gather(
                    self._ask("GET", "/api/ps", None), self._ask("POST", "/api/show", {"model": model})
                )
        except TimeoutError:
            running = shown = None
        report = replace(self._last(model), until=_now() + (RETRY if running is None or shown is None else FRESH))
        # An idle model is unloaded after five minutes, and comes back with the context that it had.
        report = replace(report, loaded=loaded(running).get(full_name(model)) or report.loaded)
        if shown is not None:
            parameters, about = shown.get("parameters"), shown.get("model_info")
            named = _NUM_CTX.search(parameters) if isinstance(parameters, str) else None
            about = about if isinstance(about, dict) else {}
            trained = positive(about.get(f"{about.get('general.architecture')}.context_length"))
            report = replace(report, modelfile=positive(int(named[1])) if named else None, trained=trained)
        self._known.put(model, report)


def _now() -> float:
    return asyncio.get_running_loop().time()


SURE, UNSURE = 0.9, 0.6
"""The share of our count of a prompt that the server must have evaluated: with the model's own tokenizer, and where we
estimate. Estimates are 10 to 30 % off, and templates leave out parts of tool schemas. A single long message is cut to
about half the window; dropped messages may leave any share, so a cut that leaves more than this goes unnoticed."""

LIKELY = 0.75
"""The share of the window that a prompt has by our count before it is suspected: estimates are no further off."""

SMALLEST = 1024
"""The same in tokens where the window is not known: no Ollama runs a model with less than 2048 unless told to."""


def suspected(window: int | None) -> float:
    """Return the number of tokens from which on a prompt is suspected. No token has less than a byte."""
    return SMALLEST if window is None else window * LIKELY


def was_cut(counted: TokenCount | None, evaluated: int, answered: int, window: int | None, limit: int | None) -> bool:
    """Return whether far fewer tokens were evaluated than were sent, or the window is full to the last token.

    `counted` is our count of the prompt, if there is one to compare with; `evaluated` the server's, 0 if it is unknown;
    `window` the model's, if it is known; `limit` that of the answer. Prompts from Ollama's own cache count as
    evaluated. A window that is full short of the limit left too little room: the answer broke off, or pushed the
    beginning of the prompt out.
    """
    if not evaluated:
        return False
    if answered and evaluated + answered == window and answered != limit:
        return True
    if counted is None or counted.total <= suspected(window):
        return False
    return evaluated < counted.total * (SURE if counted.exact else UNSURE)
