"""The shipped configuration on a scripted upstream, conversations from which something leaves, and what must hold."""

import asyncio
import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

from proxy.chat.parse import Body
from proxy.chat.wire import damage
from proxy.state.archive import handle_of
from tests.e2e import conftest
from tests.e2e.servers import Received, Respond, Upstream, say
from tests.scripted import answer

Message = dict[str, Any]

SHIPPED = (Path(__file__).parent.parent.parent / "config.yaml").read_text()
WINDOW = 16_000
NEEDLE = "the launch code of the Halcyon probe is violet-4417"
TOOLS: list[Message] = [
    {"type": "function", "function": {"name": "read_log", "description": "Reads.", "parameters": {"type": "object"}}}
]
MARKER = re.compile(r'recall\(\\"([a-z2-7]{20})\\"\)')
"""A handle as it stands in a body."""


def shipped(url: str, entry: str) -> str:
    """`config.yaml` without its last section: all models that it does not name are at `url`, with these settings."""
    made, _, _ = SHIPPED.partition("\nembedding:")  # each test has its own
    made, places = re.subn(
        r'  # - \{match: "\*", upstream: openai\}.*', f'  - {{match: "*", upstream: openai, {entry}}}', made
    )
    assert places == 1
    return made.replace("${OPENAI_BASE_URL:-https://api.openai.com/v1}", url)


def config(url: str, state: Path, more: str = "embedding: {kind: none}") -> str:
    """`config.yaml` with its default upstream at `url`, a small window, and its state in a directory."""
    made = shipped(url, f"window: {WINDOW}, reserve: 0, tokenizer: chars")
    made = made.replace("compact_tool_results: {}", "compact_tool_results: {over: 600, read_again: 0}")
    return f'{made}\nstate: {{directory: "{state}", max_mib: 8}}\ntelemetry: {{log_level: warning}}\n{more}\n'


def result(n: int) -> str:
    """A tool result that is worth shortening: about a thousand tokens."""
    return "\n".join(f"paragraph {n}.{line}: a long story of how nothing much came to pass here" for line in range(60))


def working(turns: int) -> list[Message]:
    """An agent's conversation with so many large results that were read, at most seven, and one that was not."""
    talk: list[Message] = [{"role": "user", "content": "Read the logs, one by one."}]
    for n in range(turns + 1):
        call = {"id": f"c{n}", "type": "function", "function": {"name": "read_log", "arguments": f'{{"n":{n}}}'}}
        talk += [
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": f"c{n}", "content": result(n)},
        ]
    return talk


def chatting(turns: int = 30) -> list[Message]:
    """A conversation without tools. From 30 turns on it is over the mark at which its beginning is cut off."""
    talk: list[Message] = []
    for n in range(turns):
        told = NEEDLE if n == 2 else f"remark {n} is about nothing"
        talk += [
            {"role": "user", "content": f"Question {n}: {told}. " + f"lorem{n} ipsum " * 70},
            {"role": "assistant", "content": f"Answer {n}. " + f"dolor{n} sit " * 70},
        ]
    return [*talk, {"role": "user", "content": "Which launch code does the Halcyon probe have?"}]


def reading() -> list[Message]:
    """A conversation that opens with a large text of the user's, which was read."""
    text = "\n".join(f"{line}. The party of part {line} shall do nothing in particular." for line in range(400))
    return [
        {"role": "user", "content": f"What does this say?\n```\n{text}\n```"},
        {"role": "assistant", "content": "Not much."},
        {"role": "user", "content": "And part 7?"},
    ]


@dataclass
class Client:
    """Sends conversations through a proxy, and looks at what the upstream got of them."""

    base: str
    behind: Upstream
    http: aiohttp.ClientSession
    key: str = "k"
    named: set[str] = field(default_factory=set)
    """Every handle that a request to the upstream has carried."""
    headers: dict[str, str] = field(default_factory=dict)
    """What each request has beside the key."""

    async def ask(self, messages: list[Message], **fields: Any) -> str:
        """The body of the one request that the upstream got of a conversation; the client got its answer.

        Raises `AssertionError` where the request broke a rule of the wire.
        """
        before = len(self.behind.received)
        body = json.dumps({"model": "m", "messages": messages, **fields}).encode()
        status, _ = await self.send("POST", "/v1/chat/completions", data=body)
        assert status == 200
        assert len(self.behind.received) == before + 1
        sent = self.behind.last.body
        assert not damage(Body(body).parse(), Body(sent).parse())
        self.named |= {*MARKER.findall(sent.decode())}
        return sent.decode()

    async def work(self, turns: int) -> str:
        """The same of an agent's conversation."""
        return await self.ask(working(turns), tools=TOOLS)

    async def send(self, method: str, path: str, **options: Any) -> tuple[int, Any]:
        """Status and JSON of any request."""
        headers = {**self.headers, **options.pop("headers", {})}
        answer = await conftest.Client(self.base, self.http, self.key).send(method, path, headers, **options)
        return answer.status, answer.json

    async def is_well(self) -> bool:
        """What `/healthz` says."""
        return await self.send("GET", "/healthz") == (200, {"status": "ok"})

    async def original(self, handle: str) -> str | None:
        """What a handle names; None where nothing is kept."""
        status, told = await self.send("GET", f"/v1/retrieve/{handle}")
        assert status in (200, 404), told
        return str(told["content"]) if status == 200 else None

    async def missing(self, handles: set[str] | None = None) -> set[str]:
        """Those of the handles, or of all that were ever named, that do not lead to their content."""
        found = {handle: await self.original(handle) for handle in (self.named if handles is None else handles)}
        return {handle for handle, content in found.items() if content is None or handle_of(content) != handle}


def handles(body: str) -> set[str]:
    """The handles in a body."""
    return {*MARKER.findall(body)}


def is_whole(body: str, messages: list[Message]) -> bool:
    """Whether every message stands in a body as the client sent it."""
    return bool(json.loads(body)["messages"] == messages)


def recalling(handle: str | None = None) -> Respond:
    """A model that reads a handle, or the first that it was sent, and then says what it read."""

    async def respond(behind: Upstream, received: Received, writer: asyncio.StreamWriter) -> None:
        read = [each for each in json.loads(received.body)["messages"] if each.get("tool_call_id") == "r1"]
        told = answer(f"Read: {read[0]['content']}") if read else answer(None, "recall:r1", finish="tool_calls")
        if not read:
            arguments = json.dumps({"handle": handle or min(handles(received.body.decode()))})
            told["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"] = arguments
        await say(writer, received, told)

    return respond
