"""Ollama's refusals in OpenAI's terms. Ollama explains them in a sentence (`{"error": "text"}`), which is read."""

import re
from collections.abc import Mapping
from typing import Any

from proxy.chat.errors import PenstockError, Unanswered
from proxy.upstreams.base import Call
from proxy.upstreams.completion import parsed
from proxy.upstreams.overflow import LONGEST_MESSAGE, find_overflow
from proxy.upstreams.refusal import Refused, answered_with, overflowed

LACKING = re.compile(r"does not support (tools|thinking)", re.IGNORECASE)
"""The two of a model's abilities that a request can do without."""

ADDRESS = re.compile(r"\b[a-z]+://[^\s\"'<>]+|\b(?:(?:\d{1,3}\.){3}\d{1,3}|localhost)(?::\d+)?", re.IGNORECASE)
"""Addresses, which clients must not learn; Ollama quotes that of its own runner."""


def refusal(status: int, body: bytes, call: Call) -> PenstockError:
    """Return the error for an answer with a status other than 200; `Unanswered` if it is no error either."""
    if status < 400:
        return Unanswered(f"the upstream answered with status {status}")
    try:
        line = parsed(body, "Ollama")
    except Unanswered:
        line = {}
    return _explained(_said(line), status, call, known="error" in line)


def broken(line: Mapping[str, Any], call: Call) -> PenstockError | None:
    """Return the error in a line of a stream or in a body with status 200; None if there is none."""
    if line.get("error") is None:
        return None
    status = line.get("status")
    status = status if isinstance(status, int) and 400 <= status <= 599 else 500
    return _explained(_said(line), status, call, known=True)


def _explained(text: str, status: int, call: Call, *, known: bool) -> Refused:
    overflow = find_overflow(text)
    if overflow is not None:
        return overflowed(text, overflow, call)
    lacking = LACKING.search(text)
    if lacking:
        return Refused(text, 400, code="unsupported_parameter", param=_asked_by(lacking[1].lower(), call))
    return answered_with(status, text, call, is_own=known)


def _said(line: Mapping[str, Any]) -> str:
    said = line.get("error")
    if isinstance(said, dict):
        said = said.get("message")
    return ADDRESS.sub("***", said.strip())[:LONGEST_MESSAGE] if isinstance(said, str) else ""


def _asked_by(ability: str, call: Call) -> str:
    if ability == "tools":
        return "tools"
    return "think" if call.request is not None and "think" in call.request.rest else "reasoning_effort"
