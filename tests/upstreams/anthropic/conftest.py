"""A running proxy in front of a strict stand-in for Anthropic."""

import json
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import pytest

from tests.e2e.conftest import Answer, Lab
from tests.e2e.conftest import Client as AnyClient
from tests.e2e.servers import proxy
from tests.upstreams.anthropic.stand_in import KEY, StandIn, stand_in
from tests.upstreams.streams import assembled

MODEL = "claude-opus-4-5"
TOOL: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "look_up",
        "description": "Look something up.",
        "parameters": {"type": "object", "properties": {"key": {"type": "string"}}, "required": ["key"]},
    },
}
CONFIG = """
upstreams:
  claude: {kind: anthropic, base_url: "{claude}"{upstream}}
  other: {kind: openai, base_url: "{url}", keyless: true}
models: [{match: gpt-5, upstream: other}, {match: "*", upstream: claude{model}}]
chains: {default: {chain}}
"""


class Answered(Answer):
    """What a client got."""

    @property
    def error(self) -> Any:
        return self.json["error"]

    @property
    def message(self) -> dict[str, Any]:
        message: dict[str, Any] = self.json["choices"][0]["message"]
        return message

    @property
    def chunks(self) -> list[Any]:
        """The events of a stream."""
        data = [line[6:] for line in self.body.decode().split("\n\n") if line.startswith("data: ")]
        return [json.loads(each) if each != "[DONE]" else each for each in data]

    @property
    def assembled(self) -> dict[str, Any]:
        return assembled(self.chunks)


class Client:
    """Asks a proxy."""

    def __init__(self, any_client: AnyClient) -> None:
        self.base, self.any = any_client.base, any_client

    async def chat(self, *messages: dict[str, Any], headers: dict[str, str] | None = None, **fields: Any) -> Answered:
        said = list(messages) or [{"role": "user", "content": "Hi"}]
        return await self.post("/v1/chat/completions", {"model": MODEL, "messages": said, **fields}, headers)

    async def stream(self, *messages: dict[str, Any], **fields: Any) -> Answered:
        return await self.chat(*messages, stream=True, **fields)

    async def post(self, path: str, body: Any, headers: dict[str, str] | None = None) -> Answered:
        """Send a body, with the key of the stand-in unless headers have another one, or none."""
        key = KEY if headers is None else ""
        return Answered(**vars(await self.any.post(path, body, headers, key=key)))


Start = Callable[..., AbstractAsyncContextManager[Client]]


@pytest.fixture
async def anthropic() -> AsyncIterator[StandIn]:
    async with stand_in() as server:
        yield server


@pytest.fixture
def start(anthropic: StandIn, lab: Lab) -> Start:
    """Start a proxy with a chain, and further settings of Claude and of its models. `gpt-5` is the lab's."""

    @asynccontextmanager
    async def started(*, chain: str = "[]", upstream: str = "", model: str = "") -> AsyncIterator[Client]:
        config = lab.config(CONFIG, claude=anthropic.url, chain=chain, upstream=upstream, model=model)
        async with proxy(config, lab.folder) as base:
            yield Client(AnyClient(base, lab.http, KEY))

    return started


@pytest.fixture
async def client(start: Start) -> AsyncIterator[Client]:
    async with start() as made:
        yield made


def user(content: Any, **more: Any) -> dict[str, Any]:
    return {"role": "user", "content": content, **more}


def system(content: Any, **more: Any) -> dict[str, Any]:
    return {"role": "system", "content": content, **more}


def assistant(content: Any = None, *calls: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": content, **({"tool_calls": list(calls)} if calls else {}), **more}


def call(call_id: str, arguments: str = '{"key":"a"}', name: str = "look_up") -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def result(call_id: str, content: Any = "found", **more: Any) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": content, **more}


def tool_use(call_id: str = "toolu_1", name: str = "look_up", **given: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": call_id, "name": name, "input": given}


def text(said: str, **more: Any) -> dict[str, Any]:
    return {"type": "text", "text": said, **more}


def thinking(said: str = "Let me see.") -> dict[str, Any]:
    return {"type": "thinking", "thinking": said}
