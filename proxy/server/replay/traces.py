"""Requests in OTLP/JSON traces, by the GenAI conventions of OpenTelemetry."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

_USAGE = {
    "prompt_tokens": ("gen_ai.usage.input_tokens",),
    "completion_tokens": ("gen_ai.usage.output_tokens",),
    "cached_tokens": ("gen_ai.usage.cache_read.input_tokens", "gen_ai.usage.cached_input_tokens"),
}


def spans(row: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the chat requests of an export, in the form of `penstock serve --save`; spans without messages are left
    out."""
    for resource in row["resourceSpans"]:
        for scope in resource.get("scopeSpans", ()):
            for span in scope.get("spans", ()):
                known = {each["key"]: _value(each["value"]) for each in span.get("attributes", ())}
                for event in span.get("events", ()):
                    known |= {each["key"]: _value(each["value"]) for each in event.get("attributes", ())}
                if "gen_ai.input.messages" in known:
                    yield _exchange(span, known)


def _exchange(span: Mapping[str, Any], known: Mapping[str, Any]) -> dict[str, Any]:
    messages = [each for item in _read(known["gen_ai.input.messages"]) for each in _messages(item)]
    system = _text(_read(known.get("gen_ai.system_instructions", [])))
    tools = _read(known.get("gen_ai.tool.definitions", []))
    output = [each for item in _read(known.get("gen_ai.output.messages", [])) for each in _messages(item)]
    usage = {name: int(known[key]) for name, keys in _USAGE.items() for key in keys if key in known}
    cached = usage.pop("cached_tokens", None)
    if cached is not None:
        usage["prompt_tokens_details"] = {"cached_tokens": cached}  # type: ignore[assignment]
    request: dict[str, Any] = {
        "model": known.get("gen_ai.request.model") or known.get("gen_ai.response.model"),
        "messages": ([{"role": "system", "content": system}] if system else []) + messages,
    }
    if tools:
        request["tools"] = [_tool(tool) for tool in tools]
    return {
        "request": request,
        "response": {"choices": [{"message": output[0] if output else None}], "usage": usage},
        "at": int(span.get("startTimeUnixNano", 0)) / 1e9,
        "conversation": known.get("gen_ai.conversation.id"),
    }


def _messages(item: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield a message of the conventions as those of a chat request: each result of a tool is one of its own."""
    parts = item.get("parts", ())
    if isinstance(item.get("content"), str):
        parts = [{"type": "text", "content": item["content"]}]
    results = [part for part in parts if part.get("type") == "tool_call_response"]
    for part in results:
        found = part.get("response", part.get("result"))
        text = found if isinstance(found, str) else json.dumps(found, ensure_ascii=False)
        yield {"role": "tool", "tool_call_id": part.get("id") or "", "content": text}
    if results:
        return
    made: dict[str, Any] = {"role": item["role"], "content": _text(parts) or None}
    calls = [part for part in parts if part.get("type") == "tool_call"]
    if calls:
        made["tool_calls"] = [_call(part) for part in calls]
    yield made


def _call(part: Mapping[str, Any]) -> dict[str, Any]:
    given = part.get("arguments")
    arguments = given if isinstance(given, str) else json.dumps(given or {}, ensure_ascii=False)
    function = {"name": part.get("name") or "", "arguments": arguments}
    return {"id": part.get("id") or "", "type": "function", "function": function}


def _tool(tool: Mapping[str, Any]) -> dict[str, Any]:
    if "function" in tool:
        return dict(tool)
    return {
        "type": "function",
        "function": {key: tool[key] for key in ("name", "description", "parameters") if key in tool},
    }


def _text(parts: Sequence[Mapping[str, Any]]) -> str:
    return "\n".join(
        str(part["content"]) for part in parts if part.get("type", "text") == "text" and part.get("content")
    )


def _read(value: Any) -> Any:
    return json.loads(value) if isinstance(value, str) else value


def _value(value: Mapping[str, Any]) -> Any:
    """Return an `AnyValue` as what it holds."""
    if "arrayValue" in value:
        return [_value(each) for each in value["arrayValue"].get("values", ())]
    if "kvlistValue" in value:
        return {each["key"]: _value(each["value"]) for each in value["kvlistValue"].get("values", ())}
    return next(iter(value.values()), None)
