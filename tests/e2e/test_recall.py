"""What left the context comes back when the model asks for it, and the client sees nothing of it."""

import asyncio
import json
import re
from typing import Any

import openai

from tests.e2e.conftest import Client, Lab
from tests.e2e.servers import Received, Upstream, say
from tests.scripted import answer, calls

CONFIG = """
chains:
  default:
    - compact_tool_results: {over: 600, read_again: 0}
    - offer_recall: {}
"""
WORDS = [str(n).translate(str.maketrans("0123456789", "abcdefghij")) for n in range(120)]
REPORT = "\n".join(f"paragraph {n}: the story of how nothing {word} came to pass here" for n, word in enumerate(WORDS))
NEEDLE = "the code word is tangerine"
TOOLS: list[Any] = [
    {"type": "function", "function": {"name": "read_report", "description": "Reads.", "parameters": {"type": "object"}}}
]
CONVERSATION: list[Any] = [
    {"role": "user", "content": "Read the report."},
    {"role": "assistant", "content": None, "tool_calls": calls("read_report:c1")},
    {"role": "tool", "tool_call_id": "c1", "content": REPORT.replace("\nparagraph 61: ", f" {NEEDLE}\nparagraph 61: ")},
    {"role": "assistant", "content": "I have read it."},
    {"role": "user", "content": "Which is the code word?"},
]


def handle_in(body: bytes) -> str:
    found = re.search(r'recall\(\\"([a-z2-7]{20})\\"\)', body.decode())
    assert found is not None, body[:2000]
    return found[1]


async def model(upstream: Upstream, received: Received, writer: asyncio.StreamWriter) -> None:
    """A model that recalls what it misses, and then says what it found."""
    results = [item["content"] for item in json.loads(received.body)["messages"] if item.get("tool_call_id") == "r1"]
    said = answer(f"Found: {results[-1]}" if results else None, *["recall:r1"] * (not results), used=(100, 10, 0))
    for call in said["choices"][0]["message"].get("tool_calls", ()):
        call["function"]["arguments"] = json.dumps({"handle": handle_in(received.body), "pattern": "code word"})
    await say(writer, received, {**said, "id": f"x{len(upstream.received)}"})


async def test_the_model_reads_what_was_shortened_and_the_client_sees_nothing_of_it(lab: Lab) -> None:
    lab.behind.respond = model
    base = await lab.start(CONFIG)
    async with openai.AsyncOpenAI(base_url=f"{base}/v1", api_key="k", max_retries=0) as client:
        raw = await client.chat.completions.with_raw_response.create(model="m", messages=CONVERSATION, tools=TOOLS)
        told = raw.parse()
        said = told.choices[0].message
        back = {"role": "assistant", "content": said.content}
        again: Any = [*CONVERSATION, back, {"role": "user", "content": "Thanks. And?"}]
        await client.chat.completions.create(model="m", messages=again, tools=TOOLS)

    metrics = await Client(base, lab.http).metrics()
    assert all(f'penstock_scratchpad_{each}_total{{kind="original"}} 1.0' in metrics for each in ("writes", "reads"))
    assert NEEDLE in (said.content or "")
    assert not said.tool_calls
    assert told.choices[0].finish_reason == "stop"
    assert told.usage is not None
    assert told.usage.prompt_tokens == 100, "the size of the context"
    assert raw.headers["x-penstock-usage"] == "2;200;20", "what both rounds used"
    first, second, third = (json.loads(received.body) for received in lab.behind.received[:3])
    assert NEEDLE not in json.dumps(first)
    assert [tool["function"]["name"] for tool in first["tools"]] == ["read_report", "recall"]
    for before, after in ((first, second), (second, third)):
        assert after["messages"][: len(before["messages"])] == before["messages"], "the cached prefix stays whole"
        assert after["tools"] == before["tools"]
    assert third["messages"][len(second["messages"])] == back
