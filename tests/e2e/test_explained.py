"""What `explain` tells is what is sent: the same bytes, whatever the conversation has behind it.

The conversations grow by what the proxy answered, so internal rounds of earlier turns are put back; memories, texts that
other agents shared, notes, summaries of a small model and cuts are in play. `explain` reads the state of the running
proxy from its directory, as the command line does.
"""

import asyncio
import json
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import pytest

import proxy.server.app as app
from proxy.config.load import Config, load
from proxy.gateway.prepare import Services
from proxy.llm.writer import DraftService
from proxy.server.build import build_services, build_writing
from proxy.server.explain import explain
from proxy.testing import lifelike, tool
from tests.e2e.conftest import Client, Lab
from tests.e2e.default_chain import MARKER, result
from tests.e2e.servers import Received, Upstream, say
from tests.scripted import answer, assembled

CONFIG = """
upstreams:
  main: {kind: openai, base_url: "{url}"}
  small: {kind: openai, base_url: "{url}"}
models:
  - {match: tiny-writer, upstream: small, window: 16000, chain: empty}
  - {match: "claude-*", upstream: main, window: 5000, reserve: 0, tokenizer: chars}
  - {match: plain, upstream: main, chain: empty, model: plain-1}
  - {match: "*", upstream: main, window: 5000, reserve: 0, tokenizer: chars}
chains:
  default: [isolate_tasks: {}, consolidate_system: {}, resolve_clashes: {}, check_facts: {},
    compact_tool_results: {over: 600, read_again: 0}, offload_content: {}, compress_history: {summary: written},
    pin_context: {}, recall_history: {}, select_memories: {}, include_shared: {}, filter_tools: {keep: 8},
    keep_notes: {}, self_correct: {}, offer_recall: {}, reject_oversize: {}]
  empty: []
writer: {model: tiny-writer, timeout: 20}
"""
SAID = [message.text for message in lifelike().messages if message.role == "user"]
TOOLS = [tool("read_log", "Reads a log."), *lifelike().tools]
REQUESTS = 45

Message = dict[str, Any]


async def model(behind: Upstream, received: Received, writer: asyncio.StreamWriter) -> None:
    """A model that takes notes, reads what left, searches and calls the client's tools, each now and then."""
    asked = json.loads(received.body)
    if asked["model"] == "tiny-writer":
        said = answer("## Goal\n- Have the printers served.\n## Decisions\n- Wait for toner.\n")
    else:
        text, *calls = _move(asked, received.body.decode(), len(behind.received))
        said = answer(text or None, *calls)
        if asked["model"].startswith("claude-") and not asked.get("stream"):
            thought = [{"type": "thinking", "thinking": "Hm.", "signature": "c2ln"}]
            said["choices"][0]["message"]["thinking_blocks"] = thought
    del said["usage"]  # what is learned of the model's tokens is known to the process alone that learned it
    await say(writer, received, said)


def _move(asked: Message, body: str, count: int) -> tuple[str, ...]:
    """What the model says, and what it calls."""
    offered = {each["function"]["name"] for each in asked.get("tools", ())}
    if asked["messages"][-1]["role"] == "tool":
        return (f"It says so, as of request {count}.",)
    wanted = ("note", "recall", "read_log", "search_tools", "")[count % 5]
    if wanted not in offered or (wanted == "recall" and not MARKER.search(body)):
        return (f"Answer {count}.",)
    return "", f"{wanted}:i{count}"


@dataclass
class World:
    """A running proxy, the configuration that explains it, and what works behind it."""

    client: Client
    config: Config
    behind: Upstream
    services: list[Services]
    writing: list[DraftService]
    steps: Counter[str] = field(default_factory=Counter)
    """How often each step rewrote a request."""

    async def rest(self) -> None:
        """Wait until nothing works in the background."""
        await self.writing[-1].drain()
        await self.services[-1].corrections.settled()
        await self.services[-1].prefixes.aclose()  # it waits for what is being kept

    async def turn(self, request: Message, headers: dict[str, str]) -> Message:
        """The answer to a request, of which what is explained is what is sent."""
        raw = json.dumps(request).encode()
        await self.rest()
        explained = await explain(self.config, raw, headers=headers)
        self.steps.update(step.policy for step in explained.done.outcome.steps if step.verdict == "rewrite")
        before = len(self.behind.received)
        answer = await self.client.send("POST", "/v1/chat/completions", headers, data=raw)
        assert answer.status == 200, answer
        main = [each for each in self.behind.received[before:] if json.loads(each.body)["model"] != "tiny-writer"]
        assert main[0].body == explained.body
        if not request.get("stream"):
            said: Message = answer.json["choices"][0]["message"]
            return said
        whole = assembled(answer.body)
        calls = [
            {"id": each["id"], "type": "function", "function": {"name": each["name"], "arguments": each["arguments"]}}
            for each in whole["calls"]
        ]
        said = {"role": "assistant", "content": whole.get("content") or None}
        return {**said, "tool_calls": calls} if calls else said

    async def put(self, path: str, body: Message, headers: dict[str, str]) -> None:
        answer = await self.client.post(path, body, headers)
        assert answer.status in (200, 201), answer


@pytest.fixture
async def world(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> World:
    services: list[Services] = []
    writing: list[DraftService] = []

    def kept_services(*given: Any) -> Services:
        services.append(build_services(*given))
        return services[-1]

    def kept_writing(*given: Any) -> DraftService | None:
        writing.extend(each for each in [build_writing(*given)] if each is not None)
        return writing[-1]

    monkeypatch.setattr(app, "build_services", kept_services)
    monkeypatch.setattr(app, "build_writing", kept_writing)
    lab.behind.respond = model
    client = await lab.client(CONFIG)
    return World(client, load(lab.folder / "config.yaml", {}), lab.behind, services, writing)


async def test_what_is_explained_is_what_is_sent(world: World) -> None:
    count = talks = 0
    while count < REQUESTS:
        talks += 1
        ann, headers = _names(talks, "ann"), _names(talks, "bob")
        name = ("gpt-9", "claude-sonnet-4-5", "gpt-9", "plain")[talks % 4]
        messages: list[Message] = [{"role": "system", "content": f"You serve printers, office {talks}."}]
        text = f"The user of office {talks} wants answers under 80 words."
        await world.put("/v1/memories", {"text": text, "user": headers["x-penstock-user"]}, headers)
        for turn in range(10):
            if turn in (3, 6):
                given = {"to": {"agent": "bob"}, "content": f"Toner for office {talks} arrives on day {turn}."}
                await world.put("/v1/context/share", given, ann)
            messages.append({"role": "user", "content": SAID[(turn + talks) % len(SAID)]})
            while True:
                request: Message = {"model": name, "messages": messages, "stream": (turn + talks) % 3 == 0}
                if talks % 5:
                    request["tools"] = TOOLS
                messages.append(await world.turn(request, headers))
                count += 1
                if not messages[-1].get("tool_calls"):
                    break
                messages += [
                    {"role": "tool", "tool_call_id": call["id"], "content": result(turn)}
                    for call in messages[-1]["tool_calls"]
                ]
    acted = "compact_tool_results compress_history include_shared select_memories keep_notes offer_recall"
    assert {*acted.split()} <= world.steps.keys()
    texts = "".join(each.body.decode() for each in world.behind.received)
    assert '"tool_call_id":"i' in texts.replace(": ", ":"), "internal rounds were put back"
    assert "Wait for toner." in texts, "summaries were written"


def _names(talk: int, agent: str) -> dict[str, str]:
    return {
        "authorization": "Bearer k",
        "content-type": "application/json",
        "x-penstock-session": f"office-{talk}",
        "x-penstock-user": f"user-{talk % 2}",
        "x-penstock-agent": agent,
    }
