"""Agents that talk through a proxy, each with texts that nobody else may ever see, and a model that can be told to pry."""

import asyncio
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

import aiohttp

from proxy.identity import TAG
from tests.e2e.conftest import Client
from tests.e2e.servers import Received, Upstream, say
from tests.scripted import answer

CONFIG = """
models:
  - {match: "*", upstream: main, window: 3000, reserve: 0, tokenizer: chars,
     cache: {read: 0.1, write: 1.25, ttl: 300, minimum: 100}}
chains:
  default: [isolate_tasks: {}, consolidate_system: {}, compact_tool_results: {over: 600, read_again: 0},
    offload_content: {}, compress_history: {}, pin_context: {}, keep_notes: {}, recall_history: {},
    select_memories: {threshold: 0.1, fallback: 0, floor: 0}, include_shared: {}, filter_tools: {}, offer_recall: {}]
vectors: none
state: {state}
"""
TOOLS = [
    {"type": "function", "function": {"name": f"tool_{n}", "description": "Reads.", "parameters": {"type": "object"}}}
    for n in range(2)
]
MARK = re.compile(r"mark[0-9]+z")
HANDLE = re.compile(r'recall\(\\*"([a-z2-7]{20})')
FORGED: list[dict[str, str]] = [
    {},
    {"x-penstock-tenant": "one", "x-penstock-scope": "named-a", "x-penstock-key": "one"},
    {"x-user-id": "one", "x-agent": "ann", "cookie": "penstock-session=a", "x-forwarded-user": "one"},
    {"x-penstock-user": "somebody else", "openai-organization": "one"},
]


@dataclass
class Agent:
    """One conversation of one agent on one task, or its part of a message list that several tasks share."""

    key: str
    session: str = ""
    agent: str = ""
    task: str = ""
    common: "list[Mapping[str, Any]] | None" = None
    talk: list[Mapping[str, Any]] = field(default_factory=list)
    may_see: set[str] = field(default_factory=set)

    @property
    def headers(self) -> dict[str, str]:
        # agents of one name work for one user; the others for none, so that what they store is the tenant's
        names = {"session": self.session, "agent": self.agent, "task": self.task, "user": self.agent}
        given = {f"x-penstock-{kind}": name for kind, name in names.items() if name}
        return {"authorization": f"Bearer {self.key}", **given}

    @property
    def messages(self) -> list[Mapping[str, Any]]:
        return self.talk if self.common is None else self.common

    def says(self, *messages: Mapping[str, Any]) -> None:
        """Go on with messages of its own."""
        self.messages.extend(messages if self.common is None else [{**each, TAG: self.task} for each in messages])


class World:
    """Agents behind one or more proxies, and all that they ever said."""

    def __init__(
        self, bases: list[str], behind: Upstream, http: aiohttp.ClientSession, everybody: Sequence[Agent]
    ) -> None:
        self._bases, self.behind, self._http, self.everybody = bases, behind, http, everybody
        self.marks = self._requests = 0
        self.handles: set[str] = set()
        self.calls: list[tuple[str, Mapping[str, Any]]] = []
        self.saw: dict[str, int] = {}
        """How often something came that can only have come from what was kept."""
        behind.respond = self._respond

    async def _respond(self, behind: Upstream, received: Received, writer: asyncio.StreamWriter) -> None:
        """A model that calls what it was told to once, and then says what it got."""
        told, messages = answer("Fine."), json.loads(received.body)["messages"]
        message = told["choices"][0]["message"]
        if self.calls:
            name, arguments = self.calls.pop()
            function = {"name": name, "arguments": json.dumps(arguments)}
            message["tool_calls"] = [{"id": f"m{len(behind.received)}", "type": "function", "function": function}]
            message["content"], told["choices"][0]["finish_reason"] = None, "tool_calls"
        elif messages[-1]["role"] == "tool" and str(messages[-1]["tool_call_id"]).startswith("m"):
            message["content"] = f"Read: {messages[-1]['content']}"
        await say(writer, received, told)

    def mark(self, *agents: Agent) -> str:
        """A word that only these may ever see."""
        self.marks += 1
        word = f"mark{self.marks}z"
        for agent in agents:
            agent.may_see.add(word)
        return word

    async def ask(self, method: str, path: str, agent: Agent, body: Any = None, **more: str) -> tuple[int, str]:
        """One request of an agent, to the next of the proxies; its answer holds nothing that it may not see."""
        self._requests += 1
        client = Client(self._bases[self._requests % len(self._bases)], self._http)
        got = await client.send(method, path, {**more, **agent.headers}, json=body)
        self._check(agent, got.body.decode())
        return got.status, got.body.decode()

    async def turn(self, agent: Agent, forged: Mapping[str, str], *calls: tuple[str, Mapping[str, Any]]) -> str:
        """A request of an agent's conversation, which goes on with the answer. What the model got is checked."""
        before = len(self.behind.received)
        self.calls = [*calls]
        body: dict[str, Any] = {"model": "m", "messages": agent.messages, "tools": TOOLS}
        if agent.agent and agent.task:
            body |= {"metadata": {"agent": "bob", "task": "y"}, "user": "bob"}
        status, text = await self.ask("POST", "/v1/chat/completions", agent, body, **forged)
        assert status == 200, text
        for received in self.behind.received[before:]:
            sent = received.body.decode()
            assert TAG not in sent
            self._check(agent, sent)
            self.handles |= {*HANDLE.findall(sent)}
            for sign in ("shared_context", "notes_context", "recalled_context", "relevant_context", "recall("):
                self.saw[sign] = self.saw.get(sign, 0) + (sign in sent)
        message = json.loads(text)["choices"][0]["message"]
        agent.says({key: message[key] for key in ("role", "content")})
        return text

    def _check(self, agent: Agent, text: str) -> None:
        strange = {*MARK.findall(text)} - agent.may_see
        assert not strange, f"{agent.headers} got {strange}"


def world_of(prefix: str) -> list[Agent]:
    """Agents of two tenants, whose names and openings are the same wherever they can be."""
    agents: list[Agent] = []
    for tenant in ("one", "two"):
        key = f"{prefix}-{tenant}"
        for session in ("a", "b"):
            agents += [
                Agent(key, session),
                *(Agent(key, session, who, task) for who in ("ann", "bob") for task in "xy"),
            ]
        agents += [Agent(key), Agent(key), Agent(key, "", "ann"), Agent(key, "", "", "x")]
        common: list[Mapping[str, Any]] = []
        agents += [Agent(key, "list", "", task, common) for task in "xy"]
    return agents


async def act(world: World, agents: list[Agent], who: int, what: int, n: int) -> None:
    """One of the things that agents do, chosen by numbers."""
    agent = agents[who % len(agents)]
    if not agent.messages:
        # all begin alike, and the list of several tasks with what they share
        agent.messages.extend([{"role": "system", "content": "You help."}, {"role": "user", "content": "Hello."}])
        await world.turn(agent, {})
    actions = (_talks, _works, _searches, _steals, _notes, _shares, _remembers)
    await actions[what % len(actions)](world, agents, agent, n)


async def _talks(world: World, agents: list[Agent], agent: Agent, n: int) -> None:
    word = world.mark(agent)
    told = f"The vault of {word} must never be opened. " + f"lorem{n} ipsum " * 150
    agent.says({"role": "user", "content": f"{told} Which vaults do you know, and what opens them?"})
    await world.turn(agent, FORGED[n % len(FORGED)])


async def _works(world: World, agents: list[Agent], agent: Agent, n: int) -> None:
    call = {"id": f"c{n % 3}", "type": "function", "function": {"name": "tool_1", "arguments": "{}"}}
    result = "\n".join(f"line {line}: the vault of {world.mark(agent)} is shut today" for line in range(60))
    agent.says({"role": "user", "content": "Look again at the vaults."})
    agent.says({"role": "assistant", "content": None, "tool_calls": [call]})
    agent.says({"role": "tool", "tool_call_id": call["id"], "content": result})
    await world.turn(agent, FORGED[n % len(FORGED)])


async def _searches(world: World, agents: list[Agent], agent: Agent, n: int) -> None:
    agent.says({"role": "user", "content": "What opens the vault?"})
    await world.turn(agent, {}, ("recall", {"query": "vault shut opened never lorem"}))


async def _steals(world: World, agents: list[Agent], agent: Agent, n: int) -> None:
    """Of conversations that nothing tells apart the handle itself protects what it names."""
    if world.handles and (agent.session or agent.agent or agent.task):
        stolen = sorted(world.handles)[n % len(world.handles)]
        agent.says({"role": "user", "content": f'Read recall("{stolen}").'})
        await world.turn(agent, FORGED[n % len(FORGED)], ("recall", {"handle": stolen}))


async def _notes(world: World, agents: list[Agent], agent: Agent, n: int) -> None:
    agent.says({"role": "user", "content": f"Note the vault of {world.mark(agent)}."})
    await world.turn(agent, {}, ("note", {"text": f"vault {world.mark(agent)}"}))


async def _shares(world: World, agents: list[Agent], agent: Agent, n: int) -> None:
    """With one agent and task, or with more of a conversation."""
    other = agents[n % len(agents)]
    if not agent.session or not other.session or agent.key != other.key:
        return
    to = {"session": other.session, "agent": other.agent, "task": other.task}
    for name in (("agent",), ("task",), ("agent", "task"), (), ())[n % 5]:
        to[name] = ""
    named = [(kind, value) for kind, value in to.items() if value]
    readers = [
        each for each in agents if each.key == agent.key and all(getattr(each, kind) == value for kind, value in named)
    ]
    text = f"The vault of {world.mark(agent, *readers)} is open. " + "dolor " * (n % 700)
    status, told = await world.ask("POST", "/v1/context/share", agent, {"to": to, "content": text, "note": "a vault"})
    assert status in (200, 400, 409), told


async def _remembers(world: World, agents: list[Agent], agent: Agent, n: int) -> None:
    """Something for its user, or where it has none for all of its tenant, and each time for another scope of its own."""
    same = [each for each in world.everybody if each.key == agent.key]
    kinds = [kind for bit, kind in enumerate(("session", "agent", "task")) if n >> bit & 1 and getattr(agent, kind)]
    scope = {kind: str(getattr(agent, kind)) for kind in kinds}
    readers = [
        each
        for each in same
        if agent.agent in ("", each.agent) and all(getattr(each, kind) == scope[kind] for kind in kinds)
    ]
    text = f"The vault of {world.mark(agent, *readers)} opens at noon."
    body = {"text": text, "kind": "preference" if n % 2 else "fact", "source": agent.session or "nowhere", **scope}
    status, told = await world.ask("POST", "/v1/memories", agent, body, **FORGED[n % 3])
    assert status == 200, told
    for asked in ({}, {"query": "vault opens noon"}, scope, {**scope, "query": "vault opens noon"}):
        assert (await world.ask("GET", f"/v1/memories?{urlencode(asked)}", agent, **FORGED[n % 3]))[0] == 200
