"""An upstream that answers by a script, and internal tools, without a socket."""

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from hashlib import sha256
from typing import Any

from proxy.chat import ChatRequest, Tool
from proxy.policy import InternalTool
from proxy.state.decisions import StoredMemory
from proxy.state.sqlite import SqliteStore
from proxy.state.store import StoreError
from proxy.testing import chat, tool
from proxy.upstreams.base import Abilities, Call, Reply, Upstream

LOOK_UP = tool()
RECALL = tool("recall", "Brings back what left the context.")


class Recall(InternalTool):
    """An internal tool."""

    definition = RECALL

    def __init__(self, name: str = "recall", answer: Callable[[str], Awaitable[str]] | None = None) -> None:
        if name != "recall":
            self.definition = tool(name)
        self._answer = answer
        self.asked: list[str] = []

    async def run(self, arguments: str) -> str:
        self.asked.append(arguments)
        return await self._answer(arguments) if self._answer else f"found {arguments}"


class Chunks:
    """A stream that knows whether it was closed, and whether it broke off."""

    def __init__(self, parts: Iterable[bytes], *, then: Exception | None = None, hang: bool = False) -> None:
        self._flow = self._give(list(parts), then, hang)
        self.closed = self.broken = False

    async def _give(self, parts: list[bytes], then: Exception | None, hang: bool) -> AsyncGenerator[bytes, None]:
        for part in parts:
            yield part
        if then:
            self.broken = True
            raise then
        if hang:
            await asyncio.Event().wait()

    def __aiter__(self) -> AsyncGenerator[bytes, None]:
        return self._flow

    async def aclose(self) -> None:
        self.closed = True
        await self._flow.aclose()


class Scripted(Upstream):
    """Gives one reply after the other, and keeps the calls."""

    name = "scripted"
    provider = "openai"
    abilities = Abilities(translates=False)

    def __init__(self, *replies: Reply | Exception) -> None:
        self._replies = list(replies)
        self.calls: list[Call] = []

    async def send(self, call: Call) -> Reply:
        self.calls.append(call)
        reply = self._replies.pop(0)
        if isinstance(reply, Exception):
            raise reply
        return reply

    def sent(self, place: int) -> ChatRequest:
        request = self.calls[place].request
        assert request is not None
        return request


def ask(conversation: str = "s u1", *, tools: Sequence[Tool] = (LOOK_UP, RECALL), **rest: Any) -> Call:
    return call_of(chat(conversation, tools=tools, **rest))


def call_of(request: ChatRequest) -> Call:
    return Call("/chat/completions", request.model, request.encode(), {}, request=request)


def calls(*made: str) -> list[dict[str, Any]]:
    """`recall:r1` is a call of `recall` with the id `r1`."""
    named = (one.partition(":") for one in made)
    return [
        {"id": i, "type": "function", "function": {"name": n, "arguments": f'{{"key":"{i}"}}'}} for n, _, i in named
    ]


def answer(
    content: str | None = None, *made: str, finish: str | None = None, used: tuple[int, int, int] = (10, 2, 4), **more: Any
) -> dict[str, Any]:  # fmt: skip
    prompt, out, cached = used
    message = {"role": "assistant", "content": content, "refusal": None, **more}
    if made:
        message["tool_calls"] = calls(*made)
    usage = {"prompt_tokens": prompt, "completion_tokens": out, "total_tokens": prompt + out,
             "prompt_tokens_details": {"cached_tokens": cached}}  # fmt: skip
    reason = finish or ("tool_calls" if made else "stop")
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": reason}
    head = {"id": f"c{prompt}", "object": "chat.completion", "created": prompt, "model": "m-1"}
    return {**head, "choices": [choice], "usage": usage}


def whole(content: str | None = None, *made: str, **more: Any) -> Reply:
    return reply(answer(content, *made, **more))


def reply(value: Any, status: int = 200, **fields: Any) -> Reply:
    return Reply(status, [(b"content-type", b"application/json")], body=json.dumps(value).encode(), **fields)


def event(value: Any) -> bytes:
    return b"data: " + json.dumps(value).encode() + b"\n\n"


def events(value: Mapping[str, Any], *, usage: bool = True, done: bool = True) -> list[bytes]:
    """The stream that says the same as a whole answer, in pieces of a few characters."""
    head = {"id": value["id"], "object": "chat.completion.chunk", "created": value["created"], "model": value["model"]}
    message, finish = value["choices"][0]["message"], value["choices"][0]["finish_reason"]

    def chunk(delta: Any, reason: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": reason}
        return event({**head, "choices": [choice], **({"usage": None} if usage else {})})

    def calling(index: int, function: Any, **more: Any) -> bytes:
        return chunk({"tool_calls": [{"index": index, **more, "function": function}]})

    made = [chunk({"role": "assistant", "content": "", "refusal": None})]
    for key in ("reasoning_content", "content"):
        text = message.get(key) or ""
        made += [chunk({key: text[i : i + 3]}) for i in range(0, len(text), 3)]
    for index, call in enumerate(message.get("tool_calls") or ()):
        name, arguments = call["function"]["name"], call["function"]["arguments"]
        made.append(calling(index, {"name": name, "arguments": ""}, id=call["id"], type="function"))
        made += [calling(index, {"arguments": arguments[i : i + 4]}) for i in range(0, len(arguments), 4)]
    made.append(chunk({}, finish))
    if usage:
        made.append(event({**head, "choices": [], "usage": value["usage"]}))
    return [*made, b"data: [DONE]\n\n"] if done else made


def stream(content: str | None = None, *made: str, **more: Any) -> Reply:
    return streaming(events(answer(content, *made, **more)))


def streaming(parts: Iterable[bytes], **fields: Any) -> Reply:
    return Reply(200, [(b"content-type", b"text/event-stream")], chunks=Chunks(parts), **fields)


async def read(reply: Reply) -> bytes:
    assert reply.chunks is not None
    return b"".join([chunk async for chunk in reply.chunks])


def payloads(data: bytes) -> list[Any]:
    """The events of a stream, parsed."""
    lines = [part[6:] for part in data.split(b"\n\n") if part.startswith(b"data: ")]
    return [json.loads(line) if line != b"[DONE]" else "[DONE]" for line in lines]


def assembled(data: bytes) -> dict[str, Any]:
    """What a careful client makes of a stream: ids and names are added up, indexes must be contiguous."""
    *chunks, last = payloads(data)
    assert last == "[DONE]"
    assert len({(chunk["id"], chunk["created"], chunk["model"]) for chunk in chunks}) == 1
    message: dict[str, Any] = {}
    made: list[dict[str, str]] = []
    finish: list[str] = []
    usages: list[Any] = []
    for chunk in chunks:
        usages += [chunk["usage"]] if chunk.get("usage") else []
        for choice in chunk["choices"]:
            finish += [choice["finish_reason"]] if choice["finish_reason"] else []
            for key, value in choice["delta"].items():
                if isinstance(value, str):
                    message[key] = message.get(key, "") + value
            for entry in choice["delta"].get("tool_calls", ()):
                assert not finish
                if entry["index"] == len(made):
                    made.append({"id": "", "name": "", "arguments": ""})
                call = made[entry["index"]]
                call["id"] += entry.get("id", "")
                call["name"] += entry["function"].get("name", "")
                call["arguments"] += entry["function"].get("arguments", "")
    assert len(finish) == 1
    assert len(usages) <= 1
    return {**message, "calls": made, "finish": finish[0], "usage": usages[0] if usages else None}


class Away(SqliteStore):
    """A store whose reads fail while it is away."""

    is_away = False

    async def get_all(self, keys: Sequence[str], *, ttl: float | None = None) -> list[bytes | None]:
        if self.is_away:
            raise StoreError("unreachable")
        return await super().get_all(keys, ttl=ttl)


class Kept(StoredMemory):
    """A memory that can lose or refuse everything."""

    def __init__(self) -> None:
        self.values: dict[str, bytes] = {}
        self.broken = False
        self.asked = 0

    async def get_all(self, keys: Sequence[str]) -> list[bytes | None]:
        self.asked += len(keys)
        if self.broken:
            raise OSError("no memory")
        return [self.values.get(key) for key in keys]

    async def put(self, key: str, value: bytes) -> None:
        if self.broken:
            raise OSError("no memory")
        self.values[key] = value


def raws(request: ChatRequest) -> list[bytes]:
    return [message.raw for message in request.messages]


def prefix_digests(body: Any) -> list[str]:
    """A digest of what stands before each message, and of the whole, without reasoning."""
    running = sha256(json.dumps(body.get("tools")).encode())
    found = [running.hexdigest()]
    for message in body["messages"]:
        bare = {key: value for key, value in message.items() if key != "thinking_blocks"}
        running.update(json.dumps(bare).encode())
        found.append(running.hexdigest())
    return found
