"""A strict stand-in for OpenAI's Responses: it refuses calls without results and reasoning without what follows it, seals
reasoning over the exact prefix, and reads from its cache what begins as before."""

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

from aiohttp import web
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

from tests.loopback import serving

Json = dict[str, Any]

_EVENT: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)
_CALLS = ("function_call", "custom_tool_call")


@dataclass
class OpenAIServer:
    """What the server answers next, and what reached it."""

    url: str = ""
    answers: list[list[Json]] = field(default_factory=list)
    bodies: list[Json] = field(default_factory=list)
    raws: list[bytes] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    usages: list[Json] = field(default_factory=list)
    lost: int = 0
    """Items of reasoning whose prefix was another than the one they were made under."""
    kept: list[str] = field(default_factory=list)
    """Prompts, as their cache has them."""

    def say(self, *items: Json) -> None:
        """Have these items said next; reasoning is sealed."""
        self.answers.append(list(items))

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.paths.append(request.path)
        raw = await request.read()
        body = json.loads(raw)
        self.bodies.append(body)
        self.raws.append(raw)
        if request.path.endswith("/input_tokens"):
            return web.json_response({"object": "response.input_tokens", "input_tokens": len(_prompt(body)) // 4})
        if request.path.endswith("/compact"):
            sealed = {"type": "compaction", "id": "cmp_1", "encrypted_content": "sealed"}
            return web.json_response(
                {"id": "resp_c", "object": "response.compaction", "created_at": 1, "output": [sealed]}
            )
        if flaw := next(flaws(body), None):
            self.refused.append(flaw)
            return web.json_response(
                {"error": {"message": flaw, "type": "invalid_request_error", "param": "input", "code": None}},
                status=400,
            )
        self.lost += _unsealed(body)
        response = self._response(body)
        Response.model_validate(response)
        return await self._stream(request, response) if body.get("stream") else web.json_response(response)

    def _response(self, body: Json) -> Json:
        made: list[Json] = []
        number = len(self.bodies)
        for place, said in enumerate(self.answers.pop(0) if self.answers else [message("Hello.")]):
            item = {"id": f"{said['type'][:2]}_{number}_{place}", **said}
            if said["type"] == "reasoning":
                item |= {"summary": [], "encrypted_content": _seal(body, [*_items(body), *made])}
            else:
                item["status"] = "completed"
            made.append(item)
        return {
            "id": f"resp_{number}", "object": "response", "created_at": 1.0, "model": body["model"], "output": made,
            "parallel_tool_calls": True, "tool_choice": "auto", "tools": [], "status": "completed",
            "usage": self._used(body, made),
        }  # fmt: skip

    def _used(self, body: Json, made: list[Json]) -> Json:
        prompt = _prompt(body)
        read = max((_common(prompt, each) for each in self.kept), default=0) // 4 // 128 * 128
        self.kept.append(prompt)
        total, answered = len(prompt) // 4, len(json.dumps(made)) // 4
        details = {"cached_tokens": read if read >= 1024 else 0, "cache_write_tokens": 0}
        used = {"input_tokens": total, "input_tokens_details": details, "output_tokens": answered}
        self.usages.append(used)
        return {**used, "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": total + answered}

    async def _stream(self, request: web.Request, response: Json) -> web.StreamResponse:
        stream = web.StreamResponse(headers={"content-type": "text/event-stream; charset=utf-8"})
        await stream.prepare(request)
        for number, event in enumerate(stream_events(response)):
            event["sequence_number"] = number
            _EVENT.validate_python(event)
            await stream.write(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode())
        return stream


def message(text: str) -> Json:
    part = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
    return {"type": "message", "role": "assistant", "content": [part]}


def call(call_id: str, name: str, **arguments: Any) -> Json:
    return {"type": "function_call", "call_id": call_id, "name": name, "arguments": json.dumps(arguments)}


def stream_events(response: Json) -> Iterator[Json]:
    begun = {**response, "output": [], "status": "in_progress", "usage": None}
    yield {"type": "response.created", "response": begun}
    yield {"type": "response.in_progress", "response": begun}
    for index, item in enumerate(response["output"]):
        at = {"output_index": index, "item_id": item["id"]}
        if item["type"] == "message":
            (part,) = item["content"]
            yield _added(index, {**item, "content": [], "status": "in_progress"})
            yield {"type": "response.content_part.added", **at, "content_index": 0, "part": {**part, "text": ""}}
            for piece in (part["text"][:5], part["text"][5:]):
                yield {"type": "response.output_text.delta", **at, "content_index": 0, "delta": piece, "logprobs": []}
            text = {"content_index": 0, "text": part["text"], "logprobs": []}
            yield {"type": "response.output_text.done", **at, **text}
            yield {"type": "response.content_part.done", **at, "content_index": 0, "part": part}
        elif item["type"] == "function_call":
            yield _added(index, {**item, "arguments": "", "status": "in_progress"})
            yield {"type": "response.function_call_arguments.delta", **at, "delta": item["arguments"]}
            done = {"name": item["name"], "arguments": item["arguments"]}
            yield {"type": "response.function_call_arguments.done", **at, **done}
        else:
            yield _added(index, item)
        yield {"type": "response.output_item.done", "output_index": index, "item": item}
    yield {"type": "response.completed", "response": response}


def _added(index: int, item: Json) -> Json:
    return {"type": "response.output_item.added", "output_index": index, "item": item}


def _items(body: Json) -> list[Json]:
    given = body.get("input", [])
    return [{"role": "user", "content": given}] if isinstance(given, str) else given


def _prompt(body: Json) -> str:
    """All that the model reads, in order."""
    return json.dumps([body.get("tools", []), body.get("instructions"), *_items(body)])


def _common(one: str, other: str) -> int:
    return next((n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


def _seal(body: Json, before: list[Json]) -> str:
    plain = [{key: value for key, value in item.items() if key != "id"} for item in before]
    return sha256(json.dumps([body.get("tools", []), body.get("instructions"), plain]).encode()).hexdigest()


def _unsealed(body: Json) -> int:
    listed = _items(body)
    sealed = [place for place, item in enumerate(listed) if item.get("type") == "reasoning"]
    return sum(listed[place]["encrypted_content"] != _seal(body, listed[:place]) for place in sealed)


def flaws(body: Json) -> Iterator[str]:
    """What OpenAI refuses."""
    if body.get("previous_response_id"):
        return
    listed = _items(body)
    calls = [item["call_id"] for item in listed if item.get("type") in _CALLS]
    results = [
        item["call_id"] for item in listed if str(item.get("type")) in tuple(f"{each}_output" for each in _CALLS)
    ]
    for call_id in calls:
        if call_id not in results:
            yield f"No tool output found for function call {call_id}."
    for call_id in results:
        if call_id not in calls:
            yield f"No tool call found for function call output with call_id {call_id}."
    for item, after in zip(listed, [*listed[1:], {}], strict=False):
        if item.get("type") == "reasoning" and after.get("type") not in (*_CALLS, "message", "reasoning"):
            yield f"Item '{item.get('id')}' of type 'reasoning' was provided without its required following item."


@asynccontextmanager
async def openai_server() -> AsyncIterator[OpenAIServer]:
    """Serve on a free port of the loopback interface."""
    made = OpenAIServer()
    async with serving(made.answer) as made.url:
        yield made
