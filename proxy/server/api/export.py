"""A recorded conversation as a file: for `penstock replay`, for a spreadsheet, or for a viewer of traces."""

import csv
import io
from collections.abc import Mapping, Sequence
from datetime import datetime
from hashlib import blake2b
from typing import Any

import orjson

from proxy.chat.errors import BadRequest, Rejected

Record = Mapping[str, Any]

_COSTS = (
    "turn", "started", "ended", "request_id", "key", "model", "chain", "status", "tokens_before", "tokens_after",
    "input_tokens", "cached_tokens", "written_tokens", "output_tokens", "usd", "usd_unchanged", "usd_saved", "trace_id",
)  # fmt: skip
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""Beginnings of a text that a spreadsheet would take for a formula."""
_MODEL_CALL = 3
"""The kind of a span that calls another service."""


def exported(records: Sequence[Record], kind: str | None) -> tuple[str, bytes]:
    """Return the media type and the content of a file; `kind` is `jsonl`, `csv` or `otlp`.

    Raise `BadRequest` for any other, and `Rejected` for `jsonl` where no texts were kept.
    """
    match kind:
        case "jsonl":
            if any(record.get("text") is None for record in records):
                told = "the text was not kept; set records: {text: true} in the configuration"
                raise Rejected(told, code="records_without_text", status=403)
            return "application/jsonl", b"".join(orjson.dumps(_saved(record)) + b"\n" for record in records)
        case "csv":
            return "text/csv; charset=utf-8", _costs(records)
        case "otlp":
            return "application/json", orjson.dumps(_traces(records))
    raise BadRequest(f"format is {kind!r}; it must be jsonl, csv or otlp", param="format", code="invalid_value")


def _saved(record: Record) -> dict[str, Any]:
    """Return a request as `penstock serve --save` writes it, in the form of chat completions."""
    text = record["text"]
    request: dict[str, Any] = {"model": record["model"], "messages": text["before"]}
    if text["tools_before"]:
        request["tools"] = text["tools_before"]
    usage = {"prompt_tokens": record["input_tokens"], "completion_tokens": record["output_tokens"]}
    response = {"choices": [{"index": 0, "message": text["answer"]}], "usage": usage}
    told = {"at": _seconds(record["started"]), "conversation": record["conversation"]}
    return {"request": request, **({"response": response} if text["answer"] else {}), **told}


def _costs(records: Sequence[Record]) -> bytes:
    table = io.StringIO(newline="")
    rows = csv.writer(table)
    rows.writerow(_COSTS)
    rows.writerows([_cell(record.get(name)) for name in _COSTS] for record in records)
    return table.getvalue().encode()


def _cell(value: Any) -> Any:
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value


def _traces(records: Sequence[Record]) -> dict[str, Any]:
    """Return OTLP in JSON: a span for each request, with the names of the GenAI conventions."""
    scope = {"scope": {"name": "penstock"}, "spans": list(map(_span, records))}
    service = _attributes({"service.name": "penstock"})
    return {"resourceSpans": [{"resource": {"attributes": service}, "scopeSpans": [scope]}]}


def _span(record: Record) -> dict[str, Any]:
    text = record.get("text") or {}
    known = {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": record["model"],
        "gen_ai.conversation.id": record["conversation"],
        "gen_ai.usage.input_tokens": record["input_tokens"],
        "gen_ai.usage.output_tokens": record["output_tokens"],
        "gen_ai.usage.cache_read.input_tokens": record["cached_tokens"],
        "gen_ai.input.messages": _packed(text.get("before")),
        "gen_ai.output.messages": _packed([text["answer"]] if text.get("answer") else None),
        "penstock.request_id": record["request_id"],
        "penstock.cost.usd": record["usd"],
        "penstock.cost.saved_usd": record["usd_saved"],
    }
    name = record["request_id"].encode()
    return {
        "traceId": record["trace_id"] or blake2b(name, digest_size=16).hexdigest(),
        "spanId": blake2b(name, digest_size=8).hexdigest(),
        "name": f"chat {record['model']}",
        "kind": _MODEL_CALL,
        "startTimeUnixNano": str(int(_seconds(record["started"]) * 1e9)),
        "endTimeUnixNano": str(int(_seconds(record["ended"]) * 1e9)),
        "attributes": _attributes(known),
        "status": {"code": 2 if record["status"] >= 400 else 1},
    }


def _packed(messages: Any) -> str | None:
    return None if messages is None else orjson.dumps(messages).decode()


def _attributes(values: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [{"key": name, "value": _value(value)} for name, value in values.items() if value is not None]


def _value(value: Any) -> dict[str, Any]:
    if isinstance(value, int):
        return {"intValue": str(value)}
    return {"doubleValue": value} if isinstance(value, float) else {"stringValue": str(value)}


def _seconds(date: str) -> float:
    return datetime.fromisoformat(date).timestamp()
