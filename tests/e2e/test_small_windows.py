"""Agents whose window holds two or three of their observations: they know their goal and what they did last."""

import asyncio
import json
import re
from typing import Any

import pytest

from tests.e2e.conftest import Lab
from tests.e2e.default_chain import config
from tests.e2e.servers import DEFAULT_ANSWER, Received, Upstream, send
from tests.scripted import calls

STEPS = 18
GOAL = "The retry helper of Halcyon waits twice after a refused request: find the place, mend it, submit the patch."
RULES = "\n".join(f"Rule {n}: think first, then give one command, and wait for what it prints." for n in range(120))
TOOLS = [{"type": "function", "function": {"name": "bash", "description": "Runs.", "parameters": {"type": "object"}}}]
ACTION = re.compile(r"Step (\d+): I saw receipt-(\d+)\.")

Message = dict[str, Any]


def observation(n: int) -> str:
    """What a command prints: 7 KB of code."""
    lines = (f"    total_{n}_{line} = helper_{line % 7}(request, attempt={line}, wait={n})" for line in range(140))
    return "\n".join([f"receipt-{n}", f"def part_{n}(request, attempt):", *lines])[:7000]


def lost(messages: list[Message], actions: int) -> str | None:
    """What an agent misses in a prompt to go on with its work: its last `actions` in order, each with its observation."""
    texts = [str(message["content"]) for message in messages]
    if not any(GOAL in text for text in texts):
        return "the goal"
    rest = [(message["role"], text) for message, text in zip(messages, texts, strict=True) if "<recalled" not in text]
    newest = re.match(r"receipt-(\d+)", rest[-1][1])
    if newest is None:  # the first request
        return None if rest[-1][1] == GOAL else "what the last command printed"
    at, given = len(rest) - 1, int(newest[1])
    for n in range(given, max(-1, given - actions), -1):
        if not rest[at][1].startswith(f"receipt-{n}\n"):
            return f"what command {n} printed, before {given}"
        did = ACTION.search(rest[at - 1][1])
        if rest[at - 1][0] != "assistant" or did is None or int(did[1]) != n:
            return f"action {n}, before {given}"
        at -= 2
    return None


@pytest.mark.parametrize("kind", ["text", "tools"])
@pytest.mark.parametrize(("window", "actions"), [(4096, 1), (16_384, 5)])
async def test_an_agent_in_a_small_window_finishes(lab: Lab, kind: str, window: int, actions: int) -> None:
    """With tool calls and without them. What it misses it says, and then it is not done."""
    talk: list[Message] = [{"role": "system", "content": RULES}, {"role": "user", "content": GOAL}]

    async def agent(behind: Upstream, received: Received, writer: asyncio.StreamWriter) -> None:
        messages = json.loads(received.body)["messages"]
        seen = re.match(r"receipt-(\d+)", str(messages[-1]["content"]))
        n = int(seen[1]) + 1 if seen else 0
        missing = lost(messages, actions)
        said = (
            f"I miss {missing}." if missing else f"Step {n}: I saw receipt-{n - 1 if n else 0}. Now `cat part_{n}.py`."
        )
        answer = json.loads(DEFAULT_ANSWER)
        answer["choices"][0]["message"] = {"role": "assistant", "content": said}
        await send(writer, 200, json.dumps(answer).encode())

    lab.behind.respond = agent
    made = config(lab.behind.url, lab.folder / "state").replace("window: 16000", f"window: {window}")
    client = await lab.client(made)
    tools: dict[str, Any] = {"tools": TOOLS} if kind == "tools" else {}
    for n in range(STEPS):
        said = (await client.chat(messages=talk, **tools)).json["choices"][0]["message"]["content"]
        assert said.startswith(f"Step {n}: "), said
        if kind == "tools":
            (call,) = calls(f"bash:c{n}")
            talk += [
                {"role": "assistant", "content": said, "tool_calls": [call]},
                {"role": "tool", "tool_call_id": call["id"], "content": observation(n)},
            ]
        else:
            talk += [{"role": "assistant", "content": said}, {"role": "user", "content": observation(n)}]
