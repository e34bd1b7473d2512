"""A client's limit of the answer is a maximum: it takes no room from the conversation, and is lowered where it must be."""

import asyncio
import json
from typing import Any

import pytest

from tests.e2e.conftest import Lab
from tests.e2e.default_chain import TOOLS, recalling, shipped, working
from tests.e2e.servers import DEFAULT_ANSWER, Received, Upstream, send
from tests.upstreams.ollama.fake_ollama import fake_ollama

WINDOW = 32_768
TALK: list[dict[str, Any]] = [{"role": "system", "content": "S"}]
for n in range(30):
    TALK += [
        {"role": "user", "content": f"Question {n}: what is there to know about part {n} of the mill?"},
        {"role": "assistant", "content": f"Part {n} turns the wheel, and needs oil once a year. " * 3},
    ]
TALK += [{"role": "user", "content": "And the last one?"}]


def config(lab: Lab, more: str = "", ollama: str = "http://127.0.0.1:1") -> str:
    made = shipped(lab.behind.url, f"tokenizer: chars, {more}")
    made = made.replace("${OLLAMA_HOST:-http://127.0.0.1:11434}", ollama)
    return f'{made}\nembedding: {{kind: none}}\nstate: {{directory: "{lab.folder}/state"}}\n'


def tokens(body: dict[str, Any]) -> int:
    return len(json.dumps(body["messages"])) // 4


async def strict(behind: Upstream, received: Received, writer: asyncio.StreamWriter) -> None:
    """A server that has room for prompt and answer together, and says so as vLLM does."""
    body = json.loads(received.body)
    prompt, wanted = tokens(body), body.get("max_completion_tokens") or body.get("max_tokens") or 0
    if prompt + wanted > WINDOW:
        told = (
            f"'max_tokens' or 'max_completion_tokens' is too large: {wanted}. This model's maximum context length is "
            f"{WINDOW} tokens and your request has {prompt} input tokens ({wanted} > {WINDOW} - {prompt})."
        )
        error = {"message": told, "type": "BadRequestError", "param": None, "code": 400}
        await send(writer, 400, json.dumps({"error": error}).encode())
        return
    await send(writer, 200, DEFAULT_ANSWER)


@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens"])
@pytest.mark.parametrize("known", [f"window: {WINDOW}", ""], ids=["known", "found out"])
async def test_a_limit_near_the_window_cuts_nothing_and_is_lowered_to_the_room(lab: Lab, name: str, known: str) -> None:
    lab.behind.respond = strict
    client, limit = await lab.client(config(lab, known)), {name: 32_760}
    for messages in (TALK[-1:], TALK):
        answer = await client.post("/v1/chat/completions", {"model": "a-model", "messages": messages, **limit})
        assert answer.status == 200, answer
        sent = json.loads(lab.behind.last.body)
        assert sent["messages"] == messages
        assert WINDOW - 2 * tokens(sent) - 500 < sent[name] < 32_760
        assert answer.headers["x-penstock-lowered"] == f"{name}={sent[name]}"


async def test_a_limit_for_which_there_is_room_stays_as_it_is_and_a_record_names_a_lowered_one(lab: Lab) -> None:
    client = await lab.client(config(lab, f"window: {WINDOW}"))
    answer = await client.chat(model="a-model", messages=TALK, max_tokens=20_000)
    assert json.loads(lab.behind.last.body)["max_tokens"] == 20_000
    assert "x-penstock-lowered" not in answer.headers
    answer = await client.chat(model="a-model", messages=TALK[-1:], max_tokens=40_000)
    assert (await client.record(answer))["lowered"] == f"max_tokens={json.loads(lab.behind.last.body)['max_tokens']}"


async def test_a_later_round_of_internal_tools_has_room_for_its_answer(lab: Lab) -> None:
    """What the tools brought is part of its prompt."""
    rounds: list[int] = []
    window = 8192

    async def model(behind: Upstream, received: Received, writer: asyncio.StreamWriter) -> None:
        body = json.loads(received.body)
        assert tokens(body) + body["max_tokens"] <= window
        rounds.append(body["max_tokens"])
        await recalling()(behind, received, writer)

    lab.behind.respond = model
    client = await lab.client(config(lab, f"window: {window}"))
    answer = await client.chat(model="a-model", messages=working(7), tools=TOOLS, max_tokens=32_000)
    assert answer.status == 200, answer
    first, second = rounds
    assert second < first


@pytest.mark.parametrize("messages", [TALK[-1:], TALK], ids=["short", "long"])
async def test_ollama_gets_the_limit_as_it_is(lab: Lab, messages: list[Any]) -> None:
    """It answers until its window is full, and refuses nothing."""
    async with fake_ollama() as fake:
        client = await lab.client(config(lab, ollama=fake.url))
        answer = await client.chat(model="qwen3:8b", messages=messages, max_tokens=32_000)
    assert (answer.status, "x-penstock-lowered" in answer.headers) == (200, False)
    sent = fake.bodies[-1]
    assert [each["content"] for each in sent["messages"]] == [each["content"] for each in messages]
    assert sent["options"]["num_predict"] == 32_000
