"""What the scripted upstream says: OpenAI's answers, whole and in chunks, made from the request alone."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from tests import scripted

Json = Mapping[str, Any]


class Refused(Exception):
    """A request that OpenAI would answer with an error."""

    def __init__(self, status: int, message: str, code: str | None, param: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.body = error(message, code, param)


def error(message: str, code: str | None, param: str | None = None, type_: str = "invalid_request_error") -> Json:
    """OpenAI's error body."""
    return {"error": {"message": message, "type": type_, "param": param, "code": code}}


def check(request: Json) -> None:
    """Raises `Refused` for the requests that OpenAI refuses: a chain must never make one of a good request."""
    messages = request.get("messages")
    if not isinstance(messages, list):
        raise Refused(400, "Missing required parameter: 'messages'.", "missing_required_parameter", "messages")
    if not messages:
        raise Refused(400, "Invalid 'messages': empty array.", "empty_array", "messages")
    if request.get("tools") == []:
        raise Refused(400, "Invalid 'tools': empty array.", "empty_array", "tools")
    for place, message in enumerate(messages):
        if not isinstance(message, dict):
            raise Refused(400, f"Invalid type for 'messages[{place}]'.", "invalid_type", f"messages[{place}]")
    _check_calls(messages)


def _check_calls(messages: Sequence[Json]) -> None:
    """Every call has its result before any other message, and no result is without its call."""
    unanswered: set[Any] = set()
    for message in [*messages, {"role": "end"}]:
        if message.get("role") == "tool":
            if message.get("tool_call_id") not in unanswered:
                raise Refused(400, "A 'tool' message must follow its 'tool_calls'.", None, "messages")
            unanswered.discard(message["tool_call_id"])
        elif unanswered:
            raise Refused(400, "A 'tool_call_id' did not have a response message.", None, "messages")
        calls = message.get("tool_calls")
        unanswered |= {call.get("id") for call in calls if isinstance(call, dict)} if isinstance(calls, list) else set()


def answer(request: Json) -> tuple[dict[str, Any], str]:
    """The assistant's message and the reason why it ends: a call, an object after the schema, or a report."""
    message: dict[str, Any] = {"content": None, "annotations": []}
    wanted = _wanted_tools(request)
    if wanted:
        calls = [_call(place, tool) for place, tool in enumerate(wanted)]
        named = isinstance(request.get("tool_choice"), dict)
        return {**message, "tool_calls": calls}, "stop" if named else "tool_calls"
    form = _object(request.get("response_format"))
    if form.get("type") == "json_schema":
        schema = _object(_object(form.get("json_schema")).get("schema"))
        return {**message, "content": json.dumps(sample(schema))}, "stop"
    if form.get("type") == "json_object":
        return {**message, "content": '{"status": "ok"}'}, "stop"
    return {**message, "content": _report(request["messages"])}, "stop"


def _object(value: Any) -> Json:
    return value if isinstance(value, dict) else {}


def _report(messages: Sequence[Json]) -> str:
    roles = " ".join(str(message.get("role")) for message in messages)
    return f"heard {len(messages)} messages ({roles}), the last says: {text_of(messages[-1])[:200]}"


def text_of(message: Json) -> str:
    """The text of a message."""
    content = message.get("content")
    if isinstance(content, list):
        return " ".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    return str(content or "")


def _wanted_tools(request: Json) -> list[Json]:
    """The functions to call: those that the choice forces; else the first one, unless a result is there already."""
    tools = {
        str(tool["function"].get("name")): tool["function"]
        for tool in request.get("tools") or ()
        if isinstance(tool, dict) and isinstance(tool.get("function"), dict)
    }
    choice = request.get("tool_choice") or "auto"
    last = request["messages"][-1]
    if isinstance(choice, dict):
        name = _object(choice.get("function")).get("name")
        if name not in tools:
            raise Refused(400, f"Tool choice {name!r} was not found in 'tools'.", None, "tool_choice")
        return [tools[name]]
    if not tools or choice == "none" or (choice == "auto" and last.get("role") == "tool"):
        return []
    first = next(iter(tools.values()))
    return [first] * (2 if "twice" in text_of(last) else 1)


def _call(place: int, tool: Json) -> dict[str, Any]:
    arguments = json.dumps(sample(_object(tool.get("parameters"))))
    return {"id": f"call_{place}", "type": "function", "function": {"name": tool["name"], "arguments": arguments}}


def sample(schema: Json, root: Json | None = None) -> Any:
    """A value that satisfies a JSON Schema of the kind that clients send."""
    root = schema if root is None else root
    if "$ref" in schema:
        target: Any = root
        for key in schema["$ref"].removeprefix("#/").split("/"):
            target = target[key]
        return sample(target, root)
    for several in ("anyOf", "oneOf", "allOf"):
        if schema.get(several):
            return sample(schema[several][0], root)
    if "const" in schema or schema.get("enum"):
        return schema["const"] if "const" in schema else schema["enum"][0]
    if schema.get("type") == "array":
        return [sample(schema.get("items", {}), root)]
    scalars = {"string": "Lyon", "integer": 7, "number": 7.5, "boolean": True, "null": None}
    if schema.get("type") in scalars:
        return scalars[schema["type"]]
    return {name: sample(each, root) for name, each in schema.get("properties", {}).items()}


def whole(request: Json) -> Json:
    """An answer that is not streamed. Its token usage is made up, but plausible."""
    message, finish = answer(request)
    prompt, thought = len(json.dumps(request.get("messages"))) // 4, 5 if request.get("reasoning_effort") else 0
    made = scripted.answer(finish=finish, used=(prompt, 12, 0), **message)
    made["usage"]["prompt_tokens_details"]["audio_tokens"] = 0
    unused = ("audio_tokens", "accepted_prediction_tokens", "rejected_prediction_tokens")
    made["usage"]["completion_tokens_details"] = {"reasoning_tokens": thought, **dict.fromkeys(unused, 0)}
    return {**made, "id": "chatcmpl-scripted", "created": 1_760_000_000, "model": "scripted-2026-01-01"}


def stream(request: Json) -> list[bytes]:
    """The same answer in chunks, as OpenAI sends them."""
    asked = _object(request.get("stream_options")).get("include_usage") is True
    return scripted.events(whole(request), usage=asked)
