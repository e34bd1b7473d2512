"""Log lines: one JSON object each, or text for people. Never a prompt, a key or a query string.

A line has an event, which is a constant, and fields: `log.info("request", extra={"fields": {"status": 200}})`. Of an
exception its class and its place are written, not its message: that may quote what it failed on.
"""

import json
import logging
import sys
from datetime import UTC, datetime
from pathlib import PurePath
from traceback import extract_tb
from types import TracebackType
from typing import Any

from proxy.config.settings import TelemetrySettings

_NOISY = (
    "LiteLLM",
    "LiteLLM Proxy",
    "LiteLLM Router",
    "aiohttp.access",
    "httpcore",
    "httpx",
    "litellm",
    "openai",
    "urllib3",
    "uvicorn.access",
)
"""Loggers that write bodies, keys or URLs at lower levels, or a second line per request."""

_DEEPEST = 8
_OUTPUT = "penstock"


def configure(settings: TelemetrySettings) -> None:
    """Send all log lines of the process to standard error, as the settings say. May be called again."""
    root = logging.getLogger()
    for handler in [handler for handler in root.handlers if handler.name == _OUTPUT]:
        root.removeHandler(handler)
    output = logging.StreamHandler(sys.stderr)
    output.name = _OUTPUT
    output.setFormatter(JsonFormatter() if settings.log_format == "json" else TextFormatter())
    root.addHandler(output)
    root.setLevel(settings.log_level.upper())
    for name in _NOISY:
        logging.getLogger(name).setLevel(max(root.level, logging.WARNING))


class JsonFormatter(logging.Formatter):
    """One line of ASCII JSON per record: `time` (UTC), `level`, `logger`, `event`, then the fields."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as JSON; a field cannot replace `time`, `level`, `logger` or `event`."""
        head = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": record.getMessage(),
        }
        return json.dumps({**head, **_fields(record), **head}, default=_kind, separators=(",", ":"))


class TextFormatter(logging.Formatter):
    """One line per record: `2026-11-21T10:00:00.000Z INFO penstock.access request status=200 ms=12.5`."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as text, with control characters escaped, so that no value can start a line of its own."""
        head = f"{_time(record)} {record.levelname} {record.name} {_printable(record.getMessage())}"
        return " ".join([head, *(f"{_printable(name)}={_shown(value)}" for name, value in _fields(record).items())])


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    fields = dict(getattr(record, "fields", None) or {})
    if record.exc_info and record.exc_info[0] is not None:
        fields["exception"] = record.exc_info[0].__name__
        fields["at"] = _places(record.exc_info[2])
    return fields


def _places(trace: TracebackType | None) -> list[str]:
    frames = extract_tb(trace)[-_DEEPEST:]
    return [f"{PurePath(frame.filename).name}:{frame.lineno} {frame.name}" for frame in reversed(frames)]


def _time(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _kind(value: object) -> str:
    return type(value).__name__


def _shown(value: object) -> str:
    if isinstance(value, str) and value and value.isprintable() and not set(value) & set(" \"'=\\"):
        return value
    return json.dumps(value, default=_kind, separators=(",", ":"))


def _printable(text: str) -> str:
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)
